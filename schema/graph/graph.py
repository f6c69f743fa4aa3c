"""The graph: the intermediate representation between the source file and the model file.

A ``Graph`` is a list of ``Node``s in topological order. A node has one operator and connects ``Value``s: its operands
and its results. ``Port``s describe the graph's inputs and outputs as the source file declares them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Iterable, Sequence
from typing import Any, cast

import numpy as np

from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.distinct_extents import DistinctExtents
from tpuconvert.schema.graph.graph_elements import Deviation as Deviation
from tpuconvert.schema.graph.graph_elements import KeptState as KeptState
from tpuconvert.schema.graph.graph_elements import Node as Node
from tpuconvert.schema.graph.graph_elements import Port as Port
from tpuconvert.schema.graph.graph_elements import Source as Source
from tpuconvert.schema.graph.graph_elements import Sources
from tpuconvert.schema.graph.graph_elements import Value as Value
from tpuconvert.schema.graph.type_inference import OperandTypes, TypeInference, may_be_same_type
from tpuconvert.schema.graph.value_limits import check_size
from tpuconvert.schema.system.constant_budget import current_budget
from tpuconvert.schema.text.html_text import notebook_html
from tpuconvert.schema.types import Array, Dim, DType, QuantParams, TensorType, format_shape

_RECENT = 8
"""Most deviations of one source node."""


class _Sources:
    """Context manager returned by ``Graph.source`` and ``Graph.derived_from``.

    A class is faster than a generator; it is created for each source node and for each match of a rule.
    """

    __slots__ = ("_before", "_graph", "_origin")

    def __init__(self, graph: Graph, sources: Sources, rules: tuple[str, ...] = ()) -> None:
        self._graph = graph
        self._origin = sources, rules

    def __enter__(self) -> None:
        self._before, self._graph._origin = self._graph._origin, self._origin

    def __exit__(self, *_: object) -> None:
        self._graph._origin = self._before


class Graph:
    """A program of TPU operators.

    Args:
        name: name of the model.
        file: base name of the source file, for messages.

    Attributes:
        rescale: rounding of a quantized source model: ``tflite`` (two roundings) or ``onnx`` (one).
        notes: remarks for the report, such as an assumed batch size.
        deviations: known deviations of source nodes from the standard of the source format. The conversion warns about
            each, and no comparison calls the results exact.
        states: ports by which the source model passes state from run to run; copies of a graph have none.
        forgotten_states: names of states that the source model keeps between runs, and that every run of this graph
            resets; copies of a graph have none.
        metadata: description of the model in the source file, as JSON values; it does not affect results.
        files: names of the files that were read besides the source file; copies of a graph have none.
        budget: limit of the constants that are computed while the graph is read and optimized; copies have none.
        has_distinct_extents: True to give every new data-dependent extent another name, so that extents of equal names
            are equal. Copies of a graph, and nodes that the optimizer adds, do not.
        reserved_names: names that values added from now on do not take; copies of a graph have none.
        is_estimate: True if results may depend on the order of float sums even where integers depend on them, as in
            a simulation whose error is measured. Copies have it.
    """

    def __init__(self, name: str = "graph", file: str = "") -> None:
        self.name = name
        self.file = file
        self.rescale = ""
        self.notes: list[str] = []
        self.deviations: list[Deviation] = []
        self.states: tuple[KeptState, ...] = ()
        self.forgotten_states: tuple[str, ...] = ()
        self.metadata: dict[str, Any] = {}
        self.files: tuple[str, ...] = ()
        self.budget = current_budget()
        self.has_distinct_extents = False
        self.is_estimate = False
        self.reserved_names: Collection[str] = ()
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.input_ports: list[Port] = []
        self.output_ports: list[Port] = []
        self._nodes: dict[Node, None] = {}
        self._is_known_sorted = True
        self._values: dict[str, Value] = {}
        self._suffix: dict[str, int] = {}
        self._distinct = DistinctExtents()
        self._positions: dict[Value, list[int]] = {}
        self._positions_of = 0
        self._origin: tuple[Sources, tuple[str, ...]] = (), ()
        self._inference = TypeInference()

    # Queries

    @property
    def nodes(self) -> list[Node]:
        """The nodes. They are in topological order after ``sort``, which every pass calls at its end."""
        return list(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def __repr__(self) -> str:
        return f"Graph({self.name!r}, {len(self)} nodes)"

    def _repr_html_(self) -> str:
        lines = [
            repr(self),
            *(f"input {port.name} {port.dtype}{format_shape(port.shape)}" for port in self.input_ports),
            *(f"output {port.name} {port.dtype}{format_shape(port.shape)}" for port in self.output_ports),
        ]
        rows = [
            (
                str(index),
                str(node.op),
                ", ".join(value.name if value else "-" for value in node.inputs),
                ", ".join(f"{value.name} {value.type}" for value in node.outputs),
                "; ".join(map(str, node.sources)),
            )
            for index, node in enumerate(self.nodes)
        ]
        return notebook_html(lines, [("#", "operator", "operands", "results", "from"), *rows])

    def latest(self, count: int) -> list[Node]:
        """The ``count`` nodes that were added last, in the order in which they were added."""
        return list(itertools.islice(reversed(self._nodes), count))[::-1]

    def __contains__(self, node: object) -> bool:
        return node in self._nodes

    @property
    def values(self) -> list[Value]:
        """Inputs, constants and results, in the order in which they were added."""
        return list(self._values.values())

    @property
    def constant_bytes(self) -> int:
        """Size of all constants in memory."""
        return sum(value.data.nbytes for value in self._values.values() if value.data is not None)

    def find(self, name: str) -> Value | None:
        """Return the value of that name, or None."""
        return self._values.get(name)

    def is_output(self, value: Value) -> bool:
        """Return True if the value is a graph output."""
        if self._positions_of != len(self.outputs):
            self._output_positions(value)
        return value in self._positions

    def is_sole_use(self, value: Value) -> bool:
        """Return True if the value has exactly one use and is not a graph output."""
        return len(value.uses) == 1 and not self.is_output(value)

    # Building

    def source(self, *sources: Source) -> _Sources:
        """Set the sources of every node that is added inside the ``with`` block."""
        return _Sources(self, sources)

    def joined_sources(self, sources: Sources) -> _Sources:
        """Set the sources of every node that is added inside the ``with`` block; they are listed when they are read."""
        return _Sources(self, sources)

    def derived_from(self, node: Node) -> _Sources:
        """Give every node that is added inside the ``with`` block the sources and rules of another node."""
        return _Sources(self, node.unlisted_sources, node.rules)

    def note_deviation(self, text: str) -> None:
        """Record that the nodes of the surrounding ``source`` block deviate from the standard of the source format."""
        sources = self._origin[0]
        listed = sources if isinstance(sources, tuple) else sources.listed()
        assert listed, "a deviation is recorded where a source node is converted"
        deviations = [Deviation(source.node, source.op, text) for source in listed]
        recent = self.deviations[
            -_RECENT:
        ]  # the results of one node follow each other; a search of all would be quadratic
        self.deviations += [item for item in deviations if item not in recent]

    def input(self, name: str, type_: TensorType, port: Port | None = None, quant: QuantParams | None = None) -> Value:
        """Declare a graph input. The default port has the name, type and shape of the value."""
        value = self._register(Value(self.unique(name), type_, quant=quant))
        self.inputs.append(value)
        self.input_ports.append(port or Port(name, type_.dtype.numpy.name, type_.shape))
        return value

    def output(self, value: Value, port: Port | None = None) -> None:
        """Declare a graph output. The default port has the name, type and shape of the value."""
        self.outputs.append(value)
        self.output_ports.append(port or Port(value.name, value.dtype.numpy.name, value.shape))

    def constant(
        self, data: Array, name: str = "constant", quant: QuantParams | None = None, stored: Array | None = None
    ) -> Value:
        """Add a constant. Rank 0 becomes rank 1; the data are not copied and must not be changed afterwards.

        Raises:
            ValueError: TPU operators have no such data type.
            ResourceLimitError: the constants that the conversion computes are too large together.
        """
        array = np.asarray(data)
        array = array.reshape(1) if array.ndim == 0 else array
        if self.budget is not None:
            self.budget.charge(array, name)
        return self._register(Value(self.unique(name), _type_of(array.dtype, array.shape), array, quant, stored))

    def add(
        self, op: Op, *inputs: Value | None, name: str | None = None, sources: tuple[Source, ...] | None = None
    ) -> Value:
        """Add a node with one result and return the result.

        Args:
            op: the operator.
            inputs: operands in the operator's order; None for an absent optional one.
            name: name of the result; by default the name of the operator.
            sources: source nodes; by default the sources of the surrounding ``source`` block.

        Raises:
            ShapeError: the operator does not accept operands of these types, or its result is too large for a file.
        """
        (result,) = self.add_all(op, *inputs, names=None if name is None else (name,), sources=sources)
        return result

    def add_all(
        self,
        op: Op,
        *inputs: Value | None,
        names: Sequence[str] | None = None,
        sources: tuple[Source, ...] | None = None,
    ) -> tuple[Value, ...]:
        """Add a node and return all its results. The arguments and exceptions are the same as for ``add``."""
        types = self._inference.infer(op, _types(inputs))
        if self.has_distinct_extents:
            types = self._distinct.rename(op, types, _types(inputs), self._inference)
        output_names = (op.name,) * len(types) if names is None else names
        outputs = tuple([self._register(Value(self.unique(n), t)) for n, t in zip(output_names, types, strict=True)])
        current_sources, rules = self._origin
        node = Node(op, inputs, outputs, current_sources if sources is None else sources, rules)
        for value in outputs:
            value.producer = node
        for index, operand in enumerate(inputs):
            if operand is not None:
                operand.uses[node, index] = None
        self._nodes[node] = None
        return outputs

    def unique(self, name: str) -> str:
        """Return an unused name: ``name``, or ``name`` with a number appended."""
        candidate = name
        while candidate in self._values or candidate in self.reserved_names:
            self._suffix[name] = self._suffix.get(name, 0) + 1
            candidate = f"{name}.{self._suffix[name]}"
        return candidate

    # Modification

    def rename(self, value: Value, name: str) -> None:
        """Rename a value; append a number if the name is in use."""
        assert name not in self._values, f"name '{name}' is taken"
        del self._values[value.name]
        value.name = name
        self._values[name] = value

    def replace_uses(self, old: Value, new: Value) -> None:
        """Replace ``old`` by ``new`` in all uses and in the graph outputs."""
        if old is new:
            return
        self._is_known_sorted = False
        indices: dict[Node, list[int]] = {}
        for node, index in old.uses:
            indices.setdefault(node, []).append(index)
            new.uses.add(node, index)
        for node, of_node in indices.items():  # once per node: a concat may use a value ten thousand times
            inputs = list(node.inputs)
            for index in of_node:
                inputs[index] = new
            node.inputs = tuple(inputs)
        old.uses.clear()
        positions = self._output_positions(old)
        for position in positions:
            self.outputs[position] = new
        if positions:
            del self._positions[old]
            self._positions[new] = sorted([*self._output_positions(new), *positions])

    def set_input(self, node: Node, index: int, value: Value) -> None:
        """Replace one operand of a node. The result types are not inferred again."""
        old = node.inputs[index]
        self._is_known_sorted = False
        if old is not None:
            old.uses.remove(node, index)
        node.inputs = (*node.inputs[:index], value, *node.inputs[index + 1 :])
        value.uses.add(node, index)

    def remove(self, node: Node) -> None:
        """Remove a node whose results have no uses."""
        for value in node.outputs:
            assert not value.uses and not self.is_output(value), f"'{value.name}' is still used"
            del self._values[value.name]
            value.producer = None  # break the reference cycle, so that the node and its operands are freed
        for index, operand in enumerate(node.inputs):
            if operand is not None:
                operand.uses.remove(node, index)
        del self._nodes[node]

    def discard(self, constant: Value) -> bool:
        """Remove a constant if it has no uses. Return True if it was removed."""
        if not constant.is_constant or constant.uses or self.is_output(constant):
            return False
        del self._values[constant.name]
        return True

    def prune(self) -> int:
        """Remove nodes and constants that no output depends on. Return the number of removed nodes."""
        leaving = set(map(id, self.outputs))
        removed = 0
        for node in reversed(self.sorted_nodes()):
            for value in node.outputs:
                if value.uses or id(value) in leaving:
                    break
            else:
                self.remove(node)
                removed += 1
        inputs = set(map(id, self.inputs))
        for value in self.values:
            if not value.uses and value.producer is None and id(value) not in leaving and id(value) not in inputs:
                del self._values[value.name]
        return removed

    def sorted_nodes(self) -> list[Node]:
        """Return the nodes in topological order; nodes keep their order if it is topological already.

        Raises:
            ValueError: the nodes form a cycle.
        """
        if self._is_sorted():
            return list(self._nodes)
        done: set[Node] = set()
        order: list[Node] = []
        for root in self._nodes:
            stack = [root]
            entered: set[Node] = set()
            while stack:
                node = stack[-1]
                if node in done:
                    stack.pop()
                    continue
                missing = [v.producer for v in node.inputs if v is not None and v.producer is not None]
                missing = [producer for producer in missing if producer not in done]
                if not missing:
                    done.add(node)
                    order.append(node)
                    stack.pop()
                elif node in entered:
                    raise ValueError(f"the graph has a cycle through '{node.name}'")
                else:
                    entered.add(node)
                    stack.extend(reversed(missing))
        return order

    def _is_sorted(self) -> bool:
        if self._is_known_sorted:  # adding a node keeps the order: its operands exist before it
            return True
        done: set[Node] = set()
        for node in self._nodes:
            for value in node.inputs:
                if value is not None and value.producer is not None and value.producer not in done:
                    return False
            done.add(node)
        self._is_known_sorted = True
        return True

    def sort(self) -> None:
        """Sort the nodes topologically."""
        if not self._is_sorted():
            self._nodes = dict.fromkeys(self.sorted_nodes())
            self._is_known_sorted = True

    def reorder(self, nodes: Sequence[Node]) -> None:
        """Set another topological order of the nodes."""
        assert len(nodes) == len(self._nodes) and set(nodes) == set(self._nodes), "other nodes"
        self._nodes = dict.fromkeys(nodes)
        self._is_known_sorted = False

    def validate(self) -> None:
        """Check the consistency of the graph. An inconsistency is a bug in tpuconvert.

        Raises:
            ValueError: the first inconsistency.
        """
        defined = set(map(id, self.inputs)) | {id(value) for value in self.values if value.is_constant}
        for node in self._nodes:
            for index, operand in enumerate(node.inputs):
                if operand is None:
                    continue
                if id(operand) not in defined:
                    raise ValueError(f"'{node.name}' uses '{operand.name}' before it is computed")
                if (node, index) not in operand.uses:
                    raise ValueError(f"the uses of '{operand.name}' lack '{node.name}'")
            types = self._inference.infer(node.op, _types(node.inputs))
            for value, type_ in zip(node.outputs, types, strict=True):
                if value.type != type_ and not may_be_same_type(value.type, type_):
                    raise ValueError(f"'{value.name}' is {value.type}, but {node.op} gives {type_}")
                defined.add(id(value))
        for value in self.outputs:
            if id(value) not in defined:
                raise ValueError(f"output '{value.name}' is not computed by any node")

    def _output_positions(self, value: Value) -> list[int]:
        """Return the positions of a value in ``outputs``, from a cache that is rebuilt if an output was added."""
        if self._positions_of != len(self.outputs):
            self._positions = {}
            for position, output in enumerate(self.outputs):
                self._positions.setdefault(output, []).append(position)
            self._positions_of = len(self.outputs)
        return self._positions.get(value, [])

    def _register(self, value: Value) -> Value:
        check_size(value.type, value.name)
        self._values[value.name] = value
        return value


def _types(operands: Iterable[Value | None]) -> OperandTypes:
    return tuple([None if value is None else value.type for value in operands])


@functools.lru_cache(1 << 10)
def _type_of(dtype: np.dtype[Any], shape: tuple[int, ...]) -> TensorType:
    """Return the type of a constant. Equal types are the same object, which makes comparisons fast."""
    return TensorType(DType.of(dtype), shape)


def static(shape: Iterable[Dim]) -> tuple[int, ...]:
    """Return a shape as integers. It must be static."""
    extents = tuple(shape)
    assert all(isinstance(extent, int) for extent in extents), f"symbolic shape {format_shape(extents)}"
    return cast(tuple[int, ...], extents)
