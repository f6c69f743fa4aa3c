"""Checks of a command line, made before any work is done."""

from __future__ import annotations

import os

from tpuconvert.conversion.source import SOURCE_SUFFIXES
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


def ensure_writable(path: str | None) -> None:
    """Check that a file can be written: its folder exists, and it is not one of the files that are read.

    Raises:
        UsageError: with what is wrong.

    """
    if path is None:
        return
    folder = os.path.dirname(path) or os.curdir
    ensure(os.path.isdir(folder), f"{path}: there is no folder {folder}", hint="create it first")
    refuse_input(path)


def ensure(condition: bool, message: str, hint: str = "") -> None:
    """Refuse the command line unless ``condition`` is true.

    Raises:
        UsageError: with the message.

    """
    if not condition:
        raise UsageError(message, hint=hint)
