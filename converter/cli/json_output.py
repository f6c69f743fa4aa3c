"""JSON on stdout: one document per call, either the result or the error."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import click

from tpuconvert.cli.stdout_document import StdoutDocument
from tpuconvert.cli.terminal import echo
from tpuconvert.schema.errors import UnsupportedError
from tpuconvert.schema.text.plain_values import Keyword, to_plain
from tpuconvert.schema.text.visible_text import for_json

if TYPE_CHECKING:
    from tpuconvert.schema.errors import TpuConvertError
    from tpuconvert.text.result import Result

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
"""The option --json of every command that prints a result. The JSON Schema files are in docs/reference/schemas."""


def print_json(content: Any) -> None:
    """Print the one document of a command: a result, or plain values."""
    answer = click.get_current_context().find_object(StdoutDocument)
    assert answer is not None, "commands are run by tpuconvert.cli.entry.run"
    answer.is_given = True
    write_document(to_json(content))


def print_result(result: Result, *, as_json: bool, wraps: bool = False) -> None:
    """Print a result as JSON or as text; on a terminal, ``wraps`` breaks long lines of the text at word boundaries."""
    if as_json:
        print_json(result)
    else:
        echo(str(result), wraps=wraps)


def write_document(text: str) -> None:
    """Write a document to stdout unchanged; :func:`to_json` has escaped control characters."""
    click.echo(text, nl=False)


def to_json(content: Any) -> str:
    """Convert a result or plain values to JSON text, deterministically. NaN and infinity become null."""
    return for_json(json.dumps(to_plain(content), indent=2, ensure_ascii=False, allow_nan=False)) + "\n"


@dataclass
class ProblemDescription:
    """A node that prevents a conversion.

    Args:
        operator: the operator, as the format of the source names it.
    """

    id: Annotated[str, Keyword("pattern", r"^TC31\d\d$")]
    kind: str
    operator: str
    node: str
    message: str
    hint: str


@dataclass
class ErrorDescription:
    """An error.

    Args:
        id: an entry of docs/reference/errors.md.
        hint: the next step.
        problems: what prevents a conversion, one entry per node.
    """

    id: Annotated[str, Keyword("pattern", r"^TC[1-7][01]\d\d$")]
    exit_code: Annotated[int, Keyword("minimum", 1), Keyword("maximum", 8)]
    message: str
    file: str
    node: str
    hint: str
    problems: list[ProblemDescription]


@dataclass(frozen=True)
class ErrorDocument:
    """Document that any command prints with --json when it fails without a result."""

    error: ErrorDescription


def describe_error(error: TpuConvertError) -> ErrorDescription:
    """Return the description of an error."""
    problems = [
        ProblemDescription(item.kind.id, item.kind.heading, item.op, item.node, item.message, item.hint)
        for item in (error.problems if isinstance(error, UnsupportedError) else ())
    ]
    return ErrorDescription(error.id, error.exit_code, error.message, error.file, error.node, error.hint, problems)
