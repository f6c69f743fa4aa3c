"""Declaration of an option: a field of a frozen dataclass, with type, default, help text and the reader of its values.

Derived from the fields are the options of the commands (``cli/conversion_options.py``), the keys of configuration files
and manifests, the recipe in a model file, the docstrings of the groups and the table in ``docs/reference/commands.md``.
"""

from __future__ import annotations

import math
import operator
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, TypeVar

from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.option_style import name_argument
from tpuconvert.schema.text.spelling import did_you_mean

G = TypeVar("G", bound="OptionGroup")

_LARGEST_INTEGER = (1 << 63) - 1
"""Largest integer that a model file stores."""

_WITHOUT_BYTES = ("tuple", "Sequence", "Mapping", "Shapes", "Buckets", "Rules", "str", "int", "float")
"""Beginnings of declared types that no bytes belong to."""


@dataclass(frozen=True)
class Declaration:
    """Declaration of an option, besides name, type and default.

    Args:
        help: one or two sentences for users.
        read: checks a given value and returns the one that is stored.
        needs_quantize: whether an option of a quantization has no meaning for a source that is quantized already.
        in_recipe: whether the recipe stores it.
        flags: command-line flags, if they are not derived from the name.
        metavar: placeholder of the value on the command line.
        syntax: further help text about the syntax of the value on the command line.
        choices: the accepted values; the first is the default.
        lower: lower limit of a number.
        upper: upper limit of a number.
        is_repeated: whether it may be repeated on the command line.
        is_file: whether the value may name a file.
        is_output: whether the value names a file to write.
        type: parameter type of click, if it does not follow from the other arguments.
    """

    help: str
    read: Callable[[Any], Any] = lambda value: value
    needs_quantize: bool = True
    in_recipe: bool = True
    flags: str = ""
    metavar: str | None = None
    syntax: str = ""
    choices: tuple[str, ...] = ()
    lower: float | None = None
    upper: float | None = None
    is_repeated: bool = False
    is_file: bool = False
    is_output: bool = False
    type: object = None


REQUIRED: Any = MISSING
"""Default of an option that has to be given."""


def option(default: Any, help: str, **declared: Any) -> Any:
    """Return a dataclass field for an option; the arguments are the same as for :class:`Declaration`."""
    metadata = {"option": Declaration(help, **declared)}
    if isinstance(default, Mapping):
        return field(default_factory=lambda: default, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class OptionGroup:
    """Base of a group of options: a frozen dataclass of options whose values are checked when it is created.

    Raises:
        UsageError: a value is not accepted.

    """

    def __post_init__(self) -> None:
        for item in fields(self):
            object.__setattr__(self, item.name, read_value(item, getattr(self, item.name)))


def document_fields(group: type[G]) -> type[G]:
    """Add the help texts of the fields to the docstring of a group."""
    lines = [group.__doc__ or "", "", "Args:"]
    for item in fields(group):
        text = f"{item.name}: {declared(item).help}"
        lines += textwrap.wrap(text, 116, initial_indent="    ", subsequent_indent="        ", break_on_hyphens=False)
    group.__doc__ = "\n".join(lines)
    for item in fields(group):
        for flag in filter(None, declared(item).flags.split("/")):
            name_argument(flag, item.name)
    return group


def declared(item: Field[Any]) -> Declaration:
    """Return the declaration of a field."""
    declaration: Declaration = item.metadata["option"]
    return declaration


def flags_of(item: Field[Any]) -> str:
    """Return the command-line flags of a field."""
    return declared(item).flags or f"--{item.name.replace('_', '-')}"


def default_value(item: Field[Any]) -> Any:
    """Return the default of a field."""
    return item.default if item.default_factory is MISSING else item.default_factory()


def read_value(item: Field[Any], value: Any) -> Any:
    """Check a given value of an option. Return the value to store.

    Raises:
        UsageError: the value is not accepted.

    """
    name, about, declared_type = item.name, declared(item), str(item.type)
    try:
        value = _check_type(about.read(_check_form(value, declared_type)), declared_type)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:  # of another type or form
        hint = f"expected {about.metavar}" if about.metavar else "see the documentation of the options"
        raise UsageError(f"{name} is {str(value)[:80]!r} ({type(value).__name__})", hint=hint) from error
    if about.choices and value not in about.choices and value is not item.default:
        hint = did_you_mean(str(value), about.choices) or f"one of {', '.join(about.choices)}"
        raise UsageError(f"{name} is '{value}'", hint=hint)
    if isinstance(value, int | float) and not _is_within(value, about.lower, about.upper):
        limits = f"of at least {about.lower:g}" if about.upper is None else f"from {about.lower:g} to {about.upper:g}"
        raise UsageError(f"{name} is {value}, expected a number {limits}")
    return value


def _check_form(value: Any, declared: str) -> Any:
    """Return a given value unless its form excludes the declared type, such as a number instead of names.

    Raises:
        TypeError: it cannot.
    """
    numbers = () if declared.startswith(("int", "float")) else (int, float)
    if isinstance(value, (bytes, *numbers)) and declared.startswith(_WITHOUT_BYTES):
        raise TypeError(declared)
    if isinstance(value, bool) and declared != "bool":
        raise TypeError(declared)
    return value


def _check_type(value: Any, declared: str) -> Any:
    """Return a value as the declared type of an option.

    Raises:
        TypeError: it has another type.
    """
    if value is None and declared.endswith("| None"):
        return None
    plain = declared.removesuffix(" | None")
    if plain == "int" and not isinstance(value, bool):
        value = operator.index(value)
        if abs(value) > _LARGEST_INTEGER:
            raise ValueError("too large")
        return value
    if plain == "float" and not isinstance(value, bool | str | bytes):
        number = float(value)
        if not math.isfinite(number):
            raise ValueError("not finite")
        return number
    if plain in ("tuple[str, ...]", "Sequence[str]"):
        if isinstance(value, tuple) and all(isinstance(item, str) for item in value):
            return value
    elif plain not in ("int", "float", "bool", "str") or isinstance(value, {"bool": bool, "str": str}.get(plain, ())):
        return value
    raise TypeError(declared)


def _is_within(value: float, lower: float | None, upper: float | None) -> bool:
    return (lower is None or value >= lower) and (upper is None or value <= upper)
