"""Identify files by their first bytes, to report files of a wrong format with a next step for the user.

The frontends check a file by these functions before parsing, and call :func:`corrupt_input` when parsing fails, so that
a wrong file gives the same message in each frontend.
"""

from __future__ import annotations

import os
from functools import cached_property
from typing import NamedTuple

from tpuconvert.schema.errors import CorruptInputError, ResourceLimitError, UsageError
from tpuconvert.schema.system.absent_file import absent_file
from tpuconvert.schema.system.bounded_files import open_regular
from tpuconvert.schema.system.file_errors import unreadable
from tpuconvert.schema.system.limits import Limits, exceeded

HEAD_BYTES = 4096
_ONNX_FIRST_BYTES = (0x08, 0x12, 0x1A, 0x22, 0x2A, 0x32, 0x3A, 0x42)  # tags of ModelProto fields 1 to 8


class FileKind(NamedTuple):
    """Identified format of a file.

    Attributes:
        id: short name of the format, for comparisons.
        description: description with an article, which follows "this is" in a message.
        hint: next step for the user.

    """

    id: str
    description: str
    hint: str


def identify(head: bytes, size: int, name: str = "") -> FileKind | None:
    """Identify the format of a file by its first bytes; None if the format is unknown.

    Args:
        head: the first bytes of the file, up to ``HEAD_BYTES``.
        size: size of the whole file in bytes.
        name: name of the file, used only if the bytes are ambiguous.

    """
    if size == 0:
        return FileKind("empty", "an empty file", "copy or download the model again")
    for test in (_identify_pointer_or_text, _identify_archive, _identify_model):
        kind = test(head, name)
        if kind is not None:
            return kind
    if not head.strip(b"\0"):
        return FileKind("zeros", "a file of zero bytes", "the download or copy did not finish: fetch the model again")
    return None


def _identify_pointer_or_text(head: bytes, name: str) -> FileKind | None:
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    lower = start[:512].lower()
    if start.startswith(b"version https://git-lfs.github.com/spec/"):
        return FileKind(
            "lfs", "a Git LFS pointer, not the model itself", "run 'git lfs pull' in its repository, then retry"
        )
    if lower.startswith((b"<!doctype html", b"<html", b"<head")) or (lower.startswith(b"<") and b"<html" in lower):
        return FileKind(
            "html", "an HTML page", "a browser or a sign-in page was saved instead: use the direct download link"
        )
    if lower.startswith(b"<?xml"):
        if b"<net" in lower:
            return FileKind("openvino", "an OpenVINO description", "convert the original ONNX, TFLite or Caffe model")
        return FileKind("xml", "an XML document", "an error page was saved instead: use the direct download link")
    if lower.startswith((b"7767517\n", b"7767517\r")):
        return FileKind("ncnn", "an ncnn description", "convert the original ONNX, TFLite or Caffe model")
    if lower.startswith(b"[net]"):
        return FileKind("darknet", "a Darknet configuration", "export the network to ONNX first")
    if start.startswith((b"{", b"[")) and _is_text(head):
        import json

        try:
            json.loads(head)
        except (ValueError, RecursionError):
            is_json = start[:1] == b"{" and b'"' in start[:64]
        else:
            is_json = True
        if is_json:
            return FileKind(
                "json", "a JSON document", "give the model file itself; a server may have answered with an error"
            )
    if _is_text(head) and _looks_like_prototxt(start):
        return FileKind("prototxt", "a Caffe prototxt", "give it as MODEL with its .caffemodel as WEIGHTS")
    if _is_text(head):
        return FileKind("text", "a text file", "give the model file itself")
    return None


_UNPACK = "unpack it and give the model file inside"
_EXPORT = "export it first: torch.onnx.export(model, inputs, 'model.onnx')"
_CONVERT = "convert it with tf2onnx or tf.lite.TFLiteConverter first"
_NOT_A_MODEL = "that is data, not a model; give the model file"
_PICTURE = FileKind("image", "a picture", "pictures belong to --calibration; give the model file")
_HDF5 = "Keras: convert it with tf2onnx first; Caffe: save the weights as a binary .caffemodel"
_TPUM = FileKind("tpum", "a converted .tpum file", "use 'tpuconvert run' or 'tpuconvert inspect' with it")

