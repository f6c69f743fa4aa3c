"""Command-line options of a conversion, derived from the fields of the groups in ``conversion/options/``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from tpuconvert.cli.config_file import config_options
from tpuconvert.cli.file_parameters import InputFile
from tpuconvert.cli.option_fields import click_option
from tpuconvert.cli.shared_options import plugin_option
from tpuconvert.cli.terminal import echo
from tpuconvert.cli.value_completion import COMPLETERS
from tpuconvert.conversion.options.options import OPTIONS, READING_OPTIONS
from tpuconvert.schema.definition.chip_names import alias_of, parse_chip

F = TypeVar("F", bound=Callable[..., Any])

NEEDED_AGAIN = {
    "verify": (*(name for name in READING_OPTIONS if name != "preprocess"), "plugins"),
    "attribute": ("allow_root", "plugins"),
    "quantize": (*READING_OPTIONS, "chip", "plugins"),
    "convert": (*READING_OPTIONS, "plugins"),
}
"""Options that a later command must repeat with the values given to ``convert`` or ``calibrate``.

Preprocessing is stored in the model; ``attribute`` reads all options except paths from its recipe."""


def conversion_options(*names: str, needs_model: bool = True) -> Callable[[F], F]:
    """Add MODEL and WEIGHTS, the options of ``Options`` with these names, --plugin, --config and --set."""

    def decorate(function: F) -> F:
        function = config_options(plugin_option(declared_options(*names)(function)))
        weights = click.argument("weights", type=InputFile(), required=False)
        return click.argument("model", type=InputFile(), required=needs_model)(weights(function))

    return decorate


def declared_options(*names: str) -> Callable[[F], F]:
    """Add the options of ``Options`` with these names."""

    def decorate(function: F) -> F:
        for name in reversed(names):
            function = declared_option(name)(function)
        return function

    return decorate


def declared_option(name: str, **changes: Any) -> Callable[[F], F]:
    """Add the option of ``Options`` with this name; ``changes`` are arguments of ``click.option``."""
    if name in COMPLETERS:
        changes["shell_complete"] = COMPLETERS[name]
    if name == "chip":
        changes["callback"] = report_chip_alias
    return click_option(OPTIONS[name], **changes)


def report_chip_alias(_context: click.Context, _parameter: click.Parameter, chip: str | None) -> str | None:
    """Print the chip that an alias such as ``bm1684x`` selects."""
    if chip is not None and alias_of(chip):
        echo(f"{alias_of(chip)} executes the operators of {parse_chip(chip).value}", err=True)
    return chip


def source_option_args(command: str) -> list[str]:
    """Return the command-line arguments that a command needs to read the source as the running command does."""
    context = click.get_current_context()
    args: list[str] = []
    for option in context.command.params:
        if not isinstance(option, click.Option) or option.name not in NEEDED_AGAIN[command]:
            continue
        value = context.params[option.name]
        if value in (None, ()) or value == option.default:
            continue
        if option.is_bool_flag:
            args.append((option.opts if value else option.secondary_opts)[0])
        else:
            for each in value if option.multiple else (value,):
                text = str(each)  # a value that begins with a dash would be taken for an option
                args += [f"{option.opts[0]}={text}"] if text.startswith("-") else [option.opts[0], text]
    return args
