"""What a TFLite file says about itself: the metadata table with names, normalization and label files.

The table is a FlatBuffers file inside a buffer of the model; the label files are a ZIP archive behind it. Both are a
stranger's: verified and bounded before they are read. They describe the model and do not decide what it computes, so
damaged ones are told in a note and left out.

Source: ``metadata_schema.fbs`` of the TensorFlow Lite Support library, version 1.5.
"""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from typing import Any

from tpuconvert.frontends.tflite.reader import ModelFile, decoded
from tpuconvert.schema.flatbuffer_tables import TableReader
from tpuconvert.schema.flatbuffer_verifier import FlatBufferError, Limits, Schema, verify

NAME = "TFLITE_METADATA"
_IDENTIFIER = b"M001"
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

_NORMALIZATION, _IMAGE = 1, 2  # tags of the two unions
_COLORS = {1: "RGB", 2: "GRAY"}
_LABELS = (2, 3)  # types of files: labels of an axis, and of values


def read_metadata(file: ModelFile, subgraph: int) -> tuple[dict[str, Any], list[str]]:
    """What the file says about itself as JSON values, and notes about what could not be read.

    Args:
        file: the model.
        subgraph: which one is converted.
    """
    stored = _stored(file)
    if stored is None:
        return {}, []
    try:
        verify(stored, SCHEMA, "ModelMetadata", _IDENTIFIER, Limits(16, 100_000), allow_unknown_union_tags=True)
        root = TableReader.root(memoryview(bytes(stored)))
        return _model(root, subgraph, _Files(file))
    except (FlatBufferError, ValueError) as error:  # the second: parts that overlap, strings that are not UTF-8
        return {}, [f"its metadata cannot be read: {error}"]


def _stored(file: ModelFile) -> memoryview | None:
    for number in range(file.model.MetadataLength()):
        entry = file.model.Metadata(number)
        if decoded(entry.Name()) == NAME:
            return file.buffer(entry.Buffer())
    return None


class _Files:
    """The label files behind a model."""

    def __init__(self, file: ModelFile) -> None:
        self.notes: list[str] = []
        self._archive: zipfile.ZipFile | None = None
        try:
            self._archive = zipfile.ZipFile(io.BytesIO(file.view))
        except (zipfile.BadZipFile, ValueError, OSError):  # most models have none
            self._archive = None

    def labels(self, name: str) -> list[str]:
        """The lines of a file; empty where it cannot be read, which a note tells."""
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
        except (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile, NotImplementedError, zlib.error) as error:
            self.notes.append(f"the label file '{name}' cannot be read: {error}")
            return []
        return lines


def _model(root: TableReader, subgraph: int, files: _Files) -> tuple[dict[str, Any], list[str]]:
    found = _texts(root, name=0, description=1, version=2, author=4, license=5)
    subgraphs = root.tables(3)
    if subgraph < len(subgraphs):
        for key, slot in (("inputs", 2), ("outputs", 3)):
            tensors = [_tensor(tensor, files) for tensor in subgraphs[subgraph].tables(slot)]
            if any(tensors):
                found[key] = tensors
    return found, files.notes


def _texts(table: TableReader, **slots: int) -> dict[str, Any]:
    texts = {key: table.string(slot) for key, slot in slots.items()}
    return {key: text for key, text in texts.items() if text}


def _tensor(table: TableReader, files: _Files) -> dict[str, Any]:
    found = _texts(table, name=0, description=1)
    content = table.table(3)
    if content is not None and content.scalar(0, "B", 0) == _IMAGE:
        image = content.table(1)
        found["content"] = "image"
        color = _COLORS.get(0 if image is None else image.scalar(0, "b", 0))
        if color is not None:
            found["color"] = color
    for unit in table.tables(4):
        options = unit.table(1) if unit.scalar(0, "B", 0) == _NORMALIZATION else None
        if options is not None:
            found["mean"], found["std"] = list(options.scalars(0, "f")), list(options.scalars(1, "f"))
    stats = table.table(5)
    if stats is not None:
        for key, slot in (("max", 0), ("min", 1)):
            numbers = [number for number in stats.scalars(slot, "f") if math.isfinite(number)]
            if numbers:
                found[key] = numbers
    for item in table.tables(6):
        if item.scalar(2, "b", 0) in _LABELS and "labels" not in found:
            found["labels"] = files.labels(item.string(0))
    return found


def preprocessing(metadata: dict[str, Any], layout: str) -> dict[str, Any]:
    """How pictures become the first input, as keys of the preprocessing; empty where nothing says it."""
    tensor = (metadata.get("inputs") or [{}])[0]
    mean, std, color = tensor.get("mean", []), tensor.get("std", []), tensor.get("color", "RGB")
    counts = (1, 3) if color == "RGB" else (1,)
    if tensor.get("content") != "image" or any(len(numbers) not in counts for numbers in (mean, std)):
        return {}
    scale = [1.0 / number if number else 0.0 for number in std]
    if not all(math.isfinite(number) for number in mean + scale) or 0.0 in scale:
        return {}
    return {"color": color, "mean": mean, "scale": scale, "layout": layout}
