"""The written order of the optimizer's passes."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TypedDict

from tpuconvert.optimizer.constant_folding import fold_constants
from tpuconvert.optimizer.cse import share_constants, share_nodes
from tpuconvert.optimizer.engine import Candidates, Trace, run_rules
from tpuconvert.optimizer.registry import former_names, rule_names, rules_of
from tpuconvert.optimizer.rule_order import ORDER
from tpuconvert.schema.errors import InternalError, UsageError
from tpuconvert.schema.graph import Graph
from tpuconvert.schema.types import Chip

STAGES = ("canonicalize", "layout", "fold", "fuse")
"""Rule stages in running order. All of them run again until a whole round changes nothing."""


@dataclass(frozen=True)
class Pass:
    """One walk over the graph: a function of the whole graph, or the rules of a stage.

    ``run`` changes a graph, notes in the trace what it did, and returns how much that was. With a number as its third
    argument it stops after so many firings, where it consists of rules. ``rules`` are their names.
    """

    name: str
    run: Callable[[Graph, Trace, int | None], int]
    rules: tuple[str, ...] = ()


class Observer:
    """Called around every pass; this one does nothing."""

    def before(self, step: Pass, graph: Graph) -> None:
        """The pass is about to run."""

    def after(self, step: Pass, graph: Graph, fired: Collection[str]) -> None:
        """The pass has changed the graph, by firing these rules; or by itself, and then ``fired`` has its own name."""

    def finished(self) -> None:
        """All passes have come to an end."""


def passes(disabled: Collection[str] = (), chip: Chip = Chip.BM1686) -> list[Pass]:
    """The passes in running order, without those and without the rules that are named in ``disabled``.

    Args:
        disabled: names of rules and passes.
        chip: the target, whose arithmetic folds constants.

    Raises:
        UsageError: a name that there is not, with the nearest that there is.
    """
    check_names(disabled)
    found = [*_whole(chip), *(_stage(stage, disabled) for stage in STAGES)]
    return [step for step in found if step.name not in disabled]


def check_names(names: Collection[str]) -> None:
    """See that all rules and passes of these names exist.

    Raises:
        UsageError: one does not; the message has the nearest that does.
    """
    known = known_names() if names else ()
    for name in names:
        if name not in known:
            raise unknown_name(name, known)


def resolve_names(names: Iterable[str]) -> tuple[str, ...]:
    """Check names of rules and passes. Replace the former name of a rule by its current one, with a FutureWarning.

    Raises:
        UsageError: a name does not exist; the message has the nearest that does.
    """
    resolved = []
    for name in names:
        current = former_names().get(name, name)
        if current != name:
            note = f"rule '{name}' is now called '{current}'; the next version no longer accepts the old name"
            warnings.warn(note, FutureWarning, stacklevel=2)
        resolved.append(current)
    check_names(resolved)
    return tuple(resolved)


def known_names() -> list[str]:
    """The names of all passes and rules, those of later stages included."""
    return [*(step.name for step in _whole()), *STAGES, *rule_names()]


class PassRow(TypedDict):
    """A line of ``tpuconvert passes``: a pass, or one rule of it; its place in the running order and what it does."""

    order: int
    name: str
    rule: str
    about: str


def describe_passes() -> list[PassRow]:
    """All passes in running order, with the rules of each in the order in which they are tried.

    The last stages belong to the conversion for a chip, and to quantization.
    """
    rows = [
        PassRow(order=order, name=step.name, rule="", about=_first_sentence(step.run))
        for order, step in enumerate(_whole(), start=1)
    ]
    for order, stage in enumerate(ORDER, start=len(rows) + 1):
        rows += [
            PassRow(order=order, name=stage, rule=item.name, about=_first_sentence(item.apply))
            for item in rules_of(stage)
        ]
    return rows


def _first_sentence(function: Callable[..., object]) -> str:
    """The first paragraph of a function's docstring, on one line."""
    return " ".join((function.__doc__ or "").split("\n\n")[0].split())


