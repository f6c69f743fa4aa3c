"""Run one command line. Only this module converts errors to text and exit codes."""

from __future__ import annotations

import os
import sys
import traceback
import warnings

import click

from tpuconvert.cli.group import COMMANDS, COMPLETION, complete, run_command
from tpuconvert.cli.json_output import (
    ErrorDescription,
    ErrorDocument,
    ProblemDescription,
    describe_error,
    to_json,
    write_document,
)
from tpuconvert.cli.option_hints import options_of, qualify_options
from tpuconvert.cli.stdout_document import StdoutDocument
from tpuconvert.cli.terminal import echo, style_error
from tpuconvert.known_errors import explain, known_error
from tpuconvert.schema.errors import TpuConvertError, UsageError
from tpuconvert.schema.option_style import command_line_style
from tpuconvert.schema.system.input_files import noting_inputs

INTERRUPTED = 130


def run(arguments: list[str]) -> int:
    """Run one command line. Print every error on stderr, and as a document on stdout if the command prints JSON."""
    answer = StdoutDocument("--json" in arguments)
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning  # type: ignore[assignment]  # takes any further arguments
        with command_line_style(), noting_inputs():
            return _run(arguments, answer)


def _run(arguments: list[str], answer: StdoutDocument) -> int:
    try:
        code = complete(os.environ[COMPLETION]) if COMPLETION in os.environ else run_command(arguments, answer)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        echo("interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        return _close_stdout()
    except Exception as error:
        if "--traceback" in arguments:
            echo(traceback.format_exc(), err=True)
        reported = _command_error(error, arguments)
        text = explain(reported)
        is_about_arguments = isinstance(error, click.UsageError)  # its options are those that the user typed
        echo(style_error(text if is_about_arguments else qualify_options(text, arguments)), err=True)
        if answer.is_missing:
            _write_error(reported, arguments)
        return reported.exit_code


def _write_error(error: TpuConvertError, arguments: list[str]) -> None:
    """Write an error to stdout instead of the document of the command."""
    described = describe_error(error)
    items: list[ErrorDescription | ProblemDescription] = [described, *described.problems]
    for item in items:
        item.hint = qualify_options(item.hint, arguments)
    try:
        write_document(to_json(ErrorDocument(described)))
        sys.stdout.flush()
    except BrokenPipeError:
        _close_stdout()
    except OSError as further:
        echo(explain(known_error(further)), err=True)


def _show_warning(message: Warning | str, *_: object) -> None:
    echo(f"warning: {message}", err=True)


def _close_stdout() -> int:
    """Redirect stdout to the null device: otherwise Python reports a closed pipe (head, less) at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _command_error(error: Exception, arguments: list[str]) -> TpuConvertError:
    """Convert an exception of a command to a :class:`TpuConvertError`."""
    if not isinstance(error, click.UsageError):
        return known_error(error)
    called = error.ctx.command_path if error.ctx is not None else "tpuconvert"
    return UsageError(error.format_message(), hint=f"{_option_hint(error, arguments)}see: {called} --help")


def _option_hint(error: click.UsageError, arguments: list[str]) -> str:
    """Return a clause about an option that the command does not have, or nothing."""
    if not isinstance(error, click.NoSuchOption):
        return ""
    word = next((argument for argument in arguments if argument.startswith(error.option_name)), "")
    if word and os.path.lexists(word):
        return f"a file of this name is ./{word}; "
    owners = [name for name in COMMANDS if error.option_name in options_of(name)]
    return f"an option of {', '.join(owners)}; " if owners else ""
