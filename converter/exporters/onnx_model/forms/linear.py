"""Lowerings of integer convs and matmuls.

``ConvInteger`` and ``MatMulInteger`` get both operands as UINT8. ONNX Runtime multiplies UINT8 by INT8 with 16-bit
intermediate sums that saturate on x86 processors without VNNI instructions; its products of UINT8 by UINT8 are exact on
every processor.
"""

from __future__ import annotations

import numpy as np

from tpuconvert.exporters.lowerings import NoExactForm
from tpuconvert.exporters.onnx_model.integers import saturate, widen
from tpuconvert.exporters.onnx_model.lowering import Argument, Lowering, extents, scalar
from tpuconvert.exporters.onnx_model.registry import lowers
from tpuconvert.schema.arithmetic.integer_product import largest_magnitude
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.convolution.conv_v2 import ConvV2
from tpuconvert.schema.ops.convolution.deconv_v2 import DeconvV2
from tpuconvert.schema.ops.matmul.fc_int import FcInt
from tpuconvert.schema.ops.matmul.matrix_mul_v2 import MatrixMulV2
from tpuconvert.schema.ops.matmul.zero_points import zero_point
from tpuconvert.schema.types import Array, DType

_SIGN = 128
"""Difference between an INT8 number and the UINT8 number with the inverted sign bit."""


def uniform_zero_point(op: Op, prefix: str) -> int:
    """Return the zero point of an operand.

    Raises:
        NoExactForm: it differs between channels, which ONNX Runtime does not implement.
    """
    numbers = set(zero_point(op, prefix).reshape(-1).tolist())
    if len(numbers) != 1:
        raise NoExactForm(f"{prefix}_vec has {len(numbers)} different zero points, expected one per tensor")
    return int(numbers.pop())


def unsigned(d: Lowering, x: Value, zero: int) -> tuple[Argument, Array]:
    """Return an 8-bit operand as UINT8, with its zero point.

    Raises:
        NoExactForm: the zero point is outside of the range of the type.
    """
    if not x.dtype.holds(zero):
        raise NoExactForm(f"the zero point of '{x.name}' is {zero}, expected a number of type {x.dtype.name}")
    if x.dtype is DType.UINT8:
        return x, scalar(zero, np.uint8)
    flip = scalar(_SIGN, np.uint8)
    if x.is_constant:
        return d.constant(x.array.view(np.uint8) ^ flip, f"{x.name}/uint8"), scalar(zero + _SIGN, np.uint8)
    return d.add("BitwiseXor", d.add("Cast", x, to=np.uint8), flip), scalar(zero + _SIGN, np.uint8)


def accumulator_bound(x: Value, x_zero: int, w: Value, w_zero: int, axes: tuple[int, ...]) -> int:
    """Return the largest magnitude of a sum of products; ``axes`` are the axes of ``w`` that are summed.

    Raises:
        NoExactForm: it exceeds INT32, in which ONNX accumulates.
    """
    largest = largest_magnitude(x.dtype.numpy, x_zero)
    if w.is_constant:
        sums = np.abs(w.array.astype(np.int64) - w_zero).sum(axis=axes)
        bound = largest * int(sums.max(initial=0))
    else:
        bound = largest * largest_magnitude(w.dtype.numpy, w_zero) * int(np.prod(extents(w, *axes)))
    if bound > DType.INT32.max:
        raise NoExactForm(f"its sums have up to {bound.bit_length()} bits, expected at most 31")
    return bound


def add_bias(d: Lowering, sums: str, bias: Value | None, bound: int, y: Value) -> None:
    """Add the bias to INT32 sums of magnitude ``bound`` or less, saturate, and define the result."""
    if bias is not None:
        is_small = bias.is_constant and bound + int(np.abs(bias.array.astype(np.int64)).max(initial=0)) < 1 << 31
        if not is_small or y.dtype is not DType.INT32:
            d.define(y, saturate(d, d.add("Add", widen(d, sums), widen(d, bias)), y.dtype))
            return
        sums = d.add("Add", sums, bias)
    d.define(y, sums if y.dtype is DType.INT32 else saturate(d, widen(d, sums), y.dtype))


@lowers(ConvV2)
def conv(op: ConvV2, node: Node, d: Lowering) -> None:
    """Lower an integer convolution with zero points."""
    x, w, y = node.inputs[0], node.inputs[1], node.output
    assert x is not None and w is not None
    x_zero, w_zero = uniform_zero_point(op, "izp"), uniform_zero_point(op, "kzp")
    bound = accumulator_bound(x, x_zero, w, w_zero, (1, 2, 3))
    sums = d.add(
        "ConvInteger",
        *_operands(unsigned(d, x, x_zero), unsigned(d, w, w_zero)),
        dilations=(op.dh, op.dw),
        group=op.groups,
        kernel_shape=extents(w, 2, 3),
        pads=(op.pad_h_t, op.pad_w_l, op.pad_h_b, op.pad_w_r),
        strides=(op.stride_h, op.stride_w),
    )
    add_bias(d, sums, _bias(node), bound, y)


def _operands(left: tuple[Argument, Array], right: tuple[Argument, Array]) -> tuple[Argument, ...]:
    return left[0], right[0], left[1], right[1]


def _bias(node: Node) -> Value | None:
    return node.inputs[2] if len(node.inputs) > 2 else None


