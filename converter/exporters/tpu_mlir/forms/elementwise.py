"""Lowerings of element-wise integer operators: add, subtract, multiply, clamp, lookup tables and shifts."""

from __future__ import annotations

import numpy as np

from tpuconvert.exporters.lowerings import NoExactForm
from tpuconvert.exporters.tpu_mlir.dialect import Tensor
from tpuconvert.exporters.tpu_mlir.forms.requantization import binary, rescale_of, round_mode_of
from tpuconvert.exporters.tpu_mlir.lowering import Lowering, channel_count, static_shape
from tpuconvert.exporters.tpu_mlir.registry import lowers, lowers_bm1684
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.arithmetic import Add, BinaryArithmetic, Max, Min, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Muls, Rsubs, ScalarArithmetic, Subs
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.quantization.lut import Lut
from tpuconvert.schema.ops.shifts.arithmetic_shift import ArithmeticShift
from tpuconvert.schema.types import Chip, DType

_WIDTH = {DType.INT8: "si8", DType.UINT8: "ui8", DType.INT32: "si32"}


def operand(d: Lowering, value: Value | None, name: str) -> Tensor:
    """Return the tensor of an operand, which may be a constant."""
    assert value is not None
    if not value.is_constant:
        return d.tensor(value)
    if value.dtype not in _WIDTH:
        raise NoExactForm(f"constant '{value.name}' has type {value.dtype.name}, expected 8 or 32 bits")
    return d.module.weight(value.array, _WIDTH[value.dtype], f"{name}_constant")


def _exact(node: Node, d: Lowering, mode: str) -> None:
    """Append an integer add, subtract or multiply. If a shift is the only user of the sum, fuse it."""
    y = node.output
    if y.dtype is DType.FLOAT32:
        raise NoExactForm("it computes in floating point")
    a, b = (operand(d, value, y.name) for value in node.inputs)
    user = d.sole_user(y, "requant_int32") if y.dtype is DType.INT32 and mode == "Add" else None
    if user is not None:
        rescale = rescale_of(user.op, channel_count(y))  # type: ignore[arg-type]
        is_shift = rescale.mode == "MultiplierShift" and set(rescale.multipliers) == {1}
        if is_shift and len(set(rescale.shifts)) == 1 and not any(rescale.zero_points) and rescale.shifts[0] <= 0:
            d.mark_fused(user)
            z = user.output
            d.define(z, binary(d, mode, a, b, static_shape(z), d.element(z), z.name, rescale.shifts[0]))
            return
    d.define(y, binary(d, mode, a, b, static_shape(y), d.element(y), y.name))


@lowers(Add)
def add(op: Add, node: Node, d: Lowering) -> None:
    """Lower a saturating add."""
    _exact(node, d, "Add")


@lowers(Sub)
def sub(op: Sub, node: Node, d: Lowering) -> None:
    """Lower a saturating subtract."""
    _exact(node, d, "Sub")


@lowers(Mul)
def mul(op: Mul, node: Node, d: Lowering) -> None:
    """Lower a saturating multiply."""
    _exact(node, d, "Mul")


@lowers(Adds, Subs, Rsubs, Muls)
def arithmetic_with_number(op: ScalarArithmetic, node: Node, d: Lowering) -> None:
    """Lower saturating arithmetic of integers with a number. Products of narrower integers round in floating point."""
    x, y = node.inputs[0], node.output
    if y.dtype is DType.FLOAT32 or not op.scalar.dtype.is_integer:
        raise NoExactForm("it computes in floating point")
    assert x is not None
    if isinstance(op, Muls) and (x.dtype, y.dtype) != (DType.INT32, DType.INT32):
        raise NoExactForm(f"a product of {x.dtype.name} with a number, expected INT32")
    number = d.module.weight(np.full((1,) * x.rank, op.scalar.value, np.int32), "si32", f"{y.name}_number")
    a, b = (number, d.tensor(x)) if op.scalar_first else (d.tensor(x), number)
    d.define(y, binary(d, op.arithmetic.name.capitalize(), a, b, static_shape(y), d.element(y), y.name))


@lowers(Lut)
@lowers_bm1684(Lut)
def lut(op: Lut, node: Node, d: Lowering) -> None:
    """Lower a lookup table of 256 elements, indexed by the unsigned byte. BM1684 reads one word per element."""
    x, table, y = node.inputs[0], node.inputs[1], node.output
    assert table is not None
    if not table.is_constant:
        raise NoExactForm("its table is computed, expected a constant")
    if table.dtype not in (DType.INT8, DType.UINT8):
        raise NoExactForm(f"its table has type {table.dtype.name}, expected 8 bits")
    width = "si32" if d.target.chip is Chip.BM1684 else _WIDTH[table.dtype]
    weight = d.module.weight(table.array.reshape(-1), width, f"{y.name}_table", (1, 1, 1, 256))
    d.add("tpu.Lut", [d.tensor(x), weight], y)


@lowers(Clamp)
def clamp(op: Clamp, node: Node, d: Lowering) -> None:
    """Lower a clamp of an integer tensor."""
    x, y = node.inputs[0], node.output
    if not y.dtype.is_integer:
        raise NoExactForm("it computes in floating point")
    tensor = d.tensor(x)
    limits = [("tpu.MinConst", op.max.value)] if op.max.value < y.dtype.max else []
    limits += [("tpu.MaxConst", op.min.value)] if op.min.value > y.dtype.min else []
    for index, (operation, limit) in enumerate(limits):
        name = y.name if index == len(limits) - 1 else f"{y.name}_limited"
        tensor = d.module.add(operation, [tensor], static_shape(y), d.element(y), name, const_val=float(limit))
    d.define(y, tensor)


@lowers(Max, Min)
def extremum(op: BinaryArithmetic, node: Node, d: Lowering) -> None:
    """Lower an element-wise maximum or minimum."""
    y = node.output
    if y.dtype is DType.FLOAT32:
        raise NoExactForm("it computes in floating point")
    operands = [d.tensor(value) for value in node.inputs]
    d.add(f"tpu.{op.name.capitalize()}", operands, y)


@lowers(ArithmeticShift)
def arithmetic_shift(op: ArithmeticShift, node: Node, d: Lowering) -> None:
    """Lower a shift by a constant amount, rounded and saturated. A shift to the left does not round."""
    x, y = node.inputs[0], node.output
    mode = "HalfUp" if op.shift >= 0 else round_mode_of(op.rounding_mode)
    assert x is not None
    one = d.module.weight(np.ones((1,) * x.rank, np.int8), "si8", f"{y.name}_one")
    d.add("tpu.BinaryShift", [d.tensor(x), one], y, mode="Mul", shift=op.shift, round_mode=mode)
