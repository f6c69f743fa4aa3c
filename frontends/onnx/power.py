"""Pow as square, root, reciprocal, repeated multiplication, or ``exp(y * ln(x))``."""

from __future__ import annotations

import numpy as np

from tpuconvert.frontends import emit, functions
from tpuconvert.frontends.onnx.elementwise import BEFORE_NUMPY_BROADCASTING, as_float_operand
from tpuconvert.frontends.onnx.mod import widened_to
from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.schema.errors import UNSUPPORTED_TYPE
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.ops import formulas
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.types import Array, DType


@onnx_op("Pow", since=1)
def power(node: OnnxNode, g: Graph) -> Result:
    """``x ** y``: square, root, reciprocal or repeated multiplication by constant ``y``, else ``exp(y * ln(x))``."""
    x = node.input(0)
    exponent = _exponent(node)
    whole = _whole_exponents(node)
    if x.dtype is not DType.FLOAT32 and (whole is None or x.dtype is not DType.INT32):
        hint = "supported: constant whole exponents from 0 to 64 of int32"
        raise node.fail(UNSUPPORTED_TYPE, "a power of integers", hint, needs=node.tensor(1))
    if whole is not None and (exponent is None or x.dtype is DType.INT32):
        return node.elementwise(_whole_powers(g, x, whole))
    if exponent is not None:
        return node.elementwise(functions.constant_power(g, x, exponent))
    base = node.constant(0) if node.is_constant(0) else None
    y = as_float_operand(g, node.input(1))
    if base is not None:
        if (base <= 0).any():
            raise node.fail(UNSUPPORTED_TYPE, "a constant base that is zero or negative", "supported: positive")
        logarithm = emit.float_constant(g, np.log(base.astype(np.float64)), "ln_base")
        return node.elementwise(formulas.exp(g, emit.mul(g, y, logarithm)))
    g.notes.append(f"Pow '{node.name}' is computed as exp(y * ln(x)): its base must be positive")
    return node.elementwise(formulas.exp(g, emit.mul(g, y, formulas.ln(g, x))))


def _exponent(node: OnnxNode) -> float | None:
    """Return the exponent if it is a constant with one element that does not change the rank, else None."""
    if not node.is_constant(1):
        return None
    found = node.constant(1)
    if node.version < BEFORE_NUMPY_BROADCASTING:
        node.optional_attr("broadcast")
        node.optional_attr("axis")
    is_one = found.size and (found == found.reshape(-1)[0]).all()
    if not is_one or emit.broadcast_shape(found.shape, node.shape(0)) != node.shape(0):
        return None
    return float(found.reshape(-1)[0])


def _whole_exponents(node: OnnxNode) -> Array | None:
    """Return constant exponents if they are integers from 0 to 64, else None."""
    if not node.is_constant(1):
        return None
    found = node.constant(1)
    is_whole = found.size > 0 and bool(((found >= 0) & (found <= 64) & (found == np.floor(found))).all())
    return found.astype(np.int32) if is_whole else None


def _whole_powers(g: Graph, x: Value, exponents: Array) -> Value:
    """Raise each element to its own power: multiply by one factor per bit of the exponents, 1 if the bit is 0."""
    shape = emit.broadcast_shape(emit.extents(x), exponents.shape)
    base, result = emit.expand(g, x, shape), None
    for digit in range(int(exponents.max()).bit_length()):
        if digit:
            base = emit.mul(g, base, base)
        bits = np.atleast_1d((exponents >> digit) & 1)
        factor = base if bits.all() else _base_or_one(g, base, bits)
        result = factor if result is None else emit.mul(g, result, factor)
    return emit.adds(g, emit.muls(g, base, 0), 1) if result is None else result


def _base_or_one(g: Graph, base: Value, bits: Array) -> Value:
    """``where(bits == 1, base, 1)``."""
    if base.dtype is DType.INT32:
        kept = emit.mul(g, base, g.constant(bits.astype(np.int32), name="digit"))
        return emit.add(g, kept, g.constant((1 - bits).astype(np.int32), name="digit"))
    condition = widened_to(g, emit.float_constant(g, bits, "digit"), emit.extents(base))
    return g.add(ConditionSelect(), condition, base, emit.float_constant(g, np.ones(1), "one"))