@lowers(DeconvV2)
def deconv(op: DeconvV2, node: Node, d: Lowering) -> None:
    """Lower an integer transposed convolution to a convolution of the operand with inserted zero points."""
    x, w, y = node.inputs[0], node.inputs[1], node.output
    assert x is not None and w is not None
    if not w.is_constant:
        raise NoExactForm(f"its weights '{w.name}' are computed, expected a constant")
    x_zero, w_zero = uniform_zero_point(op, "izp"), uniform_zero_point(op, "kzp")
    data, zero = unsigned(d, x, x_zero)
    spread, pads = data, []
    height, width = extents(x, 2, 3)
    strides, kernel = (op.stride_h, op.stride_w), extents(w, 2, 3)
    if strides != (1, 1):
        split = d.add("Reshape", spread, np.array([0, x.shape[1], height, 1, width, 1], np.int64))
        after = np.array([0] * 6 + [0, 0, 0, strides[0] - 1, 0, strides[1] - 1], np.int64)
        spread = d.add("Pad", split, after, zero, mode="constant")
        shape = np.array([0, x.shape[1], height * strides[0], width * strides[1]], np.int64)
        spread = d.add("Reshape", spread, shape)
    starts, ends = [0, 0], [height * strides[0], width * strides[1]]
    for axis, (dilation, before, after_pad) in enumerate(
        ((op.dh, op.pad_h_t, op.pad_h_b), (op.dw, op.pad_w_l, op.pad_w_r))
    ):
        reach = dilation * (kernel[axis] - 1)
        lead, trail = reach - before, reach - after_pad - (strides[axis] - 1)
        starts[axis], ends[axis] = max(-lead, 0), ends[axis] - max(-trail, 0)
        pads.append((max(lead, 0), max(trail, 0)))
    if starts != [0, 0] or ends != [height * strides[0], width * strides[1]]:
        spread = d.add("Slice", spread, *(np.array(item, np.int64) for item in (starts, ends, [2, 3])))
    # IOHW to OIHW per group, with rows and columns reversed
    inputs, outputs = w.array.shape[:2]
    flipped = w.array[:, :, ::-1, ::-1].reshape(op.groups, inputs // op.groups, outputs, *kernel).swapaxes(1, 2)
    weights = np.ascontiguousarray(flipped.reshape(op.groups * outputs, inputs // op.groups, *kernel))
    bound = largest_magnitude(x.dtype.numpy, x_zero) * int(
        np.abs(weights.astype(np.int64) - w_zero).sum(axis=(1, 2, 3)).max()
    )
    if bound > DType.INT32.max:
        raise NoExactForm(f"its sums have up to {bound.bit_length()} bits, expected at most 31")
    offset = 0 if w.dtype is DType.UINT8 else _SIGN
    sums = d.add(
        "ConvInteger",
        spread,
        d.constant(weights.view(np.uint8) ^ np.uint8(offset), f"{w.name}/uint8"),
        zero,
        scalar(w_zero + offset, np.uint8),
        dilations=(op.dh, op.dw),
        group=op.groups,
        kernel_shape=kernel,
        pads=(pads[0][0], pads[1][0], pads[0][1], pads[1][1]),
        strides=(1, 1),
    )
    add_bias(d, sums, _bias(node), bound, y)


def _transpose_last(d: Lowering, x: Argument, rank: int) -> str:
    return d.add("Transpose", x, perm=(*range(rank - 2), rank - 1, rank - 2))


@lowers(MatrixMulV2)
def matmul(op: MatrixMulV2, node: Node, d: Lowering) -> None:
    """Lower a batched integer matmul with zero points."""
    _matmul(d, node, (zero_point(op, "lzp"), zero_point(op, "rzp")), (op.is_left_trans, op.is_right_trans))


@lowers(FcInt)
def fully_connected(op: FcInt, node: Node, d: Lowering) -> None:
    """Lower an integer fully connected layer."""
    _matmul(d, node, (zero_point(op, "izp"), zero_point(op, "kzp")), (False, op.weight_trans))


def _matmul(d: Lowering, node: Node, zeros: tuple[Array, Array], is_transposed: tuple[bool, bool]) -> None:
    """Lower a matmul whose zero points are scalars, or vectors per row of the left and per column of the right matrix.

    Different zero points are subtracted in float64, in which the sums are exact too.
    """
    left, right, y = node.inputs[0], node.inputs[1], node.output
    assert left is not None and right is not None

    def oriented(operand: Argument, value: Value, side: int) -> Argument:
        return _transpose_last(d, operand, value.rank) if is_transposed[side] else operand

    if all(len(set(zero.reshape(-1).tolist())) == 1 for zero in zeros):
        left_zero, right_zero = (int(zero.flat[0]) for zero in zeros)
        axis = right.rank - (1 if is_transposed[1] else 2)
        bound = accumulator_bound(left, left_zero, right, right_zero, (axis,))
        a, b = unsigned(d, left, left_zero), unsigned(d, right, right_zero)
        sums = d.add("MatMulInteger", oriented(a[0], left, 0), oriented(b[0], right, 1), a[1], b[1])
        add_bias(d, sums, _bias(node), bound, y)
        return
    rows, columns = zeros[0].reshape(-1, 1).astype(np.float64), zeros[1].reshape(1, -1).astype(np.float64)
    first, second = (
        d.add("Sub", oriented(d.add("Cast", value, to=np.float64), value, side), zero)
        for side, (value, zero) in enumerate(((left, rows), (right, columns)))
    )
    wide = d.add("Cast", d.add("MatMul", first, second), to=np.int64)
    bias = _bias(node)
    d.define(y, saturate(d, wide if bias is None else d.add("Add", wide, widen(d, bias)), y.dtype))
