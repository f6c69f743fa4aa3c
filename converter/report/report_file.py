"""Report of a model as a file: page, JSON or text."""

from __future__ import annotations

import os
from pathlib import Path

from tpuconvert.report.full_text import full_text
from tpuconvert.report.model_description import Description
from tpuconvert.report.text import to_json
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.file_replacement import replacing
from tpuconvert.schema.visible_text import visible

SUFFIXES = (".html", ".htm", ".json", ".txt")


def check_report_name(path: str | os.PathLike[str]) -> None:
    """Check the suffix of a report.

    Raises:
        UsageError: it is unknown.

    """
    name = os.fspath(path)
    if os.path.splitext(name)[1].lower() not in SUFFIXES:
        known = ", ".join(SUFFIXES)
        raise UsageError(f"{name}: the suffix selects the format of the report", hint=f"one of {known}")


def write_report(path: Path, description: Description) -> None:
    """Write a report in the format of its suffix: .html, .json, else text."""
    suffix = path.suffix.lower()
    if suffix in (".html", ".htm"):
        from tpuconvert.report.html_page import to_html  # the import takes 12 ms

        text = to_html(description)
    else:
        text = to_json(description) if suffix == ".json" else visible(full_text(description)) + "\n"
    with replacing(path) as file:
        file.write(text.encode("utf-8"))
