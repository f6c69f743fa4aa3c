"""State that a TFLite model keeps between runs: variable tensors of recurrent layers, and resource variables.

A graph has no state. Either every run starts with the initial state of the file (zeros, or that of CALL_ONCE), which is
told in a note, or the state becomes further inputs and outputs, which the caller hands from run to run.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field

from tpuconvert.frontends.tflite.reader import ModelFile, Subgraph
from tpuconvert.schema.graph import Graph, Port, Value
from tpuconvert.schema.types import Array, TensorType

Key = tuple[int, int] | str
"""A variable tensor by its subgraph and index, or a resource variable by its name."""


class StateMode(enum.Enum):
    """State options: reset in every run, or passed as inputs and outputs."""

    RESET = "reset"
    PORTS = "ports"


@dataclass
class States:
    """The state of one model while it is imported; ``current`` has what was set, by its key."""

    graph: Graph
    mode: StateMode
    assigned: frozenset[str] | None = frozenset()  # resource variables that a run changes; None for all
    current: dict[Key, Value | Array] = field(default_factory=dict)
    _ports: dict[Key, Port] = field(default_factory=dict)
    _names: list[str] = field(default_factory=list)

    def start(self, key: Key, port: Port, type_: TensorType) -> Value | None:
        """The state before the first change: an input, or None with a note if every run resets it."""
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
        """The final state of a run, if it has an input."""
        for key, port in self._ports.items():
            yield Port(f"{port.name}:next", port.dtype, port.shape, port.quant), self.current[key]

    def handle(self, name: str) -> int:
        """Handle of a resource variable."""
        if name not in self._names:
            self._names.append(name)
        return self._names.index(name)

    def name(self, handle: int) -> str:
        """The resource variable of a number."""
        return self._names[handle] if 0 <= handle < len(self._names) else ""

    def is_changed(self, name: str) -> bool:
        """Return True if a run may change a resource variable."""
        return self.assigned is None or name in self.assigned


def variable_name(container: str, shared_name: str) -> str:
    """Name of a resource variable."""
    return f"{container}/{shared_name}" if container else shared_name


def assigned_variables(file: ModelFile) -> frozenset[str] | None:
    """Resource variables that something else than the one-time initialization assigns; None when that is not known."""
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
