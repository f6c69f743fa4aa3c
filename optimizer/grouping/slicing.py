"""Tiling rules: the tile of each operand that a node needs for a tile of its results.

A tile is an interval of indices along one of the tiled axes: N, C and H are axes 0, 1 and 2 of every tensor in a group,
whatever its rank. The rule of an axis maps an interval of the results to an interval of each operand. The rule is None
if the results cannot be tiled along the axis.

Operators without a rule can be in a group; the group then has a single tile.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from tpuconvert.schema.definition.extents import normalize_axis
from tpuconvert.schema.definition.op import Op, Trait
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.batch_norm import BatchNorm
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.convolution.convolution_params import ConvolutionParams
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.pad import Pad
from tpuconvert.schema.ops.pool import Pool
from tpuconvert.schema.ops.pool_int import PoolInt
from tpuconvert.schema.ops.quantization.lut import Lut
from tpuconvert.schema.ops.reduce import Reduce
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.ops.softmax_int import SoftmaxInt
from tpuconvert.schema.ops.upsample import Upsample

N, C, H = AXES = 0, 1, 2


class Cut(NamedTuple):
    """Map from an interval of the results to an interval of an operand.

    The interval of the operand is from (start * step + first) / divisor to ((stop-1) * step + last) / divisor, both
    rounded down and inclusive, and clipped to the extent of the operand. ``axis`` is the axis of the operand, which for
    a weight differs from the axis of the results.
    """

    axis: int
    step: int = 1
    first: int = 0
    last: int = 0
    divisor: int = 1

    def of(self, start: Any, stop: Any, extent: int) -> tuple[Any, Any]:
        """Return the needed interval [start, stop) of an operand. The bounds are integers or integer arrays."""
        low = (start * self.step + self.first) // self.divisor
        high = ((stop - 1) * self.step + self.last) // self.divisor + 1
        return np.maximum(low, 0), np.minimum(high, extent)


Rule = tuple[Cut | None, ...] | None
"""Needed interval of each operand; None for an absent operand or one that is read completely. If the rule itself is
None, the results cannot be tiled along the axis."""


def row_multiple(node: Node) -> int:
    """Number of rows of which the bounds of a result tile must be a multiple."""
    return node.op.scale if isinstance(node.op, Upsample) else 1


def rules(node: Node) -> tuple[Rule, Rule, Rule]:
    """Return the rules of a node for N, C and H. All extents must be static."""
    op = node.op
    return _rule(op, node, N), _rule(op, node, C), _rule(op, node, H)


@functools.singledispatch
def _rule(op: Op, node: Node, axis: int) -> Rule:
    """Rule of an operator along one axis."""
    return _alike(node, axis) if Trait.ELEMENTWISE in op.traits else None


def _shape(value: Value) -> tuple[int, ...]:
    return value.type.static_shape


def _extent(value: Value, axis: int) -> int:
    """Extent along an axis; 1 if the value has no such axis."""
    return _shape(value)[axis] if axis < value.type.rank else 1


def _alike(node: Node, axis: int) -> Rule:
    """Rule of an element-wise operator: each operand has the extent of the result along the axis, or is broadcast."""
    result = node.outputs[0]
    if axis >= result.type.rank:
        return None
    cuts: list[Cut | None] = []
    for value in node.inputs:
        if value is None or all(extent == 1 for extent in _shape(value)):
            cuts.append(None)
        elif value.type.rank != result.type.rank:
            return None
        else:
            cuts.append(Cut(axis) if _extent(value, axis) == _extent(result, axis) else None)
    return tuple(cuts)


@_rule.register
def _batch_norm(op: BatchNorm, node: Node, axis: int) -> Rule:
    """Only the first operand has the shape of the result. The others are per-channel: C is not tiled."""
    if axis == C and len(node.inputs) > 1:
        return None
    return _moving(node, axis)


def _moving(node: Node, axis: int) -> Rule:
    """Rule of operators whose first operand has the same tiles as the result; other operands are read completely."""
    if axis >= node.outputs[0].type.rank:
        return None
    return (Cut(axis), *[None] * (len(node.inputs) - 1))


@_rule.register
def _convolution(op: ConvolutionParams, node: Node, axis: int) -> Rule:
    x, w = node.inputs[:2]
    assert x is not None and w is not None
    if axis == N:
        return _moving(node, axis)
    if axis == C:
        return _output_channels(node, op, x, w)
    reach = op.dh * (_shape(w)[2] - 1) + 1
    if op.weight_layout == "OIHW":
        if max(op.pad_h_t, op.pad_h_b) >= reach:  # A window, and with it a tile, could contain only padding.
            return None
        return (Cut(H, op.stride_h, -op.pad_h_t, reach - 1 - op.pad_h_t), *[None] * (len(node.inputs) - 1))
    if reach < op.stride_h or op.pad_h_b < 0:  # Some rows of the result depend on no row of x.
        return None
    first = op.pad_h_t - reach + op.stride_h  # rounded up
    return (Cut(H, 1, first, op.pad_h_t, op.stride_h), *[None] * (len(node.inputs) - 1))


def _output_channels(node: Node, op: ConvolutionParams, x: Value, w: Value) -> Rule:
    """Rule for C: a tile of the filters needs all of x, except in a depthwise convolution: there the same channels."""
    # In other layouts, and in computed weights, a tile of the filters is not a tile along axis 0.
    if op.weight_layout != "OIHW" or not w.is_constant:
        return None
    is_depthwise = _shape(x)[C] == _shape(w)[0] == op.groups
    if op.groups != 1 and not is_depthwise:
        return None
    bias = (Cut(C),) if len(node.inputs) > 2 and node.inputs[2] is not None else (None,) * (len(node.inputs) - 2)
    return (Cut(C) if is_depthwise else None, Cut(0), *bias)


@_rule.register
def _pool(op: Pool, node: Node, axis: int) -> Rule:
    if axis != H:
        return _moving(node, axis)
    if op.is_global_pooling:
        return (None,)
    return _windows(node, op.kernel_h, op.stride_h, op.pad_h, op.pad_h + op.pad_h_offset)


@_rule.register
def _pool_int(op: PoolInt, node: Node, axis: int) -> Rule:
    if axis != H:
        return _moving(node, axis)
    if not op.is_avg_pooling:  # The indices of maxima are relative to the first row of the plane.
        return None
    return _windows(node, op.kernel_h, op.stride_h, op.pad_h_t, op.pad_h_b)


def _windows(node: Node, kernel: int, stride: int, before: int, after: int) -> Rule:
    x, y = node.inputs[0], node.outputs[0]
    assert x is not None
    rows = before + _extent(x, H) + after
    # A tile must not be a window of padding only, nor a last window of ceil mode that exceeds the padding.
    if max(before, after) >= kernel or (_extent(y, H) - 1) * stride + kernel > rows:
        return None
    return (Cut(H, stride, -before, kernel - 1 - before),)


@_rule.register
def _reduce(op: Reduce, node: Node, axis: int) -> Rule:
    x = node.inputs[0]
    assert x is not None
    reduced = {normalize_axis(op.name, item, x.type) for item in op.axis_list[: op.axis_num]}
    if axis in reduced and op.keep_dims:
        return (None,)
    if axis >= node.outputs[0].type.rank or (not op.keep_dims and min(reduced, default=axis + 1) <= axis):
        return None
    return (Cut(axis),)


@_rule.register
def _along_one_axis(op: Softmax | Concat, node: Node, axis: int) -> Rule:
    """No tiling along the axis of the operator, because its elements depend on each other."""
    x = node.inputs[0]
    assert x is not None
    return _across(node, axis, normalize_axis(op.name, op.axis, x.type))


@_rule.register
def _along_channels(op: SoftmaxInt, node: Node, axis: int) -> Rule:
    """No tiling along C, because channels depend on each other."""
    return _across(node, axis, C)


def _across(node: Node, axis: int, along: int) -> Rule:
    x = node.inputs[0]
    assert x is not None
    return None if axis == along or axis >= x.type.rank else tuple(Cut(axis) for _ in node.inputs)


@_rule.register
def _extract(op: Extract, node: Node, axis: int) -> Rule:
    if axis >= len(op.start):
        return None
    return (Cut(axis, op.stride[axis], op.start[axis], op.start[axis]),)


@_rule.register
def _pad(op: Pad, node: Node, axis: int) -> Rule:
    is_padded = any(op.paddings[2 * axis : 2 * axis + 2])
    return None if is_padded or axis >= len(op.paddings) // 2 else (Cut(axis),)


@_rule.register
def _upsample(op: Upsample, node: Node, axis: int) -> Rule:
    return (Cut(axis, divisor=op.scale if axis == H else 1),)


@_rule.register
def _lut(op: Lut, node: Node, axis: int) -> Rule:
    """The operand has the tiles of the result; the lookup table is read completely."""
    return _moving(node, axis)
