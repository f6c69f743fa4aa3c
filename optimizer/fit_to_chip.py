"""Pass that lowers float operators that a chip does not support, with the rules of ``rules.chip_lowering``.

This is the first half of legalization; the other half, ``optimizer.quantize.legalize``, lowers quantized nodes to
integer operators. The rules are tried only on nodes that are illegal on the target chip.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from tpuconvert.optimizer.engine.engine import run_rules
from tpuconvert.optimizer.engine.registry import rule_named, rules_of
from tpuconvert.optimizer.engine.trace import Trace
from tpuconvert.schema.graph.graph import Graph, Node
from tpuconvert.schema.graph.legality import Status, check_use
from tpuconvert.schema.types import F32, Chip

STAGE = "chip lowering"

_SIMPLIFICATIONS = (
    "merge_adjacent_slices",
    "merge_reshapes",
    "remove_shape_noop",
    "hoist_slice_above_concat",
    "merge_permutes",
    "simplify_data_movement",
)
"""Rules that simplify the lowered nodes, in the order in which they are tried. All of them only move elements."""


def fit_to_chip(
    graph: Graph, chip: Chip, trace: Callable[[str], None] | None = None, disabled: Collection[str] = ()
) -> Trace:
    """Replace nodes that a chip cannot run by supported operators, in place.

    Args:
        graph: optimized float graph, with or without quantization annotations.
        chip: the target.
        trace: called with one line per rule and outcome.
        disabled: names of rules that do not run.

    Returns:
        How often every rule fired or declined, including the rules that simplify the result. A node that no rule lowers
        stays; ``schema.legality`` reports it.
    """
    counts = Trace()

    def is_illegal(node: Node) -> bool:
        is_float = all(value.dtype is F32 for value in node.outputs)
        return is_float and check_use(node, chip).status is Status.ILLEGAL

    rules = [item.only(is_illegal) for item in rules_of(STAGE)]
    rules += [rule_named(name) for name in _SIMPLIFICATIONS]
    if run_rules(graph, [item for item in rules if item.name not in disabled], counts):
        graph.prune()
    if trace is not None:
        for line in counts.lines():
            trace(line)
    return counts
