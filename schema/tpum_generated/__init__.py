"""Made by tools/generate_schema.py from schema/tpum.fbs: change that file, then run the program."""

from __future__ import annotations

import enum
import functools
from typing import NamedTuple

from tpuconvert.schema import flatbuffer_reader
from tpuconvert.schema.flatbuffer_schema import Schema
from tpuconvert.schema.flatbuffer_writer import FlatBufferWriter, Integers, Reals, TableForm

SCHEMA_SHA256 = "c3781515a089b751cc5ec0ab9c5c19266407ed62ad0497177faadee870d458f2"
FILE_IDENTIFIER = b"TPUM"
ROOT_TABLE = "Model"
TABLES = {
    "Attribute": "name:str! kind:u8 integer:i64 real:f64 dtype:u8 string:str integers:[i64] reals:[f64] strings:[str] octets:[u8]",
    "Quantization": "scale:[f64] zero_point:[i64] dtype:u8 per_axis:bool axis:i64",
    "Buffer": "offset:u64 size:u64",
    "Value": "name:str! dtype:u8 shape:[i64] quantization:Quantization data:i32=-1 stored:i32=-1 stored_dtype:u8",
    "Source": "file:str! node:str! op:str!",
    "Node": "op:str! attributes:[i32] inputs:[i32] outputs:[i32] sources:[Source]",
    "Port": "name:str! dtype:str! shape:[i64] quantization:Quantization",
    "Graph": "name:str! file:str! rescale:str! symbols:[str] values:[Value] nodes:[Node] inputs:[i32] outputs:[i32] input_ports:[Port] output_ports:[Port] notes:[str]",
    "Note": "kind:str! node:str! message:str!",
    "Entry": "key:str! json:str!",
    "Group": "first:i32 count:i32 tiles_n:i32=1 tiles_c:i32=1 tiles_h:i32=1 keeps_constants:bool",
    "Grouping": "lanes:i32 lane_bytes:i64 row_bytes:i32 groups:[Group]",
    "Model": "tool_version:str! chip:u8 quantize:str! plugins:[str] graph:Graph! attributes:[Attribute] buffers:[Buffer] notes:[Note] preprocessing:[Entry] metadata:[Entry] grouping:Grouping",
}
"""Fields per table, in the notation of ``flatbuffer_schema``."""


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
    BYTES = 11


class Attribute(NamedTuple):
    """A parameter of an operator. Every different (name, value) is stored once per file; nodes refer to it by its place."""

    name: str
    kind: AttributeKind = AttributeKind(0)
    integer: int = 0
    real: float = 0.0
    dtype: DType = DType(0)
    string: str = ""
    integers: Integers = ()
    reals: Reals = ()
    strings: tuple[str, ...] = ()
    octets: tuple[int, ...] = ()

    def pack(self, writer: FlatBufferWriter) -> int:
        """Write the table and return its place."""
        return writer.table(
            _ATTRIBUTE,
            self.integer,
            self.real,
            writer.string(self.name),
            writer.string(self.string) if self.string else 0,
            writer.scalars("q", self.integers),
            writer.scalars("d", self.reals),
            writer.offsets([writer.string(item) for item in self.strings]),
            writer.scalars("B", self.octets),
            self.kind,
            self.dtype,
        )


_ATTRIBUTE = TableForm(
    (2, "q", 0),
    (3, "d", 0.0),
    (0, "O", 0),
    (5, "O", 0),
    (6, "O", 0),
    (7, "O", 0),
    (8, "O", 0),
    (9, "O", 0),
    (1, "B", 0),
    (4, "B", 0),
)


class Quantization(NamedTuple):
    """real = (q - zero_point) * scale. One scale, or one for each index of `axis`; one zero point where all are equal."""

    scale: Reals = ()
    zero_point: Integers = ()
    dtype: DType = DType(0)
    per_axis: bool = False
    axis: int = 0

    def pack(self, writer: FlatBufferWriter) -> int:
        """Write the table and return its place."""
        return writer.table(
            _QUANTIZATION,
            self.axis,
            writer.scalars("d", self.scale),
            writer.scalars("q", self.zero_point),
            self.dtype,
            self.per_axis,
        )


_QUANTIZATION = TableForm(
    (4, "q", 0),
    (0, "O", 0),
    (1, "O", 0),
    (2, "B", 0),
    (3, "?", False),
)


class Buffer(NamedTuple):
    """Bytes in the weight segment, little-endian, C order. `offset` counts from the start of the segment."""

    offset: int = 0
    size: int = 0

    def pack(self, writer: FlatBufferWriter) -> int:
        """Write the table and return its place."""
        return writer.table(
            _BUFFER,
            self.offset,
            self.size,
        )


