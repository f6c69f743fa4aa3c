"""Exceptions of converters become errors that name the node, the same ones for all source formats."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tpuconvert.frontends.cannot_convert import CannotConvertError
from tpuconvert.frontends.converter_errors import OF_NODE, translated_errors
from tpuconvert.frontends.open_extents import OpenExtentError
from tpuconvert.schema.errors import INVALID_NODE, InternalError, ResourceLimitError, ShapeError, UsageError


def translate(error: Exception, **differences: object) -> Exception:
    """Return the error that a converter's exception becomes."""
    try:
        with translated_errors("Conv", "net", "c1", **differences):  # type: ignore[arg-type]
            raise error
    except Exception as found:
        return found


@pytest.mark.parametrize(
    "error", [ValueError("too small"), OverflowError("too small"), ShapeError("too small", hint="h")]
)
def test_invalid_nodes(error: Exception) -> None:
    found = translate(error)
    assert isinstance(found, CannotConvertError)
    assert (found.kind, found.message, found.__cause__) == (INVALID_NODE, "too small", error)
    assert found.hint == ("h" if isinstance(error, ShapeError) else "")


def test_other_exceptions() -> None:
    memory = translate(MemoryError())
    assert isinstance(memory, ResourceLimitError) and "its conversion" in memory.message
    for error in (TypeError("a bug"), IndexError("a bug"), StopIteration("a bug")):
        found = translate(error)
        assert isinstance(found, InternalError) and f"Conv could not be converted: {type(error).__name__}" in str(found)
    placed = translate(UsageError("no form"))
    assert isinstance(placed, UsageError) and "net" in str(placed) and "'c1'" in str(placed)
    for error in (CannotConvertError(INVALID_NODE, "x"), OpenExtentError("N")):
        assert translate(error) is error


def test_differences_of_the_formats() -> None:
    assert isinstance(translate(IndexError("outside"), of_node=(*OF_NODE, IndexError)), CannotConvertError)
    for error in (TypeError("N"), AttributeError("N"), ValueError("N")):  # NumPy rejects extents that are not numbers
        assert isinstance(translate(error, open_extent=lambda: "N"), OpenExtentError)
    assert isinstance(translate(OverflowError("N"), open_extent=lambda: "N"), CannotConvertError)


def test_no_frontend_translates_itself(repository: Path) -> None:
    """One home: no other module of the frontends names the error for an unexpected exception."""
    users = [
        path.name
        for path in (repository / "frontends").rglob("*.py")
        if re.search(r"\bunexpected\(", path.read_text(encoding="utf-8"))
    ]
    assert users == ["converter_errors.py"]
