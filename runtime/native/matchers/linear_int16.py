"""Integer linear operators with 16 bits, in the form that the quantizer writes, as one step.

The quantizer splits weights, and an operand of 16 bits, into signed bytes (``lower_wide``). With
``x = 256 * h + l`` and ``w = 256 * high + low``, these operators compute the accumulator:

    top = h * high      middle = h * low + bias [+ l * high]      sum = 256 * top + middle

The kernel computes it as ``x * high + h * low + bias``; an 8-bit operand is ``h``. The matcher checks that no sum of
the operators exceeds 32 bits, so that neither form saturates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tpuconvert.runtime.native.builder.builder import Builder, Group
from tpuconvert.runtime.native.builder.storage import channels_last, row_major
from tpuconvert.runtime.native.matchers.convolution import Image, geometry_of
from tpuconvert.runtime.native.matchers.epilogue import EPILOGUE_OPS, ONE_ROUNDING, Epilogue
from tpuconvert.runtime.native.matchers.linear_int import BYTES, LINEAR_OPS, LinearOp, linear_op_of
from tpuconvert.runtime.native.matchers.matcher import Site, ends_with, names_of
from tpuconvert.schema.arithmetic.fixed_point import RoundingMode
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.arithmetic import Add, Sub
from tpuconvert.schema.ops.quantization.lut import Lut
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.ops.shifts.arithmetic_shift import ArithmeticShift
from tpuconvert.schema.types import I8, I16, I32, DType

_BYTE_BITS = 8
_BYTE = 1 << _BYTE_BITS
_FOLLOWERS = tuple(op for op in EPILOGUE_OPS if op is not Lut)  # the kernel has no lookup table


@dataclass(frozen=True)
class _Sum:
    """Accumulator of a linear operator with 16 bits.

    Args:
        nodes: the nodes that compute it.
        x: the operand, of 16 or 8 bits.
        top: product with the high bytes of the weights.
        middle: product with their low bytes, and the bias.
        largest: bound of the magnitude of every sum.
    """

    nodes: tuple[Node, ...]
    x: Value
    top: LinearOp
    middle: LinearOp
    largest: int


@ends_with(
    *names_of(*_FOLLOWERS),
    kernels=("conv_int16",),
    dtypes="INT16, INT8, UINT8",
    conditions=(
        "the operators of a conv or matmul with 16-bit weights, whose sums fit 32 bits; then requantizations with one "
        "rounding, to 16 bits and perhaps again to 8 bits, and clamps or a dequantization"
    ),
    priority=30,
)
def linear_int16(node: Node, site: Site) -> Group | None:
    """Match the operators of a linear operator with 16 bits and its requantizations."""
    chain = site.chain(node, _FOLLOWERS, (Add,))
    if len(chain) < 2:
        return None
    epilogues = _epilogues(chain[1:])
    if epilogues is None or node.outputs[0].dtype is not epilogues[-1].dtype:
        return None
    wide_sum = _sum_of(chain[0], site)
    if wide_sum is None or not _fits(epilogues, wide_sum.largest):
        return None
    nodes = {*wide_sum.nodes, *chain}
    ordered = tuple(sorted(nodes, key=site.places.__getitem__))
    return Group(ordered, lambda builder: _emit(builder, wide_sum, epilogues, node.outputs[0]))


def _epilogues(chain: list[Node]) -> tuple[Epilogue, ...] | None:
    """Return the epilogue of the accumulator, and a second one if its 16-bit results are requantized again."""
    epilogues = [Epilogue.of(I32)]
    for node in chain:
        if isinstance(node.op, RequantInt32):
            if node.op.mode is not RequantMode.MULTIPLIER_SHIFT or node.op.round_mode is not RoundingMode.HALF_UP:
                return None
            if epilogues[-1].rescale == ONE_ROUNDING:
                if len(epilogues) > 1 or epilogues[-1].dtype is not I16:
                    return None
                epilogues.append(Epilogue.of(I32))
        followed = epilogues[-1].followed_by(node) if isinstance(node.op, EPILOGUE_OPS) else None
        if followed is None:
            return None
        epilogues[-1] = followed
    is_complete = all(epilogue.rescale == ONE_ROUNDING for epilogue in epilogues)
    return tuple(epilogues) if is_complete else None


def _sum_of(total: Node, site: Site) -> _Sum | None:
    """Return the accumulator ``256 * top + middle`` that ends with an addition."""
    if not _is_int32(total):
        return None
    for grown_value, middle_value in (total.inputs, total.inputs[::-1]):
        grown = site.absorbable(grown_value, ArithmeticShift)
        if grown is None or not _is_shift(grown, _BYTE_BITS, I32, RoundingMode.DOWN):
            continue
        top = site.absorbable(grown.inputs[0], *LINEAR_OPS)
        middle = site.absorbable(middle_value, Add, *LINEAR_OPS)
        if top is None or middle is None:
            continue
        nodes = (total, grown, top, middle)
        if not isinstance(middle.op, Add):
            return _narrow_sum(nodes, top, middle, site)
        products = [site.absorbable(value, *LINEAR_OPS) for value in middle.inputs]
        for first, second in (products, products[::-1]):
            if first is not None and second is not None:
                wide_sum = _wide_sum((*nodes, first, second), top, first, second, site)
                if wide_sum is not None:
                    return wide_sum
    return None


def _narrow_sum(nodes: tuple[Node, ...], top: Node, middle: Node, site: Site) -> _Sum | None:
    """Return the accumulator for an 8-bit operand."""
    x = top.inputs[0]
    if x is None or x is not middle.inputs[0] or x.dtype not in BYTES:
        return None
    return _checked(nodes, x, top, middle, site)


def _wide_sum(nodes: tuple[Node, ...], top: Node, middle: Node, other: Node, site: Site) -> _Sum | None:
    """Return the accumulator for a 16-bit operand; ``other`` multiplies its low bytes."""
    high, low = top.inputs[0], other.inputs[0]
    if high is None or low is None or high is not middle.inputs[0] or top.inputs[1] is not other.inputs[1]:
        return None
    shifted, rest = high.producer, low.producer
    if shifted is None or rest is None or not _is_shift(shifted, -_BYTE_BITS, I8, RoundingMode.HALF_UP):
        return None
    x = shifted.inputs[0]
    if x is None or x.dtype is not I16 or rest.inputs[0] is not x:
        return None
    if not isinstance(rest.op, Sub) or low.dtype is not I8:
        return None
    rounded = None if rest.inputs[1] is None else rest.inputs[1].producer
    if rounded is None or rounded.inputs[0] is not high or not _is_shift(rounded, _BYTE_BITS, I16, RoundingMode.DOWN):
        return None
    if len(top.inputs) != len(other.inputs) or top.op != other.op:
        return None
    split, users = (shifted, rounded, rest), {*nodes, rounded, rest}
    # Another node may use the same bytes; their operators then remain separate steps.
    is_shared = any(
        node in site.taken or site.graph.is_output(node.outputs[0]) or not set(node.outputs[0].users) <= users
        for node in split
    )
    return _checked(nodes if is_shared else (*nodes, *split), x, top, middle, site)


def _checked(nodes: tuple[Node, ...], x: Value, top: Node, middle: Node, site: Site) -> _Sum | None:
    """Return the accumulator if the kernel supports its operators and no sum may exceed 32 bits."""
    high, low = linear_op_of(top, site.chip), linear_op_of(middle, site.chip)
    if high is None or low is None or high.bias is not None or high.is_transposed:
        return None
    is_alike = (high.geometry, high.zero, high.is_matrix, high.is_transposed) == (
        low.geometry, low.zero, low.is_matrix, low.is_transposed,
    )  # fmt: skip
    has_zeros = any(high.weight_zeros) or any(low.weight_zeros) or (x.dtype is I16 and high.zero != 0)
    if not is_alike or has_zeros or high.weights.dtype != np.int8 or low.weights.dtype != np.int8:
        return None
    largest = _largest_sum(x, high, low)
    if top.outputs[0].type != middle.outputs[0].type:  # the geometry has no padding at the end
        return None
    if not _is_int32(top) or not _is_int32(middle) or largest > I32.max:
        return None
    return _Sum(nodes, x, high, low, largest)


def _largest_sum(x: Value, high: LinearOp, low: LinearOp) -> int:
    """Bound of the magnitude of ``256 * top``, ``middle``, its parts, and their sum."""
    heavy, light = (np.abs(op.weights.reshape(len(op.weights), -1).astype(np.int64)).sum(axis=1) for op in (high, low))
    bias = 0 if low.bias is None else np.abs(low.bias.astype(np.int64))
    largest = max(x.dtype.max - high.zero, high.zero - x.dtype.min)
    if x.dtype is I16:
        sums = heavy * ((1 << 15) + (1 << 7)) + light * (1 << 7) + bias
    else:
        sums = (_BYTE * heavy + light) * largest + bias
    return int(sums.max(initial=0))


def _fits(epilogues: tuple[Epilogue, ...], largest: int) -> bool:
    """Return True if the kernel computes the requantizations without overflow; it checks the same limits."""
    for epilogue in epilogues:
        multiplier, shift, offset = (
            np.asarray(values, np.int64) for values in (epilogue.multiplier, epilogue.shift, epilogue.offset)
        )
        if multiplier.min() < 0 or shift.max() > -1 or shift.min() < -60 or np.abs(offset).max() > 1 << 24:
            return False
        if ((largest * multiplier) >> -shift).max() >= 1 << 30:
            return False
        largest = max(abs(epilogue.low), abs(epilogue.high))
    return True


def _is_shift(node: Node, bits: int, dtype: DType, rounding: RoundingMode) -> bool:
    op = node.op
    return (
        isinstance(op, ArithmeticShift)
        and op.shift == bits
        and op.rounding_mode is rounding
        and node.outputs[0].dtype is dtype
    )


def _is_int32(node: Node) -> bool:
    return node.outputs[0].dtype is I32


def _emit(builder: Builder, wide_sum: _Sum, epilogues: tuple[Epilogue, ...], result: Value) -> None:
    """Add the step."""
    top, middle = wide_sum.top, wide_sum.middle
    if top.is_matrix:
        x = Image.of_matrix(builder.read(wide_sum.x, row_major(wide_sum.x.rank)), top.weights.shape[1])
        y = Image.of_matrix(builder.write(result), len(top.weights))
    else:
        x = Image.of(builder.read(wide_sum.x, channels_last(4), dense=False))
        y = Image.of(builder.write(result, channels_last(4), dense=False))
    channels = y.shape[1]
    first, *second = epilogues
    spec = builder.native.ConvInt16Spec(
        input=builder.place(x.stored),
        output=builder.place(y.stored),
        geometry=geometry_of(builder, x, y, top.weights.shape[2:], top.geometry),
        is_wide=wide_sum.x.dtype is I16,
        high=top.weights,
        low=middle.weights,
        bias=middle.bias32,
        input_zero=0 if wide_sum.x.dtype is I16 else top.stored_zero,
        epilogue=first.compile(channels),
        second=second[0].compile(channels) if second else None,
    )
    builder.step("conv_int16", spec, (x.stored,), (y.stored,))
