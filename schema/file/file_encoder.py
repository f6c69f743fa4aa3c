"""Encode a model as the tables of the file and the list of its constants.

Values are stored in this order: inputs, constants in the order in which they were added to the graph, then results in
the order of the nodes. Equal graphs therefore give equal tables.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpuconvert.schema.arithmetic.half_floats import is_exact_in_half
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.file import op_attributes
from tpuconvert.schema.file import tpum_tables as tpum
from tpuconvert.schema.file.file_header import align_up
from tpuconvert.schema.file.file_model import FileModel, Json
from tpuconvert.schema.graph.control_flow import Subgraph
from tpuconvert.schema.graph.graph import Graph, Node, Port, Source, Value
from tpuconvert.schema.system.content_digest import digest_of
from tpuconvert.schema.system.mapped_pages import WORTH_IT, forget_pages
from tpuconvert.schema.types import F32, Array, DType, QuantParams, Shape


@dataclass(frozen=True, eq=False)
class Blob:
    """One constant to be written. ``bytes`` converts it if it is not contiguous and little-endian."""

    array: Array
    dtype: DType

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return self.array.nbytes

    def bytes(self) -> memoryview:
        """The elements in C order, little-endian."""
        array = np.ascontiguousarray(self.array, dtype=self.dtype.numpy.newbyteorder("<"))
        return array.reshape(-1).view(np.uint8).data


def encode(model: FileModel) -> tuple[tpum.Model, list[Blob]]:
    """Return the tables of a model, and the constants in the order of ``Model.buffers``.

    Raises:
        ValueError: the format cannot store the model, which is a bug of the caller.
    """
    constants = _Constants()
    parameters = _Parameters(constants)
    graph = _GraphEncoder(model.graph, constants, parameters).graph()
    buffers, offset = [], 0
    for blob in constants.blobs:
        offset = align_up(offset)
        buffers.append(tpum.Buffer(offset=offset, size=blob.size))
        offset += blob.size
    tables = tpum.Model(
        tool_version=model.tool_version,
        chip=tpum.Chip[model.chip.name],
        quantize=model.quantize,
        plugins=tuple(model.plugins),
        graph=graph,
        attributes=tuple(parameters.attributes),
        buffers=tuple(buffers),
        notes=tuple(tpum.Note(note.kind, note.node, note.message) for note in model.notes),
        preprocessing=_entries(model.preprocessing),
        metadata=_entries(model.metadata),
        subgraphs=tuple(parameters.subgraphs),
        states=tuple(tpum.State(state.input, state.output, state.axis) for state in model.states),
    )
    return tables, constants.blobs


def with_metadata(tables: tpum.Model, metadata: Mapping[str, Json]) -> tpum.Model:
    """Replace the metadata of the tables.

    Raises:
        ValueError: not all values are JSON values.
    """
    return tables._replace(metadata=_entries(metadata))


def _entries(values: Mapping[str, Json]) -> tuple[tpum.Entry, ...]:
    entries = []
    for key, value in values.items():
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except TypeError as error:
            raise ValueError(f"'{key}' cannot be stored as JSON: {error}") from error
        entries.append(tpum.Entry(key=key, json=text))
    return tuple(entries)


_DTYPES = {dtype: tpum.DType[dtype.name] for dtype in DType}


@functools.lru_cache(64)
def _dtype_of(numpy_type: np.dtype[Any]) -> DType:
    """Return the data type of a NumPy type in either byte order."""
    return DType.of(numpy_type.newbyteorder("="))


class _Constants:
    """Deduplicated constants of a graph.

    Constants of equal size whose sampled bytes are equal are compared as a whole.
    """

    def __init__(self) -> None:
        self.blobs: list[Blob] = []
        self._first: dict[tuple[int, bytes], int] = {}
        self._digests: dict[int, bytes] = {}
        self._places: dict[bytes, int] = {}

    def location(self, array: Array) -> int:
        """Return the index of an array's content in ``blobs``; add the content if it is new."""
        blob = Blob(array, _dtype_of(array.dtype))
        first = self._first.setdefault((blob.size, _sample(blob)), len(self.blobs))
        if first < len(self.blobs):
            if first not in self._digests:
                self._digests[first] = digest_of(self.blobs[first].bytes())
                self._places[self._digests[first]] = first
            index = self._places.setdefault(digest_of(blob.bytes()), len(self.blobs))
            if index < len(self.blobs) and np.array_equal(self.blobs[index].bytes(), blob.bytes()):
                return index  # equal digests do not prove equal contents: XXH3 collisions can be constructed
        self.blobs.append(blob)
        return len(self.blobs) - 1


