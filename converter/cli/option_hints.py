"""Options in the text of an error that do not belong to the command that ended with the error."""

from __future__ import annotations

import re

import click

from tpuconvert.cli.group import COMMANDS, group, load_command

_WORDS = re.compile(r"(?<![\w-])(--[a-z][a-z0-9-]*)")
_SHELL = re.compile(r"\b(?:tpuconvert|pip|dask) [^\n]*")
_PREFERRED = ("convert", "verify")


def qualify_options(text: str, arguments: list[str]) -> str:
    """Name the command of each option that the running command does not have: ``--outputs -> convert --outputs``.

    Args:
        text: text of an error. Commands for a shell in it are not changed.
        arguments: the command line.
    """
    running = next((argument for argument in arguments if argument in COMMANDS), "")
    if not running:
        return text
    shell = [command.span() for command in _SHELL.finditer(text)]

    def qualify(match: re.Match[str]) -> str:
        option = match[1]
        before = text[: match.start()].split()
        is_named = bool(before) and before[-1].strip("(`'") in COMMANDS
        if is_named or any(start <= match.start() < end for start, end in shell) or option in _long_options(group):
            return option
        if option in options_of(running):
            return option
        clause = re.split(r"[.;:,(\n]", text[: match.start()])[-1].split()
        others = (name for name in (*_PREFERRED, *COMMANDS) if option in options_of(name))
        owner = next(others, "")
        return f"{owner} {option}" if owner and owner not in clause else option  # "convert it with --golden"

    return _WORDS.sub(qualify, text)


def options_of(command: str) -> set[str]:
    """Return the long options of a command."""
    return _long_options(load_command(command))


def _long_options(command: click.Command) -> set[str]:
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    subcommands = command.commands.values() if isinstance(command, click.Group) else ()
    return options.union(*map(_long_options, subcommands))
