"""Lookup tables for fused preprocessing in INT8 models.

The first nodes of a quantized model with fused preprocessing compute ``requant(cast(pixel) - mean) * scale`` of a byte,
for which there are 256 results per channel. Tables replace these nodes, with equal integers: the engine looks them up,
and a device does not have to compute floats.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.definition.op import Trait
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.quantization.lut import Lut
from tpuconvert.schema.types import Array, Chip, DType, QuantParams, TensorType

BYTES = QuantParams((1.0,), (0,), DType.UINT8)
"""Parameters of pixels: their value is their integer."""

_CHANNEL_ORDER, _PERMUTATION = "index_select", "permute"


@dataclass(frozen=True)
class _Chain:
    """Nodes from a pixel to its integer, in order, from the cast to the quantization.

    Args:
        pixels: uint8 value that the first node casts.
        nodes: the nodes; each has one computed operand.

    """

    pixels: Value
    nodes: tuple[Node, ...]

    @property
    def result(self) -> Value:
        """The integers."""
        return self.nodes[-1].output

    @property
    def moves(self) -> list[Node]:
        """Permutations among the nodes."""
        return [node for node in self.nodes if node.op.name == _PERMUTATION]


def tabulate_pixels(graph: Graph, chip: Chip) -> None:
    """Replace, in place, the conversion of pixels to integers by tables, if the chip has them.

    Args:
        graph: quantized graph with fused preprocessing.
        chip: target chip.

    """
    if chip is Chip.BM1682:
        return
    for node in graph.sorted_nodes():
        is_last = node.op.name in ("requant_fp32_to_int", "cast") and node.output.quant is not None
        chain = _find_chain(graph, node) if is_last and node.output.dtype in (DType.INT8, DType.UINT8) else None
        if chain is not None:
            _replace(graph, chain)
    graph.prune()
    graph.sort()


def _find_chain(graph: Graph, last: Node) -> _Chain | None:
    """Return the nodes between uint8 pixels and a quantization, if each result depends on one pixel."""
    nodes, value = [last], last.inputs[0]
    while value is not None:
        node = value.producer
        if node is None or len(value.users) != 1 or graph.is_output(value):
            return None
        operands = [operand for operand in node.inputs if operand is not None and not operand.is_constant]
        if len(operands) != 1:
            return None
        nodes.append(node)
        if node.op.name == "cast" and operands[0].dtype is DType.UINT8 and operands[0].quant is None:
            is_image = operands[0].rank == 4 and operands[0].type.is_static
            return _Chain(operands[0], tuple(reversed(nodes))) if is_image else None
        if not (node.op.traits & Trait.ELEMENTWISE or node.op.name in (_CHANNEL_ORDER, _PERMUTATION)):
            return None
        value = operands[0]
    return None


def _replace(graph: Graph, chain: _Chain) -> None:
    y = chain.result
    if y.quant is None or (y.quant.axis is not None and chain.moves):
        return
    order, axis = _channel_order(chain)
    tables = _tables(chain, axis)
    _mark_bytes(chain.pixels)
    with graph.derived_from(chain.nodes[-1]):
        if order == sorted(order) and len(np.unique(tables, axis=0)) == 1:
            integers = graph.add(Lut(), chain.pixels, graph.constant(tables[0], f"{y.name}:table"))
        else:
            parts = []
            for channel, table in zip(order, tables, strict=True):
                part = emit.slice_axis(graph, chain.pixels, axis, channel, channel + 1)
                part.quant = BYTES
                parts.append(graph.add(Lut(), part, graph.constant(table, f"{y.name}:table")))
                parts[-1].quant = y.quant if y.quant.axis is None else None
            integers = emit.concat(graph, parts, axis)
        integers.quant = y.quant
        for move in chain.moves:
            integers = graph.add(move.op, integers)
            integers.quant = y.quant
    name = y.name
    graph.rename(y, graph.unique(f"{name}.replaced"))
    graph.rename(integers, name)
    graph.replace_uses(y, integers)


def _mark_bytes(value: Value) -> None:
    """Set the parameters of pixels, back to the input or to the operator that computes them."""
    value.quant = BYTES
    node = value.producer
    if node is not None and node.op.traits & (Trait.MOVES_DATA | Trait.VIEWS) and node.inputs[0] is not None:
        _mark_bytes(node.inputs[0])


def _channel_order(chain: _Chain) -> tuple[list[int], int]:
    """Return the channel of the pixels for each channel of the result, and the axis of the channels of the pixels.

    The axis is given by the channel order, or by the constants per channel; 1 if there is neither.
    """
    axes, channel_axis, index = [0, 1, 2, 3], 1, None  # axes: axis of the pixels for each axis of the current value
    for node in chain.nodes:
        if node.op.name == _PERMUTATION:
            axes = [axes[axis] for axis in node.op.order]  # type: ignore[attr-defined]  # of Permute
        elif node.op.name == _CHANNEL_ORDER:
            channel_axis = axes[node.op.dim % 4]  # type: ignore[attr-defined]  # of IndexSelect
            assert node.inputs[1] is not None
            index = [int(channel) for channel in node.inputs[1].array]
        else:
            for operand in node.inputs:
                if operand is not None and operand.is_constant and operand.array.size > 1:
                    channel_axis = axes[4 - operand.rank + int(np.argmax(operand.array.shape))]
    count = chain.pixels.type.static_shape[channel_axis]
    return index or list(range(count)), channel_axis


def _tables(chain: _Chain, axis: int) -> Array:
    """Return the integer of each pixel value for each channel of the result, [channels, 256]."""
    pixels = [1, 1, 1, 1]
    pixels[axis] = chain.pixels.type.static_shape[axis]
    counted = 3 if axis != 3 else 2  # an axis without channels, along which the values are counted
    pixels[counted] = 256
    graph = Graph("table")
    value = graph.input("pixels", TensorType(DType.UINT8, tuple(pixels)))
    for node in chain.nodes:
        operands = [
            graph.constant(each.array, each.name) if each is not None and each.is_constant else value
            for each in node.inputs
        ]
        value = graph.add(node.op, *operands)
    graph.output(value)
    shape = [1, 1, 1, 1]
    shape[counted] = 256
    numbers = np.broadcast_to(np.arange(256, dtype=np.uint8).reshape(shape), pixels)
    with Session(graph, backend="reference") as session:
        (table,) = session.run({"pixels": np.ascontiguousarray(numbers)}).values()
    for move in reversed(chain.moves):
        table = table.transpose(np.argsort(move.op.order))  # type: ignore[attr-defined]  # of Permute
    by_channel: Array = np.moveaxis(table, axis, 0).reshape(-1, 256)
    return np.ascontiguousarray(by_channel)
