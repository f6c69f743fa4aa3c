"""Decode the tables of a file to a model and validate their content.

The FlatBuffers verifier has checked the structure of the tables; this module checks indices, types and sizes. Sizes are
Python integers, which do not overflow, and are checked before memory is allocated.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import NoReturn

import numpy as np

from tpuconvert.schema.definition.extents import data_dependent_names, is_formula
from tpuconvert.schema.definition.op import Op, OpKind, find_op
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.file import op_attributes
from tpuconvert.schema.file import tpum_tables as tpum
from tpuconvert.schema.file.file_header import ALIGNMENT
from tpuconvert.schema.file.file_model import FileModel, Json, Note
from tpuconvert.schema.file.file_quantization import check_quants, dtype_of, quant_params
from tpuconvert.schema.graph.control_flow import MAX_DEPTH, MAX_EXPANDED_NODES, Subgraph
from tpuconvert.schema.graph.graph import Graph, Port, Source, Value
from tpuconvert.schema.graph.graph_elements import DeferredQuant
from tpuconvert.schema.graph.states import State
from tpuconvert.schema.graph.type_inference import may_be_same_type
from tpuconvert.schema.graph.value_limits import MAX_ELEMENTS
from tpuconvert.schema.text.json_text import parse_json
from tpuconvert.schema.types import F16, F32, MAX_RANK, Array, Chip, DType, Shape, TensorType
from tpuconvert.schema.user_code import with_place

_PORT_TYPES = frozenset(
    {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"}
) | {"bfloat16"}
"""NumPy type names that a port may have; bfloat16 is defined by the package ``ml_dtypes``."""

Constant = Callable[[tpum.Buffer, DType, tuple[int, ...]], Array]
"""Function that creates the array of a constant, whose buffer size has been checked."""


class UnknownOperatorsError(ValueError):
    """The model has operators without a definition, most likely because a plugin is not loaded.

    Attributes:
        names: names of the operators.
        plugins: plugins that the model requires.
    """

    def __init__(self, names: Sequence[str], plugins: Sequence[str]) -> None:
        self.names = tuple(names)
        self.plugins = tuple(plugins)
        super().__init__(f"it uses operators that are not known here: {', '.join(names)}")


def decode(tables: tpum.Model, weights_size: int, constant: Constant) -> FileModel:
    """Create the model that the tables describe.

    Args:
        tables: unpacked from a verified buffer.
        weights_size: bytes in the weight segment.
        constant: creates the array of a constant.

    Raises:
        ValueError: the first error that was found.
    """
    check_buffers(tables.buffers, weights_size)
    if not tables.chip:
        raise ValueError("the model has no chip")
    graph = _decode_graphs(tables, constant)
    return FileModel(
        graph=graph,
        chip=Chip[tables.chip.name],
        tool_version=tables.tool_version,
        quantize=tables.quantize,
        preprocessing=_json_values(tables.preprocessing),
        notes=tuple(Note(note.kind, note.node, note.message) for note in tables.notes),
        plugins=tables.plugins,
        metadata=_json_values(tables.metadata),
        states=_states(tables, graph),
    )


def check_buffers(buffers: Sequence[tpum.Buffer], weights_size: int) -> None:
    """Check that constants are aligned, in ascending order and inside the weight segment.

    Raises:
        ValueError: they are not.
    """
    end = 0
    for position, buffer in enumerate(buffers):
        if buffer.offset < end or buffer.offset % ALIGNMENT:
            raise ValueError(
                f"constant {position} at byte {buffer.offset} overlaps the one before it or is not aligned"
            )
        end = buffer.offset + buffer.size
        if end > weights_size:
            raise ValueError(f"constant {position} ends at byte {end} of {weights_size}")


def _states(tables: tpum.Model, graph: Graph) -> tuple[State, ...]:
    """Create the states and check that each is one input and one output of the graph."""
    states = tuple(State(item.input, item.output, item.axis) for item in tables.states)
    for state in states:
        state.check(graph)
    if len({state.input for state in states}) != len(states) or len({state.output for state in states}) != len(states):
        raise ValueError("two states share an input or an output")
    return states


def _json_values(entries: Sequence[tpum.Entry]) -> dict[str, Json]:
    values: dict[str, Json] = {}
    for entry in entries:
        if entry.key in values:
            raise ValueError(f"the key {entry.key!r} occurs twice")
        try:
            values[entry.key] = parse_json(entry.json, parse_constant=_no_constant)
        except ValueError as error:
            raise ValueError(f"the value of {entry.key!r} is not JSON: {error}") from error
    return values


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _decode_graphs(tables: tpum.Model, constant: Constant) -> Graph:
    """Create the main graph and its subgraphs.

    A subgraph refers only to subgraphs before it, so that there are no cycles.
    """
    subgraphs: list[Subgraph] = []
    used_buffers: set[int] = set()
    used_subgraphs: set[int] = set()
    depths: list[int] = []
    sizes: list[int] = []
    has_subgraphs = any(attribute.kind is tpum.AttributeKind.GRAPH for attribute in tables.attributes)
    for stored in (*tables.subgraphs, tables.graph):
        graph = _GraphDecoder(tables, stored, subgraphs, constant, used_buffers).graph()
        nodes = stored.nodes if has_subgraphs else ()
        inner = [index for node in nodes for index in _subgraph_indices(tables, node)]
        used_subgraphs.update(inner)
        depths.append(1 + max((depths[index] for index in inner), default=0))
        sizes.append(len(stored.nodes) + sum(sizes[index] for index in inner))
        if depths[-1] > MAX_DEPTH + 1:
            raise ValueError(f"subgraphs are nested more than {MAX_DEPTH} deep")
        if inner and sizes[-1] - len(stored.nodes) > MAX_EXPANDED_NODES:
            raise ValueError(f"the subgraphs have more than {MAX_EXPANDED_NODES} nodes")
        subgraphs.append(Subgraph(graph))
    if len(used_subgraphs) != len(tables.subgraphs):
        raise ValueError("a subgraph belongs to no node")
    if len(used_buffers) != len(tables.buffers):
        raise ValueError("a constant belongs to no value")
    return subgraphs[-1].graph


def _subgraph_indices(tables: tpum.Model, node: tpum.Node) -> list[int]:
    """Indices of the subgraphs of a node, whose parameters have been checked."""
    stored = [tables.attributes[position] for position in node.attributes]
    return [attribute.integer for attribute in stored if attribute.kind is tpum.AttributeKind.GRAPH]


class _GraphDecoder:
    """Build a graph with the public methods of ``Graph``, which check types and names."""

    def __init__(
        self,
        tables: tpum.Model,
        stored: tpum.Graph,
        subgraphs: Sequence[Subgraph],
        constant: Constant,
        used_buffers: set[int],
    ) -> None:
        self._tables = tables
        self._graph_tables = stored
        self._subgraphs = subgraphs
        self._constant = constant
        self._stored = stored.values
        self._symbols = stored.symbols
        self._values: list[Value | None] = [None] * len(self._stored)
        self._used_buffers = used_buffers
        self._sources: dict[tpum.Source, Source] = {}
        self._quants: list[tuple[tpum.Quantization, Shape]] = []
        """Quantization parameters whose objects are created later, with the shapes of their tensors."""
        self._types: dict[tuple[tpum.DType, tuple[int, ...]], TensorType] = {}
        self._ops: dict[tuple[type[Op], tuple[int, ...]], Op] = {}
        self._graph = Graph(stored.name, stored.file)

    def graph(self) -> Graph:
        stored, graph = self._graph_tables, self._graph
        graph.rescale = stored.rescale
        graph.notes = list(stored.notes)
        if len({value.name for value in self._stored}) != len(self._stored):
            raise ValueError("two values have the same name")
        self._add_inputs(stored)
        for position, value in enumerate(self._stored):
            if value.data >= 0:
                self._add_constant(position, value)
            elif value.data != -1 or value.stored != -1:
                raise ValueError(f"value {value.name!r} has stored integers, but no data")
        self._add_nodes(stored.nodes)
        self._add_outputs(stored)
        check_quants(self._quants)
        if None in self._values:
            name = self._stored[self._values.index(None)].name
            raise ValueError(f"no node computes the value {name!r}")
        self._check_symbols()
        return graph

    def _add_inputs(self, stored: tpum.Graph) -> None:
        if len(stored.inputs) != len(stored.input_ports) or len(stored.outputs) != len(stored.output_ports):
            raise ValueError("the number of ports is not the number of inputs or outputs")
        for position, port in zip(stored.inputs, stored.input_ports, strict=True):
            value = self._new(position, "an input")
            if value.data != -1:
                raise ValueError(f"the input {value.name!r} is a constant")
            type_ = self._type(value)
            quant = quant_params(value.quantization, type_.shape)
            source = self._port(port)
            # The graph may have another order of the axes, and no rank 0.
            if sorted(map(str, source.shape or (1,))) != sorted(map(str, type_.shape)):
                raise ValueError(f"port {port.name!r} has other extents than the input {value.name!r}")
            self._values[position] = self._graph.input(value.name, type_, source, quant)

    def _add_outputs(self, stored: tpum.Graph) -> None:
        for position, port in zip(stored.outputs, stored.output_ports, strict=True):
            self._graph.output(self._existing(position, "an output"), self._port(port))

    def _check_symbols(self) -> None:
        """Check that the extents of the inputs determine all symbolic extents that are not named as data-dependent.

        A session could not plan for others. A custom operator may name extents of its results.
        """
        custom = [value for node in self._graph.nodes if node.op.kind is OpKind.CUSTOM for value in node.outputs]
        values = (*self._graph.inputs, *custom)
        declared = {extent for value in values for extent in value.shape if isinstance(extent, str)}
        for symbol in self._symbols:
            if symbol not in declared and not data_dependent_names((symbol,)) and not is_formula(symbol, declared):
                raise ValueError(f"no input has the symbolic extent {symbol[:80]!r}")

    def _new(self, position: int, what: str) -> tpum.Value:
        """Return the stored value with this index and check that no other node or input defines it."""
        if not 0 <= position < len(self._stored):
            raise ValueError(f"{what} refers to value {position}, but there are {len(self._stored)}")
        if self._values[position] is not None:
            raise ValueError(f"value {self._stored[position].name!r} is computed twice")
        return self._stored[position]

    def _existing(self, position: int, what: str) -> Value:
        value = self._values[position] if 0 <= position < len(self._values) else None
        if value is None:
            raise ValueError(f"{what} uses value {position}, which is not computed before it")
        return value

    def _shape(self, stored: tuple[int, ...]) -> Shape:
        if len(stored) > MAX_RANK:
            raise ValueError(f"a shape has {len(stored)} extents, more than {MAX_RANK}")
        if min(stored, default=0) < -len(self._symbols):
            raise ValueError(
                f"a shape refers to symbolic dimension {-1 - min(stored)}, but there are {len(self._symbols)}"
            )
        if math.prod(max(extent, 1) for extent in stored) > MAX_ELEMENTS:
            raise ValueError(f"the shape {list(stored)} has more than {MAX_ELEMENTS} elements")
        return tuple(self._symbols[-1 - extent] if extent < 0 else extent for extent in stored)

    def _type(self, value: tpum.Value) -> TensorType:
        key = value.dtype, tuple(value.shape)
        type_ = self._types.get(key)
        if type_ is None:
            shape = self._shape(key[1])
            if not shape:
                raise ValueError(f"value {value.name!r} has rank 0")
            type_ = TensorType(dtype_of(value.dtype, f"value {value.name!r} has no data type"), shape)
            self._types[key] = type_
        return type_

    def _port(self, port: tpum.Port) -> Port:
        if port.dtype not in _PORT_TYPES:
            raise ValueError(f"port {port.name!r} has the unknown type {port.dtype!r}")
        shape = self._shape(tuple(port.shape))
        return Port(port.name, port.dtype, shape, quant_params(port.quantization, shape))

    def _add_constant(self, position: int, value: tpum.Value) -> None:
        self._new(position, "a constant")
        type_ = self._type(value)
        if not type_.is_static:
            raise ValueError(f"the constant {value.name!r} has a symbolic shape")
        data = self._data(value, type_)
        integers = None
        if value.stored != -1:
            dtype = dtype_of(value.stored_dtype, f"the integers of {value.name!r} have no data type")
            integers = self._array(value.name, value.stored, dtype, type_.static_shape)
        constant = self._graph.constant(data, value.name, stored=integers)
        if value.quantization is not None:
            self._set_quant(constant, value.quantization)
        self._values[position] = constant

    def _data(self, value: tpum.Value, type_: TensorType) -> Array:
        """Return the elements of a constant; FLOAT16 in the file is widened to FLOAT32."""
        if value.data_dtype is tpum.DType.NONE:
            return self._array(value.name, value.data, type_.dtype, type_.static_shape)
        if value.data_dtype is not tpum.DType.FLOAT16 or type_.dtype is not F32:
            raise ValueError(f"the constant {value.name!r} is {type_.dtype.name}, stored as {value.data_dtype.name}")
        return self._array(value.name, value.data, F16, type_.static_shape).astype(np.float32)

    def _set_quant(self, value: Value, stored: tpum.Quantization) -> None:
        """Set quantization parameters, which ``graph`` checks at its end."""
        item = stored, value.type.shape
        self._quants.append(item)
        value.quant = DeferredQuant(functools.partial(quant_params, *item))

    def _array(self, name: str, position: int, dtype: DType, shape: tuple[int, ...]) -> Array:
        if not 0 <= position < len(self._tables.buffers):
            raise ValueError(f"value {name!r} refers to constant {position}, but there are {len(self._tables.buffers)}")
        buffer = self._tables.buffers[position]
        size = math.prod(shape) * (dtype.bits // 8)
        if size != buffer.size:
            raise ValueError(f"value {name!r} needs {size} bytes, its constant has {buffer.size}")
        self._used_buffers.add(position)
        return self._constant(buffer, dtype, shape)

    def _add_nodes(self, nodes: Sequence[tpum.Node]) -> None:
        definitions = {name: find_op(name) for name in dict.fromkeys(node.op for node in nodes)}
        unknown = [name for name, definition in definitions.items() if definition is None]
        if unknown:
            raise UnknownOperatorsError(unknown, self._tables.plugins)
        definition_by_name = {name: definition for name, definition in definitions.items() if definition is not None}
        values, count = self._values, len(self._values)
        for position, node in enumerate(nodes):
            what = f"node {position} ({node.op})"
            op = self._op(what, node, definition_by_name[node.op])
            inputs = [values[index] if 0 <= index < count else None for index in node.inputs]
            if None in inputs:
                inputs = [None if index == -1 else self._existing(index, what) for index in node.inputs]
            self._add_node(what, op, inputs, node)

    def _op(self, what: str, node: tpum.Node, definition: type[Op]) -> Op:
        decoded = self._ops.get((definition, node.attributes))
        if decoded is not None:
            return decoded
        stored = self._tables.attributes
        if node.attributes and not 0 <= min(node.attributes) <= max(node.attributes) < len(stored):
            raise ValueError(f"{what} refers to a parameter that does not exist")
        attributes = [stored[position] for position in node.attributes]
        try:
            op = op_attributes.decode(definition, attributes, self._subgraphs)
        except Exception as error:  # operator definitions may raise anything, plugins too
            raise ValueError(f"{what}: {with_place(error)}") from error
        self._ops[definition, node.attributes] = op
        return op

    def _add_node(self, what: str, op: Op, inputs: list[Value | None], node: tpum.Node) -> None:
        results = [self._new(position, what) for position in node.outputs]
        if len(set(node.outputs)) != len(results) or not results:
            raise ValueError(f"{what} has no results, or one twice")
        types = list(map(self._type, results))
        sources = tuple(map(self._source, node.sources))
        try:
            outputs = self._graph.add_all(op, *inputs, names=[result.name for result in results], sources=sources)
        except ShapeError as error:
            raise ValueError(f"{what}: {error}") from error
        except Exception as error:  # ``infer`` may raise anything, in plugins too
            raise ValueError(f"{what} does not fit its operands: {with_place(error)}") from error
        for value, type_, result, position in zip(outputs, types, results, node.outputs, strict=True):
            if value.type is not type_ and not may_be_same_type(value.type, type_):
                raise ValueError(f"{what} gives {value.type}, but {result.name!r} is stored as {type_}")
            value.type = type_
            if result.quantization is not None:
                self._set_quant(value, result.quantization)
            self._values[position] = value

    def _source(self, stored: tpum.Source) -> Source:
        """Return a source node; the nodes that come from it share the object."""
        source = self._sources.get(stored)
        if source is None:
            source = self._sources[stored] = Source(*stored)
        return source
