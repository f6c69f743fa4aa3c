"""Tensors that are visible to the nodes of a source graph, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tpuconvert.frontends.onnx.messages import AttributeProto, TensorProto
from tpuconvert.frontends.onnx.node import OnnxTensor
from tpuconvert.frontends.onnx.tensor_reader import TensorReader


@dataclass()
class Scope:
    """Names visible in one graph: its own, then those of the enclosing graph.

    ``tensors`` has None for the output of a node that could not be converted.
    """

    opsets: Mapping[str, int]
    parent: Scope | None = None
    prefix: str = ""
    tensors: dict[str, OnnxTensor | None] = field(default_factory=dict)
    constants: dict[str, TensorProto] = field(default_factory=dict)
    attributes: Mapping[str, AttributeProto] = field(default_factory=dict)
    depth: int = 0

    def holds(self, name: str) -> bool:
        """Return True if there is a tensor of this name, converted or not."""
        if name in self.tensors or name in self.constants:
            return True
        return self.parent is not None and self.parent.holds(name)

    def is_constant(self, name: str) -> bool:
        """Return True if the name is a constant of the file."""
        return name in self.constants or (self.parent is not None and self.parent.is_constant(name))

    def lookup(self, name: str, reader: TensorReader) -> OnnxTensor | None:
        """Return a tensor by name; constants of the file are read at their first use."""
        around: Scope | None = self
        while around is not None:
            if name in around.tensors:
                return around.tensors[name]
            proto = around.constants.get(name)
            if proto is not None:
                element, array = reader.read_typed(proto)
                found = OnnxTensor(around.prefix + name, element, array.shape, array)
                around.tensors[name] = found
                return found
            around = around.parent
        return None
