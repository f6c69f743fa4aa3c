"""Moving permutes towards the outputs until they meet their inverse and cancel.

A channel-last source brings a permute before and one after every layout-sensitive node. An operator that works element
by element, or whose axes can be renamed, does not care about the order of axes: op(permute(x)) = permute(op'(x)). Every
rule moves a permute one node towards the outputs, so that they come to an end.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from tpuconvert.optimizer.engine import Replacement, Skip, rule
from tpuconvert.optimizer.pattern import Match, p
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.op import Op
from tpuconvert.schema.ops.activation import Active, ActiveParam
from tpuconvert.schema.ops.arithmetic import Add, Div, Max, Min, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Divs, Maxs, Mins, Muls, Rdivs, Rsubs, Subs
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.concat import Concat, Split
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.matrix_mul import MatrixMul
from tpuconvert.schema.ops.pad import Pad
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.reduce import Reduce
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.ops.tile import Tile

Order = tuple[int, ...]

PERMUTED = p(Permute, "x", name="permute")
UNARY = (Active, ActiveParam, Adds, Cast, Clamp, Copy, Divs, Maxs, Mins, Muls, Rdivs, Rsubs, Subs)
BINARY = (Add, Div, Max, Min, Mul, Sub)


def inverse(order: Order) -> Order:
    """The order that undoes ``order``."""
    return tuple(order.index(axis) for axis in range(len(order)))


def _per_axis(values: tuple[int, ...], order: Order, each: int = 1) -> tuple[int, ...]:
    """Values per axis of a permuted tensor (``each`` of them), as values per axis of the tensor before."""
    back = inverse(order)
    return tuple(values[each * back[axis] + index] for axis in range(len(order)) for index in range(each))


def _sink(graph: Graph, order: Order, op: Op, inputs: tuple[Value, ...], old: Value) -> Value:
    """permute(op(inputs)), the inner value named after the layout where it is the channel-first twin."""
    suffix = ":nchw" if order == (0, 2, 3, 1) else ":permuted"
    inner = graph.add(op, *inputs, name=f"{old.name}{suffix}")
    inner.quant = old.quant
    return graph.add(Permute(order), inner)


@rule(p(Permute, p(Permute, "x", name="first"), name="second"), stage="layout")
def merge_permutes(graph: Graph, m: Match) -> Replacement:
    """permute(permute(x)) is one permute, or nothing when they undo each other."""
    order = tuple(m.first.op.order[axis] for axis in m.second.op.order)
    if order == tuple(range(len(order))) and m.x.quant == m.second.output.quant:
        return m.x  # type: ignore[no-any-return]  # bound by the pattern
    return graph.add(Permute(order), m.x)


@rule(p(UNARY, PERMUTED, name="op"), stage="layout")
def sink_through_unary(graph: Graph, m: Match) -> Replacement:
    """f(permute(x)) = permute(f(x)) for functions of one element."""
    return _sink(graph, m.permute.op.order, m.op.op, (m.x,), m.op.output)


@rule(p(BINARY, PERMUTED, "y", name="op"), p(BINARY, "y", PERMUTED, name="op"), stage="layout")
def sink_through_binary(graph: Graph, m: Match) -> Replacement:
    """f(permute(x), permute(y)) = permute(f(x, y)); a constant is permuted back at conversion time."""
    order = m.permute.op.order
    operands = []
    for value in m.op.inputs:
        moved = _before(graph, value, order)
        if moved is None:
            return Skip("the other operand is not permuted alike")
        operands.append(moved)
    return _sink(graph, order, m.op.op, tuple(operands), m.op.output)


def _before(graph: Graph, value: Value, order: Order) -> Value | None:
    """What ``value`` is the permute of, when that costs nothing."""
    producer = value.producer
    if producer is not None and isinstance(producer.op, Permute) and producer.op.order == order:
        return producer.inputs[0]
    if value.is_constant and value.rank == len(order):
        back = inverse(order)
        stored = None if value.stored is None else np.ascontiguousarray(value.stored.transpose(back))
        quant = value.quant
        if quant is not None and quant.axis is not None:
            quant = dataclasses.replace(quant, axis=order[quant.axis])
        data = np.ascontiguousarray(value.array.transpose(back))
        return graph.constant(data, f"{value.name}:permuted", quant, stored)
    if all(extent == 1 for extent in value.shape) and value.rank == len(order):
        return value
    return None


@rule(p(Concat, PERMUTED, name="op"), stage="layout")
def sink_through_concat(graph: Graph, m: Match) -> Replacement:
    """A concatenation of operands that are all permuted alike, along the renamed axis."""
    order = m.permute.op.order
    operands = [_before(graph, value, order) for value in m.op.inputs]
    found = tuple(value for value in operands if value is not None)
    if len(found) < len(operands):
        return Skip("the operands are not all permuted alike")
    return _sink(graph, order, Concat(order[m.op.op.axis]), found, m.op.output)


@rule(
    p(Pad, PERMUTED, name="op"),
    p(Extract, PERMUTED, name="op"),
    p(Tile, PERMUTED, name="op"),
    p(Softmax, PERMUTED, name="op"),
    stage="layout",
)
def sink_through_axes(graph: Graph, m: Match) -> Replacement:
    """Operators with parameters per axis, whose axes are renamed."""
    order, op = m.permute.op.order, m.op.op
    renamed: Op
    if isinstance(op, Pad):
        renamed = dataclasses.replace(op, paddings=_per_axis(op.paddings, order, each=2))
    elif isinstance(op, Extract):
        renamed = Extract(_per_axis(op.start, order), _per_axis(op.end, order), _per_axis(op.stride, order))
    elif isinstance(op, Tile):
        renamed = Tile(_per_axis(op.reps, order))
    else:
        renamed = Softmax(order[op.axis])
    return _sink(graph, order, renamed, (m.x,), m.op.output)


@rule(p(Reduce, PERMUTED, name="op"), stage="layout")
def sink_through_reduce(graph: Graph, m: Match) -> Replacement:
    """A reduction along renamed axes; without kept axes the others must stay in order."""
    order, op = m.permute.op.order, m.op.op
    axes = tuple(axis % len(order) for axis in op.axis_list)
    renamed = dataclasses.replace(op, axis_list=tuple(sorted(order[axis] for axis in axes)))
    if op.keep_dims:
        return _sink(graph, order, renamed, (m.x,), m.op.output)
    left = [axis for position, axis in enumerate(order) if position not in axes]
    if left != sorted(left):
        return Skip("the axes that are left change their order")
    return graph.add(renamed, m.x)


@rule(p(Split, PERMUTED, name="op"), stage="layout")
def sink_through_split(graph: Graph, m: Match) -> Replacement:
    """A split along the renamed axis, one permute per part."""
    order = m.permute.op.order
    op = dataclasses.replace(m.op.op, axis=order[m.op.op.axis % len(order)])
    suffix = ":nchw" if order == (0, 2, 3, 1) else ":permuted"
    parts = graph.add_all(op, m.x, names=[f"{value.name}{suffix}" for value in m.op.outputs])
    for part, old in zip(parts, m.op.outputs, strict=True):
        part.quant = old.quant
    return tuple(graph.add(Permute(order), part) for part in parts)


FLATTENED = p(Reshape, PERMUTED, name="reshape", sole_user=True)


@rule(p(MatrixMul, FLATTENED, "W", "B?", name="product"), stage="layout")
def absorb_permute_into_weights(graph: Graph, m: Match) -> Replacement:
    """A fully connected layer on a permuted, flattened tensor: permute the rows of the weights instead.

    reshape(permute(x), [N, K]) @ W = reshape(x, [N, K]) @ W', rows of W' in the order of x's elements.
    """
    order = m.permute.op.order
    shape, flat = m.permute.output.shape, m.reshape.output.shape
    if order[0] != 0 or len(flat) != 2 or flat[0] != shape[0] or not m.permute.output.type.is_static:
        return Skip("the reshape does more than flatten one sample")
    extents = [int(extent) for extent in shape[1:]]
    back = tuple(axis - 1 for axis in inverse(order)[1:])

    def rows(weights: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]  # any element type
        moved = weights.reshape(*extents, weights.shape[1]).transpose(*back, len(extents))
        return np.ascontiguousarray(moved.reshape(weights.shape))

    stored = None if m.W.stored is None else rows(m.W.stored)
    if m.W.quant is not None and m.W.quant.axis == 0:
        return Skip("the weights have one scale per row")
    w = graph.constant(rows(m.W.array), m.W.name, m.W.quant, stored)
    x = graph.add(Reshape(tuple(int(extent) for extent in flat)), m.x)
    x.quant = m.reshape.output.quant
    operands = (x, w) if m.B is None else (x, w, m.B)
    return graph.add(m.product.op, *operands)
