"""Element-wise operators that no other matcher takes: comparisons, selections, bit logic, shifts, any type.

One node is one step, which computes in 64-bit integers or in binary32.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from typing import NamedTuple

import numpy as np

from tpuconvert.runtime.native.builder.builder import Builder, Group
from tpuconvert.runtime.native.builder.storage import EXTERNAL, Order, Stored, row_major
from tpuconvert.runtime.native.matchers.matcher import GENERAL, Site, ends_with, names_of, operators_of
from tpuconvert.schema.arithmetic.elementwise import Arithmetic
from tpuconvert.schema.arithmetic.fixed_point import RoundingMode
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.arithmetic import BinaryArithmetic
from tpuconvert.schema.ops.arithmetic_with_scalar import ScalarArithmetic
from tpuconvert.schema.ops.bit_logic import ScalarLogic, TensorLogic
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.compare import ScalarComparison, TensorComparison
from tpuconvert.schema.ops.selection import ConditionSelect, Select, SelectType
from tpuconvert.schema.ops.shifts.arithmetic_shift import ArithmeticPcShift, ArithmeticShift
from tpuconvert.schema.ops.shifts.logical_shift import LogicalPcShift, LogicalShift
from tpuconvert.schema.ops.shifts.shift_by_amount import (
    ArithLshift,
    ArithLshifts,
    ArithRshift,
    ArithRshifts,
    RoundRshift,
    RoundRshifts,
)
from tpuconvert.schema.ops.stride_arithmetic import SampledArithmetic
from tpuconvert.schema.types import F16, F32, I8, I16, I32, U8, U16, U32, Array, Chip, DType

ANY_TYPES = {I8: "s8", U8: "u8", I16: "i16", U16: "u16", I32: "i32", U32: "u32", F16: "f16", F32: "f32"}
"""Element types of the kernels of ``runtime/kernels/general``."""


class Vector(NamedTuple):
    """An operand with one element per index of an axis."""

    value: Value
    axis: int


class Samples(NamedTuple):
    """An operand of which every ``steps``-th element from ``starts`` is read; axes of extent 1 are broadcast."""

    value: Value
    starts: tuple[int, ...]
    steps: tuple[int, ...]


Operand = Value | Array | Vector | Samples
"""A tensor that broadcasts, a number, a vector along an axis, or samples of a tensor."""


class Computation(NamedTuple):
    """Operation of the kernel, its operands, and how a result of shifts is rounded."""

    operation: str
    operands: tuple[Operand, ...]
    rounding: RoundingMode = RoundingMode.HALF_TO_EVEN
    is_through_float: bool = False
    """True if integers are converted to binary32, and the result is rounded."""


@singledispatch
def _computation(op: Op, node: Node, chip: Chip) -> Computation | None:
    return None


def _operand(node: Node, index: int = 0) -> Value:
    value = node.inputs[index]
    assert value is not None
    return value


def _is_through_float(dtype: DType, chip: Chip) -> bool:
    """Return True if a chip computes arithmetic of the type in binary32."""
    return dtype is I32 and chip is not Chip.BM1686


@_computation.register
def _binary(op: BinaryArithmetic, node: Node, chip: Chip) -> Computation:
    through = _is_through_float(node.outputs[0].dtype, chip)
    return Computation(op.arithmetic.value, (_operand(node), _operand(node, 1)), is_through_float=through)


@_computation.register
def _sampled(op: SampledArithmetic, node: Node, chip: Chip) -> Computation:
    return Computation(
        op.arithmetic.value, tuple(Samples(_operand(node, index), op.offsets, op.stride) for index in range(2))
    )


@_computation.register
def _scalar(op: ScalarArithmetic, node: Node, chip: Chip) -> Computation:
    pair: tuple[Operand, Operand] = (_operand(node), op.scalar.array)
    through = _is_through_float(node.outputs[0].dtype, chip)
    return Computation(op.arithmetic.value, pair[::-1] if op.scalar_first else pair, is_through_float=through)


@_computation.register
def _clamp(op: Clamp, node: Node, chip: Chip) -> Computation:
    x = _operand(node)
    low, high = (bound.array.astype(np.float32 if x.dtype is I32 else x.dtype.numpy) for bound in (op.min, op.max))
    return Computation("clamp", (x, low, high), is_through_float=x.dtype is I32)


@_computation.register
def _cast(op: Cast, node: Node, chip: Chip) -> Computation:
    x = _operand(node)
    return Computation("copy", (x,), is_through_float=x.dtype.is_float or node.outputs[0].dtype.is_float)


@_computation.register
def _compare(op: TensorComparison, node: Node, chip: Chip) -> Computation:
    return Computation(op.comparison.value, (_operand(node), _operand(node, 1)))


@_computation.register
def _compare_scalar(op: ScalarComparison, node: Node, chip: Chip) -> Computation:
    return Computation(op.comparison.value, (_operand(node), op.scalar_i1.array))


@_computation.register
def _condition_select(op: ConditionSelect, node: Node, chip: Chip) -> Computation:
    return Computation("select_positive", tuple(_operand(node, index) for index in range(3)))


@_computation.register
def _select(op: Select, node: Node, chip: Chip) -> Computation:
    name = "select_greater" if op.select_type is SelectType.GREATER_THAN else "select_greater_equal"
    return Computation(name, tuple(_operand(node, index) for index in range(4)))


@_computation.register
def _logic(op: TensorLogic, node: Node, chip: Chip) -> Computation:
    return Computation(_logic_name(op), (_operand(node), _operand(node, 1)))


@_computation.register
def _logic_scalar(op: ScalarLogic, node: Node, chip: Chip) -> Computation:
    return Computation(_logic_name(op), (_operand(node), op.scalar_i.array))


def _logic_name(op: TensorLogic | ScalarLogic) -> str:
    return {"bitwise_and": "bit_and", "bitwise_or": "bit_or", "bitwise_xor": "bit_xor"}[op.logic.__name__]


@_computation.register
def _shift(op: ArithmeticShift | LogicalShift, node: Node, chip: Chip) -> Computation:
    name = "shift_saturating" if isinstance(op, ArithmeticShift) else "shift_logical"
    return Computation(name, (_operand(node), np.asarray(op.shift, np.int32)), op.rounding_mode)


@_computation.register
def _channel_shift(op: ArithmeticPcShift | LogicalPcShift, node: Node, chip: Chip) -> Computation:
    name = "shift_saturating" if isinstance(op, ArithmeticPcShift) else "shift_logical"
    x = _operand(node)
    return Computation(name, (x, Vector(_operand(node, 1), op.shift_axis % x.rank)), op.rounding_mode)


def _tensor_shift(name: str, node: Node) -> Computation:
    return Computation(name, (_operand(node), _operand(node, 1)))


def _scalar_shift(name: str, node: Node, amount: int | Array) -> Computation:
    return Computation(name, (_operand(node), np.asarray(amount, np.int32)))


@_computation.register
def _left_shift(op: ArithLshift, node: Node, chip: Chip) -> Computation:
    return _tensor_shift("shift_wrapping", node)


@_computation.register
def _right_shift(op: ArithRshift, node: Node, chip: Chip) -> Computation:
    return _tensor_shift("shift_wrapping_right", node)


@_computation.register
def _rounding_shift(op: RoundRshift, node: Node, chip: Chip) -> Computation:
    return _tensor_shift("shift_rounding_right", node)


@_computation.register
def _left_shift_by_scalar(op: ArithLshifts, node: Node, chip: Chip) -> Computation:
    return _scalar_shift("shift_wrapping", node, op.amount)


@_computation.register
def _right_shift_by_scalar(op: ArithRshifts, node: Node, chip: Chip) -> Computation:
    return _scalar_shift("shift_wrapping_right", node, op.amount)


@_computation.register
def _rounding_shift_by_scalar(op: RoundRshifts, node: Node, chip: Chip) -> Computation:
    return _scalar_shift("shift_rounding_right", node, op.amount)


@ends_with(
    *names_of(*operators_of(_computation)),
    kernels=("any_elements",),
    dtypes="all",
    conditions="what the other matchers and kernels of the operator decline",
    priority=GENERAL,
)
def any_elements(node: Node, site: Site) -> Group | None:
    """Match an element-wise operator by itself."""
    computation = _computation(node.op, node, Chip(site.chip))
    if computation is None or not _is_supported(computation, node):
        return None
    return Group((node,), lambda builder: _emit(builder, node, computation))


def _is_supported(formula: Computation, node: Node) -> bool:
    types = [value.dtype for value in node.inputs if value is not None]
    has_floats = any(dtype.is_float for dtype in types)
    if formula.is_through_float:
        if node.outputs[0].dtype is U32:  # the kernel rounds floats to signed integers
            return False
        return isinstance(node.op, (Cast, Clamp)) or formula.operation in {item.value for item in Arithmetic}
    return has_floats == node.outputs[0].dtype.is_float and (has_floats or formula.operation != Arithmetic.DIV.value)


def _emit(builder: Builder, node: Node, formula: Computation) -> None:
    y = node.outputs[0]
    order = _order(builder, node)
    target = builder.write(y, order)
    native, is_float = builder.native, formula.is_through_float or y.dtype.is_float
    reads: list[Stored] = []
    operands = []
    for operand in formula.operands:
        stored, strides = _read(builder, operand, y, order, is_float=is_float)
        reads.append(stored)
        operands.append(native.AnyTensor(place=builder.place(stored), type=ANY_TYPES[stored.dtype], strides=strides))
    spec = native.AnyElementsSpec(
        operation=formula.operation,
        domain="float" if is_float else "small integer" if _fits_32_bits(formula.operation, reads, y) else "integer",
        shape=[builder.shape(y)[axis] for axis in order],
        operands=operands,
        result=native.AnyTensor(
            place=builder.place(target), type=ANY_TYPES[y.dtype], strides=[steps(target)[axis] for axis in order]
        ),
        low=0 if y.dtype.is_float else y.dtype.min,
        high=0 if y.dtype.is_float else y.dtype.max,
        rounding=int(formula.rounding),
    )
    builder.step("any_elements", spec, reads, (target,))


_WITHOUT_OVERFLOW = frozenset(
    {"gt", "ge", "lt", "le", "eq", "ne", "max", "min", "bit_and", "bit_or", "bit_xor"}
    | {"select_positive", "select_greater", "select_greater_equal", "clamp"}
)


def _fits_32_bits(operation: str, operands: Sequence[Stored], y: Value) -> bool:
    """Return True if neither operands nor results of an integer operation have more than 32 bits with a sign."""
    types = [*(stored.dtype for stored in operands), y.dtype]
    if operation in ("add", "sub"):
        return all(dtype.bits <= 16 for dtype in types)
    return operation in _WITHOUT_OVERFLOW and U32 not in types


def steps(stored: Stored) -> list[int]:
    """Return the strides of a tensor in elements, in the graph's axis order."""
    return [step // stored.itemsize for step in stored.strides]


def _order(builder: Builder, node: Node) -> Order:
    """Return the memory order of the first operand with the shape of the result."""
    shape = builder.shape(node.outputs[0])
    for value in node.inputs:
        if value is not None and not value.is_constant and builder.shape(value) == shape:
            return builder.memory_of(value).order
    return row_major(len(shape))


def _read(
    builder: Builder, operand: Operand, y: Value, order: Order, *, is_float: bool
) -> tuple[Stored, Sequence[int]]:
    """Return the memory of an operand, and its strides in elements along the axes of the result, outermost first."""
    if isinstance(operand, np.ndarray):
        kind = np.float32 if is_float else np.int32 if I32.holds(int(operand)) else np.uint32
        return builder.constant(operand.astype(kind).reshape(1)), [0] * len(order)
    if isinstance(operand, Vector):
        stored = readable(builder, operand.value)
        return stored, [steps(stored)[0] if axis == operand.axis else 0 for axis in order]
    if isinstance(operand, Samples):
        stored = readable(builder, operand.value)
        wide = [axis for axis in order if stored.shape[axis] != 1]
        first = sum(operand.starts[axis] * stored.strides[axis] for axis in wide)
        along = [steps(stored)[axis] * operand.steps[axis] if axis in wide else 0 for axis in order]
        return stored._replace(offset=stored.offset + first), along
    stored = readable(builder, operand)
    shape, own = builder.shape(y), builder.shape(operand)
    if all(extent == 1 for extent in own):
        return stored, [0] * len(order)
    return stored, [steps(stored)[axis] if own[axis] == shape[axis] != 1 else 0 for axis in order]


def readable(builder: Builder, value: Value) -> Stored:
    """Return the memory of a value in any order; INT8 of the caller is copied, because its representation differs."""
    if not value.is_constant and value.dtype is not I8:
        source = builder.memory_of(value)
        if source.buffer.kind == EXTERNAL:
            return source
    return builder.read(value, dense=False)
