"""Merging and removal of casts.

``cast(cast(x)) -> cast(x)`` if the first cast is lossless. The second cast then rounds and saturates the same values as
without the first one. Both are removed if the second one casts back to the type of x.
"""

from __future__ import annotations

from tpuconvert.optimizer.engine.annotations import is_interchangeable
from tpuconvert.optimizer.engine.engine import Replacement, Skip, rule
from tpuconvert.optimizer.engine.node_properties import operand
from tpuconvert.optimizer.engine.pattern import Match, p
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.graph.legality import Status, check
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.types import F16, F32, Chip, DType

_DIGITS = {F32: 24, F16: 11}
"""Number of significand bits: the floating-point type represents every integer up to 2^bits in magnitude exactly."""


def is_lossless_cast(narrow: DType, wide: DType) -> bool:
    """Return True if ``wide`` represents every value of ``narrow`` exactly."""
    if narrow is wide:
        return True
    if narrow.is_float:
        return wide is F32
    if wide.is_float:
        return bool(max(-narrow.min, narrow.max) <= 2 ** _DIGITS[wide])
    return wide.min <= narrow.min and narrow.max <= wide.max


@rule(p(Cast, p(Cast, "x", name="first"), name="second"), stage="canonicalize")
def merge_casts(graph: Graph, m: Match) -> Replacement:
    """``cast(cast(x)) -> cast(x)`` if the first cast is lossless."""
    if not is_lossless_cast(m.x.dtype, m.first.output.dtype):
        return Skip("the first cast rounds or saturates")
    if is_interchangeable(m.x, m.second.output):
        return m.x  # type: ignore[no-any-return]  # bound by the pattern
    if m.x.dtype is m.second.output.dtype:
        return Skip("it changes the quantization")
    if any(_takes(chip, m.first) and _takes(chip, m.second) and not _takes(chip, m.second, m.x) for chip in Chip):
        return Skip("a chip has both casts, but not the merged one")
    return graph.add(m.second.op, m.x)


def _takes(chip: Chip, cast: Node, x: Value | None = None) -> bool:
    """Return True if a chip supports a cast, by default of its own operand."""
    return check(cast.op, chip, [(x or operand(cast)).type], [cast.output.type]).status is not Status.ILLEGAL


def _keeps_type(node: Node) -> bool:
    return operand(node).dtype is node.output.dtype


@rule(p(Cast, "x", name="op", where=_keeps_type), stage="canonicalize")
def remove_same_cast(graph: Graph, m: Match) -> Replacement:
    """Remove a cast to the type that its operand already has."""
    return m.x if is_interchangeable(m.x, m.op.output) else Skip("it changes the quantization")
