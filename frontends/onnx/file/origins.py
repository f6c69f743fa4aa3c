"""Find the initializers and Constant nodes of an ONNX file that a constant of the graph is computed from."""

from __future__ import annotations

import os

import numpy as np

from tpuconvert.frontends.onnx.file.messages import ModelProto, NodeProto
from tpuconvert.frontends.onnx.file.reader import read_model
from tpuconvert.frontends.onnx.file.tensor_reader import TensorReader
from tpuconvert.frontends.origins import Maker, Origin, trace
from tpuconvert.schema.system.limits import current_limits
from tpuconvert.schema.types import Array


def find_origin(
    source: str | os.PathLike[str] | ModelProto, name: str, allow_root: str | os.PathLike[str] | None = None
) -> Origin | None:
    """Find the source tensor whose NaN or infinity makes a constant not finite."""
    model = read_model(source, current_limits(), allow_root)
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    nodes = {output: node for node in model.graph.node for output in node.output if output}

    def read_stored(tensor: str) -> Array | None:
        if tensor in tensors:
            return model.tensors.read(tensors[tensor])
        return _constant(nodes[tensor], model.tensors) if tensor in nodes else None

    def find_maker(tensor: str) -> Maker | None:
        node = nodes.get(tensor)
        if node is None or node.op_type == "Constant":
            return None
        return Maker(f"{node.op_type} '{node.name or tensor}'", tuple(node.input))

    return trace(name, read_stored, find_maker)


def _constant(node: NodeProto, reader: TensorReader) -> Array | None:
    """Value of a ``Constant`` node."""
    for attribute in node.attribute if node.op_type == "Constant" else ():
        if attribute.name == "value":
            return reader.read(attribute.t)
        if attribute.name == "value_float":
            return np.asarray(attribute.f, np.float32)
        if attribute.name == "value_floats":
            return np.asarray(attribute.floats, np.float32)
    return None
