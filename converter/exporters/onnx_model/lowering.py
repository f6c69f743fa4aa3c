"""Lowering of a graph of TPU operators to ONNX operators.

Integer tensors of the result are bit-exact. A quantized graph computes transcendental functions and sums of floats in
float64 and rounds once to float32, as the reference does; a float graph has one float32 operator for each of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tpuconvert.exporters.lowerings import Lowerings, NoExactForm
from tpuconvert.runtime.session.border import numpy_type
from tpuconvert.schema.errors import NO_EXACT_FORM, ProblemList, ShapeError, without_operator
from tpuconvert.schema.graph.composite import Composite, expansion
from tpuconvert.schema.graph.graph import Graph, Node, Port, Value
from tpuconvert.schema.types import Array, Chip, DType

OPEN_EXTENT = "convert with --input-shapes, which fixes every extent"
ISLAND = "keep the operators before it in INT8, or move them to the end of the network"

Argument = str | Array | Value | None
"""Operand of an ONNX node: tensor name, array (becomes an initializer), value of the graph, or None if absent."""


_SHARED_BYTES = 4096
"""Largest initializer that nodes share if they have equal ones; larger ones are not compared."""


@dataclass
class Step:
    """An ONNX node.

    Attributes:
        operator: ONNX operator name.
        inputs: tensor names; empty for an absent operand.
        outputs: tensor names.
        attributes: ONNX attributes; types are integers, floats, text and sequences of integers.
        origin: TPU node that it belongs to, or None for a conversion of an input or output.
    """

    operator: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, object]
    origin: Node | None


class NoOperator(Exception):
    """ONNX has no operator with the parameters of a composite: export its expansion."""


class Lowering:
    """State of one lowering.

    Args:
        graph: the graph to lower.
        chip: chip of the model, whose arithmetic the export reproduces.

    Attributes:
        steps: ONNX nodes in topological order.
        constants: initializers by tensor name.
        problems: nodes that have no exact form.
        is_quantized: True if the graph has integer activations, so that floats are computed as the reference does.
    """

    def __init__(self, graph: Graph, chip: Chip) -> None:
        self.graph = graph
        self.chip = chip
        self.steps: list[Step] = []
        self.constants: dict[str, Array] = {}
        self.problems = ProblemList(graph.file or graph.name, "export to ONNX")
        self.is_quantized = any(
            value.dtype.is_integer and value.dtype.bits < 32 for node in graph.nodes for value in node.outputs
        )
        self._tensors: dict[Value, str] = {}
        self._defined: set[str] = set()
        self._ports = {port.name for port in (*graph.input_ports, *graph.output_ports)}
        self._names = self._ports | {value.name for value in graph.values}
        self._known_constants: dict[tuple[str, tuple[int, ...], bytes] | None, str] = {}
        self._origin: Node | None = None
        self._unavailable: set[Value] = set()
        self._rounded: set[str] = set()

    # Tensors

    def tensor(self, value: Value | None) -> str:
        """Return the tensor name of a value; a constant becomes an initializer."""
        assert value is not None
        if value not in self._tensors:
            assert value.is_constant, f"'{value.name}' is used before its producer"
            name = value.name if value.name not in self._ports else self._unique(value.name)
            self.constants[name] = value.array
            self._tensors[value] = name
        return self._tensors[value]

    def define(self, value: Value, tensor: str) -> None:
        """Record the tensor that a value has become, and name it as the value if no other tensor has this name."""
        step = self.steps[-1] if self.steps else None
        is_free = value.name not in self._ports or self._is_port_of(value)
        if is_free and step is not None and tensor in step.outputs and tensor not in self._defined:
            step.outputs[step.outputs.index(tensor)] = value.name
            if tensor in self._rounded:
                self._rounded.add(value.name)
            tensor = value.name
        self._defined.add(tensor)
        self._tensors[value] = tensor

    def _is_port_of(self, value: Value) -> bool:
        """Return True if all ports with the name of a value are outputs that return the value without conversion."""
        if any(port.name == value.name for port in self.graph.input_ports):
            return False
        pairs = zip(self.graph.output_ports, self.graph.outputs, strict=True)
        return all(other is value and is_plain(port, value) for port, other in pairs if port.name == value.name)

    def constant(self, array: Array, name: str = "") -> str:
        """Return an initializer with these elements."""
        array = np.ascontiguousarray(array)
        key = (array.dtype.str, array.shape, array.tobytes()) if array.nbytes <= _SHARED_BYTES else None
        if key in self._known_constants:
            return self._known_constants[key]
        shape = "x".join(map(str, array.shape))
        tensor = self._unique(name or f"constant/{array.dtype}/{shape if array.ndim else array}")
        self.constants[tensor] = array
        if key is not None:
            self._known_constants[key] = tensor
        return tensor

    def add(self, operator: str, *inputs: Argument, count: int = 1, **attributes: object) -> str:
        """Append an ONNX node and return its first result; ``count`` is the number of results."""
        return self.add_all(operator, *inputs, count=count, **attributes)[0]

    def add_all(self, operator: str, *inputs: Argument, count: int, **attributes: object) -> list[str]:
        """Append an ONNX node and return all its results."""
        names = [self._argument(item) for item in inputs]
        origin = self._origin.name if self._origin else next(filter(None, names))
        outputs = [self._unique(f"{origin}/{operator}") for _ in range(count)]
        present = {key: item for key, item in attributes.items() if item is not None}
        self.steps.append(Step(operator, names, outputs, present, self._origin))
        return outputs

    def _argument(self, item: Argument) -> str:
        if item is None:
            return ""
        if isinstance(item, Value):
            return self.tensor(item)
        return item if isinstance(item, str) else self.constant(item)

    def _unique(self, name: str) -> str:
        candidate, number = name, 0
        while candidate in self._names:
            number += 1
            candidate = f"{name}.{number}"
        self._names.add(candidate)
        return candidate

    # Floats

    def wide_floats(self, x: Argument) -> str:
        """Return a float tensor as float64 if the graph is quantized, else unchanged."""
        return self.add("Cast", x, to=np.float64) if self.is_quantized else self._argument(x)

    def narrow_floats(self, x: str) -> str:
        """Round a result of ``wide_floats`` to float32."""
        return self.add("Cast", x, to=np.float32) if self.is_quantized else x

    def mark_rounded(self, tensor: str) -> str:
        """Mark a float tensor that ONNX Runtime may round differently from the reference. Return the tensor."""
        self._rounded.add(tensor)
        return tensor

    def check_exact(self, value: Value | None) -> None:
        """Check that a float operand is the same in both runtimes, before it is converted to integers.

        Raises:
            NoExactForm: it may be rounded differently.
        """
        if self.is_quantized and value is not None and self.tensor(value) in self._rounded:
            raise NoExactForm("its operand is a floating-point result that may be rounded differently", ISLAND)

    # Nodes

    def run(self, lowerings: Lowerings[Lowering]) -> None:
        """Lower all nodes. Problems are collected."""
        for value, port in zip(self.graph.inputs, self.graph.input_ports, strict=True):
            self._tensors[value] = self._input(value, port)
        for node in self.graph.nodes:
            if any(value in self._unavailable for value in node.inputs if value is not None):
                self._unavailable.update(node.outputs)  # the problem was reported for the operand
                continue
            self._origin = node
            try:
                self._lower(node, lowerings)
            except NoExactForm as error:
                self._unavailable.update(node.outputs)
                text = without_operator(error.reason, node.op.name)
                self.problems.add(NO_EXACT_FORM, node.op.name, node.name, text, error.hint)
        self._origin = None

    def _lower(self, node: Node, lowerings: Lowerings[Lowering]) -> None:
        function = lowerings.find(node.op.name)
        start = len(self.steps)
        try:
            if function is None:
                raise NoOperator
            function(node.op, node, self)
        except NoOperator:
            if node.op.has_subgraphs:
                hint = "end the model before this node: --outputs"
                raise NoExactForm("its subgraphs run on the host", hint) from None
            if not isinstance(node.op, Composite):
                raise NoExactForm("ONNX has no operator with its results") from None
            self._expand(node.op, node, lowerings)
        self._spread_rounding(self.steps[start:])

    def _spread_rounding(self, steps: Sequence[Step]) -> None:
        """Mark float results that are computed from marked tensors."""
        for step in steps:
            if not self._rounded.isdisjoint(step.inputs):
                self._rounded.update(step.outputs)

    def _expand(self, op: Composite, node: Node, lowerings: Lowerings[Lowering]) -> None:
        """Lower the operators to which a composite expands."""
        types = [None if value is None else value.type for value in node.inputs]
        try:
            inner = expansion(op, types)
        except ShapeError as error:
            raise NoExactForm(str(error), OPEN_EXTENT) from error
        operands = [value for value in node.inputs if value is not None]
        for inner_value, value in zip(inner.inputs, operands, strict=True):
            self._tensors[inner_value] = self.tensor(value)
        for value in inner.values:
            inner.rename(value, self._unique(f"{node.name}/{value.name}"))
        for inner_node in inner.nodes:
            self._lower(inner_node, lowerings)
        for result, value in zip(inner.outputs, node.outputs, strict=True):
            self.define(value, self.add("Identity", result))

    # Inputs and outputs

    def _input(self, value: Value, port: Port) -> str:
        """Return the tensor of a graph input, converted from the type and rank of its port."""
        tensor = port.name
        declared = numpy_type(port.dtype)
        if declared != value.dtype.numpy:
            if port.quant is not None and value.dtype.is_float:
                reason = f"input '{port.name}' is dequantized outside of the graph"
                self.problems.add(NO_EXACT_FORM, "input", port.name, reason, "")
            tensor = self.add("Cast", tensor, to=value.dtype.numpy)
        if port.shape == ():
            tensor = self.add("Reshape", tensor, np.array([1], np.int64))
        return tensor

    def outputs(self) -> list[tuple[Port, Value]]:
        """Append the conversions to the types and ranks of the output ports. Return ports and values."""
        pairs = list(zip(self.graph.output_ports, self.graph.outputs, strict=True))
        for port, value in pairs:
            tensor = self.tensor(value)
            if tensor == port.name and is_plain(port, value):
                continue
            declared = numpy_type(port.dtype)
            if declared != value.dtype.numpy:
                if port.quant is not None and value.dtype.is_float:
                    reason = f"output '{port.name}' is quantized outside of the graph"
                    self.problems.add(NO_EXACT_FORM, "output", port.name, reason, "")
                tensor = self.add("Cast", tensor, to=declared)
            if port.shape == ():
                tensor = self.add("Reshape", tensor, np.zeros(0, np.int64))
            self.steps.append(Step("Identity", [tensor], [port.name], {}, None))
        return pairs

    def named_values(self) -> list[tuple[str, Value]]:
        """Return tensor name and value of every computed value that kept its name, in execution order."""
        values = [value for node in self.graph.nodes for value in node.outputs]
        return [(value.name, value) for value in values if self._tensors.get(value) == value.name]


def is_plain(port: Port, value: Value) -> bool:
    """Return True if a port has the type and rank of its value."""
    return numpy_type(port.dtype) == value.dtype.numpy and port.shape != ()


def static_shape(value: Value | None) -> tuple[int, ...]:
    """Return the extents of a value.

    Raises:
        NoExactForm: an extent is symbolic.
    """
    assert value is not None
    if not value.type.is_static:
        raise NoExactForm(f"'{value.name}' has shape {value.type}, expected numbers", OPEN_EXTENT)
    return value.type.static_shape


def extents(value: Value | None, *axes: int) -> tuple[int, ...]:
    """Return some extents of a value, which must be numbers.

    Raises:
        NoExactForm: one of them is symbolic.
    """
    assert value is not None
    numbers = [extent for axis in axes if isinstance(extent := value.shape[axis], int)]
    if len(numbers) != len(axes):
        raise NoExactForm(f"'{value.name}' has shape {value.type}, expected numbers", OPEN_EXTENT)
    return tuple(numbers)


def scalar(number: float, dtype: DType | type[np.generic]) -> Array:
    """Return a number as array of rank 0."""
    return np.asarray(number, dtype.numpy if isinstance(dtype, DType) else dtype)
