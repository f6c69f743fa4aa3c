"""Float element-wise operators: a chain of them is one step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch

import numpy as np

from tpuconvert.runtime.native.builder.builder import Builder, Group
from tpuconvert.runtime.native.builder.storage import EXTERNAL, Order, Stored, row_major
from tpuconvert.runtime.native.matchers.elements import ELEMENT_TYPES
from tpuconvert.runtime.native.matchers.epilogue import bias_of
from tpuconvert.runtime.native.matchers.linear_float import (
    LINEAR_OPS,
    LinearOp,
    emit_linear,
    is_float_linear,
    linear,
)
from tpuconvert.runtime.native.matchers.matcher import Site, ends_with, names_of, operators_of
from tpuconvert.schema.definition.op import Op, Trait
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.activation import Active, ActiveParam, ActiveType
from tpuconvert.schema.ops.arithmetic import BinaryArithmetic
from tpuconvert.schema.ops.arithmetic_with_scalar import Axpy, ScalarArithmetic
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.compare import ScalarComparison, TensorComparison
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.quantization.dequant_int_to_fp32 import DequantIntToFp32
from tpuconvert.schema.ops.quantization.round_to_integer import Ceil, Floor, Round
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.smooth_activation import (
    Gelu,
    GeluForm,
    HardSigmoid,
    HardSwish,
    Mish,
    Silu,
    Softplus,
)
from tpuconvert.schema.ops.trigonometry import Cos, Sin
from tpuconvert.schema.types import F32

_MOST_OPERATIONS = 12
"""Maximum number of operations of one step, because the operands of a longer chain would all stay live."""

_LARGEST_ZERO = 2**22
"""Maximum zero point of a fused dequantization, for which differences are exact in float32."""


@dataclass(frozen=True)
class Operation:
    """One operation of a chain: name, tensor operand or None, and scalar parameters."""

    name: str
    operand: Value | None = None
    a: float = 0.0
    b: float = 0.0


@dataclass(frozen=True)
class Chain:
    """A sequence of operations that is applied to a value.

    Args:
        start: the value: floats, or integers of at most 16 bits.
        operations: operations in execution order.
        integers: stored type, zero point and scale if ``start`` is an integer tensor.
    """

    start: Value
    operations: list[Operation]
    integers: tuple[str, int, float] | None = None


def operations_of(node: Node, index: int = 0) -> list[Operation]:
    """Return the operations that an element-wise node applies to its operand ``index``."""
    return _operations(node.op, node, index)


@singledispatch
def _operations(op: Op, node: Node, index: int) -> list[Operation]:
    raise AssertionError(f"{op.name} has no operation in a chain")


@_operations.register
def _(op: BinaryArithmetic, node: Node, index: int) -> list[Operation]:
    is_reversed = index == 1 and Trait.COMMUTATIVE not in op.traits
    return _with_tensor(f"r{op.arithmetic.value}" if is_reversed else op.arithmetic.value, node, index)


@_operations.register
def _(op: TensorComparison, node: Node, index: int) -> list[Operation]:
    return _with_tensor((op.comparison.mirror if index else op.comparison).value, node, index)


def _with_tensor(name: str, node: Node, index: int) -> list[Operation]:
    other = node.inputs[1 - index]
    if other is not None and other.is_constant and other.array.size == 1:
        return [Operation(name, a=_number(other.array.reshape(())))]
    return [Operation(name, other)]


@_operations.register
def _(op: ScalarArithmetic, node: Node, index: int) -> list[Operation]:
    return [Operation(f"{'r' if op.scalar_first else ''}{op.arithmetic.value}", a=_number(op.scalar.array))]


@_operations.register
def _(op: ScalarComparison, node: Node, index: int) -> list[Operation]:
    return [Operation(op.comparison.value, a=_number(op.scalar_i1.array))]


@_operations.register
def _(op: Ceil | Floor | Round | Sin | Cos | HardSwish | Mish | Softplus, node: Node, index: int) -> list[Operation]:
    return [Operation(op.name)]


@_operations.register
def _(op: Active | ActiveParam, node: Node, index: int) -> list[Operation]:
    if op.active_type is ActiveType.ACTIVE_LEAKY_RELU:
        slope = op.params[0] if isinstance(op, ActiveParam) and op.params else 0.0
        return [Operation("leaky_relu", a=_number(slope))] if np.float32(slope) != 0 else [Operation("relu")]
    if op.active_type is ActiveType.ACTIVE_ABSVAL:
        return [Operation("abs")]
    return [Operation(op.active_type.name.removeprefix("ACTIVE_").lower())]


@_operations.register
def _(op: Axpy, node: Node, index: int) -> list[Operation]:
    return [Operation("mul", a=_number(op.scalar.array)), Operation("add", node.inputs[1])]


@_operations.register
def _(op: ConditionSelect, node: Node, index: int) -> list[Operation]:
    return [_select(*node.inputs[1:])]


@_operations.register
def _(op: Clamp, node: Node, index: int) -> list[Operation]:
    return [Operation("clamp", a=_number(op.min.array), b=_number(op.max.array))]


@_operations.register
def _(op: Gelu, node: Node, index: int) -> list[Operation]:
    return [Operation("gelu_tanh" if op.form is GeluForm.TANH else "gelu")]


@_operations.register
def _(op: HardSigmoid, node: Node, index: int) -> list[Operation]:
    return [Operation("hard_sigmoid", a=op.alpha, b=op.beta)]


@_operations.register
def _(op: Silu, node: Node, index: int) -> list[Operation]:
    return [Operation("silu", a=op.alpha)]


def _select(chosen: Value | None, other: Value | None) -> Operation:
    """Return the operation of a select whose condition is the result of the chain. One branch must be a scalar."""
    assert chosen is not None and other is not None
    name, tensor, number = ("choose", chosen, other) if _is_number(other) else ("choose_other", other, chosen)
    b = _number(number.array.reshape(()))
    if _is_number(tensor):
        return Operation(name, a=_number(tensor.array.reshape(())), b=b)
    return Operation(name, tensor, b=b)


ELEMENTWISE = operators_of(_operations)


@ends_with(
    *names_of(*ELEMENTWISE),
    kernels=("chain_float32", "conv_float32"),
    dtypes="FLOAT32; INT8 to UINT16 with a fused dequantization",
    conditions=(
        "a chain of at most 12 operations; conv_float32 where it follows a linear operator with constant weights"
    ),
)
def elementwise(node: Node, site: Site) -> Group | None:
    """Match a chain of element-wise operators with single uses, fused into a linear operator if possible."""
    if not _is_float(node):
        return None
    y = node.outputs[0]
    nodes, chain = _walk(node, site, through_linear=True)
    is_precise = any(item in site.precise for item in nodes)
    fused = _fuse_into_linear(chain, y, site, is_precise)
    if fused is not None:
        before, linear_op = fused
        return Group((*before, *nodes), lambda builder: emit_linear(builder, linear_op, y))
    nodes, chain = _fuse_dequantization(*_walk(node, site, through_linear=False), site)
    return Group(nodes, lambda builder: emit_chain(builder, chain, y, is_precise))


def _walk(node: Node, site: Site, *, through_linear: bool) -> tuple[tuple[Node, ...], Chain]:
    """Return the longest chain that ends with a node.

    Args:
        node: a float element-wise node.
        site: the context of the matcher.
        through_linear: True if the chain may contain nodes that could also be in the epilogue of a linear operator.
    """
    nodes: list[Node] = []
    chains: list[list[Operation]] = []
    step: Node | None = node
    start: Value | None = None
    while step is not None and sum(map(len, chains)) < _MOST_OPERATIONS:
        index, producer = _next_operand(step, site, through_linear)
        nodes.append(step)
        chains.append(operations_of(step, index))
        start, step = step.inputs[index], producer
    assert start is not None
    return tuple(reversed(nodes)), Chain(start, [item for operations in reversed(chains) for item in operations])


def _fuse_into_linear(chain: Chain, y: Value, site: Site, is_precise: bool) -> tuple[tuple[Node, ...], LinearOp] | None:
    """Return the linear operator that a chain can be fused into, and its nodes."""
    operands = {item.operand for item in chain.operations if item.operand is not None}
    if len(operands) > 1 or any(value.shape != y.shape for value in operands) or chain.start in operands:
        return None
    if chain.start.shape != y.shape:
        return None  # an operand repeats the result of the linear operator
    node = site.absorbable(chain.start, *LINEAR_OPS, Reshape)
    nodes: tuple[Node, ...] = () if node is None else (node,)
    if node is not None and isinstance(node.op, Reshape):
        node = site.absorbable(node.inputs[0], MatrixMul)
        nodes = () if node is None else (node, *nodes)
    if node is None or not is_float_linear(node):
        return None
    tail = tuple((item.name, -1 if item.operand is None else 1, item.a, item.b) for item in chain.operations)
    residual = next(iter(operands), None)
    return nodes, LinearOp(node, residual, None, tail, is_precise or node in site.precise)


def _fuse_dequantization(nodes: tuple[Node, ...], chain: Chain, site: Site) -> tuple[tuple[Node, ...], Chain]:
    """Fuse the dequantization that computes the only tensor operand of a chain, if there is one.

    The chain then reads integers, which have a half or a quarter of the bytes.
    """
    node = site.absorbable(chain.start, DequantIntToFp32)
    if node is None or any(item.operand is not None for item in chain.operations):
        return nodes, chain
    op, (x,) = node.op, node.inputs
    assert isinstance(op, DequantIntToFp32) and x is not None
    if op.is_scale_pc or op.is_offset_pc or x.is_constant or abs(op.offset_val) >= _LARGEST_ZERO:
        return nodes, chain
    integers = ELEMENT_TYPES[x.dtype], op.offset_val + bias_of(x.dtype), op.scale_val
    return (node, *nodes), Chain(x, chain.operations, integers)


def emit_chain(builder: Builder, chain: Chain, y: Value, is_precise: bool) -> None:
    """Add the step of a chain."""
    order = _order(builder, chain, y)
    extents = builder.shape(y)
    tensors: dict[Value, int] = {}
    for value in (chain.start, *(item.operand for item in chain.operations)):
        if value is not None:
            tensors.setdefault(value, len(tensors))
    operands = [_readable(builder, value, order) for value in tensors]
    target = builder.write(y, order)
    spec = builder.native.ChainFloatSpec(
        output=builder.place(target),
        shape=[extents[axis] for axis in order],
        operands=[(builder.place(item), _steps(item, order)) for item in operands],
        ops=[
            (item.name, -1 if item.operand is None else tensors[item.operand], item.a, item.b)
            for item in chain.operations
        ],
        start=chain.integers,
        is_precise=is_precise,
    )
    builder.step("chain_float32", spec, operands, (target,))


def _order(builder: Builder, chain: Chain, y: Value) -> Order:
    """Return the memory order of the users, else of an operand with the shape of the result, else row-major."""
    shape = builder.shape(y)
    requested = builder.order_wanted(y)
    if requested is not None:
        return requested
    for value in (chain.start, *(item.operand for item in chain.operations)):
        if value is not None and not value.is_constant and builder.shape(value) == shape:
            return builder.memory_of(value).order
    return row_major(y.rank)


def _readable(builder: Builder, value: Value, order: Order) -> Stored:
    """Return an operand that is contiguous along the innermost axis. Its rows may be in any order."""
    inner = next((axis for axis in reversed(order) if builder.shape(value)[axis] != 1), order[-1])
    if not value.is_constant:
        stored = builder.memory_of(value)
        if stored.buffer.kind != EXTERNAL and stored.strides[inner] == stored.itemsize:
            return stored
    return builder.read(value, order, dense=builder.shape(value)[order[-1]] == 1)


def _steps(stored: Stored, order: Order) -> list[int]:
    """Strides in bytes; 0 along axes that are broadcast."""
    return [0 if stored.shape[axis] == 1 else stored.strides[axis] for axis in order]


def _is_float(node: Node) -> bool:
    values = [value for value in (*node.inputs, *node.outputs) if value is not None]
    if isinstance(node.op, ConditionSelect):
        if not any(map(_is_number, node.inputs[1:])):
            return False  # Kernels support three tensors.
        values = [value for value in values if not _is_number(value)]
    if isinstance(node.op, ScalarComparison) and node.op.scalar_i1.dtype is not F32:
        return False
    return all(value.dtype is F32 for value in values) and all(
        value.rank == node.outputs[0].rank > 0 for value in values
    )


def _is_number(value: Value | None) -> bool:
    return value is not None and value.is_constant and value.dtype is F32 and value.array.size == 1


def _absorbable_producer(value: Value | None, y: Value, site: Site, through_linear: bool) -> Node | None:
    """Return the producer of an operand if it can be part of the chain: element-wise, of the same shape."""
    producer = site.absorbable(value, *ELEMENTWISE)
    if producer is None or not _is_float(producer) or producer.outputs[0].shape != y.shape:
        return None
    return producer if through_linear or linear(producer, site) is None else None


def _next_operand(node: Node, site: Site, through_linear: bool) -> tuple[int, Node | None]:
    """Return the index of the operand with which the chain continues, and its producer if that is part of the chain.

    Operands whose producer can be absorbed have precedence, then results of linear operators, then operands with the
    shape of the result.
    """
    y = node.outputs[0]
    places = range(len(node.inputs)) if Trait.BINARY in node.op.traits else range(1)
    for index in places:
        producer = _absorbable_producer(node.inputs[index], y, site, through_linear)
        if producer is not None:
            return index, producer
    linear_operands = [
        index for index in places if site.absorbable(node.inputs[index], *LINEAR_OPS, Reshape) is not None
    ]
    for index in (*linear_operands, *places):
        value = node.inputs[index]
        if value is not None and value.shape == y.shape and not value.is_constant:
            return index, None
    return 0, None


def _number(value: object) -> float:
    """Round a float to float32."""
    return float(np.asarray(value, np.float32))
