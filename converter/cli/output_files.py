"""Output files of the commands; each is replaced atomically."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

from tpuconvert.schema.file_replacement import replacing
from tpuconvert.schema.types import Array


def write_text(path: Path, text: str) -> None:
    """Write a text file."""
    with replacing(path) as file:
        file.write(text.encode("utf-8"))


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays as an .npz file. Names are kept as they are, slashes included."""
    import numpy as np

    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **dict(arrays))
    with replacing(path) as file:
        file.write(buffer.getvalue())
