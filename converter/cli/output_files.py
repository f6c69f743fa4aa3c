"""Output files of the commands; each is replaced atomically."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

from tpuconvert.schema.system.file_replacement import replacing
from tpuconvert.schema.types import Array


def write_text(path: Path, text: str) -> None:
    """Write a text file."""
    with replacing(path) as file:
        file.write(text.encode("utf-8"))


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays as an .npz file. Names are kept as they are, slashes included."""
    # Start-up cost: importing NumPy takes 60 ms, and most commands write no arrays.
    from tpuconvert.samples.array_writer import write_npz

    buffer = io.BytesIO()
    write_npz(buffer, arrays)
    with replacing(path) as file:
        file.write(buffer.getvalue())
