"""Read quantization parameters from constants and graph inputs, and remove copies that only carry annotations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tpuconvert.frontends.onnx.file.messages import NodeProto
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.types import Array, DType, QuantParams


def params_from(scale: Array, zero_point: Array, axis: int | None) -> QuantParams | None:
    """Return parameters for 8- and 16-bit integers, or None for other types.

    Per-channel scales stay per-channel if all are equal.

    Raises:
        ValueError: the lengths differ, or a scale is not positive and finite.
    """
    if zero_point.dtype.kind not in "iu" or zero_point.itemsize > 4:
        return None
    scales = tuple(float(item) for item in scale.astype(np.float64).reshape(-1))
    zeros = tuple(int(item) for item in zero_point.reshape(-1))
    if len(zeros) == 1 and len(scales) > 1:
        zeros *= len(scales)
    return QuantParams(scales, zeros, DType.of(zero_point.dtype), axis if len(scales) > 1 else None)


Triple = tuple[int, int, int]
"""Input indices of a quantized operand: of its data, its scale and its zero point."""

_ONE: tuple[Triple, ...] = ((0, 1, 2),)
_TWO: tuple[Triple, ...] = ((0, 1, 2), (3, 4, 5))

_READERS = {
    **dict.fromkeys(("DequantizeLinear", "QLinearReduceMean", "QLinearSigmoid", "QLinearSoftmax"), _ONE),
    **dict.fromkeys(("QLinearAveragePool", "QLinearGlobalAveragePool", "QLinearLeakyRelu"), _ONE),
    **dict.fromkeys(("QGemm", "QLinearAdd", "QLinearConv", "QLinearMatMul", "QLinearMul"), _TWO),
}
"""Input indices of the quantized operands, by operator."""


def _triples(node: NodeProto) -> tuple[Triple, ...]:
    if node.op_type == "QLinearConcat":  # scale and zero point of the output come first
        return tuple((k, k + 1, k + 2) for k in range(2, len(node.input), 3))
    return _READERS.get(node.op_type, ())


def find_quant(name: str, nodes: Sequence[NodeProto], constant: Callable[[str], Array | None]) -> QuantParams | None:
    """Return the quantization parameters that all users of a graph input state for it; None if they differ."""
    stated: set[QuantParams] = set()
    for node in nodes:
        for position, key in enumerate(node.input):
            if key != name:
                continue
            quant = _read_at(node, position, constant)
            if quant is None:
                return None
            stated.add(quant)
    return stated.pop() if len(stated) == 1 else None


def _read_at(node: NodeProto, position: int, constant: Callable[[str], Array | None]) -> QuantParams | None:
    """Return the quantization parameters that a node states for its input at ``position``, else None."""
    triple = next((triple for triple in _triples(node) if triple[0] == position), None)
    if triple is None or len(node.input) <= triple[2]:
        return None
    scale, zero = (constant(node.input[index]) if node.input[index] else None for index in triple[1:])
    if scale is None or scale.size != 1 or zero is None or zero.size != 1:
        return None
    try:
        return params_from(scale, zero, None)
    except ValueError:  # the node reports it when it is converted
        return None


def drop_copies(g: Graph) -> None:
    """Remove copies of a value if all its users are copies with the same annotation; annotate the value instead."""
    for node in g.nodes:
        if node.op.name != "copy" or node not in g:
            continue
        source, result = node.inputs[0], node.output
        if source is None or source.is_constant or result.quant is None or g.is_output(source):
            continue
        copies = [user for user in source.users if user.op.name == "copy" and user.output.quant == result.quant]
        if len(copies) != len(source.uses) or source.quant not in (None, result.quant):
            continue
        source.quant = result.quant
        for copy in copies:
            g.replace_uses(copy.output, source)
            g.remove(copy)
