"""Metadata of a TFLite file: a table with names, normalization and label files.

The table is a FlatBuffers file inside a buffer of the model; the label files are a ZIP archive after it. Both are
untrusted: they are verified and bounded before they are read. They do not affect the results of the model, so damaged
metadata are skipped with a note.

Source: ``metadata_schema.fbs`` of the TensorFlow Lite Support library, version 1.5.
"""

from __future__ import annotations

import io
import lzma
import math
import zipfile
import zlib
from typing import Any, NamedTuple

from tpuconvert.frontends.tflite.file.reader import ModelFile, decode_text
from tpuconvert.schema.file import flatbuffer_reader
from tpuconvert.schema.file.flatbuffer_reader import Limits
from tpuconvert.schema.file.flatbuffer_schema import Schema

NAME = "TFLITE_METADATA"
_IDENTIFIER = b"M001"
_LIMITS = Limits(max_depth=16, max_visits=100_000)
_MOST_FILE_BYTES = 4 << 20  # one label file
_MOST_LABELS = 100_000

SCHEMA = Schema(
    tables={
        "ModelMetadata": (
            "name:str description:str version:str subgraph_metadata:[SubGraphMetadata] author:str license:str "
            "associated_files:[AssociatedFile] min_parser_version:str"
        ),
        "SubGraphMetadata": (
            "name:str description:str input_tensor_metadata:[TensorMetadata] output_tensor_metadata:[TensorMetadata]"
        ),
        "TensorMetadata": (
            "name:str description:str dimension_names:[str] content:Content process_units:[ProcessUnit] stats:Stats "
            "associated_files:[AssociatedFile]"
        ),
        "AssociatedFile": "name:str description:str type:i8 locale:str",
        "Content": "content_properties:<ContentProperties>",
        "FeatureProperties": "",
        "ImageProperties": "color_space:i8",
        "ProcessUnit": "options:<ProcessUnitOptions>",
        "NormalizationOptions": "mean:[f32] std:[f32]",
        "Stats": "max:[f32] min:[f32]",
    },
    unions={
        "ContentProperties": ("FeatureProperties", "ImageProperties"),
        "ProcessUnitOptions": ("NormalizationOptions",),
    },
)


class _FeatureProperties(NamedTuple):
    pass


class _ImageProperties(NamedTuple):
    color_space: int = 0


class _Content(NamedTuple):
    content_properties: _FeatureProperties | _ImageProperties | None = None


class _NormalizationOptions(NamedTuple):
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()


class _ProcessUnit(NamedTuple):
    options: _NormalizationOptions | None = None


class _Stats(NamedTuple):
    max: tuple[float, ...] = ()
    min: tuple[float, ...] = ()


class _AssociatedFile(NamedTuple):
    name: str = ""
    type: int = 0


class _TensorMetadata(NamedTuple):
    name: str = ""
    description: str = ""
    content: _Content = _Content()
    process_units: tuple[_ProcessUnit, ...] = ()
    stats: _Stats = _Stats()
    associated_files: tuple[_AssociatedFile, ...] = ()


class _SubGraphMetadata(NamedTuple):
    input_tensor_metadata: tuple[_TensorMetadata, ...] = ()
    output_tensor_metadata: tuple[_TensorMetadata, ...] = ()


class _ModelMetadata(NamedTuple):
    name: str = ""
    description: str = ""
    version: str = ""
    author: str = ""
    license: str = ""
    subgraph_metadata: tuple[_SubGraphMetadata, ...] = ()


_TABLES = (
    *(_ModelMetadata, _SubGraphMetadata, _TensorMetadata, _AssociatedFile, _Content, _FeatureProperties),
    *(_ImageProperties, _ProcessUnit, _NormalizationOptions, _Stats),
)
_ROWS = {table.__name__.removeprefix("_"): table for table in _TABLES}

_COLORS = {1: "RGB", 2: "GRAY"}
_LABELS = (2, 3)  # AssociatedFileType: TENSOR_AXIS_LABELS and TENSOR_VALUE_LABELS