_SAMPLED = 64  # bytes of each of the three samples: beginning, middle and end


def _sample(blob: Blob) -> bytes:
    """Return three samples of the bytes of a constant."""
    if not blob.array.flags.c_contiguous:  # ``bytes`` would copy all elements
        return b""
    data, middle = blob.bytes(), blob.size // 2
    sample = bytes(data[:_SAMPLED]) + bytes(data[middle : middle + _SAMPLED]) + bytes(data[-_SAMPLED:])
    if blob.size >= WORTH_IT:
        forget_pages(blob.array)  # the system may have loaded megabytes around the sampled bytes
    return sample


class _Parameters:
    """Deduplicated parameters of the operators of all graphs, and the subgraphs that some of them are."""

    def __init__(self, constants: _Constants) -> None:
        self.attributes: list[tpum.Attribute] = []
        self.subgraphs: list[tpum.Graph] = []
        self._constants = constants
        self._attribute_places: dict[str, int] = {}
        self._op_places: dict[tuple[type[Op], str], tuple[int, ...]] = {}
        self._latest_places: dict[int, tuple[int, ...]] = {}  # key: id of an operator, which the graph keeps alive
        self._subgraph_places: dict[int, int] = {}  # key: id of a subgraph

    def of(self, op: Op) -> tuple[int, ...]:
        """Return the indices of an operator's parameters.

        Parameters are compared by ``repr``, because ``==`` does not distinguish -0.0 from 0.0 and is False for NaN.
        """
        locations = self._latest_places.get(id(op))
        if locations is not None:
            return locations
        key = type(op), repr(op)
        locations = None if op.has_subgraphs else self._op_places.get(key)
        if locations is None:
            encoded = op_attributes.encode(op, self._subgraph)
            locations = self._op_places[key] = tuple(map(self._attribute, encoded))
        self._latest_places[id(op)] = locations
        return locations

    def _attribute(self, attribute: tpum.Attribute) -> int:
        location = self._attribute_places.setdefault(repr(attribute[:]), len(self.attributes))
        if location == len(self.attributes):
            self.attributes.append(attribute)
        return location

    def _subgraph(self, subgraph: Subgraph) -> int:
        """Return the index of a subgraph; add it, after its own subgraphs, if it is new."""
        location = self._subgraph_places.get(id(subgraph))
        if location is None:
            tables = _GraphEncoder(subgraph.graph, self._constants, self).graph()
            location = self._subgraph_places[id(subgraph)] = len(self.subgraphs)
            self.subgraphs.append(tables)
        return location


