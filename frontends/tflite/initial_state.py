"""Content of a state before the first run, as an array of the type of its input."""

from __future__ import annotations

import numpy as np

from tpuconvert.frontends.tflite.states import Content
from tpuconvert.schema.graph.graph import Graph, Port, Value
from tpuconvert.schema.system.limits import check_time
from tpuconvert.schema.types import Array, Chip


def initial_array(graph: Graph, port: Port, content: Content | None) -> Array:
    """Return the first content of a state.

    Args:
        graph: the graph with the nodes that compute the content.
        port: input of the state.
        content: initial content of a resource variable; None for a variable tensor, which LiteRT fills with zero, or
            with the zero point if it is INT8.
    """
    shape = tuple(extent for extent in port.shape if isinstance(extent, int))
    if content is None:
        zero = port.quant.zero_point[0] if port.quant is not None and port.dtype == "int8" else 0
        return np.full(shape, zero, port.dtype)
    value = content.value
    if isinstance(value, Value):
        value = _evaluate(graph, value)
        value = value if port.quant is None else port.quant.quantize(value)
    return value.astype(port.dtype).reshape(shape)


def _evaluate(graph: Graph, target: Value) -> Array:
    """Compute a value that depends on constants only."""
    needed, pending = {target}, [target]
    while pending:
        node = pending.pop().producer
        more = [item for item in node.inputs if item is not None and item not in needed] if node is not None else []
        needed.update(more)
        pending += more
    arrays: dict[Value, Array] = {value: value.array for value in needed if value.is_constant}
    for node in graph.sorted_nodes():
        if needed.isdisjoint(node.outputs):
            continue
        check_time()
        operands = [None if item is None else arrays[item] for item in node.inputs]
        for value, array in zip(node.outputs, node.op.evaluate(*operands, chip=Chip.BM1686), strict=True):
            arrays[value] = array if value.quant is None else value.quant.dequantize(value.quant.quantize(array))
    return arrays[target]
