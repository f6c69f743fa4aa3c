"""Made by tools/generate_schema.py from schema/tpum.fbs: change that file, then run the program."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpuconvert.schema.flatbuffer_tables import TableReader
from tpuconvert.schema.flatbuffer_verifier import Schema

SCHEMA_SHA256 = "d36f2e3b94e06832e56ce5c1503f88fb21e09954d7749d346ccc2f14029923cb"
FILE_IDENTIFIER = b"TPUM"
ROOT_TABLE = "Model"
SCHEMA = Schema(
    tables={
        "Attribute": "name:str! kind:u8 integer:i64 real:f64 dtype:u8 string:str integers:[i64] reals:[f64] strings:[str]",
        "Quantization": "scale:[f64] zero_point:[i64] dtype:u8 per_axis:bool axis:i64",
        "Buffer": "offset:u64 size:u64",
        "Value": "name:str! dtype:u8 shape:[i64] quantization:Quantization data:i32=-1 stored:i32=-1 stored_dtype:u8",
        "Source": "file:str! node:str! op:str!",
        "Node": "op:str! attributes:[i32] inputs:[i32] outputs:[i32] sources:[Source]",
        "Port": "name:str! dtype:str! shape:[i64] quantization:Quantization",
        "Graph": "name:str! file:str! rescale:str! symbols:[str] values:[Value] nodes:[Node] inputs:[i32] outputs:[i32] input_ports:[Port] output_ports:[Port] notes:[str]",
        "Note": "kind:str! node:str! message:str!",
        "Entry": "key:str! json:str!",
        "Model": "tool_version:str! chip:u8 quantize:str! plugins:[str] graph:Graph! attributes:[Attribute] buffers:[Buffer] notes:[Note] preprocessing:[Entry] metadata:[Entry]",
    }
)


def _vector(builder: Any, items: Sequence[Any], dtype: str) -> int:
    """Offset of a vector of numbers, 0 for an empty one, which is not stored."""
    return int(builder.CreateNumpyVector(np.array(items, dtype=dtype))) if items else 0


def _offsets(builder: Any, offsets: Sequence[int]) -> int:
    """Offset of a vector of strings or tables, 0 for an empty one, which is not stored."""
    if not offsets:
        return 0
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


class DType(enum.IntEnum):
    """Element types. NONE stands where a value is not a constant."""

    NONE = 0
    FLOAT32 = 1
    FLOAT16 = 2
    INT32 = 3
    UINT32 = 4
    INT16 = 5
    UINT16 = 6
    INT8 = 7
    UINT8 = 8


class Chip(enum.IntEnum):
    """Target chips."""

    NONE = 0
    BM1682 = 1
    BM1684 = 2
    BM1686 = 3


class AttributeKind(enum.IntEnum):
    """Which field of Attribute holds the value: BOOL is 0 or 1 in `integer`, ENUM the member's name in `string`,
    SCALAR a `dtype` with `integer` or `real`, as the dtype is.
    """

    NONE = 0
    BOOL = 1
    INT = 2
    FLOAT = 3
    STRING = 4
    INTS = 5
    FLOATS = 6
    STRINGS = 7
    ENUM = 8
    DTYPE = 9
    SCALAR = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """A parameter of an operator. Every different (name, value) is stored once per file; nodes refer to it by its place."""

    name: str
    kind: AttributeKind = AttributeKind(0)
    integer: int = 0
    real: float = 0.0
    dtype: DType = DType(0)
    string: str = ""
    integers: tuple[int, ...] = ()
    reals: tuple[float, ...] = ()
    strings: tuple[str, ...] = ()

    def pack(self, builder: Any) -> int:
        """Write the table and return its offset. ``builder`` is a flatbuffers.Builder."""
        name = builder.CreateSharedString(self.name)
        string = builder.CreateSharedString(self.string) if self.string else 0
        integers = _vector(builder, self.integers, "<i8")
        reals = _vector(builder, self.reals, "<f8")
        strings = _offsets(builder, [builder.CreateSharedString(item) for item in self.strings])
        builder.StartObject(9)
        builder.PrependInt64Slot(2, self.integer, 0)
        if repr(self.real) != repr(0.0):
            builder.PrependFloat64(self.real)
            builder.Slot(3)
        builder.PrependUOffsetTRelativeSlot(0, name, 0)
        builder.PrependUOffsetTRelativeSlot(5, string, 0)
        builder.PrependUOffsetTRelativeSlot(6, integers, 0)
        builder.PrependUOffsetTRelativeSlot(7, reals, 0)
        builder.PrependUOffsetTRelativeSlot(8, strings, 0)
        builder.PrependUint8Slot(1, self.kind, 0)
        builder.PrependUint8Slot(4, self.dtype, 0)
        return int(builder.EndObject())

    @staticmethod
    def unpack(table: TableReader) -> Attribute:
        """Read the table from a verified buffer.

        Raises:
            ValueError: for an enum number that does not exist, or when the budget of the reader is spent.
        """
        return Attribute(
            name=table.string(0),
            kind=AttributeKind(table.scalar(1, "B", 0)),
            integer=table.scalar(2, "q", 0),
            real=table.scalar(3, "d", 0.0),
            dtype=DType(table.scalar(4, "B", 0)),
            string=table.string(5),
            integers=table.scalars(6, "q"),
            reals=table.scalars(7, "d"),
            strings=table.strings(8),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """real = (q - zero_point) * scale. One scale, or one for each index of `axis`."""

    scale: tuple[float, ...] = ()
    zero_point: tuple[int, ...] = ()
    dtype: DType = DType(0)
    per_axis: bool = False
    axis: int = 0

    def pack(self, builder: Any) -> int:
        """Write the table and return its offset. ``builder`` is a flatbuffers.Builder."""
        scale = _vector(builder, self.scale, "<f8")
        zero_point = _vector(builder, self.zero_point, "<i8")
        builder.StartObject(5)
        builder.PrependInt64Slot(4, self.axis, 0)
        builder.PrependUOffsetTRelativeSlot(0, scale, 0)
        builder.PrependUOffsetTRelativeSlot(1, zero_point, 0)
        builder.PrependUint8Slot(2, self.dtype, 0)
        builder.PrependBoolSlot(3, self.per_axis, False)
        return int(builder.EndObject())

    @staticmethod
    def unpack(table: TableReader) -> Quantization:
        """Read the table from a verified buffer.

        Raises:
            ValueError: for an enum number that does not exist, or when the budget of the reader is spent.
        """
        return Quantization(
            scale=table.scalars(0, "d"),
            zero_point=table.scalars(1, "q"),
            dtype=DType(table.scalar(2, "B", 0)),
            per_axis=table.scalar(3, "?", False),
            axis=table.scalar(4, "q", 0),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """Bytes in the weight segment, little-endian, C order. `offset` counts from the start of the segment."""

    offset: int = 0
    size: int = 0

    def pack(self, builder: Any) -> int:
        """Write the table and return its offset. ``builder`` is a flatbuffers.Builder."""
        builder.StartObject(2)
        builder.PrependUint64Slot(0, self.offset, 0)
        builder.PrependUint64Slot(1, self.size, 0)
        return int(builder.EndObject())

    @staticmethod
    def unpack(table: TableReader) -> Buffer:
        """Read the table from a verified buffer.

        Raises:
            ValueError: for an enum number that does not exist, or when the budget of the reader is spent.
        """
        return Buffer(
            offset=table.scalar(0, "Q", 0),
            size=table.scalar(1, "Q", 0),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a node came from: the file's name without its folder, the node's name and operator in that file."""

    file: str
    node: str
    op: str

    def pack(self, builder: Any) -> int:
        """Write the table and return its offset. ``builder`` is a flatbuffers.Builder."""
        file = builder.CreateSharedString(self.file)
        node = builder.CreateSharedString(self.node)
        op = builder.CreateSharedString(self.op)
        builder.StartObject(3)
        builder.PrependUOffsetTRelativeSlot(0, file, 0)
        builder.PrependUOffsetTRelativeSlot(1, node, 0)
        builder.PrependUOffsetTRelativeSlot(2, op, 0)
        return int(builder.EndObject())

    @staticmethod
    def unpack(table: TableReader) -> Source:
        """Read the table from a verified buffer.

        Raises:
            ValueError: for an enum number that does not exist, or when the budget of the reader is spent.
        """
        return Source(
            file=table.string(0),
            node=table.string(1),
            op=table.string(2),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something the user should know about the model, for example why a node stayed float."""

    kind: str
    node: str
    message: str

    def pack(self, builder: Any) -> int:
        """Write the table and return its offset. ``builder`` is a flatbuffers.Builder."""
        kind = builder.CreateSharedString(self.kind)
        node = builder.CreateSharedString(self.node)
        message = builder.CreateSharedString(self.message)
        builder.StartObject(3)
        builder.PrependUOffsetTRelativeSlot(0, kind, 0)
        builder.PrependUOffsetTRelativeSlot(1, node, 0)
        builder.PrependUOffsetTRelativeSlot(2, message, 0)
        return int(builder.EndObject())

    @staticmethod
    def unpack(table: TableReader) -> Note:
        """Read the table from a verified buffer.

        Raises:
            ValueError: for an enum number that does not exist, or when the budget of the reader is spent.
        """
        return Note(
            kind=table.string(0),
            node=table.string(1),
            message=table.string(2),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A key and its value as JSON text."""

    key: str
    json: str

    def pack(self, builder: Any) -> int:
        """Write the table and return its offset. ``builder`` is a flatbuffers.Builder."""
        key = builder.CreateSharedString(self.key)
        json = builder.CreateSharedString(self.json)
        builder.StartObject(2)
        builder.PrependUOffsetTRelativeSlot(0, key, 0)
        builder.PrependUOffsetTRelativeSlot(1, json, 0)
        return int(builder.EndObject())

    @staticmethod
    def unpack(table: TableReader) -> Entry:
        """Read the table from a verified buffer.

        Raises:
            ValueError: for an enum number that does not exist, or when the budget of the reader is spent.
        """
        return Entry(
            key=table.string(0),
            json=table.string(1),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A tensor between nodes. In `shape` a negative number -1-k is the symbolic dimension Graph.symbols[k]."""

    name: str
    dtype: DType = DType(0)
    shape: tuple[int, ...] = ()
    quantization: Quantization | None = None
    data: int = -1
    stored: int = -1
    stored_dtype: DType = DType(0)

    def pack(self, builder: Any) -> int:
        """Write the table and return its offset. ``builder`` is a flatbuffers.Builder."""
        name = builder.CreateSharedString(self.name)
        shape = _vector(builder, self.shape, "<i8")
        quantization = self.quantization.pack(builder) if self.quantization is not None else 0
        builder.StartObject(7)
        builder.PrependUOffsetTRelativeSlot(0, name, 0)
        builder.PrependUOffsetTRelativeSlot(2, shape, 0)
        builder.PrependUOffsetTRelativeSlot(3, quantization, 0)
        builder.PrependInt32Slot(4, self.data, -1)
        builder.PrependInt32Slot(5, self.stored, -1)
        builder.PrependUint8Slot(1, self.dtype, 0)
        builder.PrependUint8Slot(6, self.stored_dtype, 0)
        return int(builder.EndObject())

    @staticmethod
    def unpack(table: TableReader) -> Value:
        """Read the table from a verified buffer.

        Raises:
            ValueError: for an enum number that does not exist, or when the budget of the reader is spent.
        """
        return Value(
            name=table.string(0),
            dtype=DType(table.scalar(1, "B", 0)),
            shape=table.scalars(2, "q"),
            quantization=Quantization.unpack(quantization) if (quantization := table.table(3)) is not None else None,
            data=table.scalar(4, "i", -1),
            stored=table.scalar(5, "i", -1),
            stored_dtype=DType(table.scalar(6, "B", 0)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One operation."""

    op: str
    attributes: tuple[int, ...] = ()
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    sources: tuple[Source, ...] = ()

    def pack(self, builder: Any) -> int:
        """Write the table and return its offset. ``builder`` is a flatbuffers.Builder."""
        op = builder.CreateSharedString(self.op)
        attributes = _vector(builder, self.attributes, "<i4")
        inputs = _vector(builder, self.inputs, "<i4")
        outputs = _vector(builder, self.outputs, "<i4")
        sources = _offsets(builder, [item.pack(builder) for item in self.sources])
        builder.StartObject(5)
        builder.PrependUOffsetTRelativeSlot(0, op, 0)
        builder.PrependUOffsetTRelativeSlot(1, attributes, 0)
        builder.PrependUOffsetTRelativeSlot(2, inputs, 0)
        builder.PrependUOffsetTRelativeSlot(3, outputs, 0)
        builder.PrependUOffsetTRelativeSlot(4, sources, 0)
        return int(builder.EndObject())

    @staticmethod
    def unpack(table: TableReader) -> Node:
        """Read the table from a verified buffer.

        Raises:
            ValueError: for an enum number that does not exist, or when the budget of the reader is spent.
        """
        return Node(
            op=table.string(0),
            attributes=table.scalars(1, "i"),
            inputs=table.scalars(2, "i"),
            outputs=table.scalars(3, "i"),
            sources=tuple(Source.unpack(item) for item in table.tables(4)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """An input or output as the user sees it: `dtype` is a NumPy name (an int64 output stays int64)."""

    name: str
    dtype: str
    shape: tuple[int, ...] = ()
    quantization: Quantization | None = None

    def pack(self, builder: Any) -> int:
        """Write the table and return its offset. ``builder`` is a flatbuffers.Builder."""
        name = builder.CreateSharedString(self.name)
        dtype = builder.CreateSharedString(self.dtype)
        shape = _vector(builder, self.shape, "<i8")
        quantization = self.quantization.pack(builder) if self.quantization is not None else 0
        builder.StartObject(4)
        builder.PrependUOffsetTRelativeSlot(0, name, 0)
        builder.PrependUOffsetTRelativeSlot(1, dtype, 0)
        builder.PrependUOffsetTRelativeSlot(2, shape, 0)
        builder.PrependUOffsetTRelativeSlot(3, quantization, 0)
        return int(builder.EndObject())

    @staticmethod
    def unpack(table: TableReader) -> Port:
        """Read the table from a verified buffer.

        Raises:
            ValueError: for an enum number that does not exist, or when the budget of the reader is spent.
        """
        return Port(
            name=table.string(0),
            dtype=table.string(1),
            shape=table.scalars(2, "q"),
            quantization=Quantization.unpack(quantization) if (quantization := table.table(3)) is not None else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """`file` is the base name of the source file, `notes` what a reader of the report must know."""

    name: str
    file: str
    rescale: str
    symbols: tuple[str, ...] = ()
    values: tuple[Value, ...] = ()
    nodes: tuple[Node, ...] = ()
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    input_ports: tuple[Port, ...] = ()
    output_ports: tuple[Port, ...] = ()
    notes: tuple[str, ...] = ()

    def pack(self, builder: Any) -> int:
        """Write the table and return its offset. ``builder`` is a flatbuffers.Builder."""
        name = builder.CreateSharedString(self.name)
        file = builder.CreateSharedString(self.file)
        rescale = builder.CreateSharedString(self.rescale)
        symbols = _offsets(builder, [builder.CreateSharedString(item) for item in self.symbols])
        values = _offsets(builder, [item.pack(builder) for item in self.values])
        nodes = _offsets(builder, [item.pack(builder) for item in self.nodes])
        inputs = _vector(builder, self.inputs, "<i4")
        outputs = _vector(builder, self.outputs, "<i4")
        input_ports = _offsets(builder, [item.pack(builder) for item in self.input_ports])
        output_ports = _offsets(builder, [item.pack(builder) for item in self.output_ports])
        notes = _offsets(builder, [builder.CreateSharedString(item) for item in self.notes])
        builder.StartObject(11)
        builder.PrependUOffsetTRelativeSlot(0, name, 0)
        builder.PrependUOffsetTRelativeSlot(1, file, 0)
        builder.PrependUOffsetTRelativeSlot(2, rescale, 0)
        builder.PrependUOffsetTRelativeSlot(3, symbols, 0)
        builder.PrependUOffsetTRelativeSlot(4, values, 0)
        builder.PrependUOffsetTRelativeSlot(5, nodes, 0)
        builder.PrependUOffsetTRelativeSlot(6, inputs, 0)
        builder.PrependUOffsetTRelativeSlot(7, outputs, 0)
        builder.PrependUOffsetTRelativeSlot(8, input_ports, 0)
        builder.PrependUOffsetTRelativeSlot(9, output_ports, 0)
        builder.PrependUOffsetTRelativeSlot(10, notes, 0)
        return int(builder.EndObject())

    @staticmethod
    def unpack(table: TableReader) -> Graph:
        """Read the table from a verified buffer.

        Raises:
            ValueError: for an enum number that does not exist, or when the budget of the reader is spent.
        """
        return Graph(
            name=table.string(0),
            file=table.string(1),
            rescale=table.string(2),
            symbols=table.strings(3),
            values=tuple(Value.unpack(item) for item in table.tables(4)),
            nodes=tuple(Node.unpack(item) for item in table.tables(5)),
            inputs=table.scalars(6, "i"),
            outputs=table.scalars(7, "i"),
            input_ports=tuple(Port.unpack(item) for item in table.tables(8)),
            output_ports=tuple(Port.unpack(item) for item in table.tables(9)),
            notes=table.strings(10),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Everything but the bytes of the constants."""

    tool_version: str
    chip: Chip = Chip(0)
    quantize: str
    plugins: tuple[str, ...] = ()
    graph: Graph
    attributes: tuple[Attribute, ...] = ()
    buffers: tuple[Buffer, ...] = ()
    notes: tuple[Note, ...] = ()
    preprocessing: tuple[Entry, ...] = ()
    metadata: tuple[Entry, ...] = ()

    def pack(self, builder: Any) -> int:
        """Write the table and return its offset. ``builder`` is a flatbuffers.Builder."""
        tool_version = builder.CreateSharedString(self.tool_version)
        quantize = builder.CreateSharedString(self.quantize)
        plugins = _offsets(builder, [builder.CreateSharedString(item) for item in self.plugins])
        graph = self.graph.pack(builder)
        attributes = _offsets(builder, [item.pack(builder) for item in self.attributes])
        buffers = _offsets(builder, [item.pack(builder) for item in self.buffers])
        notes = _offsets(builder, [item.pack(builder) for item in self.notes])
        preprocessing = _offsets(builder, [item.pack(builder) for item in self.preprocessing])
        metadata = _offsets(builder, [item.pack(builder) for item in self.metadata])
        builder.StartObject(10)
        builder.PrependUOffsetTRelativeSlot(0, tool_version, 0)
        builder.PrependUOffsetTRelativeSlot(2, quantize, 0)
        builder.PrependUOffsetTRelativeSlot(3, plugins, 0)
        builder.PrependUOffsetTRelativeSlot(4, graph, 0)
        builder.PrependUOffsetTRelativeSlot(5, attributes, 0)
        builder.PrependUOffsetTRelativeSlot(6, buffers, 0)
        builder.PrependUOffsetTRelativeSlot(7, notes, 0)
        builder.PrependUOffsetTRelativeSlot(8, preprocessing, 0)
        builder.PrependUOffsetTRelativeSlot(9, metadata, 0)
        builder.PrependUint8Slot(1, self.chip, 0)
        return int(builder.EndObject())

    @staticmethod
    def unpack(table: TableReader) -> Model:
        """Read the table from a verified buffer.

        Raises:
            ValueError: for an enum number that does not exist, or when the budget of the reader is spent.
        """
        return Model(
            tool_version=table.string(0),
            chip=Chip(table.scalar(1, "B", 0)),
            quantize=table.string(2),
            plugins=table.strings(3),
            graph=Graph.unpack(table.required(4)),
            attributes=tuple(Attribute.unpack(item) for item in table.tables(5)),
            buffers=tuple(Buffer.unpack(item) for item in table.tables(6)),
            notes=tuple(Note.unpack(item) for item in table.tables(7)),
            preprocessing=tuple(Entry.unpack(item) for item in table.tables(8)),
            metadata=tuple(Entry.unpack(item) for item in table.tables(9)),
        )
