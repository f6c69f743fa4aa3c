"""Read constants of an ONNX file as NumPy arrays.

The elements of a tensor are stored in ``raw_data`` (little endian), in the field of their type (such as
``float_data``), in a separate file (external data), or as indices and values (sparse). Sizes are checked before any
memory is allocated.
"""

from __future__ import annotations

import math
import os
import sys
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from tpuconvert.frontends.onnx.file import element_types
from tpuconvert.frontends.onnx.file.element_types import ELEMENTS, Element
from tpuconvert.frontends.onnx.file.external_files import external_file, open_external
from tpuconvert.frontends.onnx.file.messages import SparseTensorProto, TensorProto
from tpuconvert.frontends.onnx.file.raw_data import OWN_FILE
from tpuconvert.schema.errors import AmbiguousInputError, CorruptInputError
from tpuconvert.schema.system.constant_budget import current_budget
from tpuconvert.schema.system.input_files import note_input
from tpuconvert.schema.system.limits import Limits, exceeded
from tpuconvert.schema.system.mapped_pages import map_file
from tpuconvert.schema.types import Array

IN_MEMORY = "<ModelProto>"
"""Name of a model that is not a file, in messages."""

_EXTERNAL = TensorProto.EXTERNAL
_TYPED_FIELDS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")
_IS_LITTLE = sys.byteorder == "little"


