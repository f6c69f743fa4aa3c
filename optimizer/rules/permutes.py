"""Sinking of permutes toward the outputs, until they meet their inverse and cancel.

A channels-last source has a permute before and after every layout-sensitive node. Element-wise operators, and operators
whose axes can be renamed, commute with a permute: ``op(permute(x)) -> permute(op'(x))``. Every rule moves a permute one
node toward the outputs, which is why they terminate.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable

import numpy as np

from tpuconvert.optimizer.engine.annotations import rounds
from tpuconvert.optimizer.engine.engine import Replacement, Skip, rule
from tpuconvert.optimizer.engine.node_properties import operand, operands, reduced_axes
from tpuconvert.optimizer.engine.pattern import Match, p
from tpuconvert.optimizer.rules.identity import reshape_like
from tpuconvert.schema.definition.op import Op, Trait
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.concat import Concat, Split
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.pad import Pad
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.reduce import Reduce
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.ops.tile import Tile

Order = tuple[int, ...]

PERMUTED = p(Permute, "x", name="permute")


def inverse(order: Order) -> Order:
    """The inverse of a permutation."""
    return tuple(order.index(axis) for axis in range(len(order)))


def per_axis(values: tuple[int, ...], order: Order, each: int = 1) -> tuple[int, ...]:
    """Reorder attributes of a permuted tensor, ``each`` per axis, to the axes before the permute."""
    back = inverse(order)
    return tuple(values[each * back[axis] + index] for axis in range(len(order)) for index in range(each))


def _before_name(name: str, order: Order) -> str:
    """Return a name for the operand of a permute whose result has this name."""
    return f"{name}:nchw" if order == (0, 2, 3, 1) else f"{name}:permuted"


def _sink(graph: Graph, order: Order, op: Op, inputs: tuple[Value, ...], old: Value) -> Value:
    """Add ``permute(op(inputs))`` and return it. The result of ``op`` gets the annotation of ``old``."""
    node = old.producer
    assert node is not None
    inner = graph.add(op, *inputs, name=_before_name(old.name, order), sources=node.sources)
    inner.quant = old.quant
    result = graph.add(Permute(order), inner)
    assert result.producer is not None
    own = tuple(source for source in result.producer.sources if source not in node.sources)
    result.producer.sources = own or node.sources
    return result


@rule(p(Permute, p(Permute, "x", name="first"), name="second"), stage="layout")
def merge_permutes(graph: Graph, m: Match) -> Replacement:
    """``permute(permute(x)) -> permute(x)``, or x if they cancel."""
    order = tuple(m.first.op.order[axis] for axis in m.second.op.order)
    if order != tuple(range(len(order))):
        return graph.add(Permute(order), m.x)
    return m.x if m.x.quant == m.second.output.quant else graph.add(Copy(), m.x)


@rule(p(Trait.UNARY, PERMUTED, name="op"), stage="layout")
def sink_permute_through_unary(graph: Graph, m: Match) -> Replacement:
    """``f(permute(x)) -> permute(f(x))`` for element-wise unary operators."""
    return _sink(graph, m.permute.op.order, m.op.op, (m.x,), m.op.output)


@rule(p(Trait.BINARY, PERMUTED, name="op"), p(Trait.BINARY, "y", PERMUTED, name="op"), stage="layout")
def sink_permute_through_binary(graph: Graph, m: Match) -> Replacement:
    """``f(permute(x), permute(y)) -> permute(f(x, y))``. A constant operand is permuted at conversion time."""
    order = m.permute.op.order
    operands = _all_before(graph, m.op, order)
    if operands is None:
        return Skip("the other operand has no equal permute")
    return _sink(graph, order, m.op.op, operands, m.op.output)


def _all_before(graph: Graph, node: Node, order: Order) -> tuple[Value, ...] | None:
    permutes = []
    for value in operands(node):
        before = _before(graph, value, order)
        if before is None:
            return None
        permutes.append(before)
    return tuple(permutes)


def _before(graph: Graph, value: Value, order: Order) -> Value | None:
    """Return the value whose permute is ``value``, or None if that would need an additional node."""
    producer = value.producer
    if producer is not None and isinstance(producer.op, Permute) and producer.op.order == order:
        return None if rounds(producer) else producer.inputs[0]
    if value.rank != len(order):
        return None
    if all(extent == 1 for extent in value.shape):
        return value
    if value.is_constant:
        back = inverse(order)
        stored = None if value.stored is None else np.ascontiguousarray(value.stored.transpose(back))
        quant = value.quant
        if quant is not None and quant.axis is not None:
            quant = dataclasses.replace(quant, axis=order[quant.axis])
        data = np.ascontiguousarray(value.array.transpose(back))
        return graph.constant(data, f"{value.name}:permuted", quant, stored)
    return None


@rule(p(Concat, name="op", reads=Permute), stage="layout")
def sink_permute_through_concat(graph: Graph, m: Match) -> Replacement:
    """``concat(permute(x), permute(y)) -> permute(concat(x, y))`` along the renamed axis."""
    producers = [value.producer for value in m.op.inputs if value.producer is not None]
    order = next(producer.op.order for producer in producers if isinstance(producer.op, Permute))
    operands = _all_before(graph, m.op, order)
    if operands is None:
        return Skip("the operands do not all have the same permute")
    return _sink(graph, order, rename_axes(m.op.op, order), operands, m.op.output)


@rule(p((Extract, Pad, Softmax, Tile), PERMUTED, name="op"), stage="layout")
def sink_permute_through_axis_op(graph: Graph, m: Match) -> Replacement:
    """``op(permute(x)) -> permute(op'(x))`` for operators with parameters per axis, whose axes are renamed."""
    order, op = m.permute.op.order, m.op.op
    if isinstance(op, Softmax) and m.op.output.quant is not None and op.axis % len(order) == 1 != order[1]:
        return Skip("quantized, softmax has an integer form along axis 1 only")
    return _sink(graph, order, rename_axes(op, order), (m.x,), m.op.output)


@functools.singledispatch
def rename_axes(op: Op, order: Order) -> Op:
    """Return the operator that computes before a permute the same as ``op`` after it."""
    raise NotImplementedError(f"{op.name} has axes: register how a permute renames them (rename_axes in {__name__})")


@rename_axes.register
def _(op: Pad, order: Order) -> Op:
    return dataclasses.replace(op, paddings=per_axis(op.paddings, order, each=2))


@rename_axes.register
def _(op: Extract, order: Order) -> Op:
    return Extract(per_axis(op.start, order), per_axis(op.end, order), per_axis(op.stride, order))


@rename_axes.register
def _(op: Tile, order: Order) -> Op:
    return Tile(per_axis(op.reps, order))


@rename_axes.register
def _(op: Concat | Softmax | Split, order: Order) -> Op:
    return dataclasses.replace(op, axis=order[op.axis])


@rename_axes.register
def _(op: Reduce, order: Order) -> Op:
    axes = [order[axis] for axis in op.axis_list[: op.axis_num]]
    return Reduce(tuple(sorted(axes)), op.method, keep_dims=op.keep_dims)


@rule(p(Reduce, PERMUTED, name="op"), stage="layout")
def sink_permute_through_reduce(graph: Graph, m: Match) -> Replacement:
    """``reduce(permute(x)) -> permute(reduce(x))`` along the renamed axes."""
    order, op = m.permute.op.order, m.op.op
    axes = reduced_axes(m.op)
    renamed = rename_axes(op, order)
    if op.keep_dims:
        return _sink(graph, order, renamed, (m.x,), m.op.output)
    left = [axis for position, axis in enumerate(order) if position not in axes]
    if left == sorted(left):
        return graph.add(renamed, m.x)
    return _sink(graph, tuple(sorted(left).index(axis) for axis in left), renamed, (m.x,), m.op.output)


def _parts_go_on(node: Node) -> bool:
    """Return True if the permutes of all results would sink further or cancel; else there would only be more."""
    permute = operand(node).producer
    return permute is not None and isinstance(permute.op, Permute) and permutes_go_on(node.outputs, permute.op.order)


def permutes_go_on(permuted: Iterable[Value], order: Order) -> bool:
    """Return True if permutes of ``order`` with these results would all sink further or cancel."""
    return all(
        _moves_nothing(value, order) or all(_lets_permutes_pass(user.op) for user in value.users) for value in permuted
    )


def _lets_permutes_pass(op: Op) -> bool:
    if isinstance(op, Permute) or Trait.UNARY in op.traits or Trait.BINARY in op.traits:
        return True
    return rename_axes.dispatch(type(op)) is not rename_axes.dispatch(Op)


def _moves_nothing(permuted: Value, order: Order) -> bool:
    long = [axis for axis, extent in zip(order, permuted.shape, strict=True) if extent != 1]
    return long == sorted(long)


@rule(p(Split, PERMUTED, name="op", where=_parts_go_on), stage="layout")
def sink_permute_through_split(graph: Graph, m: Match) -> Replacement:
    """``split(permute(x)) -> permute(split(x))``: one permute per result."""
    order = m.permute.op.order
    parts = graph.add_all(
        rename_axes(m.op.op, order), m.x, names=[_before_name(value.name, order) for value in m.op.outputs]
    )
    results: list[Value | None] = []
    for part, old in zip(parts, m.op.outputs, strict=True):
        part.quant = old.quant
        is_read = bool(old.uses) or graph.is_output(old)
        results.append(graph.add(Permute(order), part) if is_read else None)
    return tuple(results)


FLATTENED = p(Reshape, PERMUTED, name="reshape", sole_user=True)


@rule(p(MatrixMul, FLATTENED, "W", name="product"), stage="layout")
def fold_permute_into_weights(graph: Graph, m: Match) -> Replacement:
    """Fold a permute before a flatten and a fully connected layer into the weights.

    ``reshape(permute(x), [N, K]) @ W -> reshape(x, [N, K]) @ W'`` with the rows of W reordered like the elements of x.
    """
    order = m.permute.op.order
    shape, flat = m.permute.output.shape, m.reshape.output.shape
    extents = [extent for extent in shape[1:] if isinstance(extent, int)]
    if order[0] != 0 or len(flat) != 2 or flat[0] != shape[0] or len(extents) != len(shape) - 1:
        return Skip("the reshape does more than flatten one sample")
    if m.W.quant is not None and m.W.quant.axis == 0:
        return Skip("the weights have one scale per row")
    x = reshape_like(graph, m.x, m.reshape.output, f"{m.reshape.output.name}:permuted")
    if not isinstance(x, Value):
        return x
    back = tuple(axis - 1 for axis in inverse(order)[1:])

    def rows(weights: np.ndarray) -> np.ndarray:
        moved = weights.reshape(*extents, weights.shape[1]).transpose(*back, len(extents))
        return np.ascontiguousarray(moved.reshape(weights.shape))

    stored = None if m.W.stored is None else rows(m.W.stored)
    w = graph.constant(rows(m.W.array), m.W.name, m.W.quant, stored)
    x.quant = m.reshape.output.quant
    return graph.add(m.product.op, x, w, *m.product.inputs[2:])
