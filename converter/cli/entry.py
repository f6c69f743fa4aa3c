"""One command line from its words to its exit code, and the one place where errors become text and exit codes."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from typing import TYPE_CHECKING

from tpuconvert.cli.answer import Answer
from tpuconvert.cli.terminal import echo
from tpuconvert.schema.input_files import noting_inputs

if TYPE_CHECKING:
    from tpuconvert.schema.errors import TpuConvertError

INTERRUPTED = 130

COMPLETION = "_TPUCONVERT_COMPLETE"
"""Set by a shell that asks for completions: ``eval "$(_TPUCONVERT_COMPLETE=bash_source tpuconvert)"``."""


def run(arguments: list[str]) -> int:
    """Run one command line. Every error is one text on stderr, and a document on stdout where JSON was asked for."""
    answer = Answer("--json" in arguments)
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning  # type: ignore[assignment]  # takes any further arguments
        with noting_inputs():
            return _run(arguments, answer)


def _run(arguments: list[str], answer: Answer) -> int:
    try:
        if COMPLETION in os.environ:
            from tpuconvert.cli.group import complete

            return complete(os.environ[COMPLETION])
        from tpuconvert.cli.plain_conversion import convert_plainly, plain_files

        files = plain_files(arguments)
        if files is not None:
            convert_plainly(files)
            code = 0
        else:
            from tpuconvert.cli.group import run_command

            code = run_command(arguments, answer)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        echo("interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        return _without_a_reader()
    except Exception as error:
        if "--traceback" in arguments:
            import traceback

            echo(traceback.format_exc(), err=True)
        known = as_ours(error)
        echo(explain(known), err=True)
        if answer.is_missing:
            from tpuconvert.cli.json_output import describe_error, to_json, write_document

            try:
                write_document(to_json(describe_error(known)))
                sys.stdout.flush()
            except BrokenPipeError:
                _without_a_reader()
            except OSError as further:
                echo(explain(as_ours(further)), err=True)
        return known.exit_code


def _show_warning(message: Warning | str, *_: object) -> None:
    echo(f"warning: {message}", err=True)


def _without_a_reader() -> int:
    """The reader of our output went away (head, less): not an error. Python would complain again when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def as_ours(error: Exception) -> TpuConvertError:
    """Any error as one of ours, with an id and an exit code."""
    import click

    from tpuconvert.schema.errors import InternalError, ResourceLimitError, TpuConvertError, UsageError

    if isinstance(error, TpuConvertError):
        return error
    if isinstance(error, click.UsageError):
        called = error.ctx.command_path if error.ctx is not None else "tpuconvert"
        return UsageError(error.format_message(), hint=f"see: {called} --help")
    if isinstance(error, MemoryError):
        return ResourceLimitError("not enough memory")
    if isinstance(error, OSError):
        kind = ResourceLimitError if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else UsageError
        return kind(str(error.strerror or error), file=str(error.filename or ""))
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    return InternalError(
        f"internal error: {type(error).__name__}: {error}{where}",
        hint="this is a mistake in tpuconvert; please report it with the output of: tpuconvert --traceback ...",
    )


def explain(error: TpuConvertError) -> str:
    """What the user reads about an error: its id, its text, and the ids of the kinds of problems in it."""
    from tpuconvert.schema.errors import UnsupportedError

    text = f"error[{error.id}]: {error}"
    if isinstance(error, UnsupportedError):
        kinds = sorted({(problem.kind.id, problem.kind.heading) for problem in error.problems})
        text += "\n  about these: " + ", ".join(f"{number} ({heading})" for number, heading in kinds)
    return text
