"""JSON on stdout: one document per call, either the result or the error."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import click

from tpuconvert.cli.stdout_document import StdoutDocument
from tpuconvert.cli.terminal import echo
from tpuconvert.schema.errors import UnsupportedError
from tpuconvert.schema.text.visible_text import for_json

if TYPE_CHECKING:
    from tpuconvert.schema.errors import TpuConvertError
    from tpuconvert.text.result import Result

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
"""The option --json of every command that prints a result. The JSON Schema files are in docs/schemas."""


def print_json(content: Any) -> None:
    """Print the one document of a command."""
    print_document(to_json(content))


def print_result(found: Result, *, as_json: bool, wraps: bool = False) -> None:
    """Print a result as JSON or as text; on a terminal, ``wraps`` breaks long lines of the text at word boundaries."""
    if as_json:
        print_json(found.to_dict())
    else:
        echo(str(found), wraps=wraps)


def print_document(text: str) -> None:
    """Print the one document of a command, given as JSON text."""
    answer = click.get_current_context().find_object(StdoutDocument)
    assert answer is not None, "commands are run by tpuconvert.cli.entry.run"
    answer.is_given = True
    write_document(text)


def write_document(text: str) -> None:
    """Write a document to stdout unchanged; :func:`to_json` has escaped control characters."""
    click.echo(text, nl=False)


def to_json(content: Any) -> str:
    """Convert plain values to JSON text, deterministically. NaN and infinity become null."""
    return for_json(json.dumps(_finite(content), indent=2, ensure_ascii=False, allow_nan=False)) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def describe_error(error: TpuConvertError) -> dict[str, Any]:
    """Return the document of an error, as docs/schemas/error.schema.json describes."""
    described: dict[str, Any] = {
        "id": error.id,
        "exit_code": error.exit_code,
        "message": error.message,
        "file": error.file,
        "node": error.node,
        "hint": error.hint,
        "problems": [],
    }
    if isinstance(error, UnsupportedError):
        described["problems"] = [
            {
                "id": problem.kind.id,
                "kind": problem.kind.heading,
                "operator": problem.op,
                "node": problem.node,
                "message": problem.message,
                "hint": problem.hint,
            }
            for problem in error.problems
        ]
    return {"error": described}
