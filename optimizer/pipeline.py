"""The passes of the optimizer and their order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypedDict

from tpuconvert.optimizer.constant_folding import fold_constants
from tpuconvert.optimizer.cse import share_constants, share_nodes
from tpuconvert.optimizer.engine.engine import Candidates, Trace, run_rules
from tpuconvert.optimizer.engine.pattern import Pattern
from tpuconvert.optimizer.engine.registry import RuleFunction, load_rules, rule, rule_names, rules_of
from tpuconvert.optimizer.rule_order import ORDER
from tpuconvert.schema.errors import InternalError, UsageError
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.text.spelling import did_you_mean
from tpuconvert.schema.types import Chip
from tpuconvert.schema.user_code import note_definition

STAGES = ("canonicalize", "layout", "fold", "fuse")
"""The stages of the optimizer in order. They run in rounds until a round changes nothing."""


@dataclass(frozen=True)
class Pass:
    """A pass: a function that changes the whole graph, or the rules of a stage.

    ``run(graph, trace, limit)`` changes the graph, records the changes and declined matches in the trace, and returns
    the number of changes. A stage fires at most ``limit`` times; None means unlimited. ``rules`` are the names of the
    rules.
    """

    name: str
    run: Callable[[Graph, Trace, int | None], int]
    rules: tuple[str, ...] = ()


class Observer:
    """Base class of objects that are notified before and after every pass. Its methods do nothing."""

    def before(self, step: Pass, graph: Graph) -> None:
        """Handle the start of a pass."""

    def after(self, step: Pass, graph: Graph, fired: Collection[str]) -> None:
        """Handle the end of a pass that changed the graph. ``fired`` lists the rules that fired, or the pass."""

    def finish(self) -> None:
        """Handle the end of the last pass."""


def passes(disabled: Collection[str] = (), chip: Chip = Chip.BM1686) -> list[Pass]:
    """The passes in the order in which they run, without disabled passes and rules.

    Args:
        disabled: names of rules and passes.
        chip: the target, whose arithmetic is used to fold constants.

    Raises:
        UsageError: a name does not exist; the message has the nearest that does.
    """
    check_names(disabled)
    steps = [*_whole(chip), *(_stage(stage, disabled) for stage in STAGES)]
    return [step for step in steps if step.name not in disabled]


def check_names(names: Collection[str]) -> None:
    """Check that all rules and passes of these names exist.

    Raises:
        UsageError: a name does not exist; the message has the nearest that does.
    """
    valid_names = known_names() if names else ()
    for name in names:
        if name not in valid_names:
            raise unknown_name(name, valid_names)


def known_names() -> list[str]:
    """The names of all passes and rules, including later stages."""
    return [*(step.name for step in _whole()), *STAGES, *rule_names()]


class PassRow(TypedDict):
    """One row of ``tpuconvert passes``: a pass or one of its rules, its position in the order, and its description."""

    order: int
    name: str
    rule: str
    about: str


def describe_passes() -> list[PassRow]:
    """All passes in the order in which they run, with the rules of each in the order in which they are tried.

    The last stages belong to the lowering for a chip and to quantization.
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


def unknown_name(name: str, names: Collection[str]) -> UsageError:
    """Return the error for a rule or pass that does not exist."""
    hint = did_you_mean(name, names) or "tpuconvert passes lists all of them"
    return UsageError(f"there is no rule or pass '{name}'", hint=hint)


def optimize(
    graph: Graph,
    trace: Callable[[str], None] | None = None,
    *,
    chip: Chip = Chip.BM1686,
    disabled: Collection[str] = (),
    observers: Sequence[Observer] = (),
) -> Trace:
    """Simplify a float graph in place. Its results stay the same up to float rounding.

    Args:
        graph: with or without quantization annotations; annotated values keep theirs.
        trace: called with one line per rule and outcome.
        chip: the target, whose arithmetic is used to fold constants.
        disabled: names of rules and passes that do not run.
        observers: called around every pass, in this order.

    Returns:
        How often every rule fired or declined.

    Raises:
        InternalError: the rules do not terminate.
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
        observer.finish()
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
    """Remove nodes and constants that no output depends on."""
    return _count(_DEAD, counts, graph.prune())


def _folding(chip: Chip) -> Callable[[Graph, Trace, int | None], int]:
    def fold(graph: Graph, counts: Trace, _most: int | None) -> int:
        """Replace nodes whose operands are all constant by their results, up to a size limit."""
        folded, left = fold_constants(graph, chip=chip)
        for reason in left:
            counts.note("fold_constants", reason)
        return _count("fold_constants", counts, folded)

    return fold


def _share_constants(graph: Graph, counts: Trace, _most: int | None) -> int:
    """Merge constants with equal bytes."""
    return _count("share_constants", counts, share_constants(graph))


def _share_nodes(graph: Graph, counts: Trace, _most: int | None) -> int:
    """Merge nodes with the same operator and operands."""
    return _count("share_nodes", counts, share_nodes(graph))


def _count(name: str, counts: Trace, changes: int) -> int:
    counts.fired[name] += changes
    return changes


_DEAD = "remove_dead_nodes"


def _whole(chip: Chip = Chip.BM1686) -> tuple[Pass, ...]:
    """Return the passes. Dead nodes are removed first and last; the other passes run in rounds."""
    return (
        Pass(_DEAD, _remove_dead_nodes),
        Pass("fold_constants", _folding(chip)),
        Pass("share_constants", _share_constants),
        Pass("share_nodes", _share_nodes),
    )


def _stage(stage: str, disabled: Collection[str]) -> Pass:
    rules = [item for item in rules_of(stage) if item.name not in disabled]
    candidates = Candidates(rules)  # Created once for all rounds.
    names = tuple(item.name for item in rules)
    return Pass(stage, lambda graph, counts, limit: run_rules(graph, candidates, counts, limit), names)


def register_rule(*patterns: Pattern, stage: str = "fuse") -> Callable[[RuleFunction], RuleFunction]:
    """Decorator that adds an optimizer rule. Create its patterns with ``tpuconvert.pattern``.

    Args:
        patterns: patterns of the rule, tried in this order.
        stage: stage in which the rule runs: canonicalize, layout, fold or fuse.

    Raises:
        UsageError: there is no such stage, or another rule has the function's name.

    """
    load_rules()  # load the package's own rules first, so that a clash of names is reported for the plugin
    if stage not in STAGES:
        raise UsageError(f"there is no stage '{stage}'", hint=f"one of {', '.join(STAGES)}")

    def register(function: RuleFunction) -> RuleFunction:
        note_definition(function)
        try:
            return rule(*patterns, stage=stage)(function)
        except ValueError as error:
            raise UsageError(str(error), hint="give the rule's function a name with a prefix of your own") from error

    return register