class _GraphEncoder:
    def __init__(self, graph: Graph, constants: _Constants, parameters: _Parameters) -> None:
        self._graph = graph
        self._constants = constants
        self._parameters = parameters
        self._symbols: dict[str, int] = {}
        self._shapes: dict[Shape, tuple[int, ...]] = {}
        computed = [value for node in graph.nodes for value in node.outputs]
        fixed = [value for value in graph.values if value.is_constant]
        self._values = [*graph.inputs, *fixed, *computed]
        self._places = {id(value): location for location, value in enumerate(self._values)}

    def graph(self) -> tpum.Graph:
        graph = self._graph
        return tpum.Graph(
            name=graph.name,
            file=_base_name(graph.file),
            rescale=graph.rescale,
            values=tuple(map(self._value, self._values)),
            nodes=tuple(map(self._node, graph.nodes)),
            inputs=tuple(map(self._place, graph.inputs)),
            outputs=tuple(map(self._place, graph.outputs)),
            input_ports=tuple(map(self._port, graph.input_ports)),
            output_ports=tuple(map(self._port, graph.output_ports)),
            symbols=tuple(self._symbols),  # ``_shape`` has filled it while the fields above were computed
            notes=tuple(graph.notes),
        )

    def _place(self, value: Value | None) -> int:
        if value is None:
            return -1
        location = self._places.get(id(value))
        if location is None:
            raise ValueError(
                f"'{value.name}' is used, but it is not an input, a constant or a result of an earlier node"
            )
        return location

    def _value(self, value: Value) -> tpum.Value:
        for array in (value.data, value.stored):
            if array is not None and array.shape != value.shape:
                raise ValueError(f"'{value.name}' is {value.type}, but its elements have the shape {array.shape}")
        if value.data is not None and _dtype_of(value.data.dtype) is not value.dtype:
            raise ValueError(f"'{value.name}' is {value.type}, but its elements are {value.data.dtype}")
        stored, half = value.stored, self._as_half(value)
        return tpum.Value(
            name=value.name,
            dtype=_DTYPES[value.dtype],
            shape=self._shape(value.shape),
            quantization=_quantization(value.quant),
            data=-1 if value.data is None else self._constants.location(value.data if half is None else half),
            stored=-1 if stored is None else self._constants.location(stored),
            stored_dtype=tpum.DType.NONE if stored is None else _DTYPES[_dtype_of(stored.dtype)],
            data_dtype=tpum.DType.NONE if half is None else tpum.DType.FLOAT16,
        )

    @staticmethod
    def _as_half(value: Value) -> Array | None:
        """Return a constant in FLOAT16 if it has only scales of packed weights, which are exact in FLOAT16."""
        is_scale = bool(value.uses) and all(position in node.op.half_operands for node, position in value.uses)
        if value.data is None or value.dtype is not F32 or not is_scale or not is_exact_in_half(value.data):
            return None
        return value.data.astype(np.float16)

    def _shape(self, shape: Shape) -> tuple[int, ...]:
        encoded = self._shapes.get(shape)
        if encoded is None:
            encoded = self._shapes[shape] = tuple(
                -1 - self._symbols.setdefault(extent, len(self._symbols)) if isinstance(extent, str) else int(extent)
                for extent in shape
            )
        return encoded

    def _node(self, node: Node) -> tpum.Node:
        return tpum.Node(
            op=node.op.name,
            attributes=self._parameters.of(node.op),
            inputs=tuple(map(self._place, node.inputs)),
            outputs=tuple(map(self._place, node.outputs)),
            sources=tuple(map(_source, node.sources)),
        )

    def _port(self, port: Port) -> tpum.Port:
        return tpum.Port(port.name, port.dtype, self._shape(port.shape), _quantization(port.quant))


def _source(source: Source) -> tpum.Source:
    return tpum.Source(_base_name(source.file), source.node, source.op)


@functools.lru_cache(16)
def _base_name(file: str) -> str:
    """Return a file name without its folder, which may be private and differs between machines."""
    if not file.isprintable():  # bytes of a name that is not UTF-8 are surrogates, which cannot be stored
        file = file.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if not any(sign in file for sign in "/\\:"):
        return file
    from pathlib import PurePosixPath, PureWindowsPath  # 4 ms; names from the frontends have no folder

    return PureWindowsPath(PurePosixPath(file).name).name


def _quantization(quant: QuantParams | None) -> tpum.Quantization | None:
    if quant is None:
        return None
    zero_point = tuple(map(int, quant.zero_point))
    is_uniform = zero_point.count(zero_point[0]) == len(zero_point)
    return tpum.Quantization(
        scale=tuple(map(float, quant.scale)),
        zero_point=zero_point[:1] if is_uniform else zero_point,
        dtype=tpum.DType[quant.dtype.name],
        per_axis=quant.axis is not None,
        axis=0 if quant.axis is None else int(quant.axis),
    )
