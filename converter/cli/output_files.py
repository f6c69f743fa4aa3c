"""Output files of the commands; each is replaced atomically."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

from tpuconvert.report.full_text import full_text
from tpuconvert.report.model_description import Description
from tpuconvert.report.text import to_json
from tpuconvert.schema.file_replacement import replacing
from tpuconvert.schema.types import Array
from tpuconvert.schema.visible_text import visible


def write_report(path: Path, description: Description) -> None:
    """Write a report in the format of its suffix: .html, .json, else text."""
    suffix = path.suffix.lower()
    if suffix in (".html", ".htm"):
        from tpuconvert.report.html_page import to_html  # the import takes 12 ms

        text = to_html(description)
    else:
        text = to_json(description) if suffix == ".json" else visible(full_text(description)) + "\n"
    write_text(path, text)


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
