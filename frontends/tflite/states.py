"""State that a TFLite model keeps between runs: variable tensors of recurrent layers, and resource variables.

A graph has no state. Either every run starts with the initial state (zeros, or the values that CALL_ONCE assigns), and
a note is added; or the graph has additional inputs and outputs, and the caller passes the state from run to run.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field

from tpuconvert.frontends.tflite.reader import ModelFile, Subgraph
from tpuconvert.schema.graph import Graph, Port, Value
from tpuconvert.schema.types import Array, TensorType

Key = tuple[int, int] | str
"""Key of a state: ``id()`` of the subgraph and tensor index of a variable tensor, or name of a resource variable."""


class StateMode(enum.Enum):
    """Handling of state: reset in every run, or passed as inputs and outputs."""

    RESET = "reset"
    PORTS = "ports"


@dataclass
class States:
    """State of one model during its import; ``current`` has the current values."""

    graph: Graph
    mode: StateMode
    assigned: frozenset[str] | None = frozenset()  # names of resource variables that a run changes; None if unknown
    current: dict[Key, Value | Array] = field(default_factory=dict)
    _ports: dict[Key, Port] = field(default_factory=dict)
    _names: list[str] = field(default_factory=list)

    def start(self, key: Key, port: Port, type_: TensorType) -> Value | None:
        """Initial value of a state: a new graph input; None, with a note, if every run resets the state."""
        if self.mode is StateMode.RESET:
            begins = "at zero" if isinstance(key, tuple) else "at its first value"
            note = f"'{port.name}' starts {begins} in every run; TFLite keeps it between runs (--state ports)"
            if note not in self.graph.notes:
                self.graph.notes.append(note)
            return None
        value = self.graph.input(self.graph.unique(port.name), type_, port, port.quant)
        self._ports[key], self.current[key] = port, value
        return value

    def results(self) -> Iterator[tuple[Port, Value | Array]]:
        """Yield output port and final value of each state that has an input."""
        for key, port in self._ports.items():
            yield Port(f"{port.name}:next", port.dtype, port.shape, port.quant), self.current[key]

    def handle(self, name: str) -> int:
        """Return the handle (an integer) of a resource variable; a new one if it has none."""
        if name not in self._names:
            self._names.append(name)
        return self._names.index(name)

    def name(self, handle: int) -> str:
        """Name of the resource variable with a handle; empty if the handle is unknown."""
        return self._names[handle] if 0 <= handle < len(self._names) else ""

    def is_changed(self, name: str) -> bool:
        """Return True if a run may change a resource variable."""
        return self.assigned is None or name in self.assigned


def variable_name(container: str, shared_name: str) -> str:
    """Name of a resource variable, which is unique in the model."""
    return f"{container}/{shared_name}" if container else shared_name


def assigned_variables(file: ModelFile) -> frozenset[str] | None:
    """Names of resource variables that are assigned outside the one-time initialization; None if unknown."""
    first_time = {
        operator.options.peek("init_subgraph_index")
        for subgraph in file.subgraphs
        for operator in subgraph.operators
        if operator.name == "CALL_ONCE"
    }
    names: set[str] = set()
    for index, subgraph in enumerate(file.subgraphs):
        if index in first_time:
            continue
        handles = _handles(subgraph)
        for operator in subgraph.operators:
            if operator.name == "ASSIGN_VARIABLE":
                name = handles.get(operator.inputs[0]) if operator.inputs else None
                if name is None:
                    return None
                names.add(name)
    return frozenset(names)


def _handles(subgraph: Subgraph) -> dict[int, str]:
    return {
        operator.outputs[0]: variable_name(operator.options.peek("container"), operator.options.peek("shared_name"))
        for operator in subgraph.operators
        if operator.name == "VAR_HANDLE" and operator.outputs
    }
