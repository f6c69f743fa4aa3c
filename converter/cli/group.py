"""The command group: the commands by name, and what ``tpuconvert --help`` prints."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator
from typing import Any

import click
from click.shell_completion import add_completion_class, shell_complete

from tpuconvert.cli.bash_completion import JoinedWords
from tpuconvert.cli.stdout_document import StdoutDocument
from tpuconvert.cli.terminal import echo
from tpuconvert.installed import version
from tpuconvert.schema.system.limits import ENVIRONMENT, NAMES, parse_limits
from tpuconvert.schema.text.spelling import did_you_mean

COMMAND_GROUPS = {
    "Convert": {
        "convert": "Convert a source model to a .tpum file.",
        "check": "Check whether a source model can be converted.",
        "calibrate": "Measure the range of every tensor.",
        "quantize": "Convert a source model to INT8, with ranges or samples.",
    },
    "Understand": {
        "inspect": "Show the contents of a .tpum file or a source model.",
        "verify": "Compare a .tpum file with its source.",
        "diff": "Show what differs between two models.",
        "ops": "List the supported operators, or explain one.",
        "passes": "List the optimizer's passes and rules in order.",
    },
    "Accuracy": {
        "evaluate": "Measure the accuracy of a .tpum file on samples.",
        "attribute": "Rank the INT8 nodes by their error at the outputs.",
        "tune": "Find the nodes to keep in float for a wanted accuracy.",
        "doctor": "Check samples and preprocessing, or the installation.",
    },
    "Run": {
        "run": "Run a .tpum file on inputs.",
        "generate": "Continue a sequence of tokens with a decoder.",
        "bench": "Measure the run time of a .tpum file.",
        "demo": "Convert and evaluate the bundled example.",
    },
    "Device": {
        "export": "Write a .tpum file for the vendor's compiler, or as ONNX.",
        "device": "Compare a compiled program on a device with its model.",
    },
    "Automate": {
        "ci": "Convert all models of a manifest and check their limits.",
        "reproduce": "Convert again from the recipe and compare the bytes.",
        "reduce": "Cut a failing ONNX model to a small one that still fails.",
        "completion": "Print a script for command completion in a shell.",
    },
    "Extend": {
        "op": "Test a custom operator.",
    },
}
"""Heading of ``--help`` -> commands -> one-line help.

The help lines are stored here so that ``--help`` imports no command module, which can take up to 400 ms.
"""

COMMANDS = {name: text for commands in COMMAND_GROUPS.values() for name, text in commands.items()}
"""Command name -> one-line help. Each command is a module of ``commands``, with a click command named ``command``."""

WIDTH = 100
"""Largest number of columns of a help text."""

COMPLETION = "_TPUCONVERT_COMPLETE"
"""Environment variable by which a shell requests completions: ``_TPUCONVERT_COMPLETE=bash_complete tpuconvert``."""


def load_command(name: str) -> click.Command:
    """Import the module of a command, which takes 5 to 400 ms, and return the command."""
    command: click.Command = importlib.import_module(f"tpuconvert.cli.commands.{name.replace('-', '_')}").command
    return command


class CommandGroup(click.Group):
    """A group that imports the module of a command when the command is chosen."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, the most common ones first."""
        return list(COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands."""
        widest = max(map(len, COMMANDS))
        for title, commands in COMMAND_GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), text) for name, text in commands.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[click.shell_completion.CompletionItem]:
        """Complete the name of a command, or an option of the group."""
        names = [name for name in COMMANDS if name.startswith(incomplete)]
        items = [click.shell_completion.CompletionItem(name, help=COMMANDS[name]) for name in names]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command of the command line. An error of its parser gets its context, so that the hint names it."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            name = ctx.invoked_subcommand
            if error.ctx is None and name is not None:
                error.ctx = click.Context(self.get_command(ctx, name), parent=ctx, info_name=name)
            raise

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        """Return the command of a name.

        Raises:
            click.UsageError: there is no such command; the message suggests the nearest name.

        """
        if cmd_name not in COMMANDS:
            hint = did_you_mean(cmd_name, COMMANDS) or f"there are {', '.join(COMMANDS)}"
            raise click.UsageError(f"No such command '{cmd_name}': {hint}", ctx)
        return load_command(cmd_name)


def _show_version(ctx: click.Context, _parameter: click.Parameter, is_given: bool) -> None:
    if is_given and not ctx.resilient_parsing:
        echo(f"tpuconvert {version()}")
        ctx.exit()


def _set_limits(ctx: click.Context, _parameter: click.Parameter, items: tuple[str, ...]) -> None:
    if items and not ctx.resilient_parsing:
        ctx.with_resource(_limited_with_workers(items))


@contextlib.contextmanager
def _limited_with_workers(items: tuple[str, ...]) -> Iterator[None]:
    """Set limits during a command, also for its worker processes, which inherit the environment."""
    parse_limits(items)
    before = os.environ.get(ENVIRONMENT)
    os.environ[ENVIRONMENT] = ",".join([*([before] if before else []), *items])
    try:
        yield
    finally:
        if before is None:
            del os.environ[ENVIRONMENT]
        else:
            os.environ[ENVIRONMENT] = before


def _complete_limits(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    return [f"{name}=" for name in NAMES if name.startswith(incomplete)]


@click.command(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDTH})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version and exit.",
)
@click.option("--traceback", is_flag=True, expose_value=False, help="Show where in the program an error was raised.")
@click.option(
    "--limit",
    "limits",
    metavar="NAME=NUMBER",
    multiple=True,
    expose_value=False,
    callback=_set_limits,
    shell_complete=_complete_limits,
    help="Change a limit for files that are read, e.g. image-pixels=2e8; the names are in the documentation.",
)
def group() -> None:
    """Convert ONNX, TFLite and Caffe networks to SOPHON TPU models, and run them bit-exactly.

    Exit codes: 0 ok, 1 internal error, 2 usage, 3 unsupported operators or attributes, 4 corrupt or hostile input,
    5 a threshold not met, 6 a resource limit, 7 a missing extra, 8 values that an operator cannot compute with,
    130 interrupted.
    """


def run_command(arguments: list[str], answer: StdoutDocument) -> int:
    """Run the command named by the arguments and return its exit code. Errors propagate as exceptions."""
    try:
        # group.main is not used, because it handles interrupts and closed pipes in its own way.
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
    """Print completions for a shell."""
    add_completion_class(JoinedWords)
    return shell_complete(group, {}, "tpuconvert", COMPLETION, instruction)
