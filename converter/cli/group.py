"""The command group, and the one place where errors become text and exit codes."""

from __future__ import annotations

import errno
import importlib
import os
import sys
import traceback
from typing import TYPE_CHECKING

import click

from tpuconvert.cli.answer import Answer

if TYPE_CHECKING:
    from tpuconvert.schema.errors import TpuConvertError

COMMANDS = (
    "convert",
    "check",
    "inspect",
    "run",
    "bench",
    "verify",
    "calibrate",
    "quantize",
    "evaluate",
    "reproduce",
    "ci",
    "ops",
    "op",
    "passes",
    "completion",
    "demo",
)
"""Each is a module of this package with a click command named ``command``."""

INTERRUPTED = 130

COMPLETION = "_TPUCONVERT_COMPLETE"
"""Set by a shell that asks for completions: ``eval "$(_TPUCONVERT_COMPLETE=bash_source tpuconvert)"``."""


class CommandGroup(click.Group):
    """A group whose commands are imported when they are looked at; none of them imports more than click by itself."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order in which people need them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name.

        Raises:
            click.UsageError: there is none; the message has the nearest.

        """
        if cmd_name not in COMMANDS:
            import difflib

            alike = difflib.get_close_matches(cmd_name, COMMANDS, n=1)
            suggestion = f" Did you mean '{alike[0]}'?" if alike else f" There are: {', '.join(COMMANDS)}."
            raise click.UsageError(f"No such command '{cmd_name}'.{suggestion}", ctx)
        command: click.Command = importlib.import_module(f"tpuconvert.cli.{cmd_name}").command
        return command


def _show_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        import tpuconvert

        click.echo(f"tpuconvert {tpuconvert.__version__}")
        ctx.exit()


@click.command(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version and exit.",
)
@click.option("--traceback", is_flag=True, expose_value=False, help="Show where in the program an error was raised.")
def group() -> None:
    """Convert ONNX, TFLite and Caffe networks to SOPHON TPU models, and run them bit-exactly.

    Exit codes: 0 ok, 1 internal error, 2 usage, 3 unsupported operators or attributes, 4 corrupt or hostile input,
    5 a threshold not met, 6 a resource limit, 7 a missing extra, 130 interrupted.
    """


def run(arguments: list[str]) -> int:
    """Run one command line. Every error is one text on stderr, and a document on stdout where JSON was asked for."""
    answer = Answer("--json" in arguments)
    try:
        if COMPLETION in os.environ:
            return _complete(os.environ[COMPLETION])
        # Not group.main: it has answers of its own to interrupts and to a reader that goes away.
        with group.make_context("tpuconvert", list(arguments), obj=answer) as ctx:
            group.invoke(ctx)
        sys.stdout.flush()
        return 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        return _without_a_reader()
    except Exception as error:
        if "--traceback" in arguments:
            traceback.print_exc()
        known = as_ours(error)
        click.echo(explain(known), err=True)
        if answer.is_missing:
            from tpuconvert.cli.json_output import describe_error, to_json

            try:
                click.echo(to_json(describe_error(known)), nl=False)
                sys.stdout.flush()
            except BrokenPipeError:
                _without_a_reader()
            except OSError as further:
                click.echo(explain(as_ours(further)), err=True)
        return known.exit_code


def _without_a_reader() -> int:
    """The reader of our output went away (head, less): not an error. Python would complain again when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _complete(instruction: str) -> int:
    from click.shell_completion import shell_complete

    return shell_complete(group, {}, "tpuconvert", COMPLETION, instruction)


def as_ours(error: Exception) -> TpuConvertError:
    """Any error as one of ours, with an id and an exit code."""
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
