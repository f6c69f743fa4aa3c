"""Options that several commands share, in addition to the options of a conversion."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import click

from tpuconvert.cli.choice import Choice
from tpuconvert.cli.file_parameters import InputFile, OutputFile
from tpuconvert.cli.problems import ensure, ensure_report_name
from tpuconvert.cli.progress_bar import MODES
from tpuconvert.plugins import without_installed_plugins

F = TypeVar("F", bound=Callable[..., Any])


def progress_option(function: F) -> F:
    """Add --progress."""
    return click.option(
        "--progress",
        "progress_mode",
        type=Choice(MODES),
        default="auto",
        show_default=True,
        help="Progress on stderr: a bar, a line every few seconds, or none; auto: a bar on a terminal, else lines.",
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
        help="Load no plugins of installed packages; TPUCONVERT_PLUGINS=none does the same.",
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
        help="File to write. Default: the name of the source with the suffix .tpum.",
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
            ensure(page.lower().endswith((".html", ".htm")), f"{page}: the page's name ends in .html")
        ensure_report_name(report or page)
        return function(*arguments, report=report or page, **keywords)

    add_report = click.option(
        "--report", type=OutputFile(), metavar="FILE", help="Write a report: .html, .json (docs/report.md) or text."
    )
    add_page = click.option(
        "--html", "page", type=OutputFile(), metavar="OUT.html", help="Write the report as one self-contained page."
    )
    return cast(F, add_report(add_page(command)))


def calibration_option(**arguments: Any) -> Callable[[F], F]:
    """Return the decorator that adds --calibration; ``arguments`` are passed to ``click.option``."""
    settings = {"help": "Calibration samples: a folder of images, an .npz or .npy file.", **arguments}
    return click.option("--calibration", type=InputFile(), metavar="DATA", **settings)


def limit_options(function: F) -> F:
    """Add the limits for every output: --max-difference, --min-cosine and --min-sqnr."""
    options = (
        ("--max-difference", "SHARE", "Largest difference, as a share of the range."),
        ("--min-cosine", "X", "Smallest cosine similarity of an output."),
        ("--min-sqnr", "DB", "Smallest signal-to-difference ratio of an output."),
    )
    for name, metavar, about in reversed(options):
        function = click.option(name, type=float, metavar=metavar, help=about)(function)
    return function


def engine_options(function: F) -> F:
    """Add --backend and --threads."""
    backend = click.option(
        "--backend",
        type=Choice(["auto", "native", "reference"]),
        default="auto",
        show_default=True,
        help="native: the compiled engine; reference: NumPy; auto: native where it was built.",
    )
    threads = click.option("--threads", type=click.IntRange(min=1), help="Number of threads of the native engine.")
    return backend(threads(function))


def memory_limit_option(function: F) -> F:
    """Add --memory-limit, for commands that run a model."""
    return click.option(
        "--memory-limit",
        type=click.IntRange(min=0),
        metavar="BYTES",
        help="Largest size of a plan of the native engine: arena, scratch memory and packed weights.",
    )(function)


def preprocess_option(function: F) -> F:
    """Add --preprocess, for commands that run a model."""
    return click.option(
        "--preprocess",
        type=InputFile(),
        metavar="KEY=VALUE,...",
        help="Preprocessing to use instead of the preprocessing of the model; see convert.",
    )(function)


def scheduler_option(**arguments: Any) -> Callable[[F], F]:
    """Return the decorator that adds --scheduler; ``arguments`` are passed to ``click.option``."""
    return click.option("--scheduler", metavar="ADDRESS", **arguments)


def workers_options(function: F) -> F:
    """Add --workers and --scheduler, for commands that run a model on samples."""
    workers = click.option(
        "--workers",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        metavar="N",
        help="Number of threads that the samples are split over. Results do not depend on it.",
    )
    address = scheduler_option(
        help="Address of a dask scheduler, such as tcp://host:8786: the samples are split over its workers."
    )
    return workers(address(function))
