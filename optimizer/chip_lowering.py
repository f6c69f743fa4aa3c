"""Float operators that a chip lacks, said with operators that it has: the first half of legalization.

The other half, ``optimizer.quantize.legalize``, makes the integer operators of a chip out of quantized nodes. A form is
tried only on nodes that are illegal on the target chip; everything else stays as it is. The forms are rules of a stage
of their own: ``rules.chip_lowering``, ``rules.interpolate_lowering``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from tpuconvert.optimizer.engine import run_rules
from tpuconvert.optimizer.registry import rule_named, rules_of
from tpuconvert.optimizer.trace import Trace
from tpuconvert.schema.graph import Graph, Node
from tpuconvert.schema.legality import Status, check_use
from tpuconvert.schema.types import F32, Chip

STAGE = "chip lowering"

_TIDY = (
    "merge_adjacent_slices",
    "merge_reshapes",
    "remove_shape_noop",
    "hoist_slice_above_concat",
    "merge_permutes",
    "simplify_data_movement",
)
"""Rules that put together what the expansion of neighbours has left: they move elements and know nothing of chips.
They are tried in this order, which is that of their stages."""


def fit_to_chip(
    graph: Graph, chip: Chip, trace: Callable[[str], None] | None = None, disabled: Collection[str] = ()
) -> Trace:
    """Replace nodes that a chip cannot run by forms that it can, in place.

    Args:
        graph: optimized float graph, with or without quantization annotations.
        chip: the target.
        trace: called with one line per form and outcome.
        disabled: names of forms that are not to be used.

    Returns:
        How often every form was used or declined, with the rules that tidy up behind them. A node without a form stays;
        ``schema.legality`` tells it.
    """
    counts = Trace()

    def is_illegal(node: Node) -> bool:
        is_float = all(value.dtype is F32 for value in node.outputs)
        return is_float and check_use(node, chip).status is Status.ILLEGAL

    rules = [item.only(is_illegal) for item in rules_of(STAGE)]
    rules += [rule_named(name) for name in _TIDY]
    if run_rules(graph, [item for item in rules if item.name not in disabled], counts):
        graph.prune()
    if trace is not None:
        for line in counts.lines():
            trace(line)
    return counts
