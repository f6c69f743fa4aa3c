"""Fuzzing targets of the readers: what is done with the bytes of a case. Needs no fuzzer, so tests can replay cases."""

from __future__ import annotations

import contextlib
import io
import warnings
from pathlib import Path

import tpuconvert as tc
from tests.support.damage.mutation_formats import FORMATS
from tests.support.damage.mutations import sign
from tpuconvert.schema.file.file_header import HEADER_SIZE

TARGETS: dict[str, tuple[str, ...]] = {
    "onnx": ("onnx bytes", "onnx fields"),
    "tflite": ("tflite bytes", "tflite fields"),
    "caffemodel": ("caffemodel bytes", "caffemodel fields"),
    "prototxt": ("prototxt bytes", "prototxt fields"),
    "tpum": ("tpum bytes", "tpum bytes, valid digest", "tpum fields, valid digest"),
    "arrays": ("npz bytes", "npz fields"),
    "manifest": ("manifest bytes", "manifest fields"),
    "preprocess": ("preprocess bytes", "preprocess fields"),
    "ranges": ("ranges bytes", "ranges fields"),
}
"""Target -> formats of the mutation campaigns whose seeds, mutations and use it takes."""


class Target:
    """One target: reads, converts and runs files of a format.

    Args:
        name: a key of ``TARGETS``.
        folder: folder for the file of the current case.

    """

    def __init__(self, name: str, folder: str | Path) -> None:
        self.name = name
        self.formats = [FORMATS[each] for each in TARGETS[name]]
        self._path = Path(folder) / f"net{self.formats[0].suffix}"

    def use(self, content: bytes) -> None:
        """Read, convert and run the content of a file. A program gets a valid digest. Documented errors are results."""
        if self.name == "tpum" and len(content) > HEADER_SIZE:
            content = sign(content)
        self._path.write_bytes(content)
        try:
            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                self.formats[0].use(self._path)
        except tc.InternalError:
            raise
        except tc.TpuConvertError:
            pass
