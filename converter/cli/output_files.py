"""Output files of the commands; each is replaced atomically."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from tpuconvert.report.full_text import full_text
from tpuconvert.report.model_description import Description
from tpuconvert.report.report_data import report_data, to_compact_json
from tpuconvert.schema.file_replacement import replacing
from tpuconvert.schema.types import Array
from tpuconvert.schema.visible_text import visible


def write_report(path: Path, description: Description) -> None:
    """Write the report of a model in the format of its suffix: .html, .json, else text."""
    write_reports(path, [description])


def write_reports(path: Path, descriptions: Sequence[Description], title: str = "", overview: str = "") -> None:
    """Write the report of several models in the format of the suffix: .html, .json, else text.

    Args:
        path: the file.
        descriptions: descriptions of the models.
        title: title of the page; by default the name of the only model.
        overview: sections of the page about all models, as HTML.

    """
    suffix = path.suffix.lower()
    if suffix in (".html", ".htm"):
        from tpuconvert.report.html_page import report_page  # the import takes 12 ms

        text = report_page(descriptions, title, overview)
    elif suffix == ".json":
        text = to_compact_json(report_data(*descriptions, title=title)) + "\n"
    else:
        text = "\n\n".join(visible(full_text(description)) for description in descriptions) + "\n"
    with replacing(path) as file:
        file.write(text.encode("utf-8"))


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays as an .npz file. Names are kept as they are, slashes included."""
    import numpy as np

    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **dict(arrays))
    with replacing(path) as file:
        file.write(buffer.getvalue())
