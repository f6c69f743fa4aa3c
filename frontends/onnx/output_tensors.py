"""Tensors of a source graph: lookup by name within scopes, and conversion of converter results to tensors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from tpuconvert.frontends import open_extents
from tpuconvert.frontends.cannot_convert import CannotConvertError
from tpuconvert.frontends.onnx.file.element_types import INT64, Element, element_of
from tpuconvert.frontends.onnx.file.messages import AttributeProto, TensorProto
from tpuconvert.frontends.onnx.file.tensor_reader import TensorReader
from tpuconvert.frontends.onnx.node import Converted, Folded, OnnxNode, OnnxTensor, Result, default_element
from tpuconvert.schema.errors import TOO_LARGE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.types import Array, Shape, TensorType, format_shape


@dataclass()
class Scope:
    """Names visible in one graph: its own tensors, then the tensors of the enclosing graph.

    ``tensors`` has None for the output of a node that could not be converted. ``absent`` has the inputs of a function
    that its call leaves out.
    """

    opsets: Mapping[str, int]
    parent: Scope | None = None
    prefix: str = ""
    tensors: dict[str, OnnxTensor | None] = field(default_factory=dict)
    constants: dict[str, TensorProto] = field(default_factory=dict)
    attributes: Mapping[str, AttributeProto] = field(default_factory=dict)
    depth: int = 0
    absent: frozenset[str] = frozenset()

    def holds(self, name: str) -> bool:
        """Return True if there is a tensor of this name, converted or not."""
        if name in self.tensors or name in self.constants:
            return True
        return self.parent is not None and self.parent.holds(name)

    def is_absent(self, name: str) -> bool:
        """Return True for an input of the function around that its call leaves out."""
        if name in self.tensors or name in self.constants:
            return False
        return name in self.absent or (self.parent is not None and self.parent.is_absent(name))

    def is_constant(self, name: str) -> bool:
        """Return True if the name is a constant of the file."""
        return name in self.constants or (self.parent is not None and self.parent.is_constant(name))

    def lookup(self, name: str, reader: TensorReader) -> OnnxTensor | None:
        """Return a tensor by name; constants of the file are read at their first use."""
        if name in self.tensors:
            return self.tensors[name]
        proto = self.constants.get(name)
        if proto is not None:
            element, array = reader.read_typed(proto)
            tensor = OnnxTensor(self.prefix + name, element, array.shape, array)
            self.tensors[name] = tensor
            return tensor
        return self._lookup_outside(name, reader)

    def _lookup_outside(self, name: str, reader: TensorReader) -> OnnxTensor | None:
        return None if self.parent is None else self.parent.lookup(name, reader)


@dataclass()
class SeparateScope(Scope):
    """Names visible in a subgraph that becomes a separate graph. Tensors from outside are captured: they become inputs.

    Attributes:
        graph: the separate graph.
        captured: tensors from outside and tensors of the graph, in the order of its inputs.
        extents: data-dependent extents of captured tensors, and their names in the graph. They do not change while
            the graph runs, so that extents with equal names outside are equal inside.
    """

    graph: Graph = field(default_factory=Graph)
    captured: list[tuple[OnnxTensor, OnnxTensor]] = field(default_factory=list)
    extents: dict[str, str] = field(default_factory=dict)

    def _lookup_outside(self, name: str, reader: TensorReader) -> OnnxTensor | None:
        outer = super()._lookup_outside(name, reader)
        if outer is None:
            return None
        inner = self.tensors[name] = self.capture(outer)
        return inner

    def capture(self, outer: OnnxTensor) -> OnnxTensor:
        """Return the tensor of the separate graph for one from outside. Constants are copied."""
        for captured, inner in self.captured:
            if captured is outer:
                return inner
        if outer.items is not None:
            return replace(outer, items=tuple(map(self.capture, outer.items)))
        if outer.value is None:
            return outer
        value = outer.value
        if value.data is not None:
            copy = self.graph.constant(value.data, value.name, value.quant, value.stored)
            return replace(outer, value=copy)
        copy = subgraph_input(self.graph, outer.name, value, self._rename_extents(value.shape))
        inner = replace(outer, value=copy, shape=() if outer.shape == () else copy.shape)
        self.captured.append((outer, inner))
        return inner

    def _rename_extents(self, shape: Shape) -> Shape:
        number = len(self.graph.inputs)
        return tuple(
            self.extents.setdefault(extent, f"input{number}_{axis}")
            if isinstance(extent, str) and "?" in extent
            else extent
            for axis, extent in enumerate(shape)
        )


def subgraph_input(graph: Graph, name: str, value: Value, shape: Shape | None = None) -> Value:
    """Declare an input of a separate graph for a value from outside.

    An extent that depends on data gets a separate name, because different extents may have the same one.
    """
    number = len(graph.inputs)
    extents_outside = value.shape if shape is None else shape
    extents = tuple(
        f"input{number}_{axis}" if isinstance(extent, str) and "?" in extent else extent
        for axis, extent in enumerate(extents_outside)
    )
    return graph.input(name, TensorType(value.dtype, extents), quant=value.quant)


class Results:
    """Converts results to source tensors. A value keeps the first source name that it gets.

    Args:
        graph: graph of the values.
        most_elements: largest number of elements of one tensor.
    """

    def __init__(self, graph: Graph, most_elements: int) -> None:
        self._graph = graph
        self._most_elements = most_elements
        self._named: set[int] = set()  # id() of each value that has the name of a source tensor

    def keep_name(self, value: Value) -> None:
        """Record that a value has the name of a source tensor."""
        self._named.add(id(value))

    def rename(self, value: Value, name: str) -> None:
        """Name a value after a source tensor, even if it has the name of another one."""
        self._named.discard(id(value))
        self._claim(value, name)

    def tensor(self, node: OnnxNode, name: str, item: Converted) -> OnnxTensor:
        """Return the source tensor of a result.

        Raises:
            CannotConvertError: it has too many elements.

        """
        if isinstance(item, OnnxTensor):
            if name and item.value is not None and item.value.name.startswith(f"{node.name}/"):
                self.rename(item.value, name)  # a value of a subgraph or function gets the name of the outer tensor
            return item
        if isinstance(item, Folded):
            self._charge(item.array, node)
            return OnnxTensor(name, item.element, item.array.shape, item.array)
        if isinstance(item, (np.ndarray, np.generic, int, open_extents.OpenExtent)):
            # NumPy functions of an extent of rank 0 return the extent itself.
            array = np.asarray(item, object) if isinstance(item, (int, open_extents.OpenExtent)) else np.asarray(item)
            self._charge(array, node)
            if open_extents.is_shape_tensor(array):
                return OnnxTensor(name, _extents_element(node), array.shape, open_extents.extents_array(array))
            if array.dtype == np.int64 and _reads_extents(node):  # numbers that formulas became, such as min(N, 1)
                element = _extents_element(node)
                return OnnxTensor(name, element, array.shape, array.astype(element.numpy))
            return OnnxTensor(name, _kept_element(node, array), array.shape, array)
        result = item if isinstance(item, Result) else Result(item)
        value = result.value
        if name and value.producer is not None:
            self._claim(value, name)
        if result.quant is not None:
            value.quant = result.quant
        if math.prod([extent for extent in value.shape if isinstance(extent, int)]) > self._most_elements:
            raise CannotConvertError(TOO_LARGE, f"its result would have the shape {format_shape(value.shape)}")
        element = result.element or default_element(node, value)
        shape = () if result.is_scalar else value.shape
        return OnnxTensor(name, element, shape, None, value, result.quant, roots_of(node.inputs))

    def _charge(self, array: Array, node: OnnxNode) -> None:
        if self._graph.budget is not None:
            self._graph.budget.charge(array, node.name)

    def _claim(self, value: Value, name: str) -> None:
        """Name a new value after its source tensor; another value with that name is renamed."""
        if id(value) in self._named:
            return
        other = self._graph.find(name)
        if other is not value:
            if other is not None:
                self._graph.rename(other, self._graph.unique(name))
            self._graph.rename(value, name)
        self._named.add(id(value))


def roots_of(tensors: Iterable[OnnxTensor | None]) -> frozenset[str]:
    """Inputs of the model that some tensors are computed from."""
    roots = [tensor.roots for tensor in tensors if tensor is not None and tensor.roots]
    return roots[0] if len(roots) == 1 else frozenset().union(*roots)


def _extents_element(node: OnnxNode) -> Element:
    """Element type of extents that a node computes: the type of extents that it reads, or INT64 if it reads none."""
    shapes = (tensor for tensor in node.inputs if tensor is not None and open_extents.is_shape_tensor(tensor.array))
    return next((tensor.element for tensor in shapes), INT64)


def _reads_extents(node: OnnxNode) -> bool:
    return any(tensor is not None and open_extents.is_shape_tensor(tensor.array) for tensor in node.inputs)


def _kept_element(node: OnnxNode, array: Array) -> Element:
    """Element type of an evaluated constant: the type of the first input if the array has its NumPy type."""
    for tensor in node.inputs[:1]:
        if tensor is not None and tensor.element.numpy == array.dtype:
            return tensor.element
    return element_of(array.dtype)
