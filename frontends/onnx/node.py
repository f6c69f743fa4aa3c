"""Interface of converters: the source node with its inputs and attributes, and the registering decorators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from tpuconvert.frontends import emit, open_extents
from tpuconvert.frontends.cannot_convert import CannotConvertError
from tpuconvert.frontends.extents import Extents
from tpuconvert.frontends.onnx.file import element_types
from tpuconvert.frontends.onnx.file.element_types import Element, element_of
from tpuconvert.frontends.onnx.file.messages import AttributeProto, GraphProto, NodeProto
from tpuconvert.frontends.onnx.file.tensor_reader import TensorReader
from tpuconvert.frontends.onnx.grouped_weight import GroupedWeight
from tpuconvert.frontends.quantized_integers import integers_of
from tpuconvert.frontends.registry import ConverterRegistry, Kind, registry
from tpuconvert.schema.definition.op import Op, OpKind
from tpuconvert.schema.errors import (
    INVALID_NODE,
    TOO_LARGE,
    UNKNOWN_SHAPE,
    UNSUPPORTED_ATTRIBUTE,
    UNSUPPORTED_TYPE,
    ProblemKind,
)
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.system.limits import Limits
from tpuconvert.schema.types import Array, DType, QuantParams, Shape

onnx_op = registry("onnx")
"""Decorator that registers a converter: ``@onnx_op("Softmax", since=13)``."""

folds = ConverterRegistry("onnx constant", "tpuconvert.frontends.onnx")
"""Decorator that registers a constant evaluator, a function with the arguments of a converter that returns arrays."""

onnx_op.evaluators = folds

T = TypeVar("T")


@dataclass(frozen=True)
class OnnxTensor:
    """One tensor of the source file during the import.

    Attributes:
        name: name in the file.
        element: element type in the file.
        shape: shape in the file; () for rank 0, which is [1] in the graph.
        array: elements of a constant, in the type of the file (64-bit integers stay 64-bit). The array has dtype object
            if it contains symbolic extents.
        value: the graph value; None for a constant that the graph does not use yet.
        quant: quantization parameters if the tensor has integers in the file and dequantized values in ``value``.
        roots: inputs of the model that the tensor is computed from; empty for a constant.
        items: tensors of a sequence; a sequence has neither elements nor a value.
        grouped: integers of a dequantized constant with a scale per block, and the axis that has the blocks.
        folding: the evaluation of a constant that the file computes.
    """

    name: str
    element: Element
    shape: Shape
    array: Array | None = None
    value: Value | None = None
    quant: QuantParams | None = None
    roots: frozenset[str] = frozenset()
    items: tuple[OnnxTensor, ...] | None = None
    grouped: tuple[GroupedWeight, int] | None = None
    folding: Folding | None = None

    @classmethod
    def constant(cls, name: str, element: Element, array: Array) -> OnnxTensor:
        """Return a tensor with known elements."""
        return cls(name, element, array.shape, array)


class Folding(NamedTuple):
    """Evaluation of a constant.

    Args:
        node: the node, with its constant inputs.
        evaluate: function that evaluates it, or the same node with other inputs.
    """

    node: OnnxNode
    evaluate: Callable[[OnnxNode, Graph], Any]


@dataclass(frozen=True)
class Result:
    """Result of a converter: a value with an element type, rank or quantization other than the default."""

    value: Value
    element: Element | None = None
    is_scalar: bool = False
    quant: QuantParams | None = None


@dataclass(frozen=True)
class Folded:
    """Result of a constant evaluator whose element type does not follow from the array."""

    array: Array
    element: Element


Converted = Value | Result | OnnxTensor | Folded | Array
"""Types that a converter or constant evaluator may return for one output."""


class Materializer:
    """Returns graph values of source tensors; adds each constant to the graph at its first use."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._values: dict[int, tuple[OnnxTensor, Value]] = {}

    def value(self, tensor: OnnxTensor) -> Value:
        """Return the graph value of a tensor."""
        if tensor.value is not None:
            return tensor.value
        cached = self._values.get(id(tensor))
        if cached is not None:
            return cached[1]
        assert tensor.array is not None, f"tensor '{tensor.name}' has neither data nor a value"
        if open_extents.is_shape_tensor(tensor.array):
            return self._values.setdefault(id(tensor), (tensor, self._extents(tensor)))[1]
        try:
            array = element_types.narrow(tensor.array)
        except OverflowError as error:
            message = f"constant '{tensor.name}' of {tensor.element}: {error}"
            raise CannotConvertError(UNSUPPORTED_TYPE, message, "TPU operators have 32-bit integers") from error
        if tensor.grouped is not None:
            self._graph.notes.append(
                f"'{tensor.name}': its integers are not kept, because an operator other than a matmul along their "
                "blocks or a lookup of rows uses it; it is stored in FLOAT32"
            )
        constant = self._graph.constant(array, name=tensor.name)
        self._values[id(tensor)] = tensor, constant
        return constant

    def _extents(self, tensor: OnnxTensor) -> Value:
        """Return a shape with symbolic extents as a value that is computed when the model runs.

        Raises:
            OpenExtentError: no value of the graph has one of the extents.
        """
        assert tensor.array is not None
        parts = []
        for extent in tensor.array.flat:
            if not open_extents.is_open(extent):
                parts.append(self._graph.constant(np.array([extent], np.int32), "extent"))
                continue
            parts.append(emit.extent_number(self._graph, str(extent)))
        shape = parts[0] if len(parts) == 1 else self._graph.add(Concat(0), *parts)
        shape = emit.reshape(self._graph, shape, tensor.array.shape or (1,))
        return shape if tensor.element.is_integer else emit.as_float(self._graph, shape)


