"""Integer graph inputs that all users dequantize."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tpuconvert.frontends.onnx.messages import NodeProto
from tpuconvert.frontends.onnx.quantization_params import params_from
from tpuconvert.schema.types import Array, QuantParams

Triple = tuple[int, int, int]
"""Indices of the data, its scale and its zero point among the inputs of an operator."""

_ONE: tuple[Triple, ...] = ((0, 1, 2),)
_TWO: tuple[Triple, ...] = ((0, 1, 2), (3, 4, 5))

_READERS: dict[str, tuple[Triple, ...]] = {
    "DequantizeLinear": _ONE,
    "QGemm": _TWO,
    "QLinearAdd": _TWO,
    "QLinearAveragePool": _ONE,
    "QLinearConv": _TWO,
    "QLinearGlobalAveragePool": _ONE,
    "QLinearLeakyRelu": _ONE,
    "QLinearMatMul": _TWO,
    "QLinearMul": _TWO,
    "QLinearReduceMean": _ONE,
    "QLinearSigmoid": _ONE,
    "QLinearSoftmax": _ONE,
}
"""Operators with quantized inputs -> the indices of data, scale and zero point."""


def _triples(node: NodeProto) -> tuple[Triple, ...]:
    if node.op_type == "QLinearConcat":  # scale and zero point of the output come first
        return tuple((k, k + 1, k + 2) for k in range(2, len(node.input), 3))
    return _READERS.get(node.op_type, ())


def find_quant(name: str, nodes: Sequence[NodeProto], constant: Callable[[str], Array | None]) -> QuantParams | None:
    """Return the quantization parameters of an input if all its users have the same constant ones, else None."""
    found: set[QuantParams] = set()
    for node in nodes:
        for position, key in enumerate(node.input):
            if key != name:
                continue
            quant = _read_at(node, position, constant)
            if quant is None:
                return None
            found.add(quant)
    return found.pop() if len(found) == 1 else None


def _read_at(node: NodeProto, position: int, constant: Callable[[str], Array | None]) -> QuantParams | None:
    """Return the quantization parameters that a node has for one of its inputs."""
    triple = next((triple for triple in _triples(node) if triple[0] == position), None)
    if triple is None or len(node.input) <= triple[2]:
        return None
    scale, zero = (constant(node.input[index]) if node.input[index] else None for index in triple[1:])
    if scale is None or scale.size != 1 or zero is None or zero.size != 1:
        return None
    return params_from(scale, zero, None)