class TensorReader:
    """Reads the constants of one model.

    Args:
        path: the model file; external data must be in or below its folder. None for a message without a file.
        limits: bounds on sizes.
        content: of the model file, for tensors that refer to it (``raw_data.py``).
        allow_root: another directory that may contain external data.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        limits: Limits,
        content: bytes | memoryview = b"",
        allow_root: str | os.PathLike[str] | None = None,
    ) -> None:
        self._path = path
        self._file = IN_MEMORY if path is None else os.path.basename(path)
        self._allow_root = allow_root
        self._limits = limits
        self._maps: dict[str, Array] = {}
        self._contents = WeakValueDictionary[int, Array]()  # key: hash of the bytes
        self._content: Array = np.frombuffer(content, np.uint8) if len(content) else np.empty(0, np.uint8)

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of the external files that were read, sorted."""
        return tuple(sorted(self._maps))

    def shape(self, tensor: TensorProto) -> tuple[int, ...]:
        """Return the shape of a tensor after checking it against the limits.

        Raises:
            CorruptInputError: a negative extent, or too many axes.
            ResourceLimitError: too many bytes.
        """
        shape = tuple(tensor.dims[:])  # iterating over a copy of a repeated field is faster than over the field
        if shape and min(shape) < 0:
            raise self._corrupt(tensor, f"has a negative extent in its shape {list(shape)}")
        if len(shape) > 64:
            raise self._corrupt(tensor, f"has {len(shape)} axes")
        element = ELEMENTS.get(tensor.data_type)
        size = math.prod(shape) * max(8 if element is None else element.bits, 8) // 8
        if size > self._limits.max_constant_bytes:
            amount = f"constant '{tensor.name}' has {size:,} bytes"
            raise exceeded(amount, "max_constant_bytes", self._limits, file=self._file)
        return shape

    def element(self, tensor: TensorProto) -> Element:
        """Return the element type of a tensor.

        Raises:
            CorruptInputError: the type is unknown or not supported (strings, complex numbers).
        """
        element = ELEMENTS.get(tensor.data_type)
        if element is None:
            raise self._corrupt(
                tensor, f"has elements of {element_types.describe(tensor.data_type)}, which cannot be read"
            )
        return element

    def read(self, tensor: TensorProto) -> Array:
        """Return the elements of a tensor; those in external files stay memory-mapped if NumPy has the type.

        Raises:
            CorruptInputError: the data do not match type and shape, or the external file is missing, too short or
                outside the folder of the model.
            ResourceLimitError: larger than the limits.
        """
        return self.read_typed(tensor)[1]

    def read_typed(self, tensor: TensorProto) -> tuple[Element, Array]:
        """Return the element type and the elements of a tensor; raises the errors of ``read``."""
        element, shape = self.element(tensor), self.shape(tensor)
        if tensor.HasField("segment"):
            raise self._corrupt(tensor, "is stored in segments, which no ONNX version defines for models")
        self._check_single_content(tensor)
        is_external = tensor.data_location == _EXTERNAL
        if not is_external and not tensor.HasField("raw_data"):
            return element, self._decode_typed(tensor, element, shape)
        count = math.prod(shape)
        expected = (count * element.bits + 7) // 8
        data = self._external(tensor, expected) if is_external else self._raw(tensor)
        if data.size != expected:
            raise self._corrupt(tensor, f"holds {data.size} bytes, but {element} {list(shape)} needs {expected}")
        if element is element_types.FLOAT and count and _IS_LITTLE:  # the most common case
            return element, np.ndarray(shape, element.numpy, data)
        return element, _from_bytes(element, data, count).reshape(shape)

    def _raw(self, tensor: TensorProto) -> Array:
        """Return the bytes in the message.

        Protobuf copies them at each access. Tensors of function bodies and subgraphs are read once per call or
        iteration, so equal contents share a copy that is in use.
        """
        content = tensor.raw_data
        copy, key = np.frombuffer(content, np.uint8), hash(content)
        shared = self._contents.get(key)
        if shared is not None and np.array_equal(shared, copy):
            return shared
        self._contents[key] = copy
        return copy

    def external_bytes(self, tensor: TensorProto) -> bytes:
        """Return the elements of a tensor with external data as they are stored; raises the errors of ``read``."""
        element, shape = self.element(tensor), self.shape(tensor)
        self._check_single_content(tensor)
        expected = (math.prod(shape) * element.bits + 7) // 8
        data = self._external(tensor, expected)
        if data.size != expected:
            raise self._corrupt(tensor, f"holds {data.size} bytes, but {element} {list(shape)} needs {expected}")
        return data.tobytes()

    def read_sparse(self, sparse: SparseTensorProto) -> Array:
        """Return a sparse constant as a dense array.

        Raises:
            CorruptInputError: indices outside the shape, or lengths that differ.
        """
        values = self.read(sparse.values).reshape(-1)
        dense = TensorProto(name=sparse.values.name, dims=sparse.dims, data_type=sparse.values.data_type)
        shape = self.shape(dense)
        indices = self.read(sparse.indices).astype(np.int64)
        if indices.ndim == 2 and indices.shape == (values.size, len(shape)):
            if indices.size and ((indices < 0) | (indices >= np.asarray(shape))).any():
                raise self._corrupt(sparse.values, "has a sparse index outside its shape")
            indices = np.asarray(np.ravel_multi_index(tuple(indices.T), shape)) if values.size else indices[:, 0]
        elif indices.shape != (values.size,):
            raise self._corrupt(sparse.values, f"has {values.size} sparse values, but indices {list(indices.shape)}")
        if indices.size and (indices.min() < 0 or indices.max() >= math.prod(shape)):
            raise self._corrupt(sparse.values, "has a sparse index outside its shape")
        result = np.zeros(math.prod(shape), values.dtype)
        result[indices] = values
        return result.reshape(shape)

    def _check_single_content(self, tensor: TensorProto) -> None:
        """Refuse a tensor with several contents: the standard does not say which one counts, and readers differ.

        Raises:
            AmbiguousInputError: more than one field holds elements, or an entry of its external data occurs twice.
        """
        stored = [field for field in _TYPED_FIELDS if len(getattr(tensor, field))]
        if not stored and not tensor.external_data:  # nearly always
            return
        external = [entry.key for entry in tensor.external_data]
        is_own = any(entry.key == "location" and entry.value == OWN_FILE for entry in tensor.external_data)
        if tensor.HasField("raw_data") or is_own:
            stored.insert(0, "raw_data")
        if "location" in external and not is_own:
            stored.append("external data")
        if len(stored) > 1:
            message = f"has two contents: {stored[0]} and {stored[1]}; expected one"
        elif len(set(external)) < len(external):
            message = "has external data with an entry that occurs twice"
        else:
            return
        raise AmbiguousInputError(
            f"constant '{tensor.name[:200]}' {message}",
            file=self._file,
            hint="write the model again with the program that made it, or clear one of them",
        )

    def _decode_typed(self, tensor: TensorProto, element: Element, shape: tuple[int, ...]) -> Array:
        """Decode the field of a type: ``int32_data`` contains all types of up to 16 bits, as bit patterns."""
        count = math.prod(shape)
        field = {
            element_types.FLOAT.code: "float_data",
            element_types.DOUBLE.code: "double_data",
            element_types.INT64.code: "int64_data",
            element_types.UINT64.code: "uint64_data",
            element_types.UINT32.code: "uint64_data",
        }.get(element.code, "int32_data")
        stored = getattr(tensor, field)
        packed = element.bits < 8
        expected = (count * element.bits + 7) // 8 if packed else count
        if len(stored) != expected:
            raise self._corrupt(
                tensor, f"holds {len(stored)} elements in {field}, but {element} {list(shape)} needs {expected}"
            )
        if field != "int32_data":
            return np.array(stored, element.numpy).reshape(shape)
        words = np.array(stored, np.int32)
        if element is element_types.INT32:
            return words.reshape(shape)
        wide = np.uint16 if element.bits == 16 else np.uint8
        low, high = 0, (1 << max(element.bits, 8)) - 1
        if packed:  # onnx 1.16 writes the bytes of INT4 as signed numbers
            low = -128
        elif element.numpy.kind == "i":
            low = -(1 << (element.bits - 1))
        if words.size and (int(words.min()) < low or int(words.max()) > high):
            raise self._corrupt(tensor, f"has an element outside the range of {element}")
        return _from_bytes(element, words.astype(wide).view(np.uint8), count).reshape(shape)

    def _external(self, tensor: TensorProto, expected: int) -> Array:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        if not location or ("\0" in location and location != OWN_FILE):
            raise self._corrupt(tensor, "has external data without a location")
        offset = self._number(tensor, entries.get("offset", "0"), "offset")
        length = self._number(tensor, entries["length"], "length") if "length" in entries else None
        mapped = self._content if location == OWN_FILE else self._map(tensor, location)
        if length is None:
            length = expected if expected <= mapped.size - offset else mapped.size - offset
        if length < 0 or offset + length > mapped.size:
            raise self._corrupt(
                tensor,
                f"refers to bytes {offset} to {offset + max(length, 0)} of '{location}', which has {mapped.size} bytes",
            )
        return mapped[offset : offset + length]

    def _map(self, tensor: TensorProto, location: str) -> Array:
        """Return an external file, which is memory-mapped at its first use."""
        if self._path is None:
            raise self._corrupt(
                tensor,
                f"has external data in '{location}', expected the data in the message: it has no folder to look in",
                hint="load them with onnx.load_external_data_for_model, or convert the file of the model",
            )
        resolved = external_file(self._path, location, self._allow_root, owner=f"constant '{tensor.name[:200]}'")
        if resolved not in self._maps:
            if not os.path.isfile(resolved):
                raise self._corrupt(
                    tensor,
                    f"needs the external file '{location}', which does not exist",
                    hint="copy it next to the model file",
                )
            note_input(resolved)
            try:
                with open_external(resolved, self._path, self._allow_root) as file:
                    self._maps[resolved] = self._content_of(file.fileno(), resolved)
            except OSError as error:
                message = f"needs the external file '{location}', which cannot be read ({error.strerror or error})"
                raise self._corrupt(tensor, message) from error
        return self._maps[resolved]

    def _content_of(self, descriptor: int, path: str) -> Array:
        size = os.fstat(descriptor).st_size
        if size > self._limits.max_file_bytes:
            raise exceeded(f"{size:,} bytes", "max_file_bytes", self._limits, file=os.path.basename(path))
        budget = current_budget()
        if budget is not None:
            budget.add_file(size)
        return np.frombuffer(map_file(descriptor, path) if size else b"", np.uint8)

    def _number(self, tensor: TensorProto, text: str, key: str) -> int:
        if not text.isascii() or not text.isdigit() or len(text) > 19:
            raise self._corrupt(tensor, f"has external data with {key} '{text[:40]}', which is not a number")
        return int(text)

    def _corrupt(self, tensor: TensorProto, message: str, hint: str = "") -> CorruptInputError:
        return CorruptInputError(f"constant '{tensor.name[:200]}' {message}", file=self._file, hint=hint)


