"""Record of what the optimizer did and declined, for ``--trace``."""

from __future__ import annotations

from collections import Counter

from tpuconvert.schema.graph.graph import Node


class Trace:
    """The number of firings of every rule, and the matches that it declined, with the reason.

    A declined match counts once, however often it is tried. It no longer counts once its node is removed or the rule
    fires on it. ``last`` is the rule that fired last and the name of its node.
    """

    def __init__(self) -> None:
        self.fired: Counter[str] = Counter()
        self.last = ("", "")
        self._declined: dict[Node, dict[str, str]] = {}
        self._notes: dict[tuple[str, str], None] = {}

    @property
    def skip_counts(self) -> Counter[tuple[str, str]]:
        """The number of declined matches by rule and reason."""
        counts = Counter((rule, reason) for reasons in self._declined.values() for rule, reason in reasons.items())
        counts.update(self._notes.keys())
        return counts

    def fire(self, rule: str, node: Node) -> None:
        """Record that a rule rewrote a node."""
        self.fired[rule] += 1
        self.last = (rule, node.name)
        self._declined.get(node, {}).pop(rule, None)

    def decline(self, rule: str, node: Node, reason: str) -> None:
        """Record the reason why a rule did not change a node."""
        self._declined.setdefault(node, {})[rule] = reason

    def note(self, rule: str, reason: str) -> None:
        """Record a reason why a pass left something unchanged, as a full sentence. Equal sentences count once."""
        self._notes[rule, reason] = None

    def forget(self, node: Node) -> None:
        """Drop the records of a removed node."""
        self._declined.pop(node, None)

    def lines(self) -> list[str]:
        """One line per rule and outcome, sorted."""
        rows = [(rule, f"fired {count}") for rule, count in self.fired.items() if count]
        rows += [(rule, f"skipped {count}: {reason}") for (rule, reason), count in self.skip_counts.items()]
        return [f"{rule}: {outcome}" for rule, outcome in sorted(rows)]