_MAGIC = (
    (0, b"\x1f\x8b", FileKind("compressed", "a gzip file", _UNPACK)),
    (0, b"BZh", FileKind("compressed", "a bzip2 file", _UNPACK)),
    (0, b"\xfd7zXZ\x00", FileKind("compressed", "an xz file", _UNPACK)),
    (0, b"7z\xbc\xaf\x27\x1c", FileKind("compressed", "a 7-Zip archive", _UNPACK)),
    (0, b"\x28\xb5\x2f\xfd", FileKind("compressed", "a Zstandard file", _UNPACK)),
    (0, b"Rar!\x1a\x07", FileKind("compressed", "a RAR archive", _UNPACK)),
    (257, b"ustar", FileKind("tar", "a tar archive", _UNPACK)),
    (4, b"TFL3", FileKind("tflite", "a TFLite model", "give it a name ending in .tflite")),
    (4, b"ORTM", FileKind("ort", "an ONNX Runtime .ort file", "give the .onnx file that it was made from")),
    (0, b"TPUM", _TPUM),
    (4, b"TPUM", _TPUM),
    (0, b"\x89HDF\r\n\x1a\n", FileKind("hdf5", "an HDF5 file (Keras, or a Caffe weight file)", _HDF5)),
    (0, b"\x93NUMPY", FileKind("npy", "a NumPy array", _NOT_A_MODEL)),
    (0, (b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8", b"BM6"), _PICTURE),
    (0, b"%PDF", FileKind("pdf", "a PDF document", "give the model file")),
)
"""Signatures of formats: offset, bytes at this offset (or a tuple of alternatives), and format."""


def _identify_archive(head: bytes, name: str) -> FileKind | None:
    lower = name.lower()
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")):
        if b"data.pkl" in head or b"/version" in head or lower.endswith((".pt", ".pth", ".ckpt")):
            return FileKind("pytorch", "a PyTorch file", _EXPORT)
        if (b"config.json" in head and b"metadata.json" in head) or lower.endswith(".keras"):
            return FileKind("keras", "a Keras archive", _CONVERT)
        if lower.endswith(".npz"):
            return FileKind("npz", "a NumPy archive", _NOT_A_MODEL)
        return FileKind("zip", "a ZIP archive", _UNPACK)
    return next((kind for offset, magic, kind in _MAGIC if head.startswith(magic, offset)), None)


def _identify_model(head: bytes, name: str) -> FileKind | None:
    if head.startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")) and (
        any(mark in head for mark in (b"ctorch", b"cnumpy", b"}q", b"collections"))
        or name.lower().endswith((".pt", ".pth", ".ckpt", ".pkl"))
    ):
        return FileKind("pytorch", "a Python pickle (PyTorch checkpoint)", _EXPORT)
    if name.lower().endswith("saved_model.pb"):
        return FileKind("savedmodel", "a TensorFlow SavedModel", _CONVERT)
    if _looks_like_frozen_graph(head):
        return FileKind("tensorflow", "a TensorFlow graph", _CONVERT)
    if _looks_like_onnx(head):
        return FileKind("onnx", "an ONNX model", "give it a name ending in .onnx")
    if _looks_like_caffemodel(head):
        return FileKind("caffemodel", "a Caffe weight file", "give its prototxt as MODEL and this file as WEIGHTS")
    return None


_SPACES = dict.fromkeys(map(ord, "\t\r\n\f"))
"""Characters of a text that ``str.isprintable`` refuses; ``str.translate`` removes them."""


def _is_text(head: bytes) -> bool:
    """Return True if the bytes are printable text (UTF-8; a character cut at the end of ``head`` is allowed)."""
    if b"\0" in head:
        return False
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3:
            return False
        text = head[: error.start].decode("utf-8")
    return bool(text) and text.translate(_SPACES).isprintable()


def _looks_like_prototxt(start: bytes) -> bool:
    lines = [line.strip() for line in start.decode("utf-8", "replace").splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    if not lines:
        return False
    first = lines[0].replace(" ", "")
    return first.startswith(
        (
            "name:",
            "layer{",
            "layers{",
            "input:",
            "input_shape{",
            "input_dim:",
            "force_backward:",
            "state{",
            "debug_info:",
        )
    )


def _looks_like_onnx(head: bytes) -> bool:
    """Return True for a ModelProto that begins with ``ir_version``, followed by another field from 1 to 8."""
    if len(head) < 4 or head[0] not in _ONNX_FIRST_BYTES:
        return False
    if head[0] == 0x08:
        return 1 <= head[1] < 64 and head[2] in _ONNX_FIRST_BYTES
    return False


def _looks_like_caffemodel(head: bytes) -> bool:
    """Return True for a NetParameter that begins with its name (1), then V1 layers (2), inputs (3) or layers (100)."""
    if len(head) < 4 or head[0] != 0x0A:
        return False
    length = head[1]
    after = head[2 + length : 5 + length]
    return length < 0x80 and (after[:1] in (b"\x12", b"\x1a") or after[:2] == b"\xa2\x06")


def _looks_like_frozen_graph(head: bytes) -> bool:
    """Return True for a GraphDef that begins with a node (field 1) whose operator is Placeholder or Const."""
    return head[:1] == b"\x0a" and (b"\x12\x0bPlaceholder" in head[:256] or b"\x12\x05Const" in head[:256])


class SourceFile(os.PathLike[str]):
    """A file whose first bytes are read and identified once.

    Args:
        path: the file.

    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)

    @staticmethod
    def of(path: str | os.PathLike[str]) -> SourceFile:
        """Return the file, which may be identified already."""
        return path if isinstance(path, SourceFile) else SourceFile(path)

    def __fspath__(self) -> str:
        return self.path

    def __str__(self) -> str:
        return self.path

    @cached_property
    def head(self) -> bytes:
        """The first ``HEAD_BYTES``.

        Raises:
            UsageError: the file does not exist, is a folder, or cannot be read.

        """
        try:
            with open_regular(self.path) as file:
                return file.read(HEAD_BYTES)
        except FileNotFoundError:
            raise absent_file(self.path) from None
        except IsADirectoryError:
            is_saved_model = os.path.exists(os.path.join(self.path, "saved_model.pb"))
            saved_model = "a SavedModel has to be converted with tf2onnx or tf.lite.TFLiteConverter first"
            hint = saved_model if is_saved_model else "name the file of the model in it"
            error = UsageError(f"{self.path}: is a folder, not a model file", hint=hint)
            raise error from None
        except OSError as error:
            raise unreadable(error, self.path) from error

    @cached_property
    def kind(self) -> FileKind | None:
        """The format; None if it is unknown."""
        return identify(self.head, self.size, os.path.basename(self.path))

    @property
    def size(self) -> int:
        """Size in bytes."""
        return os.path.getsize(self.path)

    def check_size(self, limits: Limits, limit: str = "max_file_bytes") -> None:
        """Compare the size with a limit.

        Raises:
            ResourceLimitError: the file is larger.

        """
        if self.size > getattr(limits, limit):
            raise exceeded(f"{self.size:,} bytes", limit, limits, file=self.path)

    def check(self, expected: str, limits: Limits) -> None:
        """Check the size and the first bytes of a binary model file.

        Args:
            expected: expected format: "onnx" or "caffemodel". Only files that certainly have another format are
                rejected here; the parser rejects other invalid files.
            limits: bounds on sizes.

        Raises:
            CorruptInputError: the file is empty, or has another format.
            ResourceLimitError: the file is too large.
            UsageError: the file cannot be read.

        """
        kind = self.kind
        self.check_size(limits)
        if self.size > limits.max_message_bytes:
            hint = "save the weights as external data" if expected == "onnx" else ""
            message = f"{self.size:,} bytes, more than {limits.max_message_bytes}"
            raise ResourceLimitError(message, file=self.path, hint=hint)
        binary_formats = ("onnx", "caffemodel", "tensorflow", "savedmodel")  # ambiguous: protobuf has no magic number
        if kind is not None and kind.id != expected and not (kind.id in binary_formats and expected in binary_formats):
            raise corrupt_input(self, expected, kind=kind)


_NAMES = {
    "onnx": "an ONNX model",
    "tflite": "a TFLite model",
    "caffemodel": "a Caffe weight file",
    "prototxt": "a Caffe prototxt",
}


def corrupt_input(
    path: str | os.PathLike[str],
    expected: str,
    detail: str = "",
    *,
    kind: FileKind | None = None,
) -> CorruptInputError:
    """Create the error for a file that is damaged or has another format; use it as ``raise ... from error``.

    Args:
        path: the file; it is identified again unless ``kind`` is given.
        expected: expected format: "onnx", "tflite", "caffemodel" or "prototxt".
        detail: problem that the parser found.
        kind: format of the file, if the caller has identified it.

    """
    title = _NAMES.get(expected, expected)
    kind = kind or SourceFile.of(path).kind
    if kind is not None and kind.id != expected:
        is_named_so = str(path).lower().endswith(f".{kind.id}")
        hint = "it is a model by itself: leave the other file out" if is_named_so else kind.hint
        return CorruptInputError(f"not {title}: this is {kind.description}", file=str(path), hint=hint)
    reason = f": {detail}" if detail else ""
    return CorruptInputError(
        f"not {title}, or a damaged one{reason}",
        file=str(path),
        hint="compare its size and checksum with the original; a download may have stopped early",
    )
