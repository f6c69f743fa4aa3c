"""Read the learned blobs of a weight file, by layer name."""

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tpuconvert.frontends.caffe.file.wire import (
    BYTES,
    VARINT,
    AmbiguousWireError,
    WireError,
    read_array,
    read_fields,
    read_varints,
)
from tpuconvert.frontends.sniffing import SourceFile, corrupt_input
from tpuconvert.schema.errors import AmbiguousInputError
from tpuconvert.schema.system.limits import Limits, current_limits, exceeded
from tpuconvert.schema.types import Array

# Field numbers. NetParameter has layers in the current format (100) or V1 layers (2), which may contain a V0 layer (1).
_NET_LAYER, _NET_OLD_LAYER = 100, 2
_LAYER_NAME, _LAYER_BLOBS = 1, 7
_V1_V0_LAYER, _V1_NAME, _V1_BLOBS = 1, 4, 6
_V0_NAME, _V0_BLOBS = 1, 50
_BLOB_LEGACY_DIMS = (1, 2, 3, 4)
_BLOB_DATA, _BLOB_SHAPE, _BLOB_DOUBLE_DATA, _BLOB_RAW_TYPE, _BLOB_RAW = 5, 7, 8, 10, 12
_RAW_DTYPES = {0: "<f8", 1: "<f4", 2: "<f2"}
_MOST_AXES = 32


@dataclass(frozen=True)
class Blob:
    """One learned tensor: its elements as FLOAT32, and its shape in the file.

    Old files always store four axes, with leading unit axes for tensors of lower rank.
    """

    shape: tuple[int, ...]
    data: Array


Weights = dict[str, list[Blob]]


def read_weights(path: str | os.PathLike[str], limits: Limits | None = None) -> Weights:
    """Read the blobs of every layer with learned tensors, by layer name.

    Raises:
        CorruptInputError: the file is damaged, is not a caffemodel, or has no layer.
        ResourceLimitError: the file is larger than the limits allow.
        UsageError: the file cannot be read.

    """
    limits = limits or current_limits()
    file = SourceFile.of(path)
    file.check("caffemodel", limits)
    content = memoryview(Path(file).read_bytes())
    try:
        weights, count = _read_net(content, limits, file.path)
    except AmbiguousWireError as error:
        raise AmbiguousInputError(str(error), file=str(path)) from error
    except WireError as error:
        raise corrupt_input(path, "caffemodel", str(error)) from error
    if not count:
        raise corrupt_input(path, "caffemodel", "it holds no layer")
    return weights


def blob_of_message(message: Any) -> Blob:
    """Convert a BlobProto of a network description.

    Raises:
        WireError: the number of elements does not match the shape.

    """
    return _read_blob(memoryview(message.SerializeToString()))


def _read_net(content: memoryview, limits: Limits, path: str) -> tuple[Weights, int]:
    weights: Weights = {}
    count = 0
    for number, kind, _, data in read_fields(content):
        if kind != BYTES or number not in (_NET_LAYER, _NET_OLD_LAYER):
            continue
        count += 1
        if count > limits.max_nodes:
            raise exceeded(f"at least {count:,} layers", "max_nodes", limits, file=path)
        if number == _NET_LAYER:
            name, blobs = _read_layer(data, _LAYER_NAME, _LAYER_BLOBS)
        else:
            name, blobs = _read_old_layer(data)
        if blobs:
            weights[name] = blobs
    return weights, count


def _read_old_layer(content: memoryview) -> tuple[str, list[Blob]]:
    for number, kind, _, data in read_fields(content):
        if number == _V1_V0_LAYER and kind == BYTES:
            return _read_layer(data, _V0_NAME, _V0_BLOBS)
    return _read_layer(content, _V1_NAME, _V1_BLOBS)


def _read_layer(content: memoryview, name_field: int, blobs_field: int) -> tuple[str, list[Blob]]:
    name = ""
    blobs: list[Blob] = []
    for number, kind, _, data in read_fields(content):
        if kind != BYTES:
            continue
        if number == name_field:
            name = bytes(data).decode("utf-8", errors="replace")
        elif number == blobs_field:
            blobs.append(_read_blob(data))
    return name, blobs


def _read_blob(content: memoryview) -> Blob:
    legacy: dict[int, int] = {}
    shapes: list[tuple[int, ...]] = []
    floats: list[memoryview] = []
    doubles: list[memoryview] = []
    raw_type, raws = 1, list[memoryview]()
    for number, kind, value, data in read_fields(content):
        if number in _BLOB_LEGACY_DIMS and kind == VARINT:
            legacy[number] = value
        elif number == _BLOB_SHAPE and kind == BYTES:
            shapes.append(_read_shape(data))
        elif number == _BLOB_DATA and kind != VARINT:
            floats.append(data)
        elif number == _BLOB_DOUBLE_DATA and kind != VARINT:
            doubles.append(data)
        elif number == _BLOB_RAW_TYPE and kind == VARINT:
            raw_type = value
        elif number == _BLOB_RAW and kind == BYTES:
            raws.append(data)
    elements = _elements(floats, doubles, raw_type, raws)
    shape = _shape(shapes, legacy, len(elements))
    if min(shape, default=0) < 0:
        raise WireError(f"a blob of shape {list(shape)}")
    expected = math.prod(shape)
    if expected != len(elements):
        raise WireError(f"a blob of shape {list(shape)} holds {len(elements)} elements instead of {expected}")
    return Blob(shape, elements.reshape(shape))


def _shape(shapes: list[tuple[int, ...]], legacy: dict[int, int], count: int) -> tuple[int, ...]:
    """Return the shape of a blob, which old files store as four extents.

    Raises:
        AmbiguousWireError: several shapes differ, apart from leading unit axes.

    """
    if legacy:
        shapes = [*shapes, tuple(legacy.get(number, 0) for number in _BLOB_LEGACY_DIMS)]
    if not shapes:
        return (count,)
    for other in shapes[1:]:
        rank = max(len(shapes[0]), len(other))
        if (1,) * (rank - len(shapes[0])) + shapes[0] != (1,) * (rank - len(other)) + other:
            raise AmbiguousWireError(f"a blob has two shapes, {list(shapes[0])} and {list(other)}; expected one")
    return shapes[0]


def _elements(floats: list[memoryview], doubles: list[memoryview], raw_type: int, raws: list[memoryview]) -> Array:
    """Return the elements of a blob.

    Raises:
        AmbiguousWireError: more than one field holds elements.

    """
    fields = {"data": floats, "double_data": doubles, "raw_data": raws}
    stored = [name for name, parts in fields.items() if any(map(len, parts))]
    if len(stored) > 1 or len(raws) > 1:
        raise AmbiguousWireError(f"a blob has two contents: {stored[0]} and {stored[-1]}; expected one")
    if any(map(len, raws)):
        (raw,) = raws
        if raw_type not in _RAW_DTYPES:
            raise WireError(f"a blob has elements of type {raw_type}")
        return read_array([raw], _RAW_DTYPES[raw_type]).astype(np.float32)
    if doubles:
        with np.errstate(over="ignore"):
            return read_array(doubles, "<f8").astype(np.float32)
    return read_array(floats, "<f4").astype(np.float32)


def _read_shape(content: memoryview) -> tuple[int, ...]:
    dims: list[int] = []
    for number, kind, value, data in read_fields(content):
        if number == 1:
            dims.extend([value] if kind == VARINT else read_varints(data))
    if len(dims) > _MOST_AXES:
        raise WireError(f"a blob of {len(dims)} axes")
    return tuple(dims)
