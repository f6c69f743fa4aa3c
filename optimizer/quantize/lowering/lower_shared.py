"""Lowerings that BM1684 and BM1686 share: data movement, lookup tables, clamps, maxima."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tpuconvert.optimizer.engine.node_properties import operand, operands
from tpuconvert.optimizer.quantize.lowering.lowering import (
    TFLITE,
    Declined,
    Lowered,
    Lowering,
    lowers,
    params_of,
    with_quant,
)
from tpuconvert.optimizer.quantize.traits import is_nearest_resize, positive_factor
from tpuconvert.schema.arithmetic.fixed_point import rhaz
from tpuconvert.schema.definition.op import Op, Trait
from tpuconvert.schema.errors import ResourceLimitError
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.convolution.conv_v2 import ConvV2
from tpuconvert.schema.ops.global_average_int import AverageForm, GlobalAverageInt
from tpuconvert.schema.ops.pad import Pad
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.ops.pool_int import OutCeilMode, PoolInt
from tpuconvert.schema.ops.space_to_batch import SpaceToBatch
from tpuconvert.schema.types import F32, I16, Arithmetic, Array, Chip, QuantParams, Scalar

_MOST_ONES = 1 << 26
"""Largest number of weights of a convolution that sums windows."""

INTEGER_CHIPS = (Chip.BM1684, Chip.BM1686)


_COPIES_INTEGERS = ("tflite", "tflite-single")
"""``Graph.rescale`` of sources whose data movement copies integers, even if the file gives the result another scale."""


def _moved_integers(lowering: Lowering, x: Value, params: QuantParams | None) -> Value:
    """Integers of an operand of data movement: at the scale of the result, or unchanged for a source that copies."""
    return lowering.quantized_value(x, None if lowering.rescale in _COPIES_INTEGERS else params)


@lowers(Trait.MOVES_INTEGERS, chips=INTEGER_CHIPS)
def move(node: Node, lowering: Lowering) -> Lowered:
    """Apply data movement to the integers, at the scale of the operand.

    If the source file gives several results different scales, each result is then rescaled.
    """
    x = operand(node)
    if lowering.rescale in _COPIES_INTEGERS or len({value.quant for value in node.outputs}) == 1:
        return lowering.moves(node.op, _moved_integers(lowering, x, result_params(node)), names=names_of(node))
    moved = lowering.moves(
        node.op, lowering.quantized_value(x), names=tuple(f"{name}:moved" for name in names_of(node))
    )
    if isinstance(moved, Declined):
        return moved
    pairs = zip(moved, node.outputs, strict=True)
    return tuple(lowering.change_params(with_quant(new, params_of(x)), params_of(old), old.name) for new, old in pairs)


@lowers("resize_nearest", "reshape_like", "reshape_by_formulas", chips=INTEGER_CHIPS)
def move_to_shape(node: Node, lowering: Lowering) -> Lowered:
    """Move the integers, at the scale of the operand. Only the shapes of the other operands are used."""
    x = _moved_integers(lowering, operand(node), result_params(node))
    extents = [lowering.float_value(value) for value in operands(node)[1:]]
    return lowering.moves(node.op, x, *extents, names=names_of(node))


@lowers("interpolate", chips=(Chip.BM1686,))
def interpolate(node: Node, lowering: Lowering) -> Lowered:
    """Select the integers, at the scale of the operand, as FLOAT32, which represents them exactly."""
    if not is_nearest_resize(node.op):
        return Declined("interpolated values are computed in floating point")
    params, name = result_params(node), node.output.name
    integers = _moved_integers(lowering, operand(node), params)
    wide = lowering.g.add(Cast(out_dtype=F32), integers, name=f"{name}:operand")
    selected = lowering.g.add(node.op, wide, name=f"{name}:float32")
    return (with_quant(lowering.g.add(Cast(out_dtype=params.dtype), selected, name=name), params),)


@lowers("space_to_batch", chips=INTEGER_CHIPS)
def space_to_batch(node: Node, lowering: Lowering) -> Lowered:
    """Apply the operator to the integers if the padding, which is the integer 0, equals the zero point."""
    assert isinstance(node.op, SpaceToBatch)
    if any(node.op.pad) and any(result_params(node).zero_point):
        return Declined("it pads with the integer 0, which is not the zero point")
    return move(node, lowering)


@lowers("copy", chips=INTEGER_CHIPS)
def copy(node: Node, lowering: Lowering) -> Lowered:
    """Requantize if the source file gives the result another scale; otherwise a copy is a no-op.

    ``Arithmetic.COPY`` keeps the integers.
    """
    x, params = operand(node), result_params(node)
    if params.arithmetic is Arithmetic.COPY:
        return (with_quant(lowering.g.add(node.op, lowering.quantized_value(x), name=node.output.name), params),)
    return (lowering.quantized_value(x, params),)


@lowers("concat", chips=INTEGER_CHIPS)
def concat(node: Node, lowering: Lowering) -> Lowered:
    """Requantize the operands to the scale of the result, then concatenate."""
    params = result_params(node)
    # If the result has per-channel scales, every operand already has the scales of its channels.
    target = None if params.axis is not None or _is_copied(lowering, params) else params
    values = [lowering.quantized_value(value, target) for value in operands(node)]
    return lowering.moves(node.op, *values, names=names_of(node))


def _is_copied(lowering: Lowering, params: QuantParams) -> bool:
    """Return True if the source's kernel copies 16-bit operands of any scales. With 8 bits, scales have to be equal."""
    return lowering.rescale in _COPIES_INTEGERS and params.dtype is I16


