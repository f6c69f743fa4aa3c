"""Read a TFLite file: verify it, check every index, and convert its structure to plain Python objects.

Other modules use the FlatBuffers accessors of the ``tflite`` package only through :class:`Options`.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import tflite
from flatbuffers import number_types

from tpuconvert.frontends.sniffing import SourceFile, corrupt_input
from tpuconvert.frontends.tflite.file.schema import IDENTIFIER, SCHEMA, enum_names, integers
from tpuconvert.frontends.tflite.file.sparse import densify_tensor
from tpuconvert.schema.errors import AmbiguousInputError, ResourceLimitError
from tpuconvert.schema.file import flatbuffer_reader
from tpuconvert.schema.file.flatbuffer_reader import FlatBufferError, verify
from tpuconvert.schema.file.flatbuffer_schema import Kind
from tpuconvert.schema.system.file_errors import unreadable
from tpuconvert.schema.system.limits import Limits, current_limits, exceeded, limit_hint
from tpuconvert.schema.system.mapped_pages import map_file
from tpuconvert.schema.types import Array, format_shape

_MAPPED_BYTES = 64 << 20  # larger files are memory-mapped, so that unused weights are not read
_FLATBUFFER_BYTES = (1 << 32) - 1  # FlatBuffers offsets have 32 bits; data beyond have offsets in their Buffer tables

_LEAST_VISITS = 100_000  # verified in 0.1 s

_TYPE_NAMES = enum_names(tflite.TensorType)
_OPERATOR_NAMES = enum_names(tflite.BuiltinOperator)
BUILTIN_NAMES = frozenset(_OPERATOR_NAMES.values())
"""Names of all builtin operators in the schema."""

_NUMPY = {
    **{"FLOAT32": "<f4", "FLOAT16": "<f2", "FLOAT64": "<f8", "BOOL": "u1", "BFLOAT16": "<u2"},
    **{"INT8": "i1", "INT16": "<i2", "INT32": "<i4", "INT64": "<i8"},
    **{"UINT8": "u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8"},
}


@dataclass(frozen=True)
class RawQuantization:
    """Quantization in the file; ``zero_point`` is expanded to the length of ``scale``."""

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int
    is_custom: bool


@dataclass(frozen=True)
class Tensor:
    """One tensor of a subgraph.

    Attributes:
        index: index of the tensor in its subgraph.
        name: name, which is unique in the subgraph; generated if the file has no or equal names.
        type: TFLite type name such as ``INT8``.
        shape: shape in the file; () for rank 0.
        signature: the shape with -1 for dynamic extents.
        buffer: index of the buffer with the data; 0 if the tensor has no data.
    """

    index: int
    name: str
    type: str
    shape: tuple[int, ...]
    signature: tuple[int, ...]
    buffer: int
    quantization: RawQuantization | None
    is_variable: bool
    sparsity: Any = None  # accessor of the SparsityParameters, None for a dense tensor


@dataclass(frozen=True)
class Operator:
    """One operator of a subgraph. A tensor index of -1 means an absent optional input."""

    index: int
    name: str
    version: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Options


@dataclass(frozen=True)
class Subgraph:
    """One subgraph: its tensors, the indices of its inputs and outputs, and its operators in execution order."""

    name: str
    tensors: tuple[Tensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[Operator, ...]


class Options:
    """The options table of one operator. Reads are recorded, so that fields that were not read can be reported.

    Args:
        table: name of the stored table; empty if the operator stores no table.
        accessor: accessor object of the ``tflite`` package; None if the operator stores no table.
        custom: encoded options of a custom operator.
    """

    def __init__(self, table: str, accessor: Any, custom: bytes = b"") -> None:
        self.table = table
        self.custom = custom
        self._accessor = accessor
        self._fields = {item.name: item for item in SCHEMA.tables[table].fields} if table else {}
        self._unread = set(self._fields)

    def get(self, name: str, default: Any = 0) -> Any:
        """Value of a field, which is marked as read; ``default`` if the operator stores no table.

        Raises:
            KeyError: the table has no such field, because it belongs to another operator.
        """
        if self._accessor is None:
            return default
        if name not in self._fields:
            raise KeyError(f"stores {self.table}, which has no field {name}")
        self._unread.discard(name)
        return self._read(name)

    def peek(self, name: str) -> Any:
        """Value of a field, which is not marked as read; 0 if it is not stored."""
        if self._accessor is None or name not in self._fields:
            return 0
        value = self._read(name)
        return 0 if value is None else value

    def unread(self) -> Iterator[tuple[str, Any]]:
        """Yield name and value of fields that were not read and differ from their defaults."""
        for name in sorted(self._unread):
            value = self._read(name)
            if value is not None and value != () and value != self._fields[name].default:
                yield name, value
        yield from self._unknown()

    def _unknown(self) -> Iterator[tuple[str, Any]]:
        """Yield stored fields that are not in the schema of this package, but in a later one."""
        if self._accessor is None:
            return
        table = self._accessor._tab
        slots = {item.slot for item in self._fields.values()}
        vtable_bytes = table.Get(
            number_types.VOffsetTFlags, table.Pos - table.Get(number_types.SOffsetTFlags, table.Pos)
        )
        for slot in range((vtable_bytes - 4) // 2):
            if slot not in slots and slot >= len(self._fields) and table.Offset(4 + 2 * slot):
                yield f"field {slot} of a later schema", "set"

    def _read(self, name: str) -> Any:
        item = self._fields[name]
        accessor_name = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
        if item.kind is Kind.SCALAR_VECTOR:
            return integers(self._accessor, accessor_name)
        value = getattr(self._accessor, accessor_name)()
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


@dataclass
class ModelFile:
    """A verified TFLite file.

    Attributes:
        path: path of the file.
        subgraphs: all subgraphs; the first one is the main graph.
    """

    path: Path
    view: memoryview
    model: Any
    limits: Limits
    subgraphs: tuple[Subgraph, ...] = field(default=())

    @property
    def file(self) -> str:
        """Base name, for messages and sources."""
        return self.path.name

    def corrupt(self, detail: str) -> NoReturn:
        """Report the file as damaged.

        Raises:
            CorruptInputError: always.
        """
        raise corrupt_input(self.path, "tflite", detail)

    def data(self, tensor: Tensor) -> Array | None:
        """Elements of a constant tensor in the type of the file (INT4 as int8, BFLOAT16 as float32).

        The result is None for a tensor with elements but without data, a variable, and types without a NumPy type, such
        as strings.

        Raises:
            CorruptInputError: the size of the buffer does not match the tensor.
            ResourceLimitError: the tensor is larger than the limits allow.
        """
        raw = self.buffer(tensor.buffer)
        count = math.prod(tensor.shape)
        if raw is None and not count and tensor.type in _NUMPY:
            raw = memoryview(b"")  # a constant without elements needs no buffer
        if raw is None or tensor.is_variable:
            return None
        itemsize = np.dtype(_NUMPY[tensor.type]).itemsize if tensor.type in _NUMPY else 0
        expected = -(-count // 2) if tensor.type == "INT4" else count * itemsize
        if expected == 0 and count:
            return None  # strings, complex numbers, resources: reported by the operators that use them
        if expected > self.limits.max_constant_bytes:
            amount = f"constant '{tensor.name}' has {expected:,} bytes"
            raise exceeded(amount, "max_constant_bytes", self.limits, file=str(self.path))
        if tensor.sparsity is not None:
            return self._dense(raw, tensor, itemsize)
        if len(raw) != expected:
            self.corrupt(
                f"tensor '{tensor.name}' {tensor.type}{format_shape(tensor.shape)} needs {expected} bytes, "
                f"its buffer has {len(raw)}"
            )
        return _elements(raw, tensor, count)

    def _dense(self, raw: memoryview, tensor: Tensor, itemsize: int) -> Array:
        """Convert a sparse constant to a dense array."""

        def refuse(detail: str) -> NoReturn:
            self.corrupt(f"the sparse tensor '{tensor.name}' {tensor.type}{format_shape(tensor.shape)} has {detail}")

        stored = 2 * len(raw) if tensor.type == "INT4" else len(raw) // itemsize
        if tensor.type != "INT4" and len(raw) % itemsize:
            refuse(f"{len(raw)} bytes")
        values = _elements(raw, dataclasses.replace(tensor, shape=(stored,)), stored)
        return densify_tensor(values, tensor.shape, tensor.sparsity, refuse)

    def buffer(self, index: int) -> memoryview | None:
        """Bytes of a buffer; None if it is empty or does not exist."""
        if index >= self.model.BuffersLength():
            return None
        buffer = self.model.Buffers(index)
        offset, size = buffer.Offset(), buffer.Size()
        if offset > 1:  # the values 0 and 1 mean that the data are a vector of the Buffer table
            if offset + size > len(self.view):
                self.corrupt(f"buffer {index} is at bytes {offset} to {offset + size} of {len(self.view)}")
            if not buffer.DataIsNone() and buffer.DataLength():
                raise AmbiguousInputError(
                    f"buffer {index} has two contents: {buffer.DataLength()} bytes in its table, and {size} bytes at "
                    f"offset {offset}; expected one",
                    file=str(self.path),
                )
            return self.view[offset : offset + size]
        if buffer.DataIsNone() or buffer.DataLength() == 0:
            return None
        data = buffer.DataAsNumpy()
        return memoryview(data).cast("B")


def _elements(raw: memoryview, tensor: Tensor, count: int) -> Array:
    if tensor.type == "INT4":
        packed = np.frombuffer(raw, np.uint8)
        nibbles = np.stack([packed & 15, packed >> 4], axis=1).reshape(-1)[:count]
        return (((nibbles ^ 8).astype(np.int8)) - 8).reshape(tensor.shape)
    array: Array = np.frombuffer(raw, _NUMPY[tensor.type]).reshape(tensor.shape)
    if tensor.type == "BFLOAT16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.bool_) if tensor.type == "BOOL" else array


def read_model(path: str | os.PathLike[str], limits: Limits | None = None) -> ModelFile:
    """Verify a TFLite file and read its structure; weights are read when they are used.

    Raises:
        CorruptInputError: the file is damaged, or is not a TFLite file.
        ResourceLimitError: the file is larger than the limits allow.
        UsageError: the file cannot be read.
    """
    limits = limits or current_limits()
    source, path = SourceFile.of(path), Path(path)
    if source.head[4:8] != IDENTIFIER:
        raise corrupt_input(source, "tflite", "the identifier TFL3 is missing")
    size = source.size
    source.check_size(limits)
    view = _map(path, size)
    try:
        verify(
            view[:_FLATBUFFER_BYTES],
            SCHEMA,
            "Model",
            IDENTIFIER,
            flatbuffer_reader.Limits(limits.max_depth, _most_visits(size, limits)),
            allow_unknown_union_tags=True,  # options of operators that a later schema added: reported as unsupported
        )
    except FlatBufferError as error:
        if error.limit:
            hint = limit_hint("max_depth" if error.limit == "max_depth" else "max_nodes")
            raise ResourceLimitError(str(error), file=str(path), hint=hint) from error
        raise corrupt_input(path, "tflite", str(error)) from error
    file = ModelFile(path, view, tflite.Model.GetRootAs(view, 0), limits)
    file.subgraphs = tuple(_Structure(file).subgraphs())
    return file


def _most_visits(size: int, limits: Limits) -> int:
    """Largest number of tables, strings and vectors to verify in a file of ``size`` bytes.

    Each takes four bytes or more unless parts are shared. Shared strings are common, but tables that share tables can
    make the work grow as a power of the size.
    """
    return min(8 * (limits.max_nodes + limits.max_tensors), max(size, _LEAST_VISITS))


def _map(path: Path, size: int) -> memoryview:
    try:
        if size < _MAPPED_BYTES:
            return memoryview(path.read_bytes())
        with open(path, "rb") as handle:
            return memoryview(map_file(handle.fileno(), path))
    except OSError as error:
        raise unreadable(error, path) from error


class _Structure:
    """Converts the accessors of a model to Python objects, and checks every index."""

    def __init__(self, file: ModelFile) -> None:
        self.file = file
        self.model = file.model

    def subgraphs(self) -> Iterator[Subgraph]:
        if self.model.Version() != 3:
            self.file.corrupt(f"schema version {self.model.Version()}, expected 3")
        count = self.model.SubgraphsLength()
        if count == 0:
            self.file.corrupt("it has no subgraph")
        tensors = sum(self.model.Subgraphs(index).TensorsLength() for index in range(count))
        operators = sum(self.model.Subgraphs(index).OperatorsLength() for index in range(count))
        limits, file = self.file.limits, str(self.file.path)
        if operators > limits.max_nodes:
            raise exceeded(f"{operators:,} operators", "max_nodes", limits, file=file)
        if tensors > limits.max_tensors:
            raise exceeded(f"{tensors:,} tensors", "max_tensors", limits, file=file)
        for index in range(count):
            yield self._subgraph(self.model.Subgraphs(index), index)

    def _subgraph(self, source: Any, index: int) -> Subgraph:
        where = f"subgraphs[{index}]"
        names: dict[str, int] = {}
        tensors = tuple(self._tensor(source.Tensors(i), i, names) for i in range(source.TensorsLength()))
        operators = tuple(
            self._operator(source.Operators(i), i, len(tensors), f"{where}.operators[{i}]")
            for i in range(source.OperatorsLength())
        )
        return Subgraph(
            decode_text(source.Name()),
            tensors,
            self._indices(source, "Inputs", len(tensors), where),
            self._indices(source, "Outputs", len(tensors), where),
            operators,
        )

    def _indices(self, source: Any, name: str, count: int, where: str, lowest: int = 0) -> tuple[int, ...]:
        indices = integers(source, name)
        for index in indices:
            if not lowest <= index < count:
                self.file.corrupt(f"{where}.{name.lower()} names tensor {index} of {count}")
        return indices

    def _tensor(self, source: Any, index: int, names: dict[str, int]) -> Tensor:
        type_number = source.Type()
        shape = integers(source, "Shape")
        name = decode_text(source.Name()) or f"tensor_{index}"
        names[name] = names.get(name, 0) + 1
        if names[name] > 1:  # the format allows equal names, Tensor.name must be unique
            name = f"{name}#{names[name]}"
        if any(extent < 0 for extent in shape):
            self.file.corrupt(f"tensor '{name}' has the shape {format_shape(shape)}")
        if not 0 <= source.Buffer() < max(self.model.BuffersLength(), 1):
            self.file.corrupt(f"tensor '{name}' names buffer {source.Buffer()} of {self.model.BuffersLength()}")
        return Tensor(
            index,
            name,
            _TYPE_NAMES.get(type_number, f"type {type_number}"),
            shape,
            integers(source, "ShapeSignature") or shape,
            source.Buffer(),
            self._quantization(source.Quantization(), name),
            bool(source.IsVariable()),
            source.Sparsity(),
        )

    def _quantization(self, source: Any, name: str) -> RawQuantization | None:
        if source is None or (source.ScaleLength() == 0 and source.DetailsType() == 0):
            return None
        scale = () if source.ScaleIsNone() else tuple(source.ScaleAsNumpy().tolist())
        zero_point = integers(source, "ZeroPoint")
        if len(zero_point) < 2:
            zero_point = (zero_point or (0,)) * len(scale)
        if len(zero_point) != len(scale):
            self.file.corrupt(f"tensor '{name}' has {len(scale)} scales and {len(zero_point)} zero points")
        return RawQuantization(scale, zero_point, source.QuantizedDimension(), source.DetailsType() != 0)

    def _operator(self, source: Any, index: int, tensor_count: int, where: str) -> Operator:
        code_index = source.OpcodeIndex()
        if code_index >= self.model.OperatorCodesLength():
            self.file.corrupt(f"{where} names operator code {code_index} of {self.model.OperatorCodesLength()}")
        code = self.model.OperatorCodes(code_index)
        number = max(code.DeprecatedBuiltinCode(), _later_code(code))  # codes above 126 do not fit in the old field
        name = _OPERATOR_NAMES.get(number, f"operator {number}")
        if name == "CUSTOM":
            name = f"CUSTOM:{decode_text(code.CustomCode())}"
        return Operator(
            index,
            name,
            code.Version(),
            self._indices(source, "Inputs", tensor_count, where, lowest=-1),
            self._indices(source, "Outputs", tensor_count, where),
            self._options(source, where),
        )

    def _options(self, source: Any, where: str) -> Options:
        for union, suffix in (("BuiltinOptions", ""), ("BuiltinOptions2", "2")):
            tag = getattr(source, f"BuiltinOptions{suffix}Type")()
            members = SCHEMA.unions[union]
            stored = getattr(source, f"BuiltinOptions{suffix}")() if 0 < tag <= len(members) else None
            if stored is not None:
                accessor = getattr(tflite, members[tag - 1])()
                accessor.Init(stored.Bytes, stored.Pos)
                return Options(members[tag - 1], accessor)
        offset, size = source.LargeCustomOptionsOffset(), source.LargeCustomOptionsSize()
        if offset > 1:
            if offset + size > len(self.file.view):
                self.file.corrupt(f"{where}: custom options at bytes {offset} to {offset + size}")
            return Options("", None, bytes(self.file.view[offset : offset + size]))
        if source.CustomOptionsIsNone():
            return Options("", None)
        return Options("", None, source.CustomOptionsAsNumpy().tobytes())


def _later_code(code: Any) -> int:
    """Stored value of ``builtin_code``; for codes below 127, the package's accessor returns the deprecated field."""
    offset = code._tab.Offset(10)
    return int(code._tab.Get(number_types.Int32Flags, offset + code._tab.Pos)) if offset else 0


def decode_text(value: bytes | None) -> str:
    """Decode a string of the file; empty if it is absent."""
    return "" if value is None else value.decode("utf-8", "replace")
