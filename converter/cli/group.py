"""The command group: what may be typed behind the program's name."""

from __future__ import annotations

import importlib

import click

from tpuconvert.cli.answer import Answer
from tpuconvert.cli.entry import COMPLETION
from tpuconvert.cli.terminal import echo

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
    "doctor",
    "reproduce",
    "ci",
    "ops",
    "op",
    "passes",
    "completion",
    "demo",
)
"""Each is a module of this package with a click command named ``command``."""


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

        echo(f"tpuconvert {tpuconvert.__version__}")
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
    5 a threshold not met, 6 a resource limit, 7 a missing extra, 8 values that an operator cannot compute with,
    130 interrupted.
    """


def run_command(arguments: list[str], answer: Answer) -> int:
    """Run the command that the words name, and return its exit code. Errors that are no answers of click come out."""
    try:
        # Not group.main: it has answers of its own to interrupts and to a reader that goes away.
        with group.make_context("tpuconvert", list(arguments), obj=answer) as ctx:
            group.invoke(ctx)
        return 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        echo(error.format_message(), err=True)
        return error.exit_code
    except click.Abort:
        raise KeyboardInterrupt from None


def complete(instruction: str) -> int:
    """Answer a shell that asks what may be typed."""
    from click.shell_completion import shell_complete

    return shell_complete(group, {}, "tpuconvert", COMPLETION, instruction)
