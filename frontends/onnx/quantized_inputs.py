"""Graph inputs of a narrow integer type that the model only ever reads as real numbers."""

from collections.abc import Callable, Sequence

from tpuconvert.frontends.onnx.messages import NodeProto
from tpuconvert.frontends.onnx.quantization_params import params_from
from tpuconvert.schema.types import Array, QuantParams

_READERS = {"DequantizeLinear": (0, 1, 2), "QLinearConv": (0, 1, 2)}
"""Operators whose data input is real numbers in integers: positions of the data, its scale, its zero point."""


def find_quant(name: str, nodes: Sequence[NodeProto], constant: Callable[[str], Array | None]) -> QuantParams | None:
    """What the integers of an input mean, when every reader says the same with constants; else None."""
    found: set[QuantParams] = set()
    for node in nodes:
        for position, key in enumerate(node.input):
            if key != name:
                continue
            if node.op_type not in _READERS or _READERS[node.op_type][0] != position:
                return None
            _, scale_at, zero_at = _READERS[node.op_type]
            scale = constant(node.input[scale_at]) if scale_at < len(node.input) else None
            given = zero_at < len(node.input) and node.input[zero_at] != ""
            zero = constant(node.input[zero_at]) if given else None
            if scale is None or scale.size != 1 or zero is None or zero.size != 1:
                return None
            quant = params_from(scale, zero, None)
            if quant is None:
                return None
            found.add(quant)
    return found.pop() if len(found) == 1 else None
