"""Checks of a command line, made before any work is done."""

from __future__ import annotations

import os
from collections.abc import Iterable

from tpuconvert.conversion.source import SOURCE_SUFFIXES
from tpuconvert.frontends.sniffing import SourceFile
from tpuconvert.report.report_file import check_report_name
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.system.input_files import refuse_input


def ensure_model_name(path: str | None) -> None:
    """Check that a model file can be written under a name: as :func:`ensure_writable`, and not with a source's suffix.

    Raises:
        UsageError: with what is wrong.

    """
    ensure_writable(path)
    if path is not None:
        stem, suffix = os.path.splitext(path)
        ensure(
            suffix.lower() not in SOURCE_SUFFIXES,
            f"{path}: what is written is not a {suffix.lower()} file",
            hint=f"name it {stem}.tpum",
        )


def ensure_report_name(path: str | None) -> None:
    """Check that a report can be written: as :func:`ensure_writable`, and with a known suffix.

    Raises:
        UsageError: with what is wrong.

    """
    ensure_writable(path)
    if path is not None:
        check_report_name(path)


def ensure_page_name(path: str | None) -> None:
    """Check that a page can be written: as :func:`ensure_writable`, and with the suffix of a page.

    Raises:
        UsageError: with what is wrong.

    """
    ensure_writable(path)
    if path is not None:
        stem, suffix = os.path.splitext(path)
        ensure(suffix.lower() in (".html", ".htm"), f"{path}: a page ends in .html", hint=f"name it {stem}.html")


def ensure_writable(path: str | None) -> None:
    """Check that a file can be written: its folder exists, and it is not one of the files that are read.

    Raises:
        UsageError: with what is wrong.

    """
    if path is None:
        return
    folder = os.path.dirname(path) or os.curdir
    is_file = os.path.isfile(folder)
    ensure(not is_file, f"{path}: {folder} is a file, expected a folder", hint="name another path")
    ensure(os.path.isdir(folder), f"{path}: there is no folder {folder}", hint="create it first")
    refuse_input(path)


def ensure_model_first(file: str, others: Iterable[str | None]) -> None:
    """Check that the arguments of a command are not swapped.

    Args:
        file: the first argument, a ``.tpum`` file.
        others: files that belong after it.

    Raises:
        UsageError: it has another format, and one of the others is a ``.tpum`` file.

    """
    if not _is_model(file):
        swapped = next((other for other in others if other is not None and _is_model(other)), None)
        ensure(swapped is None, f"{file}: the model is expected here", hint=f"give it first: {swapped}")


def _is_model(path: str) -> bool:
    kind = SourceFile(path).kind if os.path.isfile(path) else None
    return kind is not None and kind.id == "tpum"


def ensure(condition: bool, message: str, hint: str = "") -> None:
    """Refuse the command line unless ``condition`` is true.

    Raises:
        UsageError: with the message.

    """
    if not condition:
        raise UsageError(message, hint=hint)
