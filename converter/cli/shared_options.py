"""Options that several commands share, in addition to the options of a conversion."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast

import click

from tpuconvert.cli.choice import Choice
from tpuconvert.cli.file_parameters import InputFile, OutputFile
from tpuconvert.cli.problems import ensure, ensure_page_name, ensure_report_name
from tpuconvert.cli.progress_bar import MODES
from tpuconvert.option_declaration import option
from tpuconvert.plugins import without_installed_plugins

F = TypeVar("F", bound=Callable[..., Any])
Backend = Literal["auto", "native", "reference"]


def progress_option(function: F) -> F:
    """Add --progress."""
    return click.option(
        "--progress",
        "progress_mode",
        type=Choice(MODES),
        default="auto",
        show_default=True,
        help="Progress on stderr. A bar, a line every few seconds, or none; auto is a bar on a terminal, else lines.",
    )(function)


def plugin_option(function: F) -> F:
    """Add --plugin and --no-plugins."""
    return click.option(
        "--plugin",
        "plugins",
        type=InputFile(),
        multiple=True,
        metavar="FILE.py",
        help="Python file with custom operators and converters. Can be repeated.",
    )(no_plugins_option(function))


def no_plugins_option(function: F) -> F:
    """Add --no-plugins."""
    return click.option(
        "--no-plugins",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_disable_installed_plugins,
        help="Load no plugins of installed packages. TPUCONVERT_PLUGINS=none does the same.",
    )(function)


def _disable_installed_plugins(context: click.Context, _parameter: click.Parameter, is_disabled: bool) -> None:
    if is_disabled:
        context.with_resource(without_installed_plugins())


def model_output_option(function: F) -> F:
    """Add --output, for commands that write a model."""
    return click.option(
        "-o",
        "--output",
        type=OutputFile(),
        metavar="OUT.tpum",
        help="File to write; default: the name of the source with .tpum.",
    )(function)


def verify_option(function: F) -> F:
    """Add --verify."""
    return click.option(
        "--verify", "with_verification", is_flag=True, help="Compare the model with the source before writing it."
    )(function)


def report_option(function: F) -> F:
    """Add --report and --html; the command receives the file of either as ``report``."""

    @functools.wraps(function)
    def command(*arguments: Any, report: str | None, page: str | None, **keywords: Any) -> Any:
        ensure(report is None or page is None, "--report with --html", hint="--report OUT.html writes the page as well")
        if page is not None:
            ensure_page_name(page)
        ensure_report_name(report or page)
        return function(*arguments, report=report or page, **keywords)

    add_report = click.option(
        "--report", type=OutputFile(), metavar="FILE", help="Write a report: .html, .json or text."
    )
    add_page = click.option(
        "--html", "page", type=OutputFile(), metavar="OUT.html", help="Write the report as one self-contained page."
    )
    return cast(F, add_report(add_page(command)))


def calibration_option(**arguments: Any) -> Callable[[F], F]:
    """Return the decorator that adds --calibration; ``arguments`` are passed to ``click.option``."""
    settings = {"help": "Calibration samples: a folder of images, an .npz or .npy file.", **arguments}
    return click.option("--calibration", type=InputFile(), metavar="DATA", **settings)


@dataclass(frozen=True, kw_only=True)
class LimitOptions:
    """Limits for every output."""

    max_difference: float | None = option(None, "Largest difference, as a share of the range.", metavar="SHARE")
    min_cosine: float | None = option(None, "Smallest cosine similarity of an output.", metavar="X")
    min_sqnr: float | None = option(None, "Smallest signal-to-difference ratio of an output.", metavar="DB")


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Engine that runs a model."""

    backend: Backend = option(
        "auto",
        "Engine that runs the model. native is compiled, reference is NumPy; auto is native where it was built.",
        choices=("auto", "native", "reference"),
    )
    threads: int | None = option(None, "Number of threads of the native engine.", lower=1)


@dataclass(frozen=True, kw_only=True)
class SessionOptions(EngineOptions):
    """Engine that runs a model, and the memory of its plan."""

    memory_limit: int | None = option(
        None,
        "Largest size of a plan of the native engine. It is the sum of arena, scratch memory and packed weights.",
        metavar="BYTES",
        lower=0,
    )