@dataclass
class CompiledSubgraph:
    """A subgraph that was converted to a separate graph, whose outputs are not declared yet.

    Attributes:
        graph: the graph. Its last inputs are the captured tensors.
        results: the outputs of the subgraph.
        captured: tensors of the graph around it that it uses.
        materializer: the materializer of the graph.
    """

    graph: Graph
    results: list[OnnxTensor]
    captured: list[OnnxTensor]
    materializer: Materializer


MakeInputs = Callable[[Graph], Sequence[OnnxTensor]]
"""Function that declares the first inputs of a separate graph and returns the inputs of the subgraph."""

Compile = Callable[[GraphProto, MakeInputs, Sequence[OnnxTensor], str], CompiledSubgraph]
"""Function that converts a subgraph to a separate graph. The third argument are tensors that become inputs even if the
subgraph does not use them; the last one is a label for names."""


@dataclass(eq=False)
class OnnxNode:
    """One source node, as its converter sees it. Attributes that the converter did not read are reported afterwards.

    Attributes:
        output_names: names of the output tensors; an empty string for an unused output.
        inline: converts a subgraph with the given inputs in place; the last argument is a label for names.
        compile: converts a subgraph to a separate graph; see ``Compile``.
        read, read_inputs: attributes and inputs that a converter has read.
    """

    proto: NodeProto
    name: str
    version: int
    inputs: tuple[OnnxTensor | None, ...]
    output_names: tuple[str, ...]
    graph: Graph
    materializer: Materializer
    reader: TensorReader
    limits: Limits
    attributes: dict[str, AttributeProto]
    inline: Callable[[GraphProto, Sequence[OnnxTensor], str], list[OnnxTensor]]
    compile: Compile
    read: set[str] = field(default_factory=set)
    read_inputs: set[int] = field(default_factory=set)

    @property
    def op_type(self) -> str:
        """The source operator."""
        return self.proto.op_type

    @property
    def outputs_used(self) -> tuple[bool, ...]:
        """One Boolean per output: True if the model uses it."""
        return tuple(map(bool, self.output_names))

    # Inputs

    def has_input(self, index: int) -> bool:
        """Return True if an optional input is given."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def tensor(self, index: int) -> OnnxTensor:
        """Source tensor of an input."""
        tensor = self.inputs[index] if index < len(self.inputs) else None
        if tensor is None:
            raise self.invalid(f"input {index} is missing")
        self.read_inputs.add(index)
        if tensor.items is not None:
            raise CannotConvertError(UNSUPPORTED_TYPE, f"input {index} is a sequence", "supported: a tensor")
        return tensor

    def sequence(self, index: int) -> tuple[OnnxTensor, ...]:
        """The tensors of an input that is a sequence."""
        tensor = self.inputs[index] if index < len(self.inputs) else None
        self.read_inputs.add(index)
        if tensor is None or tensor.items is None:
            raise self.invalid(f"input {index} is not a sequence")
        return tensor.items

    def input(self, index: int) -> Value:
        """An input as a graph value; of a quantized one, the integers."""
        tensor = self.tensor(index)
        value = self.materializer.value(tensor)
        return value if tensor.quant is None else integers_of(self.graph, value, tensor.quant, tensor.element.graph)

    def float_input(self) -> Value:
        """The first input as a graph value; it must be floating point."""
        x = self.input(0)
        if x.dtype is not DType.FLOAT32:
            raise self.fail(UNSUPPORTED_TYPE, f"its input is {self.element(0)}", "supported: floating point")
        return x

    def dequantized_input(self, index: int) -> Value:
        """An input as a graph value, which contains the dequantized values if the tensor is quantized."""
        return self.materializer.value(self.tensor(index))

    def optional(self, index: int) -> Value | None:
        """An optional input as a graph value."""
        return self.input(index) if self.has_input(index) else None

    def is_constant(self, index: int) -> bool:
        """Return True if an input is given and constant."""
        return self.has_input(index) and self.tensor(index).array is not None

    def constant(self, index: int) -> Array:
        """Elements of an input that must be constant, in the type of the file."""
        tensor = self.tensor(index)
        if tensor.array is None:
            raise CannotConvertError(
                UNKNOWN_SHAPE if tensor.element.is_integer else INVALID_NODE,
                f"input {index} ('{tensor.name}') must be known at conversion time, but depends on the model's inputs",
                needs=tensor.roots,
            )
        return tensor.array

    def grouped_weight(self, index: int, axis: int) -> GroupedWeight | None:
        """Return the integers of a constant matrix with one scale per block of an axis; None for another input."""
        grouped = self.tensor(index).grouped
        return grouped[0] if grouped is not None and grouped[1] == axis else None

    def ints(self, index: int) -> tuple[int, ...]:
        """A constant input as Python integers."""
        array = self.constant(index)
        if open_extents.is_shape_tensor(array):
            return tuple(array.reshape(-1))
        if array.dtype.kind not in "iu":
            raise self.invalid(f"input {index} must hold integers, not {array.dtype}")
        return tuple(int(item) for item in array.reshape(-1))

    def scalar(self, index: int) -> float:
        """A constant input with one element."""
        array = self.constant(index)
        if array.size != 1:
            raise self.invalid(f"input {index} must have one element, not shape {list(array.shape)}")
        (number,) = array.reshape(-1).tolist()
        return cast(float, number)

    def element(self, index: int) -> Element:
        """Element type of an input in the file."""
        return self.tensor(index).element

    def shape(self, index: int) -> Extents:
        """Extents of an input in the file: () for rank 0. One may be symbolic (see ``open_extents``)."""
        return Extents(open_extents.from_shape(self.tensor(index).shape))

    def rank(self, index: int) -> int:
        """Number of axes of an input in the file."""
        return len(self.tensor(index).shape)

    def axis(self, axis: int, rank: int) -> int:
        """Convert an axis, which may count from the end, to a nonnegative one.

        Raises:
            CannotConvertError: a tensor of this rank does not have the axis.
        """
        if not -rank <= axis < rank:
            raise self.invalid(f"axis {axis} is outside rank {rank}")
        return axis + rank if axis < 0 else axis

    def axes(self, axes: Iterable[int], rank: int) -> tuple[int, ...]:
        """Convert axes, which may count from the end, to nonnegative ones in the same order; they must differ."""
        resolved = tuple(self.axis(axis, rank) for axis in axes)
        if len(set(resolved)) != len(resolved):
            raise self.invalid(f"axes {list(resolved)} repeat one")
        return resolved

    # Attributes

    def attr(self, name: str, default: T) -> T:
        """Return an attribute, or the default if it is not given. Lists are tuples.

        Raises:
            CannotConvertError: its type differs from the type of the default.
        """
        return default if self.optional_attr(name) is None else self.required_attr(name, default)

    def required_attr(self, name: str, example: T) -> T:
        """Return a required attribute; ``example`` has the expected type."""
        value = self.optional_attr(name)
        if value is None:
            raise self.invalid(f"attribute {name} is missing")
        self._check_kind(name, value, example)
        return cast(T, value)

    def ints_attr(self, name: str) -> tuple[int, ...] | None:
        """Return an optional attribute that is a list of integers."""
        return None if self.optional_attr(name) is None else self.required_attr(name, (0,))

    def optional_attr(self, name: str) -> Any:
        """Return an attribute of any type, or None."""
        self.read.add(name)
        proto = self.attributes.get(name)
        return None if proto is None else decode_attribute(proto)

    def choice(self, name: str, default: str, allowed: Sequence[str]) -> str:
        """Return a string attribute; it must be one of ``allowed``."""
        value = self.attr(name, default)
        if value not in allowed:
            raise CannotConvertError(UNSUPPORTED_ATTRIBUTE, f"{name}='{value}'", f"supported: {', '.join(allowed)}")
        return value

    def refuse_attr(self, name: str, allowed: Any, hint: str = "") -> None:
        """Raise an error if an attribute is given with a value other than ``allowed``."""
        value = self.optional_attr(name)
        if value is not None and value != allowed:
            raise CannotConvertError(UNSUPPORTED_ATTRIBUTE, f"{name}={value!r}", hint or f"supported: {allowed!r}")

    def _check_kind(self, name: str, value: Any, example: Any) -> None:
        kind = type(example)
        good = isinstance(value, kind)
        if good and kind is tuple and example:
            good = set(map(type, cast("tuple[Any, ...]", value))) <= {type(example[0])}
        if not good:
            raise self.invalid(f"attribute {name} is {value!r:.60}, not {kind.__name__}")

    # Results

    def result(
        self, value: Value, element: Element | None = None, *, scalar: bool = False, quant: QuantParams | None = None
    ) -> Result:
        """Return a result whose element type or rank differs from the value.

        Args:
            value: has rank 1 if ``scalar`` is set.
            element: ONNX element type; by default the type of the first input.
            scalar: True if the output has rank 0 in the source.
            quant: quantization parameters if the output has integers in the file, of which the value is dequantized.
        """
        return Result(value, element, scalar, quant)

    def elementwise(self, value: Value, element: Element | None = None) -> Result:
        """Return the result of an element-wise operator: rank 0 if every input has rank 0."""
        is_scalar = all(tensor.shape == () for tensor in self.inputs if tensor is not None)
        return Result(value, element, is_scalar)

    def budget(self, shape: Sequence[int], item_bytes: int, what: str = "result") -> None:
        """Check the size of a constant before it is computed.

        Raises:
            CannotConvertError: it is larger than the limit.
        """
        size = item_bytes
        for extent in shape:
            size *= int(extent)  # raises an error for a symbolic extent
        input_bytes = sum(t.array.nbytes for t in self.inputs if t is not None and t.array is not None)
        if size > max(self.limits.max_folded_bytes, input_bytes):
            raise CannotConvertError(
                TOO_LARGE,
                f"its {what} of shape {[int(e) for e in shape]} would have {size} bytes",
                f"constants made at conversion time may have {self.limits.max_folded_bytes}",
            )

    def invalid(self, message: str, hint: str = "") -> CannotConvertError:
        """Create the error for a node that the standard does not allow; use it as ``raise node.invalid(...)``."""
        return CannotConvertError(INVALID_NODE, message, hint)

    def fail(
        self, kind: ProblemKind, message: str, hint: str = "", *, needs: OnnxTensor | None = None
    ) -> CannotConvertError:
        """Create an error, for ``raise node.fail(...)``; ``needs`` is a tensor that would have to be constant."""
        return CannotConvertError(kind, message, hint, needs.roots if needs is not None else ())


def decode_attribute(proto: AttributeProto) -> Any:
    """Value of an attribute: a number, a string, a tuple of these, or the message of a tensor or graph.

    Files of the first versions do not store the type of an attribute; it follows from the field that is set.
    """
    if proto.ref_attr_name:
        raise CannotConvertError(
            INVALID_NODE, f"attribute {proto.name} refers to '{proto.ref_attr_name}', but the node is not in a function"
        )
    kind = proto.type
    if kind == AttributeProto.UNDEFINED:
        present = {descriptor.name for descriptor, _ in proto.ListFields()}
        filled = [code for code, (name, _) in _ATTRIBUTE_FIELDS.items() if name in present]
        if len(filled) != 1:
            raise CannotConvertError(INVALID_NODE, f"attribute {proto.name} has no type")
        kind = cast(Any, filled[0])
    entry = _ATTRIBUTE_FIELDS.get(kind)
    if entry is None:
        raise CannotConvertError(UNSUPPORTED_ATTRIBUTE, f"{proto.name} has attribute type {kind}")
    name, decode = entry
    try:
        return decode(getattr(proto, name))
    except UnicodeDecodeError as error:
        raise CannotConvertError(INVALID_NODE, f"attribute {proto.name} is not valid UTF-8") from error


_ATTRIBUTE_FIELDS: dict[int, tuple[str, Callable[[Any], Any]]] = {
    AttributeProto.FLOAT: ("f", float),
    AttributeProto.INT: ("i", int),
    AttributeProto.STRING: ("s", bytes.decode),
    AttributeProto.TENSOR: ("t", lambda tensor: tensor),
    AttributeProto.GRAPH: ("g", lambda graph: graph),
    AttributeProto.SPARSE_TENSOR: ("sparse_tensor", lambda sparse: sparse),
    AttributeProto.FLOATS: ("floats", lambda items: tuple(items[:])),  # iterating over a copy is faster
    AttributeProto.INTS: ("ints", lambda items: tuple(items[:])),
    AttributeProto.STRINGS: ("strings", lambda items: tuple(map(bytes.decode, items))),
}


def direct(name: str, op: Op, *, since: int = 1, domain: str = "") -> None:
    """Register an element-wise operator that maps to one TPU operator: ``direct("Tanh", Active(ACTIVE_TANH))``."""

    def convert(node: OnnxNode, g: Graph) -> Result:
        return node.elementwise(g.add(op, node.float_input()))

    convert.__doc__ = f"One to one: {op}."
    convert.__qualname__ = f"direct({name})"
    kind = Kind.HOST if op.kind is OpKind.HOST else Kind.DIRECT
    onnx_op(name, since=since, domain=domain, kind=kind)(convert)


def default_element(node: OnnxNode, value: Value) -> Element:
    """Element type of a result if the converter gave none: the element type of the first input with its dtype."""
    for tensor in node.inputs:
        if tensor is not None and tensor.quant is None and tensor.element.graph is value.dtype:
            return tensor.element
    return element_of(value.dtype.numpy)


def graph_attribute(node: OnnxNode, name: str) -> GraphProto:
    """Return a required attribute that is a subgraph."""
    subgraph = node.optional_attr(name)
    if not isinstance(subgraph, GraphProto):
        raise CannotConvertError(INVALID_NODE, f"subgraph {name} is missing")
    return subgraph
