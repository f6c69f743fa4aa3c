"""The files of a source model during a reduction: paths, or their contents."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.system.file_replacement import replacing

SUFFIXES = {"onnx": ".onnx", "tflite": ".tflite", "caffe": ".prototxt"}
"""Format of a source -> suffix of its file."""

WEIGHTS_SUFFIX = ".caffemodel"


@dataclass(frozen=True)
class SourceFiles:
    """A source model, as it is given to the process for trials.

    Args:
        format: ``onnx``, ``tflite`` or ``caffe``.
        model: path of the file, or its content.
        weights: path or content of the caffemodel; None for other formats, and for a network without weights.

    """

    format: str
    model: str | bytes
    weights: str | bytes | None = None

    @property
    def content(self) -> tuple[bytes, bytes]:
        """Contents of both files; the second is empty if there is no caffemodel."""
        model, weights = (
            Path(file).read_bytes() if isinstance(file, str) else file or b"" for file in (self.model, self.weights)
        )
        return model, weights

    @contextmanager
    def as_paths(self, *, together: bool = False) -> Iterator[tuple[str, str | None]]:
        """Provide the paths of both files; contents are written to a temporary folder.

        Args:
            together: also copy files given by their paths, unless there is only one. Both files of a Caffe network then
                have the same name in the same folder, so that a program that gets one path finds the other.

        """
        is_pair = together and self.weights is not None
        if isinstance(self.model, str) and not isinstance(self.weights, bytes) and not is_pair:
            yield self.model, self.weights
            return
        with tempfile.TemporaryDirectory(prefix="tpuconvert-") as folder:
            path = os.path.join(folder, f"model{SUFFIXES[self.format]}")
            write_files(path, SourceFiles(self.format, self.content[0], self.content[1] if self.weights else None))
            yield path, None if self.weights is None else os.fspath(weights_path(path))


def weights_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of the caffemodel that is written with a prototxt.

    Raises:
        UsageError: it is the path of the prototxt itself.

    """
    weights = Path(path).with_suffix(WEIGHTS_SUFFIX)
    if weights == Path(path):
        hint = "the caffemodel is written beside it, with the same name"
        raise UsageError(f"{os.fspath(path)}: expected the name of a prototxt to write", hint=hint)
    return weights


class FileWriter:
    """Write the smallest model so far to a path.

    Args:
        path: the file; None to write nothing.
        is_continued: True if the files that exist were written by an earlier search.

    """

    def __init__(self, path: str | os.PathLike[str] | None, *, is_continued: bool = False) -> None:
        self._path, self._has_weights = path, is_continued

    def write(self, files: SourceFiles) -> None:
        """Write the files of a model. A caffemodel of a larger model is removed if this one has none."""
        if self._path is None:
            return
        write_files(self._path, files)
        if self._has_weights and files.weights is None and files.format == "caffe":
            weights_path(self._path).unlink(missing_ok=True)
        self._has_weights = files.weights is not None


def write_files(path: str | os.PathLike[str], files: SourceFiles) -> None:
    """Write a model to a path; the caffemodel first, beside it."""
    assert isinstance(files.model, bytes), "only contents are written"
    if files.weights is not None:
        assert isinstance(files.weights, bytes), "only contents are written"
        with replacing(weights_path(path)) as file:
            file.write(files.weights)
    with replacing(path) as file:
        file.write(files.model)
