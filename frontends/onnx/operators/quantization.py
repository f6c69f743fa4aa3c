"""QuantizeLinear, DequantizeLinear and the integer operators of the standard, as annotated float values.

A quantized activation is a FLOAT32 value with the dequantized values, annotated with scale and zero point.
QuantizeLinear and DequantizeLinear do not become nodes. Legalization for a chip selects the integer operators later.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from tpuconvert.frontends import emit, functions
from tpuconvert.frontends.cannot_convert import CannotConvertError
from tpuconvert.frontends.onnx.file import element_types
from tpuconvert.frontends.onnx.file.element_types import ELEMENTS, Element
from tpuconvert.frontends.onnx.grouped_weight import grouped_weight
from tpuconvert.frontends.onnx.node import Folded, OnnxNode, OnnxTensor, Result, folds, onnx_op
from tpuconvert.frontends.onnx.operators.convolution import conv_values
from tpuconvert.frontends.onnx.operators.matmul import matmul_values
from tpuconvert.frontends.onnx.quantization_params import params_from
from tpuconvert.schema.errors import INVALID_NODE, UNSUPPORTED_TYPE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.compare import Eqs
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.ops.reduce import ReduceMethodType
from tpuconvert.schema.types import Array, DType, QuantParams, Scalar

RESCALE = "onnx"

_FAR = float(1 << 17)
"""Clamping bound before a cast: beyond the 16-bit range for every zero point, but finite, so that a cast is defined."""


def read_params(node: OnnxNode, scale_at: int, zero_at: int, axis: int | None = None) -> QuantParams:
    """Read the scale and zero point of a node, which must be constant."""
    scale = node.constant(scale_at)
    zero = node.constant(zero_at) if node.has_input(zero_at) else np.zeros(1, np.uint8)
    params = params_from(scale, zero, axis)
    if params is None:
        raise node.fail(
            UNSUPPORTED_TYPE, f"quantized type {node.element(zero_at)}", "supported: integers of 8, 16 and 32 bits"
        )
    return params


def annotate(g: Graph, value: Value, quant: QuantParams) -> Value:
    """Annotate a new value; the operand of a reshape gets the same annotation."""
    g.rescale = RESCALE
    value.quant = quant
    producer = value.producer
    if producer is not None and producer.op.name == "reshape" and quant.axis is None:
        source = producer.inputs[0]
        if source is not None and source.quant is None and g.is_sole_use(source):
            source.quant = quant
    return value


def integers(node: OnnxNode, g: Graph, value: Value, quant: QuantParams) -> Result:
    """Annotate the result of an operator whose output is quantized in the file."""
    element = element_types.element_of(quant.dtype.numpy)
    return node.result(annotate(g, value, quant), element, quant=quant)


def dequantize_constant(g: Graph, tensor: OnnxTensor, quant: QuantParams) -> OnnxTensor:
    """Dequantize a constant; the result keeps its integers as an annotation."""
    assert tensor.array is not None, "not a constant"
    stored = np.ascontiguousarray(tensor.array).astype(quant.dtype.numpy, copy=False)
    data = _dequantize(stored, quant)
    shaped = stored.reshape(1) if stored.ndim == 0 else stored
    value = g.constant(data, tensor.name, quant, shaped)
    return OnnxTensor(tensor.name, element_types.FLOAT, tensor.shape, data, value)


def _dequantize(stored: Array, quant: QuantParams) -> Array:
    """Compute ``(q - zero_point) * scale`` in float32, as the standard defines it."""
    shape = [1] * stored.ndim
    if quant.axis is not None:
        if quant.axis >= stored.ndim:
            message = f"{len(quant.scale)} scales along axis {quant.axis} of a tensor of the shape {list(stored.shape)}"
            raise CannotConvertError(INVALID_NODE, message)
        shape[quant.axis] = -1
    scale = np.asarray(quant.scale, np.float32).reshape(shape)
    zero = np.asarray(quant.zero_point, np.int64).reshape(shape)
    return np.asarray((stored.astype(np.int64) - zero).astype(np.float32) * scale, np.float32).reshape(stored.shape)


def dequantized_value(node: OnnxNode, g: Graph, data_at: int, quant: QuantParams) -> Value:
    """Return the dequantized values of an integer input."""
    tensor = node.tensor(data_at)
    g.rescale = RESCALE
    if tensor.array is not None:
        constant = dequantize_constant(g, tensor, quant).value
        assert constant is not None, "just made"
        return constant
    if tensor.quant is not None:
        if tensor.quant != quant:
            raise node.fail(
                UNSUPPORTED_TYPE,
                f"input '{tensor.name}' is quantized and dequantized with different scales or zero points",
            )
        return node.dequantized_input(data_at)
    x = emit.as_float(g, node.input(data_at))
    if quant.axis is not None:
        shape = [-1 if axis == quant.axis else 1 for axis in range(x.rank)]
        scale, zero = (np.array(items, np.float32).reshape(shape) for items in (quant.scale, quant.zero_point))
        return _dequantize_computed(g, x, scale, zero)
    x = emit.adds(g, x, -quant.zero_point[0]) if quant.zero_point[0] else x
    return emit.muls(g, x, quant.scale[0])


def _dequantize_computed(g: Graph, x: Value, scale: Array, zero: Array) -> Value:
    """``(x - zero) * scale`` with constants that broadcast."""
    x = emit.sub(g, x, emit.float_constant(g, zero, "zero_point")) if zero.any() else x
    return emit.mul(g, x, emit.float_constant(g, scale, "scale"))


# QuantizeLinear and DequantizeLinear


def _axis(node: OnnxNode, scale_at: int) -> int | None:
    """Axis of per-channel scales, or None for one scale; before opset 13 the axis is 1."""
    axis = node.attr("axis", 1) if node.version >= 13 or node.proto.domain else 1
    return node.axis(axis, node.rank(0)) if node.constant(scale_at).size > 1 else None


@onnx_op("QuantizeLinear", since=10)
def quantize_linear(node: OnnxNode, g: Graph) -> Result:
    """Annotate the input with scale and zero point.

    The annotation is on a copy, because the input may have other users; unnecessary copies are removed later.
    """
    _read_type_attributes(node)
    if _axis(node, 1) is not None or _block_size(node) or _broadcastable_params(node)[2].bits < 8:
        return _quantize_explicitly(node, g)
    if (
        not node.has_input(2)
        and node.version >= 21
        and node.attr("output_dtype", 0) not in (0, element_types.UINT8.code)
    ):
        element = _output_element(node)
        scale = node.constant(1)
        quant = params_from(scale, np.zeros(1, element.numpy), None)
    else:
        quant = read_params(node, 1, 2)
    if quant is None or quant.dtype.bits == 32:
        raise node.fail(UNSUPPORTED_TYPE, "an activation in 32 bits", "supported: 8 and 16 bits")
    x = emit.floats(node.input(0))
    return node.result(
        annotate(g, g.add(Copy(), x), quant),
        element_types.element_of(quant.dtype.numpy),
        quant=quant,
        scalar=node.tensor(0).shape == (),
    )


def _block_size(node: OnnxNode) -> int:
    return node.attr("block_size", 0) if node.version >= 21 else 0


def _quantize_explicitly(node: OnnxNode, g: Graph) -> Result:
    """Compute the integers by the formula of the standard: annotations have no scales per channel or block."""
    scale, zero, element = _broadcastable_params(node)
    if element.bits > 16 or not element.is_integer:
        raise node.fail(UNSUPPORTED_TYPE, f"an activation in {element}", "supported: integers of up to 16 bits")
    x = emit.div(g, emit.floats(node.input(0)), emit.float_constant(g, scale, "scale"))
    y = functions.round_half_even(g, g.add(Clamp(Scalar.f32(-_FAR), Scalar.f32(_FAR)), x))
    y = emit.add(g, y, emit.float_constant(g, zero, "zero_point")) if zero.any() else y
    low, high = element.integer_range
    y = emit.mins(g, emit.maxs(g, y, low), high)
    return node.result(emit.cast(g, y, element.graph), element, scalar=node.tensor(0).shape == ())


def _broadcastable_params(node: OnnxNode) -> tuple[Array, Array, Element]:
    """Return scale and zero point in shapes that broadcast to the data, and the type of the integers."""
    scale = node.constant(1).astype(np.float32)
    if node.has_input(2):
        element, zero = node.element(2), node.constant(2).astype(np.int64)
    else:
        has_dtype = node.version >= 21 and node.attr("output_dtype", 0)
        element, zero = _output_element(node) if has_dtype else element_types.UINT8, np.zeros(1, np.int64)
    return _broadcast_params(node, scale), _broadcast_params(node, zero), element


def _read_type_attributes(node: OnnxNode) -> None:
    if node.version >= 19:
        node.optional_attr("saturate")  # applies to float8 only, which is not supported
    if node.version >= 23:
        node.refuse_attr("precision", 0)
    if node.version >= 21:
        node.optional_attr("output_dtype")


def _output_element(node: OnnxNode) -> Element:
    element = ELEMENTS.get(node.attr("output_dtype", 0))
    if element is None or not element.is_integer:
        raise node.fail(UNSUPPORTED_TYPE, "its output_dtype", "supported: integers of up to 16 bits")
    return element


@onnx_op("DequantizeLinear", since=10)
def dequantize_linear(node: OnnxNode, g: Graph) -> OnnxTensor | Result:
    """The dequantized values; no node is added."""
    if node.version >= 23:
        node.refuse_attr("output_dtype", 0)
    tensor = node.tensor(0)
    if _block_size(node) or tensor.element.is_float:
        if tensor.quant is not None:
            raise node.fail(UNSUPPORTED_TYPE, "blocks of a tensor with another scale", "supported: plain integers")
        node.optional_attr("axis")  # may be given without effect if there is one scale
        zero = node.constant(2) if node.has_input(2) else np.zeros(1, np.int64)
        scale = _broadcast_params(node, node.constant(1).astype(np.float32))
        y = _dequantize_computed(g, emit.as_float(g, node.input(0)), scale, _broadcast_params(node, zero))
        return node.result(y, node.element(1), scalar=tensor.shape == ())
    quant = _dequantize_params(node)
    if tensor.array is not None:
        g.rescale = RESCALE
        return dequantize_constant(g, tensor, quant)
    return node.result(dequantized_value(node, g, 0, quant), node.element(1), scalar=tensor.shape == ())


def _dequantize_params(node: OnnxNode) -> QuantParams:
    """Read the parameters like ``read_params``; the default zero point is 0 in the type of the data."""
    axis = _axis(node, 1)
    scale = node.constant(1)
    zero = node.constant(2) if node.has_input(2) else np.zeros(1, node.element(0).numpy)
    params = params_from(scale, zero, axis)
    if params is None:
        raise node.fail(UNSUPPORTED_TYPE, f"quantized type {zero.dtype}", "supported: integers of 8, 16 and 32 bits")
    return params


@folds("QuantizeLinear", since=10)
def quantize_constant(node: OnnxNode, _: Graph) -> Folded:
    """``saturate(round_half_even(x / scale) + zero_point)`` of a constant."""
    _read_type_attributes(node)
    x = node.constant(0).astype(np.float32)
    scale, zero, element = _broadcastable_params(node)
    if not element.is_integer:
        raise node.fail(UNSUPPORTED_TYPE, f"quantizes to {element}", "supported: integers")
    low, high = element.integer_range
    rounded = np.rint(x / scale).astype(np.float64) + zero
    return Folded(np.clip(rounded, low, high).astype(element.numpy), element)


@folds("DequantizeLinear", since=21)
def dequantize_blocks(node: OnnxNode, g: Graph) -> OnnxTensor:
    """Dequantize a constant with one scale per block; with one scale per tensor or channel, annotate it instead.

    A matmul uses the integers of the blocks, all other operators the float values.
    """
    if node.version >= 23:
        node.refuse_attr("output_dtype", 0)
    block, tensor = node.attr("block_size", 0), node.tensor(0)
    if not block and not tensor.element.is_float and tensor.quant is None:
        g.rescale = RESCALE
        return dequantize_constant(g, tensor, _dequantize_params(node))
    data, scale = node.constant(0), node.constant(1).astype(np.float32)
    zero = node.constant(2) if node.has_input(2) else None
    wide = data.astype(np.float64) - (0 if zero is None else _broadcast_params(node, zero.astype(np.float64)))
    values = np.asarray(wide * _broadcast_params(node, scale), np.float32)
    dequantized = OnnxTensor.constant(node.proto.output[0], element_types.FLOAT, values)
    if not block or tensor.element.is_float:
        return dequantized
    axis = node.axis(node.attr("axis", 1), node.rank(0))
    grouped = grouped_weight(data, tensor.element.bits, scale, zero, axis, block)
    if grouped is None:
        g.notes.append(
            f"'{node.name}': the integers of '{tensor.name}' are not kept, because rank {data.ndim}, {tensor.element} "
            f"and blocks of {block} have no packed form; a matrix of 2, 4 or 8 bits in blocks of a multiple of 16 has "
            "one. They are stored in FLOAT32"
        )
        return dequantized
    return replace(dequantized, grouped=(grouped, axis))


def _broadcast_params(node: OnnxNode, array: Array) -> Array:
    """Reshape or repeat scales or zero points so that they broadcast to the data."""
    if array.size == 1:
        return array.reshape(())
    rank = node.rank(0)
    axis = node.axis(node.attr("axis", 1) if node.version >= 13 or node.proto.domain else 1, rank)
    block = node.attr("block_size", 0) if node.version >= 21 else 0
    if block:
        if array.ndim != rank or block < 0:
            raise node.invalid(f"block_size={block} and parameters {list(array.shape)} for data of rank {rank}")
        wide = np.repeat(array, min(block, node.shape(0)[axis]), axis=axis)
        return wide[tuple(slice(0, extent) for extent in node.shape(0))]
    return array.reshape([-1 if k == axis else 1 for k in range(rank)])


# Integer operators of the standard


@onnx_op("QLinearConv", since=10)
def qlinear_conv(node: OnnxNode, g: Graph) -> Result:
    """Quantized convolution: a convolution of the dequantized values with an annotated result."""
    x_quant = read_params(node, 1, 2)
    w_quant = read_params(node, 4, 5, axis=0)
    y_quant = read_params(node, 6, 7)
    x, w = dequantized_value(node, g, 0, x_quant), dequantized_value(node, g, 3, w_quant)
    bias = dequantized_bias(node, g, 8, x_quant, w_quant) if node.has_input(8) else None
    return integers(node, g, conv_values(node, g, x, w, bias, 0, 3), y_quant)


def dequantized_bias(node: OnnxNode, g: Graph, index: int, x: QuantParams, w: QuantParams) -> Value:
    """Dequantize a bias, whose scale is the product of the scales of input and weight."""
    scales = tuple(x.scale[0] * scale for scale in w.scale)
    axis = node.rank(index) - 1 if len(scales) > 1 else None
    return dequantized_value(node, g, index, QuantParams(scales, (0,) * len(scales), DType.INT32, axis))


@onnx_op("QLinearMatMul", since=10)
def qlinear_matmul(node: OnnxNode, g: Graph) -> Result:
    """Quantized matmul: a matmul of the dequantized values with an annotated result."""
    a_quant = read_params(node, 1, 2)
    b_quant = read_params(node, 4, 5, axis=node.rank(3) - 1)
    y_quant = read_params(node, 6, 7)
    a, b = dequantized_value(node, g, 0, a_quant), dequantized_value(node, g, 3, b_quant)
    y, shape = matmul_values(node, g, a, node.shape(0), b, node.shape(3))
    return integers(node, g, emit.reshape(g, y, shape or (1,)), y_quant)


def subtract_zero_point(node: OnnxNode, g: Graph, data_at: int, zero_at: int, axis: int) -> Value:
    """Return integers minus their zero point as FLOAT32; the zero point may be a vector along ``axis``."""
    tensor, rank = node.tensor(data_at), node.rank(data_at)
    axis %= max(rank, 1)  # the rows of a vector are its elements
    if node.has_input(zero_at) and not node.is_constant(zero_at):  # as after DynamicQuantizeLinear
        x = node.input(data_at)
        x = emit.float_constant(g, x.array, x.name) if x.is_constant else emit.as_float(g, x)
        offset = emit.as_float(g, node.input(zero_at))
        count = math.prod(emit.extents(offset))
        shape = [count if k == axis else 1 for k in range(rank)]
        return emit.sub(g, x, emit.reshape(g, offset, shape))
    zero = node.constant(zero_at).astype(np.int64) if node.has_input(zero_at) else np.zeros(1, np.int64)
    if not zero.size:
        raise node.invalid(f"input {zero_at} {list(zero.shape)} must have elements")
    if zero.ndim < 2 and zero.size > 1:
        if zero.size != node.shape(data_at)[axis]:
            raise node.invalid(f"{zero.size} zero points for the shape {list(node.shape(data_at))}")
        zero = zero.reshape([-1 if k == axis else 1 for k in range(rank)])
    if tensor.array is not None:
        return emit.float_constant(g, tensor.array.astype(np.int64) - zero, tensor.name)
    x = emit.as_float(g, node.input(data_at))
    if zero.size > 1:
        return emit.sub(g, x, emit.float_constant(g, zero, "zero_point"))
    number = int(zero.reshape(-1)[0])
    return emit.adds(g, x, -number) if number else x


@onnx_op("MatMulInteger", since=10)
def matmul_integer(node: OnnxNode, g: Graph) -> Result:
    """Matrix multiplication with 32-bit results, computed in FLOAT32: exact below 2^24."""
    a, b = subtract_zero_point(node, g, 0, 2, -2), subtract_zero_point(node, g, 1, 3, -1)
    y, shape = matmul_values(node, g, a, node.shape(0), b, node.shape(1))
    y = emit.cast(g, emit.reshape(g, y, shape or (1,)), DType.INT32)
    return node.result(y, element_types.INT32, scalar=shape == ())


@onnx_op("ConvInteger", since=10)
def conv_integer(node: OnnxNode, g: Graph) -> Result:
    """Convolution with 32-bit results, computed in FLOAT32: exact below 2^24."""
    x, w = subtract_zero_point(node, g, 0, 2, 1), subtract_zero_point(node, g, 1, 3, 0)
    y = conv_values(node, g, x, w, None, 0, 1)
    return node.result(emit.cast(g, y, DType.INT32), element_types.INT32)


def quantize_dynamically(g: Graph, x: Value, *, keep_dims: bool) -> tuple[Value, Value, Value]:
    """Quantize a tensor to UINT8 with a scale from its range. Return integers, scale and zero point as FLOAT32.

    The scale of a tensor that contains only zeros is 1.
    """
    axes = range(x.rank)
    high = emit.maxs(g, emit.reduce(g, ReduceMethodType.REDUCE_MAX, x, axes, keep_dims=keep_dims), 0)
    low = emit.mins(g, emit.reduce(g, ReduceMethodType.REDUCE_MIN, x, axes, keep_dims=keep_dims), 0)
    scale = emit.divs(g, emit.sub(g, high, low), 255)
    scale = emit.add(g, scale, g.add(Eqs(Scalar.f32(0)), scale))
    zero = functions.round_half_even(g, emit.muls(g, emit.div(g, low, scale), -1))
    zero = emit.mins(g, emit.maxs(g, zero, 0), 255)
    rounded = functions.round_half_even(g, emit.div(g, x, scale))
    return emit.mins(g, emit.maxs(g, emit.add(g, rounded, zero), 0), 255), scale, zero


@onnx_op("DynamicQuantizeLinear", since=11)
def dynamic_quantize(node: OnnxNode, g: Graph) -> list[Result]:
    """Compute scale and zero point from the range of the input, then quantize to UINT8."""
    y, scale, zero = quantize_dynamically(g, emit.floats(node.input(0)), keep_dims=False)
    return [
        node.result(g.add(Cast(DType.UINT8), y), element_types.UINT8),
        node.result(scale, element_types.FLOAT, scalar=True),
        node.result(g.add(Cast(DType.UINT8), zero), element_types.UINT8, scalar=True),
    ]