def _from_bytes(element: Element, data: Array, count: int) -> Array:
    """Convert little-endian bytes to elements. The length has been checked."""
    if element.bits < 8:
        return _unpack(element, data)[:count]
    if element is element_types.BOOL:
        return np.not_equal(data, 0)
    if element is element_types.BFLOAT16:
        return (_view(data, "<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)
    if element.bits == 8 and element.is_float:
        return _float8_values(element)[data]
    stored = element.numpy if _IS_LITTLE else element.numpy.newbyteorder("<")
    return _view(data, stored).astype(element.numpy, copy=False)


def _view(data: Array, numpy_type: Any) -> Array:
    return np.frombuffer(data, numpy_type) if data.size else np.empty(0, numpy_type)


def _unpack(element: Element, data: Array) -> Array:
    """Unpack 2- and 4-bit integers: the first element is in the low-order bits of a byte."""
    per_byte = 8 // element.bits
    shifts = np.arange(per_byte, dtype=np.uint8) * np.uint8(element.bits)
    unsigned: Array = ((data[:, None] >> shifts) & np.uint8((1 << element.bits) - 1)).reshape(-1)
    if element.numpy.kind == "u":
        return unsigned
    half = 1 << (element.bits - 1)
    wrapped: Array = np.where(unsigned >= half, unsigned.astype(np.int16) - 2 * half, unsigned)
    return wrapped.astype(np.int8)


def _float8_values(element: Element) -> Array:
    """Values of all 256 codes of a float8 type. The codes for NaN and infinity depend on the type."""
    mantissa_bits = 3 if "e4m3" in element.name else 2
    unsigned_zero = element.name.endswith("uz")
    bias = (1 << (6 - mantissa_bits)) - (0 if unsigned_zero else 1)
    code = np.arange(256)
    exponent = (code & 0x7F) >> mantissa_bits
    mantissa = code & ((1 << mantissa_bits) - 1)
    fraction = mantissa / (1 << mantissa_bits)
    magnitude = np.where(exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (exponent - bias))
    if unsigned_zero:
        magnitude[code == 0x80] = np.nan
    elif element is element_types.FLOAT8E4M3FN:
        magnitude[(code & 0x7F) == 0x7F] = np.nan
    else:
        magnitude[(exponent == 31) & (mantissa == 0)] = np.inf
        magnitude[(exponent == 31) & (mantissa != 0)] = np.nan
    return np.where(code & 0x80, -magnitude, magnitude).astype(np.float32)
