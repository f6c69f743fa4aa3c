"""Bitwise operators and shifts of integers of up to 32 bits, and BitCast of constants."""

from __future__ import annotations

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.onnx.file import element_types
from tpuconvert.frontends.onnx.file.element_types import ELEMENTS, SMALL
from tpuconvert.frontends.onnx.node import Folded, OnnxNode, Result, folds, onnx_op
from tpuconvert.frontends.registry import Kind
from tpuconvert.frontends.small_integers import widen_to_int32, wrap_to_range
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.errors import UNSUPPORTED_TYPE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.bit_logic import BitAnd, BitOr, BitXor, BitXors
from tpuconvert.schema.ops.compare import Lts
from tpuconvert.schema.ops.shifts.shift_by_amount import ArithLshift, ArithRshift
from tpuconvert.schema.types import Array, DType, Scalar


def _integer(node: OnnxNode, index: int) -> Value:
    x = node.input(index)
    if not x.dtype.is_integer:
        raise node.fail(UNSUPPORTED_TYPE, f"its input is {node.element(index)}", "supported: integers")
    return x


def _bitwise(name: str, op: type[Op]) -> None:
    def convert(node: OnnxNode, g: Graph) -> Result:
        a, b = _integer(node, 0), _integer(node, 1)
        shape = emit.broadcast_shape(emit.extents(a), emit.extents(b))  # the TPU operators require equal shapes
        return node.elementwise(g.add(op(), emit.expand(g, a, shape), emit.expand(g, b, shape)))

    convert.__doc__ = f"{name}, element by element."
    onnx_op(name, since=18)(convert)


_bitwise("BitwiseAnd", BitAnd)
_bitwise("BitwiseOr", BitOr)
_bitwise("BitwiseXor", BitXor)


@onnx_op("BitwiseNot", since=18, kind=Kind.DIRECT)
def bitwise_not(node: OnnxNode, g: Graph) -> Result:
    """Bitwise complement: exclusive or with all ones."""
    x = _integer(node, 0)
    ones = -1 if x.dtype.is_signed else x.dtype.max
    return node.elementwise(g.add(BitXors(Scalar(x.dtype, ones)), x))


_BEYOND = 63
"""Shift amount that is at least the width of every type."""


@onnx_op("BitShift", since=11, limits="32-bit unsigned integers to the right only")
def bit_shift(node: OnnxNode, g: Graph) -> Result:
    """``x << y`` or ``x >> y``; 8- and 16-bit integers in INT32. A negative amount shifts out all bits."""
    direction = node.required_attr("direction", "")
    if direction not in ("LEFT", "RIGHT"):
        raise node.invalid(f"direction='{direction}'", "LEFT or RIGHT")
    element = node.element(0)
    x, amounts = node.input(0), node.input(1)
    if not (x.dtype.is_integer and amounts.dtype.is_integer):
        raise node.fail(UNSUPPORTED_TYPE, f"its input is {element}", "supported: integers")
    if direction == "LEFT" and (element.bits == 64 or element is element_types.UINT32):
        raise node.fail(UNSUPPORTED_TYPE, f"shifts {element} to the left", "supported: int32 and narrower integers")
    shape = emit.broadcast_shape(emit.extents(x), emit.extents(amounts))
    wide, by = (widen_to_int32(g, value) for value in (x, amounts))
    wide, by = emit.expand(g, wide, shape), emit.expand(g, by, shape)
    below = emit.cast(g, g.add(Lts(Scalar.f32(0)), emit.as_float(g, by)), DType.INT32)
    by = emit.add(g, emit.clamp(g, by, 0, _BEYOND), emit.muls(g, below, _BEYOND))
    shifted = g.add(ArithLshift() if direction == "LEFT" else ArithRshift(), wide, by)
    return node.elementwise(wrap_to_range(g, shifted, x.dtype) if x.dtype in SMALL else shifted)


@folds("BitShift", since=11)
def shift_constant(node: OnnxNode, _: Graph) -> Array:
    """Shift a constant in its own type; bits outside the width are dropped."""
    x, amounts = node.constant(0), node.constant(1)
    node.budget(np.broadcast_shapes(x.shape, amounts.shape), 8)
    bits = x.dtype.itemsize * 8
    is_left = node.required_attr("direction", "") == "LEFT"
    is_beyond = (amounts < 0) | (amounts >= bits)
    by = np.where(is_beyond, 0, amounts).astype(x.dtype)
    if is_left:
        return np.where(is_beyond, 0, np.left_shift(x, by)).astype(x.dtype)
    return np.where(is_beyond, np.where(x < 0, -1, 0), np.right_shift(x, by)).astype(x.dtype)


@folds("BitCast", since=26)
def bit_cast(node: OnnxNode, _: Graph) -> Folded:
    """Reinterpret the bytes of a constant as another type of the same width."""
    x, code = node.constant(0), node.required_attr("to", 0)
    target = ELEMENTS.get(code)
    is_plain = all(e is not None and e.bits == e.numpy.itemsize * 8 for e in (target, node.element(0)))
    if target is None or not is_plain or target.bits != node.element(0).bits:
        raise node.fail(UNSUPPORTED_TYPE, f"BitCast of {node.element(0)} to type {code}", "supported: equal widths")
    return Folded(np.ascontiguousarray(x).view(target.numpy).reshape(x.shape), target)
