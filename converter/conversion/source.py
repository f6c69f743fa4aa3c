"""Source models: a file, the bytes of one, or an ONNX message in memory, with the weights of a prototxt."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tpuconvert.frontends.sniffing import HEAD_BYTES, SourceFile, identify
from tpuconvert.schema.errors import CorruptInputError, TpuConvertError, UsageError
from tpuconvert.schema.system.content_digest import digest_of
from tpuconvert.schema.system.file_digest import file_digest
from tpuconvert.schema.system.input_files import note_input
from tpuconvert.schema.text.visible_text import shell_word

if TYPE_CHECKING:
    from onnx import ModelProto

FilePath: TypeAlias = "str | os.PathLike[str]"

AnySource: TypeAlias = "str | os.PathLike[str] | bytes | ModelProto"
"""A model to convert: the path of a file, the bytes of an ONNX, TFLite or prototxt file, or an ONNX model in memory."""

Weights: TypeAlias = "str | os.PathLike[str] | bytes | None"
"""The caffemodel that belongs to a prototxt: path or bytes."""

SUFFIXES = {"onnx": ".onnx", "tflite": ".tflite", "prototxt": ".prototxt"}
"""Format of bytes -> suffix of the file that is written."""

SOURCE_FORMATS = {"onnx": "onnx", "tflite": "tflite", "prototxt": "caffe", "caffemodel": "caffe"}
SOURCE_SUFFIXES = tuple(f".{extension}" for extension in SOURCE_FORMATS)
"""Format of a file, detected from its content -> name of the frontend that reads it."""


class Source:
    """A source model that is identified once.

    Args:
        model: the file, or an ``onnx.ModelProto``.
        weights: the caffemodel of a prototxt.

    Raises:
        UsageError: the model is neither a path nor an ``onnx.ModelProto``.

    """

    def __init__(self, model: FilePath | ModelProto, weights: FilePath | None = None) -> None:
        self.model = SourceFile.of(model) if isinstance(model, (str, os.PathLike)) else _message(model)
        self.weights = None if weights is None else SourceFile.of(weights)

    def note(self) -> None:
        """Record the files as inputs of the call."""
        for file in self.files:
            note_input(file)

    @property
    def files(self) -> list[SourceFile]:
        """The files, without a model in memory."""
        return [file for file in (self.model, self.weights) if isinstance(file, SourceFile)]

    @property
    def path(self) -> SourceFile:
        """The file of a model that is not in memory."""
        assert isinstance(self.model, SourceFile), "only ONNX models can be messages in memory"
        return self.model

    @property
    def name(self) -> str:
        """The path as text; empty for a model in memory."""
        return self.model.path if isinstance(self.model, SourceFile) else ""

    @property
    def size(self) -> int:
        """Size in bytes, without external data; 0 if there is no such file."""
        sizes = [os.path.getsize(file) if os.path.isfile(file) else 0 for file in self.files]
        return sum(sizes) if isinstance(self.model, SourceFile) else sum(sizes) + int(self.model.ByteSize())

    @cached_property
    def format(self) -> str:
        """Name of the frontend. The format of a file is detected from its content, then from its name.

        Raises:
            CorruptInputError: the file has another format, which the message names.
            UsageError: the file cannot be read.

        """
        if not isinstance(self.model, SourceFile):
            return "onnx"
        path = self.model.path
        if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
            raise UsageError(f"{path}: is a pipe or a device, not a file", hint="save the model to a file first")
        kind = self.model.kind
        if kind is not None and kind.id not in SOURCE_FORMATS:
            message = f"not a model of a known format: this is {kind.description}"
            raise CorruptInputError(message, file=path, hint=kind.hint)
        name = kind.id if kind is not None else os.path.splitext(path)[1].lower().lstrip(".")
        if name not in SOURCE_FORMATS:
            raise CorruptInputError(
                "not a model of a known format, or a damaged one",
                file=path,
                hint="known are ONNX (.onnx), TFLite (.tflite) and Caffe (.prototxt with .caffemodel)",
            )
        return SOURCE_FORMATS[name]

    def digest(self) -> str:
        """Digest of the file, or of the serialized bytes of a message, in hexadecimal digits.

        Raises:
            UsageError: the file cannot be read, or protobuf cannot serialize the message.

        """
        return file_digest(self.model) if isinstance(self.model, SourceFile) else digest_of(serialize(self.model)).hex()

    def digests(self, external: Sequence[FilePath] = ()) -> tuple[str, ...]:
        """Digests of the model, of its weights and of its external data files, if it has them."""
        others = external if self.weights is None else (self.weights, *external)
        return (self.digest(), *map(file_digest, others))


def unexpected_second_file(path: FilePath) -> UsageError:
    """Return the error for a second file beside a model that is not in Caffe format."""
    name = os.fspath(path)
    is_result = name.lower().endswith(".tpum")
    hint = f"the file to write is an option: -o {shell_word(name)}" if is_result else "leave it out"
    return UsageError(f"{name}: a second file belongs to Caffe models only", hint=hint)


def _message(model: object) -> ModelProto:
    # the import takes 15 ms and is not needed for a path
    from tpuconvert.frontends.onnx.file.messages import ModelProto

    if isinstance(model, ModelProto):
        return model
    raise UsageError(f"the source has the type {type(model).__name__}, expected a path, bytes or an onnx.ModelProto")


@contextmanager
def open_source(source: AnySource, weights: Weights = None, *, as_file: bool = False) -> Iterator[Source]:
    """Provide a source with files. Bytes are written to a temporary folder, which is removed at the end of the block.

    Args:
        source: the model.
        weights: the caffemodel of a prototxt.
        as_file: whether a message is written too, for engines that read files.

    Raises:
        UsageError: the bytes are a converted model, or a message is too large to be serialized.
        CorruptInputError: the bytes are certainly not a source model.

    """
    if as_file and not isinstance(source, (str, os.PathLike, bytes)):
        source = serialize(_message(source))
    if not isinstance(source, bytes) and not isinstance(weights, bytes):
        yield Source(source, weights)
        return
    with tempfile.TemporaryDirectory(prefix="tpuconvert-") as folder:
        try:
            yield Source(
                _write(Path(folder, f"model{_suffix(source)}"), source) if isinstance(source, bytes) else source,
                _write(Path(folder, "weights.caffemodel"), weights) if isinstance(weights, bytes) else weights,
            )
        except TpuConvertError as error:
            if error.file.startswith(folder):
                error.file = os.path.basename(error.file)
            raise


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
        message = f"the source is the bytes of no model: this is {kind.description}"
        raise CorruptInputError(message, hint="known are the bytes of ONNX and TFLite files, and of a prototxt")
    return SUFFIXES[kind.id]


def serialize(message: ModelProto) -> bytes:
    """Return the bytes of an ONNX message.

    Raises:
        UsageError: protobuf cannot serialize the message.

    """
    from google.protobuf.message import EncodeError  # the import takes 3 ms and is needed only for a message in memory

    try:
        return message.SerializeToString()
    except EncodeError as error:
        hint = "save the model with external data and convert the file"
        raise UsageError("an onnx.ModelProto of more than 2 GiB cannot be serialized", hint=hint) from error
