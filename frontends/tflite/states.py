"""State that a TFLite model keeps between runs: variable tensors of recurrent layers, and resource variables.

A graph has no state. Either every run starts with the initial state (of the file: zeros, or the values that
CALL_ONCE assigns), and a note is added; or the graph has additional inputs and outputs, and the caller passes the state
from run to run.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from tpuconvert.frontends.cannot_convert import CannotConvertError
from tpuconvert.frontends.tflite.file.reader import ModelFile, Operator, Subgraph
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph.graph import Graph, Port, Value
from tpuconvert.schema.types import Array, QuantParams, TensorType, format_shape


class Variable(NamedTuple):
    """Name of a resource variable. Variables of different containers are different."""

    container: str
    shared_name: str

    def __str__(self) -> str:
        return f"{self.container}/{self.shared_name}" if self.container else self.shared_name


class VariableTensor(NamedTuple):
    """A tensor with the property ``is_variable``: ``id()`` of its subgraph, and its number there."""

    subgraph: int
    number: int


Key = Variable | VariableTensor


class Content(NamedTuple):
    """Content of a state.

    Args:
        value: constant elements in the type of the file, or a computed value.
        type: type of the elements in the file.
        quant: quantization parameters of the tensor that was assigned; None if it is not quantized.
    """

    value: Value | Array
    type: str
    quant: QuantParams | None


class StateMode(enum.Enum):
    """Handling of state: reset in every run, or passed as inputs and outputs."""

    RESET = "reset"
    PORTS = "ports"


@dataclass
class States:
    """State of one model during its import.

    Attributes:
        graph: the graph of the model.
        mode: handling of state.
        assigned: resource variables that some run of the model changes, of any signature; None if unknown.
        assigned_by_others: resource variables that signatures other than the converted one assign.
        initial: contents that CALL_ONCE assigned before the first run.
        current: contents that this run read or assigned.
    """

    graph: Graph
    mode: StateMode
    assigned: frozenset[Variable] | None = frozenset()
    assigned_by_others: frozenset[Variable] = frozenset()
    initial: dict[Key, Content] = field(default_factory=dict)
    current: dict[Key, Content] = field(default_factory=dict)
    _ports: dict[Key, Port] = field(default_factory=dict)
    _variables: list[Variable] = field(default_factory=list)
    _forgotten: set[Key] = field(default_factory=set)
    _initialized: set[int] = field(default_factory=set)
    _is_initializing: bool = False

    def start(self, key: Key, name: str, type_: TensorType, port: Port) -> Value | None:
        """Initial value of a state: a new graph input; None, with a note, if every run resets the state.

        Args:
            key: the state.
            name: name of the state in the file.
            type_: type of its value.
            port: type, shape and quantization of its input. The name is chosen here.
        """
        if self.mode is StateMode.RESET:
            begins = "at its first value" if isinstance(key, Variable) else "at zero"
            note = f"'{name}' starts {begins} in every run; TFLite keeps it between runs (--state ports)"
            if note not in self.graph.notes:
                self.graph.notes.append(note)
            if key not in self._forgotten:
                self._forgotten.add(key)
                self.graph.forgotten_states += (name,)
            return None
        port = Port(self._free_name(name or "state"), port.dtype, port.shape, port.quant)
        value = self.graph.input(self.graph.unique(port.name), type_, port, port.quant)
        self._ports[key] = port
        return value

    def _free_name(self, name: str) -> str:
        """A name of an input that no other input has. Names of tensors need not be unique in a file."""
        names = {port.name for port in self.graph.input_ports}
        number, candidate = 0, name
        while candidate in names:
            number += 1
            candidate = f"{name}:state{number if number > 1 else ''}"
        return candidate

    def results(self) -> Iterator[tuple[Key, Port, Port, Content]]:
        """Yield key, input port, output port and last content of each state that has an input."""
        names = {port.name for port in self.graph.output_ports}
        for key, port in self._ports.items():
            name = f"{port.name}:next"
            while name in names:
                name += "'"
            names.add(name)
            yield key, port, Port(name, port.dtype, port.shape, port.quant), self.current[key]

    # Resource variables

    def handle(self, variable: Variable) -> int:
        """Return the handle (an integer) of a resource variable; a new one if it has none."""
        if variable not in self._variables:
            self._variables.append(variable)
        return self._variables.index(variable)

    def variable(self, handle: int) -> Variable | None:
        """Resource variable with a handle; None if the handle is unknown."""
        return self._variables[handle] if 0 <= handle < len(self._variables) else None

    @contextmanager
    def initialization(self, subgraph: int) -> Iterator[bool]:
        """Initialize variables inside the ``with`` block; yields False for a subgraph that did so before."""
        is_first, before = subgraph not in self._initialized, self._is_initializing
        self._initialized.add(subgraph)
        self._is_initializing = True
        try:
            yield is_first
        finally:
            self._is_initializing = before

    def assign(self, variable: Variable, content: Content) -> None:
        """Replace the content of a variable."""
        if not self._is_initializing:
            self.current[variable] = content
            return
        self.initial[variable] = content
        if self.mode is StateMode.RESET:  # the first run, in which the initialization replaces earlier assignments
            self.current.pop(variable, None)

    def content(self, variable: Variable) -> Content | None:
        """Content that this run assigned or read before; while variables are initialized, the initial one."""
        return self.initial.get(variable) if self._is_initializing else self.current.get(variable)

    @property
    def is_initializing(self) -> bool:
        """Return True while the subgraph of a CALL_ONCE is converted."""
        return self._is_initializing

    def is_changed(self, variable: Variable) -> bool:
        """Return True if a run may change a resource variable."""
        return self.assigned is None or variable in self.assigned


def check_next(port: Port, content: Content) -> None:
    """Check that the content of a state after a run can be its input of the next run.

    Raises:
        CannotConvertError: shape or scale differ.
    """
    shape = tuple(content.value.shape)
    if shape not in (port.shape, port.shape or (1,)):
        before, after = format_shape(port.shape), format_shape(shape)
        message = f"it has the shape {before} before a run and {after} after it, expected the same"
        raise CannotConvertError(INVALID_NODE, message, "export the model with a state of fixed size")
    if isinstance(content.value, Value) and content.quant != port.quant:
        message = "its scale after a run differs from its scale before the run, expected the same"
        raise CannotConvertError(INVALID_NODE, message, "export the model with one scale for each variable")


def variable_of(operator: Operator) -> Variable:
    """Resource variable of a VAR_HANDLE, without marking its options as read."""
    return Variable(operator.options.peek("container") or "", operator.options.peek("shared_name") or "")


def assigned_variables(file: ModelFile) -> frozenset[Variable] | None:
    """Resource variables that are assigned outside the one-time initialization; None if unknown."""
    first_time = {index for subgraph in file.subgraphs for index in _initial_subgraphs(subgraph)}
    variables = [
        variable
        for index, subgraph in enumerate(file.subgraphs)
        if index not in first_time
        for variable in assignments(subgraph)
    ]
    return None if None in variables else frozenset(item for item in variables if item is not None)


def assigned_by_signatures(file: ModelFile, subgraphs: Iterable[int]) -> frozenset[Variable]:
    """Resource variables that signatures with these subgraphs assign, or initialize at their first run."""
    variables: set[Variable] = set()
    for index in subgraphs:
        subgraph = file.subgraphs[index]
        first_time = [file.subgraphs[i] for i in _initial_subgraphs(subgraph) if 0 <= i < len(file.subgraphs)]
        variables.update(item for each in (subgraph, *first_time) for item in assignments(each) if item is not None)
    return frozenset(variables)


def _initial_subgraphs(subgraph: Subgraph) -> list[int]:
    """Indices of the subgraphs that the CALL_ONCE of a subgraph name."""
    return [op.options.peek("init_subgraph_index") for op in subgraph.operators if op.name == "CALL_ONCE"]


def assignments(subgraph: Subgraph) -> list[Variable | None]:
    """Resource variable of each ASSIGN_VARIABLE; None for a handle that is an input of the subgraph."""
    handles = variable_handles(subgraph)
    operators = [operator for operator in subgraph.operators if operator.name == "ASSIGN_VARIABLE"]
    return [handles.get(operator.inputs[0]) if operator.inputs else None for operator in operators]


def variable_handles(subgraph: Subgraph) -> dict[int, Variable]:
    """Index of a tensor -> the resource variable of which it is a handle, for the VAR_HANDLE of a subgraph."""
    return {
        operator.outputs[0]: variable_of(operator)
        for operator in subgraph.operators
        if operator.name == "VAR_HANDLE" and operator.outputs
    }
