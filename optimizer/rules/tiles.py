"""Removal and sinking of tiles at operators that broadcast.

Binary operators broadcast unit axes, but exporters often repeat them explicitly. With t(x) = x repeated along axes:

- ``f(t(x), y) -> f(x, y)`` if only unit axes are repeated and y has the full extent there;
- a constant whose elements repeat along an axis is stored once, for the same operators;
- ``f(t(x)) -> t(f(x))`` for unary operators, ``f(t(x), t(y)) -> t(f(x, y))`` for equal tiles, and ``f(t(x), y) ->
  t(f(x, y))`` if y has unit axes wherever t repeats; likewise for selections. f then computes fewer elements, and the
  tile gets closer to an operator that broadcasts.
"""

from __future__ import annotations

import numpy as np

from tpuconvert.optimizer.engine.annotations import rounds
from tpuconvert.optimizer.engine.engine import Replacement, Skip, rule
from tpuconvert.optimizer.engine.node_properties import operand, operands
from tpuconvert.optimizer.engine.pattern import Match, either_order, p
from tpuconvert.schema.definition.op import Op, Trait
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.ops.tile import Repetition
from tpuconvert.schema.types import Array


def repeats_unit_axes(value: Value | None) -> bool:
    """Return True if a value is a tile that repeats unit axes only and does not change the scale."""
    node = _tile(value)
    return node is not None and not rounds(node) and _is_same_for_all(operand(node), node.op)


def _reads_tile(node: Node) -> bool:
    return any(repeats_unit_axes(value) for value in node.inputs)


@rule(p(Trait.BINARY, name="op", reads=Repetition, where=_reads_tile), stage="canonicalize")
def remove_tile_before_broadcast(graph: Graph, m: Match) -> Replacement:
    """``f(tile(x), y) -> f(x, y)`` if f broadcasts the repeated unit axes itself."""
    operands: list[Value] = list(m.op.inputs)
    for index, value in enumerate(m.op.inputs):
        if not repeats_unit_axes(value):
            continue
        shorter = [*operands[:index], value.producer.inputs[0], *operands[index + 1 :]]
        if _gives(m.op.op, shorter, m.op.output):
            operands = shorter
    if operands == list(m.op.inputs):
        return Skip("the tile determines the shape of the result")
    return graph.add(m.op.op, *operands)


def _gives(op: Op, operands: list[Value], result: Value) -> bool:
    """Return True if ``op`` gives the same type. Data-dependent extents may differ in spite of equal names."""
    if any("?" in str(extent) for value in operands for extent in value.shape):
        return False
    try:
        return op.infer(*(value.type for value in operands)) == (result.type,)
    except ShapeError:  # caused by data-dependent extents
        return False


def shrink_repeats(data: Array) -> Array:
    """Set the extent of every axis along which the elements repeat to 1. Zeros of different sign count as different."""
    for axis, extent in enumerate(data.shape):
        if extent > 1 and _ends_agree(data, axis):
            first = data.take([0], axis)
            signs_agree = data.dtype.kind != "f" or (np.signbit(data) == np.signbit(first)).all()
            data = first if (data == first).all() and signs_agree else data
    return data


def _ends_agree(data: Array, axis: int) -> bool:
    return bool((data.take(0, axis) == data.take(-1, axis)).all())


def _may_shrink(value: Value, other: Value) -> bool:
    if not value.is_constant or other.is_constant or value.rank != other.rank:
        return False
    if value.quant is not None or value.stored is not None:
        return False
    pairs = zip(value.array.shape, other.shape, strict=True)
    wide = [axis for axis, (extent, target) in enumerate(pairs) if extent == target and extent > 1]
    return any(_ends_agree(value.array, axis) for axis in wide)


def _has_repeated_constant(node: Node) -> bool:
    first, second = operands(node)
    return _may_shrink(first, second) or _may_shrink(second, first)


@rule(*either_order(Trait.BINARY, "C", "x", name="op", where=_has_repeated_constant), stage="canonicalize")
def shrink_repeated_constant(graph: Graph, m: Match) -> Replacement:
    """Store a constant whose elements repeat along an axis once; the operator broadcasts it."""
    constant: Value = m.C
    data = shrink_repeats(constant.array)
    if data.shape == constant.array.shape:
        return Skip("its elements repeat along no axis")
    shorter = graph.constant(np.ascontiguousarray(data), constant.name)
    operands = [shorter if value is constant else value for value in m.op.inputs]
    if not _gives(m.op.op, operands, m.op.output):
        return Skip("the constant determines the shape of the result")
    return graph.add(m.op.op, *operands)


def _follows_tile(node: Node) -> bool:
    """Return True if every operand is tiled in the same way, or is the same for every copy."""
    tiles = [_tile(value) for value in node.inputs]
    op = next((tile.op for tile in tiles if tile is not None), None)
    if op is None:
        return False
    return all(
        tile.op == op if tile is not None else value is not None and _is_same_for_all(value, op)
        for tile, value in zip(tiles, node.inputs, strict=True)
    )


def _tile(value: Value | None) -> Node | None:
    """Return the tile that computes a value, or None."""
    node = None if value is None else value.producer
    return node if node is not None and isinstance(node.op, Repetition) else None


def _is_same_for_all(value: Value, tile: Op) -> bool:
    """Return True if a value has unit axes wherever the tile repeats, or has one element."""
    assert isinstance(tile, Repetition)
    if value.rank != len(tile.counts):
        return all(extent == 1 for extent in value.shape)
    return all(count == 1 or extent == 1 for count, extent in zip(tile.counts, value.shape, strict=True))


@rule(
    p((Trait.UNARY, Trait.BINARY, ConditionSelect), name="op", reads=Repetition, where=_follows_tile),
    stage="canonicalize",
)
def sink_tile_through_elementwise(graph: Graph, m: Match) -> Replacement:
    """``f(tile(x)) -> tile(f(x))`` for element-wise f whose other operands are the same for every copy."""
    tiles = [tile for tile in map(_tile, m.op.inputs) if tile is not None]
    if not all(graph.is_sole_use(tile.output) for tile in tiles):
        return Skip("the tile has other users")
    if any(rounds(tile) for tile in tiles):
        return Skip("the source file quantizes the result of the tile")
    operands = [value if (tile := _tile(value)) is None else tile.inputs[0] for value in m.op.inputs]
    sources = tuple(dict.fromkeys(source for tile in tiles for source in tile.sources))
    with graph.source(*m.op.sources):
        inner = graph.add(m.op.op, *operands, name=f"{m.op.output.name}:once")
    inner.quant = m.op.output.quant
    return graph.add(tiles[0].op, inner, sources=sources or m.op.sources)
