"""Lowerings for BM1684: one right shift per layer, INT16 biases, and 7-bit multipliers.

``optimizer/quantize/lowering/lower_bm1684_shifts.py`` makes graphs of these forms.
"""

from __future__ import annotations

import numpy as np

from tpuconvert.exporters.lowerings import NoExactForm
from tpuconvert.exporters.tpu_mlir.dialect import Tensor, quantized_element
from tpuconvert.exporters.tpu_mlir.forms.pooling import maximum, window_of
from tpuconvert.exporters.tpu_mlir.forms.window import Window
from tpuconvert.exporters.tpu_mlir.lowering import Lowering, reciprocal_scale, static_shape
from tpuconvert.exporters.tpu_mlir.registry import lowers_bm1684
from tpuconvert.schema.arithmetic.quantized_sums import ceil_shift
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.arithmetic import Add, BinaryArithmetic, Max, Min, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Muls
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.convolution.conv import Conv, QCalMode
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.pool import Pool
from tpuconvert.schema.ops.shifts.shift_arithmetic import MulsShift
from tpuconvert.schema.types import Array, DType

_EXACT_MODE = "convert the float model with --exact-on bm1684"


@lowers_bm1684(Muls)
def quantize(op: Muls, node: Node, d: Lowering) -> None:
    """Lower ``cast(x * factor)`` from float32 to integers."""
    x, y = node.inputs[0], node.output
    user = d.sole_user(y, "cast")
    if user is None or not user.output.dtype.is_integer:
        raise NoExactForm("a product in floating point")
    tensor, z = d.tensor(x), user.output
    if not tensor.is_exact:
        raise NoExactForm("its operand is a floating-point result that the device may round differently")
    if z.quant is None or any(z.quant.zero_point):
        raise NoExactForm(f"'{z.name}' has no scale or a zero point, expected a scale")
    d.mark_fused(user)
    element = quantized_element(z.dtype, z.quant, reciprocal_scale(float(op.scalar.value)))
    d.define(z, d.module.add("tpu.Cast", [tensor], static_shape(z), element, z.name))


@lowers_bm1684(Cast)
def dequantize(op: Cast, node: Node, d: Lowering) -> None:
    """Lower ``float32(x) * scale`` of integers."""
    x, y = node.inputs[0], node.output
    assert x is not None
    if not x.dtype.is_integer or y.dtype is not DType.FLOAT32:
        raise NoExactForm(f"cast of {x.dtype.name} to {y.dtype.name}, expected integers to FLOAT32")
    user = d.sole_user(y, "muls")
    if user is None or x.quant is None or np.float32(user.op.scalar.value) != np.float32(x.quant.scale[0]):  # type: ignore[attr-defined]
        d.add("tpu.Cast", [d.tensor(x)], y, with_scale=False)
        return
    d.mark_fused(user)
    d.add("tpu.Cast", [d.tensor(x)], user.output)


def right_shift(op: Conv | MatrixMul) -> int:
    """Return the shift by which a linear operator is requantized.

    Raises:
        NoExactForm: it is requantized in another way, or computes in floating point.
    """
    scale = np.float32(op.scale)
    shift = ceil_shift(scale)
    if op.mode is not QCalMode.LowPrecisionSymmetric or float(scale) != 2.0**-shift:
        raise NoExactForm(
            f"its scale is {op.scale:g} in mode {op.mode.name}, expected a power of two in mode "
            f"{QCalMode.LowPrecisionSymmetric.name}",
            _EXACT_MODE,
        )
    return shift


def constants_of(node: Node) -> tuple[Array, Array]:
    """Return INT8 weights, and the INT16 bias per output channel, of a linear operator.

    Raises:
        NoExactForm: they are computed, or have other types.
    """
    w = node.inputs[1]
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    assert w is not None
    if not w.is_constant or w.dtype is not DType.INT8:
        raise NoExactForm(
            f"its weights are computed or have type {w.dtype.name}, expected constants of INT8", _EXACT_MODE
        )
    if bias is None:
        columns = w.array.shape[1 if isinstance(node.op, MatrixMul) else 0]
        return kernels_of(node), np.zeros(columns, np.int16)
    if not bias.is_constant or bias.dtype is not DType.INT16:
        raise NoExactForm(f"its bias is computed or has type {bias.dtype.name}, expected INT16", _EXACT_MODE)
    return kernels_of(node), bias.array.reshape(-1)


def kernels_of(node: Node) -> Array:
    """Return constant weights as kernels [output channels, input channels / groups, kh, kw]."""
    w = node.inputs[1]
    assert w is not None
    return w.array.T.reshape(w.array.shape[1], -1, 1, 1) if isinstance(node.op, MatrixMul) else w.array


def check_bytes(*values: Value) -> None:
    """Check that values have 8 bits.

    Raises:
        NoExactForm: one has another type.
    """
    for value in values:
        if value.dtype not in (DType.INT8, DType.UINT8):
            raise NoExactForm(f"'{value.name}' has type {value.dtype.name}, expected 8 bits", _EXACT_MODE)


