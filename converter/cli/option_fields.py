"""Command-line options that are declared as fields of a dataclass (``option_declaration.py``)."""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from tpuconvert.cli.choice import Choice
from tpuconvert.cli.file_parameters import InputFile, OutputFile
from tpuconvert.option_declaration import declared, default_value, flags_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

F = TypeVar("F", bound=Callable[..., Any])

_TYPES: dict[str, click.ParamType[Any]] = {"int": click.INT, "float": click.FLOAT}


class _Range(click.FloatRange):
    """A number within limits. NaN is within no limits, though it is neither below nor above them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


def command_options(group: type[DataclassInstance], name: str = "options") -> Callable[[F], F]:
    """Add an option for each field of a dataclass. The command receives an object of it under the name."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def command(*arguments: Any, **keywords: Any) -> Any:
            values = {item.name: keywords.pop(item.name) for item in fields(group)}
            return function(*arguments, **{name: group(**values)}, **keywords)

        own_first = sorted(fields(group), key=lambda item: item.name not in group.__annotations__)
        for item in reversed(own_first):
            command = click_option(item)(command)
        return cast(F, command)

    return decorate


def click_option(item: Field[Any], **changes: Any) -> Callable[[F], F]:
    """Return the decorator that adds the option of a field; ``changes`` are arguments of ``click.option``."""
    about = declared(item)
    arguments: dict[str, Any] = {"help": f"{about.help} {about.syntax}".replace("``", "").strip()}
    if item.default is MISSING and item.default_factory is MISSING:
        arguments["required"] = True
        default = None
    else:
        default = default_value(item)
    if isinstance(default, enum.Enum):
        default = default.value.lower()
    if default is None and "none" in about.choices:
        default = "none"
    if isinstance(default, bool):
        arguments |= {"is_flag": True, "default": default, "show_default": "/" in about.flags}
    else:
        arguments |= {
            "metavar": about.metavar or _placeholder(item),
            "multiple": about.is_repeated,
            "type": _type_of(item),
        }
        if about.is_repeated:
            arguments["help"] += " Can be repeated."
        if default not in (None, (), {}):
            arguments |= {"default": default, "show_default": True}
    return click.option(*flags_of(item).split(" "), item.name, **(arguments | changes))


def _placeholder(item: Field[Any]) -> str | None:
    """Return the placeholder of a number, or None for other values, of which click has names."""
    return None if declared(item).choices else {"int": "N", "float": "X"}.get(str(item.type).removesuffix(" | None"))


def _type_of(item: Field[Any]) -> click.ParamType[Any] | None:
    about = declared(item)
    if about.type is not None:
        return cast("click.ParamType[Any]", about.type)
    if about.choices:
        return Choice(about.choices)
    if about.is_file:
        return InputFile(is_named=about.is_repeated)
    if about.is_output:
        return OutputFile()
    if isinstance(about.lower, float):
        return _Range(_displayed(about.lower), _displayed(about.upper))
    if about.lower is not None:
        return click.IntRange(min=int(about.lower))
    return _TYPES.get(str(item.type).removesuffix(" | None"))


def _displayed(limit: float | None) -> float | None:
    """Return a limit as help shows it: 0 instead of 0.0."""
    return None if limit is None else int(limit) if float(limit).is_integer() else limit