@lowers("max", "min", chips=INTEGER_CHIPS)
def select(node: Node, lowering: Lowering) -> Lowered:
    """Requantize the operands to the scale of the result, then take the maximum or minimum of the integers."""
    values = [_moved_integers(lowering, value, result_params(node)) for value in operands(node)]
    return lowering.moves(node.op, *values, names=names_of(node))


def average_then_rescale(node: Node, lowering: Lowering) -> Lowered:
    """Average at the operand's scale, then apply a table if the result has another scale."""
    x, params, name = operand(node), result_params(node), node.outputs[0].name
    assert isinstance(node.op, Pool)
    if node.op.is_ave_count_zero_pad and any(params_of(x).zero_point):
        return Declined("averages count padding, which is not zero at this zero point")
    pooled = lowering.moves(
        node.op, lowering.quantized_value(x), names=(name if params == x.quant else f"{name}:averaged",)
    )
    if isinstance(pooled, Declined):
        return pooled
    return (lowering.change_params(with_quant(pooled[0], params_of(x)), params, name),)


def global_average(node: Node, lowering: Lowering, form: AverageForm) -> Value:
    """Add the average of a plane with symbolic extents, which determine the divisor."""
    x, params = operand(node), result_params(node)
    own = params_of(x)
    op = GlobalAverageInt(
        operand_scales=own.scale,
        result_scale=max(params.scale),
        operand_zero_point=own.zero_point[0],
        result_zero_point=params.zero_point[0],
        form=form,
        out_dtype=params.dtype,
    )
    return lowering.g.add(op, lowering.quantized_value(x), name=node.name)


def lower_maximum(node: Node, lowering: Lowering) -> Lowered:
    """Apply max pooling to the integers at the scale of the result."""
    integers = _moved_integers(lowering, operand(node), result_params(node))
    return lowering.moves(node.op, integers, names=names_of(node))


def sum_windows(node: Node, lowering: Lowering, op: Conv | ConvV2, window: tuple[int, int], name: str) -> Value:
    """Return the sums over the windows of an average pooling, computed by a depthwise convolution with ones."""
    x, pool = operand(node), node.op
    channels = x.shape[1]
    assert isinstance(channels, int) and isinstance(pool, Pool)
    strides = (1, 1) if pool.is_global_pooling else (pool.stride_h, pool.stride_w)
    if channels * window[0] * window[1] > _MOST_ONES:
        raise ResourceLimitError(
            f"the weights of its window sums would have {channels} x {window[0]} x {window[1]} elements",
            file=lowering.g.file,
            node=node.name,
        )
    op = dataclasses.replace(op, stride_h=strides[0], stride_w=strides[1], groups=channels)
    ones = lowering.g.constant(np.ones((channels, 1, *window), np.int8), f"{node.name}:ones")
    return lowering.g.add(op, lowering.quantized_value(x), ones, name=name)


@lowers("pad", chips=INTEGER_CHIPS)
def pad(node: Node, lowering: Lowering) -> Lowered:
    """Pad the integers with the pad value, quantized at the operand's scale."""
    params = result_params(node)
    assert isinstance(node.op, Pad)
    integer = params.quantize(np.asarray(node.op.pad_val.value, dtype=np.float32))
    op = dataclasses.replace(node.op, pad_val=Scalar(params.dtype, int(integer)))
    return lowering.moves(op, _moved_integers(lowering, operand(node), params), names=names_of(node))


