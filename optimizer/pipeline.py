"""The written order of the optimizer's passes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import TypedDict

from tpuconvert.optimizer.constant_folding import fold_constants
from tpuconvert.optimizer.engine import RewriteRule, RuleFunction, Trace, rules_of, run_rules
from tpuconvert.optimizer.sharing import share_constants, share_nodes
from tpuconvert.schema.errors import InternalError, UsageError
from tpuconvert.schema.graph import Graph
from tpuconvert.schema.light_dataclass import dataclass

STAGES = ("canonicalize", "layout", "fold", "fuse")
"""Rule stages in running order. All of them run again until a whole round changes nothing."""


@dataclass(frozen=True)
class Pass:
    """One walk over the graph: a function of the whole graph, or the rules of a stage.

    ``run`` changes a graph, notes in the trace what it did, and returns how much that was. With a number as its third
    argument it stops after so many firings, where it consists of rules.
    """

    name: str
    run: Callable[[Graph, Trace, int | None], int]
    rules: tuple[RewriteRule, ...] = ()


class Observer:
    """Called around every pass; this one does nothing."""

    def before(self, step: Pass, graph: Graph) -> None:
        """The pass is about to run."""

    def after(self, step: Pass, graph: Graph, fired: Collection[str]) -> None:
        """The pass has changed the graph, by firing these rules; or by itself, and then ``fired`` has its own name."""

    def finished(self) -> None:
        """All passes have come to an end."""


def passes(disabled: Collection[str] = ()) -> list[Pass]:
    """The passes in running order, without those and without the rules that are named in ``disabled``.

    Raises:
        UsageError: a name that there is not, with the nearest that there is.
    """
    check_names(disabled)
    found = [*_WHOLE, *(_stage(stage, disabled) for stage in STAGES)]
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


def known_names() -> list[str]:
    """The names of all passes and rules, those of later stages included."""
    whole = [step.name for step in _WHOLE]
    rules = [item.name for stage in STAGES for item in rules_of(stage)]
    return [*whole, *STAGES, *rules, *(function.__name__ for _, function in _later())]


def _later() -> list[tuple[str, RuleFunction]]:
    """What follows when a model is converted: forms of the chip, and preparations for quantization."""
    from tpuconvert.optimizer import chip_forms
    from tpuconvert.optimizer.quantize.prepare import STAGE as PREPARE
    from tpuconvert.optimizer.quantize.take_apart import STAGE as TAKE_APART

    forms = [(chip_forms.STAGE, function) for _, function in chip_forms.FORMS]
    return forms + [(stage, item.apply) for stage in (TAKE_APART, PREPARE) for item in rules_of(stage)]


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
    rows: list[PassRow] = []
    for order, step in enumerate(passes(), start=1):
        if not step.rules:
            rows.append(PassRow(order=order, name=step.name, rule="", about=_first_sentence(step.run)))
        rows += [
            PassRow(order=order, name=step.name, rule=item.name, about=_first_sentence(item.apply))
            for item in step.rules
        ]
    later = _later()
    stages = list(dict.fromkeys(stage for stage, _ in later))
    return rows + [
        PassRow(
            order=1 + rows[-1]["order"] + stages.index(stage),
            name=stage,
            rule=function.__name__,
            about=_first_sentence(function),
        )
        for stage, function in later
    ]


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
    disabled: Collection[str] = (),
    observers: Sequence[Observer] = (),
) -> Trace:
    """Simplify a float graph in place; what it computes stays the same up to float rounding.

    Args:
        graph: with or without quantization annotations; annotated values keep theirs.
        trace: called with one line per rule and outcome.
        disabled: names of rules and passes that are not to run.
        observers: called around every pass, in this order.

    Returns:
        How often every rule fired or was skipped.

    Raises:
        InternalError: when the rules do not come to an end.
        UsageError: an unknown name in ``disabled``.
    """
    counts = Trace()
    steps = passes(disabled)
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


def _fold_constants(graph: Graph, counts: Trace, _most: int | None) -> int:
    """Nodes of constants become constants, as long as those are not too large."""
    folded, left = fold_constants(graph)
    for reason in left:
        counts.note("fold_constants", reason)
    return _counted("fold_constants", counts, folded)


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
_WHOLE = (
    Pass(_DEAD, _remove_dead_nodes),
    Pass("fold_constants", _fold_constants),
    Pass("share_constants", _share_constants),
    Pass("share_nodes", _share_nodes),
)
"""What looks at the whole graph instead of a pattern. Dead nodes are removed first and last, the rest every round."""


def _stage(stage: str, disabled: Collection[str]) -> Pass:
    rules = tuple(item for item in rules_of(stage) if item.name not in disabled)
    return Pass(stage, lambda graph, counts, most: run_rules(graph, rules, counts, most), rules)
