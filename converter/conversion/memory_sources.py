"""Source models that are in memory: bytes of a file, or an ONNX message for engines that read files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tpuconvert.conversion.recipe import serialize
from tpuconvert.conversion.source_loading import Source, source_format
from tpuconvert.frontends.sniffing import HEAD_BYTES, identify
from tpuconvert.schema.errors import CorruptInputError, TpuConvertError, UsageError

if TYPE_CHECKING:
    from onnx import ModelProto

FilePath: TypeAlias = "str | os.PathLike[str]"

AnySource: TypeAlias = "str | os.PathLike[str] | bytes | ModelProto"
"""A model to convert: the path of a file, the bytes of an ONNX, TFLite or prototxt file, or an ONNX model in memory."""

Weights: TypeAlias = "str | os.PathLike[str] | bytes | None"
"""The caffemodel that belongs to a prototxt: path or bytes."""

SUFFIXES = {"onnx": ".onnx", "tflite": ".tflite", "prototxt": ".prototxt"}
"""Format of the bytes -> suffix of the file that is written."""


@contextmanager
def source_files(source: AnySource, weights: Weights) -> Iterator[tuple[Source, FilePath | None]]:
    """Provide bytes as files in a temporary folder, which is removed at the end of the block.

    A path and a message are returned unchanged.

    Raises:
        UsageError: the bytes are a converted model.
        CorruptInputError: the bytes are certainly not a source model.

    """
    if not isinstance(source, bytes) and not isinstance(weights, bytes):
        yield source, weights
        return
    with tempfile.TemporaryDirectory(prefix="tpuconvert-") as folder:
        try:
            yield (
                _write(Path(folder, f"model{_suffix(source)}"), source) if isinstance(source, bytes) else source,
                _write(Path(folder, "weights.caffemodel"), weights) if isinstance(weights, bytes) else weights,
            )
        except TpuConvertError as error:
            if error.file.startswith(folder):
                error.file = os.path.basename(error.file)
            raise


@contextmanager
def source_paths(source: AnySource, weights: Weights) -> Iterator[tuple[FilePath, FilePath | None]]:
    """Provide bytes and messages as files, for engines that read files. Otherwise as :func:`source_files`.

    Raises:
        UsageError: a message is too large to be serialized, or the source is of another type.

    """
    content: str | os.PathLike[str] | bytes
    if isinstance(source, (str, os.PathLike, bytes)):
        content = source
    else:
        source_format(source)  # raises an error if this is not a message
        content = serialize(source)
    with source_files(content, weights) as (file, caffemodel):
        assert isinstance(file, (str, os.PathLike)), "bytes and paths become paths"
        yield file, caffemodel


def _write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def _suffix(content: bytes) -> str:
    """Return the suffix of the format of the bytes. protobuf has no magic number: unknown bytes may be ONNX."""
    kind = identify(content[:HEAD_BYTES], len(content))
    if kind is None:
        return SUFFIXES["onnx"]
    if kind.id == "tpum":
        hint = "write them to a file and open it with tpuconvert.load(path)"
        raise UsageError("the source is the bytes of a converted model, expected a source model", hint=hint)
    if kind.id not in SUFFIXES:
        found = f"the source is the bytes of no model: this is {kind.description}"
        raise CorruptInputError(found, hint="known are the bytes of ONNX and TFLite files, and of a prototxt")
    return SUFFIXES[kind.id]