@lowers(Trait.LUT, chips=(Chip.BM1684,))
def unary(node: Node, lowering: Lowering) -> Lowered:
    """Lower to a clamp of integers if the scale does not change; every other unary operator is a lookup table."""
    x, params, bounds = operand(node), result_params(node), node.op.clamp_range()
    if bounds is not None and params == x.quant:
        return clamp(lowering, lowering.quantized_value(x), bounds, node.outputs[0].name)
    if _is_the_scale_alone(node, params) and lowering.old.is_sole_use(x):
        return with_params((lowering.quantized_value(x),), params)
    if params_of(x).axis is not None or params.axis is not None:
        return Declined("a table serves one scale, the channels have several")
    if params_of(x).dtype.bits != 8 or params.dtype.bits != 8:
        return Declined("a table has 256 entries: its operand must have 8 bits")
    return (lowering.table(lowering.quantized_value(x), params, _function(node.op), node.outputs[0].name),)


def _is_the_scale_alone(node: Node, params: QuantParams) -> bool:
    """Return True if the node multiplies by the ratio of the scales, so that it changes no integer."""
    factor, (x,) = positive_factor(node.op), node.inputs
    if factor is None or x is None or x.quant is None:
        return False
    if (x.quant.dtype, x.quant.zero_point, x.quant.axis) != (params.dtype, params.zero_point, params.axis):
        return False
    # The tolerance covers the rounding of the scales to binary32.
    return bool(np.allclose(np.asarray(x.quant.scale) * factor, params.scale, rtol=2.0**-22, atol=0))


def clamp(lowering: Lowering, x: Value, bounds: tuple[float, float], name: str) -> Lowered:
    """Clamp integers to quantized bounds. A bound outside of the dtype needs no operator."""
    params = params_of(x)
    low, high = (_bounds(bound, params, is_single=lowering.rescale == TFLITE) for bound in bounds)
    if max(low) <= params.dtype.min and min(high) >= params.dtype.max:
        return (x,)
    if params.axis is not None and (len(set(low)) > 1 or len(set(high)) > 1):
        return Declined("the bounds differ from channel to channel")
    op = Clamp(min=Scalar(params.dtype, low[0]), max=Scalar(params.dtype, high[0]))
    return (with_quant(lowering.g.add(op, x, name=name), params),)


def _bounds(bound: float, params: QuantParams, *, is_single: bool) -> list[int]:
    """Quantized bound, one integer per scale; an infinite bound is the limit of the dtype.

    ``is_single`` divides in float32, as the kernels of TFLite do: the quotient decides the rounding of a tie.
    """
    if math.isinf(bound):
        return [params.dtype.max if bound > 0 else params.dtype.min]
    if is_single:
        quotients = np.float32(bound) / np.asarray(params.scale, np.float32)
        integers = rhaz(quotients).astype(np.int64) + np.asarray(params.zero_point, np.int64)
        clipped: list[int] = np.clip(integers, params.dtype.min, params.dtype.max).tolist()
        return clipped
    channels = dataclasses.replace(params, axis=0)
    limits: list[int] = channels.quantize(np.full(len(params.scale), bound, dtype=np.float32)).tolist()
    return limits


def _function(op: Op) -> Callable[[Array], Array]:
    def evaluate(values: Array) -> Array:
        with np.errstate(all="ignore"):
            (result,) = op.evaluate(values)
        return np.nan_to_num(result, nan=0.0)

    return evaluate


def result_params(node: Node) -> QuantParams:
    """Parameters of the first result. Lowerings are only called for nodes whose results are annotated."""
    return params_of(node.outputs[0])


def names_of(node: Node) -> tuple[str, ...]:
    """The names of the results."""
    return tuple(value.name for value in node.outputs)


def with_params(results: Lowered, params: QuantParams) -> Lowered:
    """Annotate the lowered results, if the node was not declined."""
    if not isinstance(results, Declined):
        for value in results:
            value.quant = params
    return results


def pool_int_of(pool: Pool) -> PoolInt:
    """Return the pool_int with the windows of a pool that is not global. Averages are exact divisions."""
    return PoolInt(
        stride_h=pool.stride_h,
        stride_w=pool.stride_w,
        pad_h_t=pool.pad_h,
        pad_h_b=pool.pad_h + pool.pad_h_offset,
        pad_w_l=pool.pad_w,
        pad_w_r=pool.pad_w + pool.pad_w_offset,
        kernel_h=pool.kernel_h,
        kernel_w=pool.kernel_w,
        is_avg_pooling=pool.pooling_type is PoolType.AVE,
        out_ceil_mode=OutCeilMode.ceil if pool.is_ceil_mode else OutCeilMode.floor,
    )


def geometry(op: Op) -> dict[str, Any]:
    """Attributes that all convolutions share by name: dilations, pads, strides and groups."""
    names = ("dh", "dw", "pad_h_t", "pad_h_b", "pad_w_l", "pad_w_r", "stride_h", "stride_w", "groups")
    attributes = op.attributes()
    return {name: attributes[name] for name in names}
