"""Element-wise float operators: chains of them become one step."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tpuconvert.runtime.native.builder import Builder
from tpuconvert.runtime.native.groups import Group, Site, ends_with
from tpuconvert.runtime.native.plan_float_products import product
from tpuconvert.runtime.native.storage import Order, Stored, row_major
from tpuconvert.schema.graph import Node, Value, static
from tpuconvert.schema.op import Op
from tpuconvert.schema.ops.activation import Active, ActiveParam, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Div, Max, Min, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Axpy, Divs, Maxs, Mins, Muls, Rdivs, Rsubs, Subs
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.round_to_integer import Ceil, Floor, Round
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
"""Of one step; a chain of a few hundred would keep as many operands alive."""

_FUNCTIONS: dict[ActiveType, str] = {
    ActiveType.ACTIVE_TANH: "tanh",
    ActiveType.ACTIVE_SIGMOID: "sigmoid",
    ActiveType.ACTIVE_RELU: "relu",
    ActiveType.ACTIVE_EXP: "exp",
    ActiveType.ACTIVE_ELU: "elu",
    ActiveType.ACTIVE_SQRT: "sqrt",
    ActiveType.ACTIVE_SQUARE: "square",
    ActiveType.ACTIVE_RSQRT: "rsqrt",
    ActiveType.ACTIVE_ABSVAL: "abs",
    ActiveType.ACTIVE_LN: "ln",
    ActiveType.ACTIVE_ROUND: "round",
    ActiveType.ACTIVE_CEIL: "ceil",
    ActiveType.ACTIVE_FLOOR: "floor",
    ActiveType.ACTIVE_SIN: "sin",
    ActiveType.ACTIVE_COS: "cos",
}

_PAIRS: dict[type[Op], tuple[str, str]] = {
    Add: ("add", "add"),
    Sub: ("sub", "rsub"),
    Mul: ("mul", "mul"),
    Div: ("div", "rdiv"),
    Max: ("max", "rmax"),
    Min: ("min", "rmin"),
}
"""The operation where the chain goes on from the first operand, and from the second."""

_NUMBERS: dict[type[Op], str] = {
    Adds: "add",
    Subs: "sub",
    Rsubs: "rsub",
    Muls: "mul",
    Divs: "div",
    Rdivs: "rdiv",
    Maxs: "max",
    Mins: "min",
}

_PLAIN: dict[type[Op], str] = {
    Ceil: "ceil",
    Floor: "floor",
    Round: "round",
    Sin: "sin",
    Cos: "cos",
    HardSwish: "hard_swish",
    Mish: "mish",
    Softplus: "softplus",
}

ELEMENTWISE: tuple[type[Op], ...] = (
    *_PAIRS,
    *_NUMBERS,
    *_PLAIN,
    Active,
    ActiveParam,
    Axpy,
    Clamp,
    Gelu,
    HardSigmoid,
    Silu,
)


@dataclass(frozen=True)
class Operation:
    """One operation of a chain: its name, the second operand if that is a tensor, and its numbers."""

    name: str
    operand: Value | None = None
    a: float = 0.0
    b: float = 0.0


@dataclass
class Chain:
    """Operations one after the other, starting with a value."""

    start: Value
    operations: list[Operation] = field(default_factory=list)


@ends_with(*(kind.name for kind in ELEMENTWISE))
def elementwise(node: Node, site: Site) -> Group | None:
    """A chain of element-wise operators that nobody else sees the middle of."""
    if not _is_float(node):
        return None
    y = node.outputs[0]
    nodes, found = [node], [operations_of(node, index := _going_on(node, site))]
    while sum(map(len, found)) < _MOST_OPERATIONS:
        producer = _absorbed(nodes[-1].inputs[index], y, site)
        if producer is None:
            break
        index = _going_on(producer, site)
        nodes.append(producer)
        found.append(operations_of(producer, index))
    start = nodes[-1].inputs[index]
    assert start is not None
    chain = Chain(start, [operation for operations in reversed(found) for operation in operations])
    is_precise = any(item in site.precise for item in nodes)
    return Group(tuple(reversed(nodes)), lambda builder: emit_chain(builder, chain, y, is_precise))


def operations_of(node: Node, index: int = 0) -> list[Operation]:
    """What an element-wise node does to its operand ``index``."""
    op = node.op
    kind = type(op)
    if kind in _PAIRS:
        return [Operation(_PAIRS[kind][index], node.inputs[1 - index])]
    if kind in _NUMBERS:
        return [Operation(_NUMBERS[kind], a=_number(op.attributes()["scalar"].array))]
    if kind in _PLAIN:
        return [Operation(_PLAIN[kind])]
    match op:
        case Active() | ActiveParam():
            if op.active_type is not ActiveType.ACTIVE_LEAKY_RELU:
                return [Operation(_FUNCTIONS[op.active_type])]
            slope = op.params[0] if isinstance(op, ActiveParam) and op.params else 0.0
            return [Operation("leaky_relu", a=_number(slope))] if np.float32(slope) != 0 else [Operation("relu")]
        case Axpy():
            return [Operation("mul", a=_number(op.scalar.array)), Operation("add", node.inputs[1])]
        case Clamp():
            return [Operation("clamp", a=_number(op.min.array), b=_number(op.max.array))]
        case Gelu():
            return [Operation("gelu_tanh" if op.form is GeluForm.TANH else "gelu")]
        case HardSigmoid():
            return [Operation("hard_sigmoid", a=op.alpha, b=op.beta)]
        case Silu():
            return [Operation("silu", a=op.alpha)]
        case _:
            raise AssertionError(f"{op.name} is not element-wise")


def emit_chain(builder: Builder, chain: Chain, y: Value, is_precise: bool) -> None:
    """Add the step of a chain."""
    order = _order(builder, chain, y)
    extents = builder.shape(y)
    tensors: dict[Value, int] = {}
    for value in (chain.start, *(item.operand for item in chain.operations)):
        if value is not None:
            tensors.setdefault(value, len(tensors))
    dense = extents[order[-1]] == 1
    operands = [builder.read(value, order, dense=dense) for value in tensors]
    target = builder.write(y, order)
    step = builder.native.chain_float32(
        builder.place(target),
        [extents[axis] for axis in order],
        [(builder.place(item), _steps(item, order)) for item in operands],
        [
            (item.name, -1 if item.operand is None else tensors[item.operand], item.a, item.b)
            for item in chain.operations
        ],
        builder.isa,
        is_precise=is_precise,
    )
    builder.step(step, operands, (target,))


def _order(builder: Builder, chain: Chain, y: Value) -> Order:
    """The order of the axes that needs the fewest copies: that of an operand as large as the result."""
    shape = builder.shape(y)
    for value in (chain.start, *(item.operand for item in chain.operations)):
        if value is not None and not value.is_constant and builder.shape(value) == shape:
            return builder.stored(value).order
    return row_major(y.rank)


def _steps(stored: Stored, order: Order) -> list[int]:
    """Bytes between neighbours along each axis; 0 along those that repeat."""
    return [0 if stored.shape[axis] == 1 else stored.strides[axis] for axis in order]


def _is_float(node: Node) -> bool:
    values = [value for value in (*node.inputs, *node.outputs) if value is not None]
    return (
        all(value.dtype is F32 for value in values)
        and all(value.rank == node.outputs[0].rank > 0 for value in values)
        and 0 not in static(node.outputs[0].shape)
    )


def _absorbed(value: Value | None, y: Value, site: Site) -> Node | None:
    """The producer of an operand if it can be part of the chain: element-wise, of the same shape, no product's end."""
    producer = site.absorbable(value, *ELEMENTWISE)
    if producer is None or not _is_float(producer) or producer.outputs[0].shape != y.shape:
        return None
    return None if product(producer, site) is not None else producer


def _going_on(node: Node, site: Site) -> int:
    """Which operand the chain comes from: one that can be absorbed, or one as large as the result."""
    if type(node.op) not in _PAIRS:
        return 0
    y = node.outputs[0]
    for index, value in enumerate(node.inputs):
        if _absorbed(value, y, site) is not None:
            return index
    first = node.inputs[0]
    return 0 if first is not None and first.shape == y.shape and not first.is_constant else _other(node)


def _other(node: Node) -> int:
    second = node.inputs[1]
    return 1 if second is not None and second.shape == node.outputs[0].shape and not second.is_constant else 0


def _number(value: object) -> float:
    """A number as binary32 has it."""
    return float(np.asarray(value, np.float32))