def unknown_name(name: str, known: Collection[str]) -> UsageError:
    """The error for a rule or pass that does not exist."""
    import difflib  # for whoever has mistyped something

    alike = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean '{alike[0]}'?" if alike else "tpuconvert passes lists all of them"
    return UsageError(f"there is no rule or pass '{name}'", hint=hint)


def optimize(
    graph: Graph,
    trace: Callable[[str], None] | None = None,
    *,
    chip: Chip = Chip.BM1686,
    disabled: Collection[str] = (),
    observers: Sequence[Observer] = (),
) -> Trace:
    """Simplify a float graph in place; what it computes stays the same up to float rounding.

    Args:
        graph: with or without quantization annotations; annotated values keep theirs.
        trace: called with one line per rule and outcome.
        chip: the target: what is computed of constants is what this chip computes.
        disabled: names of rules and passes that are not to run.
        observers: called around every pass, in this order.

    Returns:
        How often every rule fired or was skipped.

    Raises:
        InternalError: when the rules do not come to an end.
        UsageError: an unknown name in ``disabled``.
    """
    counts = Trace()
    steps = passes(disabled, chip)
    once = [step for step in steps if step.name == _DEAD]
    repeated = [step for step in steps if step.name != _DEAD]
    rounds = len(graph) + 10
    for step in once:
        _run(step, graph, counts, observers)
    while sum(_run(step, graph, counts, observers) for step in repeated):
        rounds -= 1
        if rounds == 0:
            raise InternalError(f"the stages undo each other's work: {counts.fired.most_common(5)}")
    for step in once:
        _run(step, graph, counts, observers)
    graph.sort()
    for observer in observers:
        observer.finished()
    if trace is not None:
        for line in counts.lines():
            trace(line)
    return counts


def _run(step: Pass, graph: Graph, counts: Trace, observers: Sequence[Observer]) -> int:
    before = Counter(counts.fired)
    for observer in observers:
        observer.before(step, graph)
    changes = step.run(graph, counts, None)
    if changes:
        for observer in observers:
            observer.after(step, graph, sorted(counts.fired - before))
    return changes


def _remove_dead_nodes(graph: Graph, counts: Trace, _most: int | None) -> int:
    """Nodes and constants that no output depends on go."""
    return _counted(_DEAD, counts, graph.prune())


def _folding(chip: Chip) -> Callable[[Graph, Trace, int | None], int]:
    def fold(graph: Graph, counts: Trace, _most: int | None) -> int:
        """Nodes of constants become constants, as long as those are not too large."""
        folded, left = fold_constants(graph, chip=chip)
        for reason in left:
            counts.note("fold_constants", reason)
        return _counted("fold_constants", counts, folded)

    return fold


def _share_constants(graph: Graph, counts: Trace, _most: int | None) -> int:
    """Constants of equal bytes become one."""
    return _counted("share_constants", counts, share_constants(graph))


def _share_nodes(graph: Graph, counts: Trace, _most: int | None) -> int:
    """Nodes of one operator on the same operands become one."""
    return _counted("share_nodes", counts, share_nodes(graph))


def _counted(name: str, counts: Trace, changes: int) -> int:
    counts.fired[name] += changes
    return changes


_DEAD = "remove_dead_nodes"


def _whole(chip: Chip = Chip.BM1686) -> tuple[Pass, ...]:
    """Passes over the whole graph. Dead nodes are removed first and last, the rest every round."""
    return (
        Pass(_DEAD, _remove_dead_nodes),
        Pass("fold_constants", _folding(chip)),
        Pass("share_constants", _share_constants),
        Pass("share_nodes", _share_nodes),
    )


def _stage(stage: str, disabled: Collection[str]) -> Pass:
    rules = [item for item in rules_of(stage) if item.name not in disabled]
    candidates = Candidates(rules)  # of all rounds
    names = tuple(item.name for item in rules)
    return Pass(stage, lambda graph, counts, most: run_rules(graph, candidates, counts, most), names)