def convolve(d: Lowering, x: Tensor, node: Node, window: Window, shape: tuple[int, ...]) -> Tensor:
    """Append the convolution of a linear operator that is requantized by a right shift.

    Args:
        d: the lowering.
        x: operand of rank 4.
        node: conv, or matrix_mul, whose weights then belong to a 1x1 kernel.
        window: geometry.
        shape: shape of the result, of rank 4.
    """
    assert isinstance(node.op, (Conv, MatrixMul)) and node.inputs[0] is not None
    y = node.output
    check_bytes(node.inputs[0], y)
    shift = right_shift(node.op)
    weights, bias = constants_of(node)
    window = window.with_least_strides(x.shape[2:], shape[2:])
    return d.module.add(
        "tpu.Conv2D",
        [
            x,
            d.module.weight(weights, "si8", f"{y.name}_filter_i8"),
            d.module.weight(bias, "i16", f"{y.name}_bias_int16"),
        ],
        shape,
        d.element(y),
        y.name if shape == y.shape else f"{y.name}_4d",
        kernel_shape=window.kernel,
        strides=window.strides,
        dilations=window.dilations,
        pads=window.pads,
        group=window.groups,
        rshift=[shift],
        quant_mode="OnlyShift",
        do_relu=not y.dtype.is_signed,
    )


@lowers_bm1684(Conv)
def conv(op: Conv, node: Node, d: Lowering) -> None:
    """Lower a convolution that is requantized by a right shift."""
    w = node.inputs[1]
    assert w is not None
    kernel = static_shape(w)[2:]
    window = Window(
        kernel=(kernel[0], kernel[1]),
        strides=(op.stride_h, op.stride_w),
        dilations=(op.dh, op.dw),
        pads=(op.pad_h_t, op.pad_w_l, op.pad_h_b, op.pad_w_r),
        groups=op.groups,
    )
    d.define(node.output, convolve(d, d.tensor(node.inputs[0]), node, window, static_shape(node.output)))


@lowers_bm1684(MatrixMul)
def matmul(op: MatrixMul, node: Node, d: Lowering) -> None:
    """Lower a fully connected layer to a 1x1 convolution.

    ``tpu.MatMul`` is not exact: with more than about 1500 unsigned inputs, partial sums saturate in the simulator.
    """
    x, y = d.tensor(node.inputs[0]), node.output
    rows, columns = static_shape(y)
    x4 = d.reshape(x, (rows, x.shape[1], 1, 1), f"{node.name}_in")
    result = convolve(d, x4, node, Window((1, 1)), (rows, columns, 1, 1))
    d.define(y, d.reshape(result, (rows, columns), y.name))


@lowers_bm1684(MulsShift)
def rescale(op: MulsShift, node: Node, d: Lowering) -> None:
    """Leave the rescale of an operand to the add or subtract that uses it."""
    if d.sole_user(node.output, "add") is None and d.sole_user(node.output, "sub") is None:
        raise NoExactForm("its result is not used by one add or subtract alone", _EXACT_MODE)
    d.define_operand(node.output, d.tensor(node.inputs[0]))


@lowers_bm1684(Add, Sub)
def scaled_sum(op: BinaryArithmetic, node: Node, d: Lowering) -> None:
    """Lower a sum or difference of two tensors that are rescaled to 16 bits."""
    y = node.output
    check_bytes(y)
    tensors, multipliers, shifts = [], [], []
    for value in node.inputs:
        scaled = None if value is None else value.producer
        if scaled is None or not isinstance(scaled.op, MulsShift) or value is None or value.dtype is not DType.INT16:
            raise NoExactForm("its operands are not rescaled to INT16 by 7-bit multipliers", _EXACT_MODE)
        assert scaled.inputs[0] is not None
        check_bytes(scaled.inputs[0])
        tensors.append(d.tensor(value))
        multipliers.append(int(scaled.op.scalar.value))
        shifts.append(scaled.op.shift)
    if max(multipliers) > 127:
        raise NoExactForm(f"a multiplier is {max(multipliers)}, expected at most 127", _EXACT_MODE)
    operation = f"tpu.{op.name.capitalize()}"
    d.add(operation, tensors, y, multipliers=multipliers, rshifts=shifts, do_relu=not y.dtype.is_signed)


@lowers_bm1684(Mul)
def product(op: Mul, node: Node, d: Lowering) -> None:
    """Lower a product of two tensors together with the rescale of its result."""
    y = node.output
    a, b = node.inputs
    assert a is not None and b is not None
    check_bytes(a, b)
    user = d.sole_user(y, "muls_shift")
    if user is None or y.dtype is not DType.INT16 or user.output.dtype is not DType.INT8:
        raise NoExactForm("its result is not rescaled from INT16 to INT8", _EXACT_MODE)
    d.mark_fused(user)
    scaling = user.op
    assert isinstance(scaling, MulsShift)
    multiplier = int(scaling.scalar.value)
    d.add("tpu.Mul", [d.tensor(a), d.tensor(b)], user.output, multiplier=multiplier, rshift=scaling.shift)


@lowers_bm1684(Max, Min)
def extremum(op: BinaryArithmetic, node: Node, d: Lowering) -> None:
    """Refuse element-wise maxima and minima of integers: programs compiled for this chip compute them wrong."""
    raise NoExactForm("the compiler's element-wise maximum and minimum are wrong for this chip")


@lowers_bm1684(Pool)
def pool(op: Pool, node: Node, d: Lowering) -> None:
    """Lower maximum pooling. Averages are convolutions on this chip."""
    if op.pooling_type.name != "MAX" or node.output.dtype is DType.FLOAT32:
        raise NoExactForm("an average, expected a convolution with equal weights", _EXACT_MODE)
    x = node.inputs[0]
    assert x is not None
    maximum(x, node.output, d, window_of(op, node))