def read_metadata(file: ModelFile, subgraph: int) -> tuple[dict[str, Any], list[str]]:
    """Metadata of the file as JSON values, and notes about parts that cannot be read.

    Args:
        file: the model.
        subgraph: index of the converted subgraph.
    """
    stored = _find_table(file)
    if stored is None:
        return {}, []
    try:
        root = flatbuffer_reader.read(
            stored, SCHEMA, "ModelMetadata", _IDENTIFIER, _ROWS, limits=_LIMITS, allow_unknown_union_tags=True
        )
        return _model(root, subgraph, _Files(file))
    except ValueError as error:  # the base class of FlatBufferError
        return {}, [f"its metadata cannot be read: {error}"]


def _find_table(file: ModelFile) -> memoryview | None:
    for number in range(file.model.MetadataLength()):
        entry = file.model.Metadata(number)
        if decode_text(entry.Name()) == NAME:
            return file.buffer(entry.Buffer())
    return None


_DAMAGED = (KeyError, ValueError, OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error, lzma.LZMAError)
"""Errors of members of an archive that are missing, damaged, encrypted or of a later version."""


class _Files:
    """Label files appended to a model."""

    def __init__(self, file: ModelFile) -> None:
        self.notes: list[str] = []
        try:
            self._archive: zipfile.ZipFile | None = zipfile.ZipFile(io.BytesIO(file.view))
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError):  # most models have no label files
            self._archive = None

    def labels(self, name: str) -> list[str]:
        """Lines of a label file; empty, with a note, if it cannot be read."""
        if self._archive is None:
            self.notes.append(f"the label file '{name}' is not in the model")
            return []
        try:
            if self._archive.getinfo(name).file_size > _MOST_FILE_BYTES:
                raise ValueError(f"more than {_MOST_FILE_BYTES} bytes")
            with self._archive.open(name) as opened:
                text = opened.read(_MOST_FILE_BYTES + 1)
            lines = text.decode("utf-8").splitlines()
            if len(text) > _MOST_FILE_BYTES or len(lines) > _MOST_LABELS:
                raise ValueError(f"more than {_MOST_LABELS} labels")
        except _DAMAGED as error:
            self.notes.append(f"the label file '{name}' cannot be read: {error}")
            return []
        return lines


def _model(root: _ModelMetadata, subgraph: int, files: _Files) -> tuple[dict[str, Any], list[str]]:
    entries = _texts(root, "name", "description", "version", "author", "license")
    if subgraph < len(root.subgraph_metadata):
        chosen = root.subgraph_metadata[subgraph]
        for key, tensors in (("inputs", chosen.input_tensor_metadata), ("outputs", chosen.output_tensor_metadata)):
            described = [_tensor(tensor, files) for tensor in tensors]
            if any(described):
                entries[key] = described
    return entries, files.notes


def _texts(table: _ModelMetadata | _TensorMetadata, *names: str) -> dict[str, Any]:
    texts = {name: getattr(table, name) for name in names}
    return {name: text for name, text in texts.items() if text}


def _tensor(table: _TensorMetadata, files: _Files) -> dict[str, Any]:
    entries = _texts(table, "name", "description")
    image = table.content.content_properties
    if isinstance(image, _ImageProperties):
        entries["content"] = "image"
        if image.color_space in _COLORS:
            entries["color"] = _COLORS[image.color_space]
    for unit in table.process_units:
        if unit.options is not None:
            entries["mean"], entries["std"] = list(unit.options.mean), list(unit.options.std)
    for key, limits in (("max", table.stats.max), ("min", table.stats.min)):
        numbers = [number for number in limits if math.isfinite(number)]
        if numbers:
            entries[key] = numbers
    for item in table.associated_files:
        if item.type in _LABELS and "labels" not in entries:
            entries["labels"] = files.labels(item.name)
    return entries
