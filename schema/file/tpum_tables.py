"""Tables of the metadata of a ``.tpum`` file, each declared once as a named tuple.

The schema is derived from these classes: the fields of a class are the fields of the table in the
order of their slots, and annotations determine their types. A string or table without a default is required; a scalar
or vector without a default is 0 or empty if it is not stored. ``tpum.fbs`` has the same tables for the FlatBuffers
compiler, with a comment per field; a test compares the two. Fields are only added, at the end of a table.
"""

import enum
import types
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple, get_args, get_origin

from tpuconvert.schema.file import flatbuffer_reader
from tpuconvert.schema.file.flatbuffer_schema import Schema
from tpuconvert.schema.file.flatbuffer_writer import FlatBufferWriter
from tpuconvert.schema.types import Array

FILE_IDENTIFIER = b"TPUM"

Int32 = Annotated[int, "i32"]
Int64 = Annotated[int, "i64"]
Uint64 = Annotated[int, "u64"]
Float64 = Annotated[float, "f64"]
Int32s = Annotated[tuple[int, ...], "[i32]"]
Octets = Annotated[tuple[int, ...], "[u8]"]
Int64s = Annotated[tuple[int, ...] | Array, "[i64]"]
Float64s = Annotated[tuple[float, ...] | Array, "[f64]"]
"""Vector of 64-bit elements. A long vector is decoded to an array instead of a tuple."""


class DType(enum.IntEnum):
    """Element types. NONE means that the type does not apply, as in ``stored_dtype`` of a value without integers."""

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
    """Type of the value of an ``Attribute``, which determines the field that contains it.

    BOOL is 0 or 1 in ``integer``, ENUM the name of the member in ``string``, SCALAR a ``dtype`` with ``integer`` or
    ``real``, GRAPH an index into ``Model.subgraphs`` in ``integer``.
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
    GRAPH = 12


class Attribute(NamedTuple):
    """Parameter of an operator. Every different (name, value) is stored once per file; nodes refer to it by index."""

    name: str
    kind: AttributeKind = AttributeKind.NONE
    integer: Int64 = 0
    real: Float64 = 0.0
    dtype: DType = DType.NONE
    string: str = ""
    integers: Int64s = ()
    reals: Float64s = ()
    strings: tuple[str, ...] = ()
    octets: Octets = ()


class Quantization(NamedTuple):
    """One scale, or one per index of ``axis``. The zero points are stored as one if all are equal."""

    scale: Float64s = ()
    zero_point: Int64s = ()
    dtype: DType = DType.NONE
    per_axis: bool = False
    axis: Int64 = 0


class Buffer(NamedTuple):
    """Constant in the weight segment, little-endian and in C order. ``offset`` is from the start of the segment."""

    offset: Uint64 = 0
    size: Uint64 = 0


class Value(NamedTuple):
    """Tensor between nodes. In ``shape``, a negative integer -1-k is the symbolic extent ``Graph.symbols[k]``."""

    name: str
    dtype: DType = DType.NONE
    shape: Int64s = ()
    quantization: Quantization | None = None
    data: Int32 = -1
    stored: Int32 = -1
    stored_dtype: DType = DType.NONE
    data_dtype: DType = DType.NONE


class Source(NamedTuple):
    """Origin of a node: file name without its folder, name and operator of the node in that file."""

    file: str
    node: str
    op: str


class Node(NamedTuple):
    """Operator with operands and results, which are indices into ``Graph.values``."""

    op: str
    attributes: Int32s = ()
    inputs: Int32s = ()
    outputs: Int32s = ()
    sources: tuple[Source, ...] = ()


class Port(NamedTuple):
    """Input or output of the model. ``dtype`` is a NumPy name (an int64 output stays int64)."""

    name: str
    dtype: str
    shape: Int64s = ()
    quantization: Quantization | None = None


class Graph(NamedTuple):
    """Nodes and values. ``file`` is the base name of the source file."""

    name: str
    file: str
    rescale: str
    symbols: tuple[str, ...] = ()
    values: tuple[Value, ...] = ()
    nodes: tuple[Node, ...] = ()
    inputs: Int32s = ()
    outputs: Int32s = ()
    input_ports: tuple[Port, ...] = ()
    output_ports: tuple[Port, ...] = ()
    notes: tuple[str, ...] = ()


class Note(NamedTuple):
    """Remark for the user, for example why a node stayed float."""

    kind: str
    node: str
    message: str


class Entry(NamedTuple):
    """Key, and its value as JSON text."""

    key: str
    json: str


class State(NamedTuple):
    """Tensor that a session keeps between runs: indices into the inputs and outputs, and the axis that grows or -1."""

    input: Int32 = 0
    output: Int32 = 0
    axis: Int32 = -1


class Model(NamedTuple):
    """Root table: the whole model except the bytes of the constants."""

    tool_version: str
    chip: Chip
    quantize: str
    plugins: tuple[str, ...]
    graph: Graph
    attributes: tuple[Attribute, ...] = ()
    buffers: tuple[Buffer, ...] = ()
    notes: tuple[Note, ...] = ()
    preprocessing: tuple[Entry, ...] = ()
    metadata: tuple[Entry, ...] = ()
    subgraphs: tuple[Graph, ...] = ()
    states: tuple[State, ...] = ()


ROWS: dict[str, Any] = {
    name: item for name, item in globals().items() if isinstance(item, type) and issubclass(item, tuple)
}
"""Named tuple classes of this module, by table name."""


DEPRECATED_BEFORE = {("Model", "subgraphs"): "grouping"}
"""Deprecated field in front of a field of a table. Files that store it are read without it; its slot stays unused."""


def _describe(row: Any) -> Iterator[str]:
    """Return the fields of a table in the notation of ``flatbuffer_schema``."""
    for name, hint in row.__annotations__.items():
        if (row.__name__, name) in DEPRECATED_BEFORE:
            yield "_"
        type_, default = _type_name(hint), row._field_defaults.get(name)
        is_required = name not in row._field_defaults and (hint is str or type_ in ROWS)
        yield f"{name}:{type_}" + (f"={default:d}" if isinstance(default, int) else "!" if is_required else "")


def _type_name(hint: Any) -> str:
    if get_origin(hint) is Annotated:
        return str(hint.__metadata__[0])
    if get_origin(hint) is tuple:
        return f"[{_type_name(get_args(hint)[0])}]"
    if isinstance(hint, types.UnionType):
        return _type_name(get_args(hint)[0])
    if hint in (bool, str):
        return str(hint.__name__)
    return "u8" if issubclass(hint, enum.IntEnum) else str(hint.__name__)


SCHEMA = Schema({name: " ".join(_describe(row)) for name, row in ROWS.items()})
ENUMS = {
    (table, name): hint
    for table, row in ROWS.items()
    for name, hint in row.__annotations__.items()
    if isinstance(hint, type) and issubclass(hint, enum.IntEnum)
}


def unpack(buffer: bytes | memoryview) -> Model:
    """Verify a buffer and return the model in it.

    Raises:
        ValueError: the buffer is not valid.
    """
    root = flatbuffer_reader.read(buffer, SCHEMA, "Model", FILE_IDENTIFIER, ROWS, ENUMS)
    assert isinstance(root, Model)
    return root


def pack(model: Model) -> bytes:
    """Encode a model as a buffer.

    Raises:
        OverflowError: the buffer would exceed the maximum size.
        ValueError: a string is not valid Unicode.
    """
    writer = FlatBufferWriter(SCHEMA)
    return writer.finish(writer.row(model), FILE_IDENTIFIER)