_BUFFER = TableForm(
    (0, "Q", 0),
    (1, "Q", 0),
)


class Source(NamedTuple):
    """Where a node came from: the file's name without its folder, the node's name and operator in that file."""

    file: str
    node: str
    op: str

    def pack(self, writer: FlatBufferWriter) -> int:
        """Write the table and return its place."""
        return writer.table(
            _SOURCE,
            writer.string(self.file),
            writer.string(self.node),
            writer.string(self.op),
        )


_SOURCE = TableForm(
    (0, "O", 0),
    (1, "O", 0),
    (2, "O", 0),
)


class Note(NamedTuple):
    """Something the user should know about the model, for example why a node stayed float."""

    kind: str
    node: str
    message: str

    def pack(self, writer: FlatBufferWriter) -> int:
        """Write the table and return its place."""
        return writer.table(
            _NOTE,
            writer.string(self.kind),
            writer.string(self.node),
            writer.string(self.message),
        )


_NOTE = TableForm(
    (0, "O", 0),
    (1, "O", 0),
    (2, "O", 0),
)


class Entry(NamedTuple):
    """A key and its value as JSON text."""

    key: str
    json: str

    def pack(self, writer: FlatBufferWriter) -> int:
        """Write the table and return its place."""
        return writer.table(
            _ENTRY,
            writer.string(self.key),
            writer.string(self.json),
        )


_ENTRY = TableForm(
    (0, "O", 0),
    (1, "O", 0),
)


class Group(NamedTuple):
    """Graph.nodes[first] and those behind it: they run together, part by part. Results are cut into `tiles_n` parts along
    axis 0, `tiles_c` along axis 1, `tiles_h` along axis 2.
    """

    first: int = 0
    count: int = 0  # type: ignore[assignment]  # the method of tuples of that name is not used
    tiles_n: int = 1
    tiles_c: int = 1
    tiles_h: int = 1
    keeps_constants: bool = False

    def pack(self, writer: FlatBufferWriter) -> int:
        """Write the table and return its place."""
        return writer.table(
            _GROUP,
            self.first,
            self.count,
            self.tiles_n,
            self.tiles_c,
            self.tiles_h,
            self.keeps_constants,
        )


_GROUP = TableForm(
    (0, "i", 0),
    (1, "i", 0),
    (2, "i", 1),
    (3, "i", 1),
    (4, "i", 1),
    (5, "?", False),
)


class Value(NamedTuple):
    """A tensor between nodes. In `shape` a negative number -1-k is the symbolic dimension Graph.symbols[k]."""

    name: str
    dtype: DType = DType(0)
    shape: Integers = ()
    quantization: Quantization | None = None
    data: int = -1
    stored: int = -1
    stored_dtype: DType = DType(0)

    def pack(self, writer: FlatBufferWriter) -> int:
        """Write the table and return its place."""
        return writer.table(
            _VALUE,
            writer.string(self.name),
            writer.scalars("q", self.shape),
            self.quantization.pack(writer) if self.quantization else 0,
            self.data,
            self.stored,
            self.dtype,
            self.stored_dtype,
        )


_VALUE = TableForm(
    (0, "O", 0),
    (2, "O", 0),
    (3, "O", 0),
    (4, "i", -1),
    (5, "i", -1),
    (1, "B", 0),
    (6, "B", 0),
)


class Node(NamedTuple):
    """One operation."""

    op: str
    attributes: tuple[int, ...] = ()
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    sources: tuple[Source, ...] = ()

    def pack(self, writer: FlatBufferWriter) -> int:
        """Write the table and return its place."""
        return writer.table(
            _NODE,
            writer.string(self.op),
            writer.scalars("i", self.attributes),
            writer.scalars("i", self.inputs),
            writer.scalars("i", self.outputs),
            writer.offsets([item.pack(writer) for item in self.sources]),
        )


_NODE = TableForm(
    (0, "O", 0),
    (1, "O", 0),
    (2, "O", 0),
    (3, "O", 0),
    (4, "O", 0),
)


class Port(NamedTuple):
    """An input or output as the user sees it: `dtype` is a NumPy name (an int64 output stays int64)."""

    name: str
    dtype: str
    shape: Integers = ()
    quantization: Quantization | None = None

    def pack(self, writer: FlatBufferWriter) -> int:
        """Write the table and return its place."""
        return writer.table(
            _PORT,
            writer.string(self.name),
            writer.string(self.dtype),
            writer.scalars("q", self.shape),
            self.quantization.pack(writer) if self.quantization else 0,
        )


