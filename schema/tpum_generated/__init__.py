"""Made by tools/generate_schema.py from schema/tpum.fbs: change that file, then run the program."""

from __future__ import annotations

import enum
from typing import NamedTuple

from tpuconvert.schema.flatbuffer_reader import read
from tpuconvert.schema.flatbuffer_verifier import Schema
from tpuconvert.schema.flatbuffer_writer import FlatBufferWriter, Integers, Reals

SCHEMA_SHA256 = "c3781515a089b751cc5ec0ab9c5c19266407ed62ad0497177faadee870d458f2"
FILE_IDENTIFIER = b"TPUM"
ROOT_TABLE = "Model"
SCHEMA = Schema(
    tables={
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
)


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
            [
                (2, "q", self.integer, 0),
                (3, "d", self.real, 0.0),
                (0, "O", writer.string(self.name), 0),
                (5, "O", writer.string(self.string) if self.string else 0, 0),
                (6, "O", writer.scalars("q", self.integers), 0),
                (7, "O", writer.scalars("d", self.reals), 0),
                (8, "O", writer.offsets([writer.string(item) for item in self.strings]), 0),
                (9, "O", writer.scalars("B", self.octets), 0),
                (1, "B", self.kind, 0),
                (4, "B", self.dtype, 0),
            ]
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
            [
                (4, "q", self.axis, 0),
                (0, "O", writer.scalars("d", self.scale), 0),
                (1, "O", writer.scalars("q", self.zero_point), 0),
                (2, "B", self.dtype, 0),
                (3, "?", self.per_axis, False),
            ]
        )


class Buffer(NamedTuple):
    """Bytes in the weight segment, little-endian, C order. `offset` counts from the start of the segment."""

    offset: int = 0
    size: int = 0

    def pack(self, writer: FlatBufferWriter) -> int:
        """Write the table and return its place."""
        return writer.table(
            [
                (0, "Q", self.offset, 0),
                (1, "Q", self.size, 0),
            ]
        )


class Source(NamedTuple):
    """Where a node came from: the file's name without its folder, the node's name and operator in that file."""

    file: str
    node: str
    op: str

    def pack(self, writer: FlatBufferWriter) -> int:
        """Write the table and return its place."""
        return writer.table(
            [
                (0, "O", writer.string(self.file), 0),
                (1, "O", writer.string(self.node), 0),
                (2, "O", writer.string(self.op), 0),
            ]
        )


class Note(NamedTuple):
    """Something the user should know about the model, for example why a node stayed float."""

    kind: str
    node: str
    message: str

    def pack(self, writer: FlatBufferWriter) -> int:
        """Write the table and return its place."""
        return writer.table(
            [
                (0, "O", writer.string(self.kind), 0),
                (1, "O", writer.string(self.node), 0),
                (2, "O", writer.string(self.message), 0),
            ]
        )


class Entry(NamedTuple):
    """A key and its value as JSON text."""

    key: str
    json: str

    def pack(self, writer: FlatBufferWriter) -> int:
        """Write the table and return its place."""
        return writer.table(
            [
                (0, "O", writer.string(self.key), 0),
                (1, "O", writer.string(self.json), 0),
            ]
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
            [
                (0, "i", self.first, 0),
                (1, "i", self.count, 0),
                (2, "i", self.tiles_n, 1),
                (3, "i", self.tiles_c, 1),
                (4, "i", self.tiles_h, 1),
                (5, "?", self.keeps_constants, False),
            ]
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
            [
                (0, "O", writer.string(self.name), 0),
                (2, "O", writer.scalars("q", self.shape), 0),
                (3, "O", self.quantization.pack(writer) if self.quantization else 0, 0),
                (4, "i", self.data, -1),
                (5, "i", self.stored, -1),
                (1, "B", self.dtype, 0),
                (6, "B", self.stored_dtype, 0),
            ]
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
            [
                (0, "O", writer.string(self.op), 0),
                (1, "O", writer.scalars("i", self.attributes), 0),
                (2, "O", writer.scalars("i", self.inputs), 0),
                (3, "O", writer.scalars("i", self.outputs), 0),
                (4, "O", writer.offsets([item.pack(writer) for item in self.sources]), 0),
            ]
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
            [
                (0, "O", writer.string(self.name), 0),
                (1, "O", writer.string(self.dtype), 0),
                (2, "O", writer.scalars("q", self.shape), 0),
                (3, "O", self.quantization.pack(writer) if self.quantization else 0, 0),
            ]
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
            [
                (1, "q", self.lane_bytes, 0),
                (0, "i", self.lanes, 0),
                (2, "i", self.row_bytes, 0),
                (3, "O", writer.offsets([item.pack(writer) for item in self.groups]), 0),
            ]
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
            [
                (0, "O", writer.string(self.name), 0),
                (1, "O", writer.string(self.file), 0),
                (2, "O", writer.string(self.rescale), 0),
                (3, "O", writer.offsets([writer.string(item) for item in self.symbols]), 0),
                (4, "O", writer.offsets([item.pack(writer) for item in self.values]), 0),
                (5, "O", writer.offsets([item.pack(writer) for item in self.nodes]), 0),
                (6, "O", writer.scalars("i", self.inputs), 0),
                (7, "O", writer.scalars("i", self.outputs), 0),
                (8, "O", writer.offsets([item.pack(writer) for item in self.input_ports]), 0),
                (9, "O", writer.offsets([item.pack(writer) for item in self.output_ports]), 0),
                (10, "O", writer.offsets([writer.string(item) for item in self.notes]), 0),
            ]
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
            [
                (0, "O", writer.string(self.tool_version), 0),
                (2, "O", writer.string(self.quantize), 0),
                (3, "O", writer.offsets([writer.string(item) for item in self.plugins]), 0),
                (4, "O", self.graph.pack(writer), 0),
                (5, "O", writer.offsets([item.pack(writer) for item in self.attributes]), 0),
                (6, "O", writer.offsets([item.pack(writer) for item in self.buffers]), 0),
                (7, "O", writer.offsets([item.pack(writer) for item in self.notes]), 0),
                (8, "O", writer.offsets([item.pack(writer) for item in self.preprocessing]), 0),
                (9, "O", writer.offsets([item.pack(writer) for item in self.metadata]), 0),
                (10, "O", self.grouping.pack(writer) if self.grouping else 0, 0),
                (1, "B", self.chip, 0),
            ]
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


def unpack(buffer: memoryview) -> Model:
    """Read a buffer that nobody has verified.

    Raises:
        ValueError: for anything in it that is not as it should be.
    """
    root = read(buffer, SCHEMA, ROOT_TABLE, FILE_IDENTIFIER, _ROWS, _ENUMS)
    assert isinstance(root, Model)
    return root
