"""What the optimizer did and what it left, for ``--trace``."""

from __future__ import annotations

from collections import Counter

from tpuconvert.schema.graph import Node


class Trace:
    """How often every rule fired, and which matches it declined for which reason.

    A match that is looked at several times counts once, and no longer once its node is gone or the rule has fired on
    it: what is left is what the graph still holds. ``last`` is the rule that fired last, and the name of its node.
    """

    def __init__(self) -> None:
        self.fired: Counter[str] = Counter()
        self.last = ("", "")
        self._declined: dict[Node, dict[str, str]] = {}
        self._notes: dict[tuple[str, str], None] = {}

    @property
    def skipped(self) -> Counter[tuple[str, str]]:
        """The number of declined matches by rule and reason."""
        found = Counter((rule, reason) for reasons in self._declined.values() for rule, reason in reasons.items())
        found.update(self._notes.keys())
        return found

    def fire(self, rule: str, node: Node) -> None:
        """Count a rule that rewrote a node."""
        self.fired[rule] += 1
        self.last = (rule, node.name)
        self._declined.get(node, {}).pop(rule, None)

    def decline(self, rule: str, node: Node, reason: str) -> None:
        """Note that a rule left a node as it is."""
        self._declined.setdefault(node, {})[rule] = reason

    def note(self, rule: str, reason: str) -> None:
        """Note something that a pass left, said in full; the same sentence counts once."""
        self._notes[rule, reason] = None

    def forget(self, node: Node) -> None:
        """A node is gone."""
        self._declined.pop(node, None)

    def lines(self) -> list[str]:
        """One line per rule and outcome, in alphabetical order."""
        rows = [(rule, f"fired {count}") for rule, count in self.fired.items() if count]
        rows += [(rule, f"skipped {count}: {reason}") for (rule, reason), count in self.skipped.items()]
        return [f"{rule}: {outcome}" for rule, outcome in sorted(rows)]
