"""Report of a model as a file: page, JSON or text."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tpuconvert.model.description import Description
from tpuconvert.report.full_text import full_text
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.system.file_replacement import replacing
from tpuconvert.schema.text.visible_text import visible

SUFFIXES = (".html", ".htm", ".json", ".txt")


def check_report_name(path: str | os.PathLike[str]) -> None:
    """Check the suffix of a report.

    Raises:
        UsageError: it is unknown.

    """
    name = os.fspath(path)
    if os.path.splitext(name)[1].lower() not in SUFFIXES:
        suffixes = ", ".join(SUFFIXES)
        raise UsageError(f"{name}: the suffix selects the format of the report", hint=f"one of {suffixes}")


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
        # 10 ms: imports the layout of graphs
        from tpuconvert.report.report_data import report_data, to_compact_json

        text = to_compact_json(report_data(*descriptions, title=title)) + "\n"
    else:
        text = "\n\n".join(visible(full_text(description)) for description in descriptions) + "\n"
    with replacing(path) as file:
        file.write(text.encode("utf-8"))