_PORT = TableForm(
    (0, "O", 0),
    (1, "O", 0),
    (2, "O", 0),
    (3, "O", 0),
)


class Grouping(NamedTuple):
    """What stays in on-chip memory, in the order of Graph.nodes, and the memory that it was planned for."""

    lanes: int = 0
    lane_bytes: int = 0
    row_bytes: int = 0
    groups: tuple[Group, ...] = ()

    def pack(self, writer: FlatBufferWriter) -> int:
        """Write the table and return its place."""
        return writer.table(
            _GROUPING,
            self.lane_bytes,
            self.lanes,
            self.row_bytes,
            writer.offsets([item.pack(writer) for item in self.groups]),
        )


_GROUPING = TableForm(
    (1, "q", 0),
    (0, "i", 0),
    (2, "i", 0),
    (3, "O", 0),
)


class Graph(NamedTuple):
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

    def pack(self, writer: FlatBufferWriter) -> int:
        """Write the table and return its place."""
        return writer.table(
            _GRAPH,
            writer.string(self.name),
            writer.string(self.file),
            writer.string(self.rescale),
            writer.offsets([writer.string(item) for item in self.symbols]),
            writer.offsets([item.pack(writer) for item in self.values]),
            writer.offsets([item.pack(writer) for item in self.nodes]),
            writer.scalars("i", self.inputs),
            writer.scalars("i", self.outputs),
            writer.offsets([item.pack(writer) for item in self.input_ports]),
            writer.offsets([item.pack(writer) for item in self.output_ports]),
            writer.offsets([writer.string(item) for item in self.notes]),
        )


_GRAPH = TableForm(
    (0, "O", 0),
    (1, "O", 0),
    (2, "O", 0),
    (3, "O", 0),
    (4, "O", 0),
    (5, "O", 0),
    (6, "O", 0),
    (7, "O", 0),
    (8, "O", 0),
    (9, "O", 0),
    (10, "O", 0),
)


class Model(NamedTuple):
    """Everything but the bytes of the constants."""

    tool_version: str
    quantize: str
    graph: Graph
    chip: Chip = Chip(0)
    plugins: tuple[str, ...] = ()
    attributes: tuple[Attribute, ...] = ()
    buffers: tuple[Buffer, ...] = ()
    notes: tuple[Note, ...] = ()
    preprocessing: tuple[Entry, ...] = ()
    metadata: tuple[Entry, ...] = ()
    grouping: Grouping | None = None

    def pack(self, writer: FlatBufferWriter) -> int:
        """Write the table and return its place."""
        return writer.table(
            _MODEL,
            writer.string(self.tool_version),
            writer.string(self.quantize),
            writer.offsets([writer.string(item) for item in self.plugins]),
            self.graph.pack(writer),
            writer.offsets([item.pack(writer) for item in self.attributes]),
            writer.offsets([item.pack(writer) for item in self.buffers]),
            writer.offsets([item.pack(writer) for item in self.notes]),
            writer.offsets([item.pack(writer) for item in self.preprocessing]),
            writer.offsets([item.pack(writer) for item in self.metadata]),
            self.grouping.pack(writer) if self.grouping else 0,
            self.chip,
        )


_MODEL = TableForm(
    (0, "O", 0),
    (2, "O", 0),
    (3, "O", 0),
    (4, "O", 0),
    (5, "O", 0),
    (6, "O", 0),
    (7, "O", 0),
    (8, "O", 0),
    (9, "O", 0),
    (10, "O", 0),
    (1, "B", 0),
)


_ROWS = {
    "Attribute": Attribute,
    "Quantization": Quantization,
    "Buffer": Buffer,
    "Value": Value,
    "Source": Source,
    "Node": Node,
    "Port": Port,
    "Graph": Graph,
    "Note": Note,
    "Entry": Entry,
    "Group": Group,
    "Grouping": Grouping,
    "Model": Model,
}
_ENUMS = {
    ("Attribute", "kind"): AttributeKind,
    ("Attribute", "dtype"): DType,
    ("Quantization", "dtype"): DType,
    ("Value", "dtype"): DType,
    ("Value", "stored_dtype"): DType,
    ("Model", "chip"): Chip,
}


@functools.cache
def _schema() -> Schema:
    return Schema(TABLES)


def unpack(buffer: memoryview) -> Model:
    """Verify and read a buffer.

    Raises:
        ValueError: the buffer is not valid.
    """
    root = flatbuffer_reader.read(buffer, _schema(), ROOT_TABLE, FILE_IDENTIFIER, _ROWS, _ENUMS)
    assert isinstance(root, Model)
    return root
