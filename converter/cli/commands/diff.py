"""``tpuconvert diff``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from tpuconvert.cli.config_file import config_options
from tpuconvert.cli.conversion_options import declared_option, declared_options
from tpuconvert.cli.file_parameters import InputFile
from tpuconvert.cli.help_sections import SectionedCommand
from tpuconvert.cli.json_output import json_option, print_json
from tpuconvert.cli.option_fields import command_options
from tpuconvert.cli.output_files import write_text
from tpuconvert.cli.problems import ensure, ensure_page_name, ensure_writable
from tpuconvert.cli.progress_bar import show_progress
from tpuconvert.cli.shared_options import LimitOptions, plugin_option, progress_option
from tpuconvert.cli.terminal import echo
from tpuconvert.conversion.options.options import READING_OPTIONS
from tpuconvert.diff.change import CATEGORIES
from tpuconvert.diff.compare import SAMPLES, compare
from tpuconvert.diff.limits import ANY, GROWTH_LIMITS, OUTPUTS, parse_categories, parse_growth
from tpuconvert.diff.markdown import to_markdown
from tpuconvert.frontends.sniffing import SourceFile
from tpuconvert.option_declaration import option
from tpuconvert.plugins import load_plugins
from tpuconvert.text.text_format import several

_USAGE = "tpuconvert diff BEFORE [WEIGHTS] AFTER [WEIGHTS]"
_FAIL_ON = (*CATEGORIES, OUTPUTS, ANY)


class _Categories(click.ParamType):  # type: ignore[type-arg]  # a generic class only in later versions of click
    """Categories of differences, separated by commas."""

    name = "categories"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Return the names of the categories."""
        return parse_categories(value) if isinstance(value, str) else value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Complete the last name of the list."""
        before, comma, last = incomplete.rpartition(",")
        names = [name for name in _FAIL_ON if name.startswith(last) and name not in before.split(",")]
        return [CompletionItem(f"{before}{comma}{name}") for name in names]


class _Growth(click.ParamType):  # type: ignore[type-arg]
    """A share such as ``5%`` or ``0.05``."""

    name = "growth"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the share."""
        return parse_growth(value) if isinstance(value, str) else value


@dataclass(frozen=True, kw_only=True)
class DiffOptions:
    """Options of ``diff`` besides those for sources."""

    as_read: bool = option(False, "Compare source files as they are read, without the optimizer.")
    data: str | None = option(
        None,
        "Samples for the outputs: a folder of images, an .npz or .npy file. Default: random numbers.",
        metavar="DATA",
        is_file=True,
    )
    samples: int = option(SAMPLES, "Largest number of samples; 0 compares no outputs.", lower=0)
    everything: bool = option(False, "Print every change, not only the most severe ones.", flags="--all")
    markdown: str | None = option(None, "Also write Markdown, for a pull request.", metavar="OUT.md", is_output=True)
    page: str | None = option(
        None, "Also write one self-contained page.", flags="--html", metavar="OUT.html", is_output=True
    )


@dataclass(frozen=True, kw_only=True)
class DiffLimits(LimitOptions):
    """Differences that are errors. The limits of the growth of files and costs are options of their own."""

    fail_on: tuple[str, ...] = option(
        (),
        f"Exit code 5 if there are such changes: {', '.join(_FAIL_ON)}.",
        type=_Categories(),
        metavar="CATEGORY,...",
    )


@click.command("diff", cls=SectionedCommand)
@click.argument("files", type=InputFile(), nargs=-1, required=True, metavar="BEFORE [WEIGHTS] AFTER [WEIGHTS]")
@declared_options(*READING_OPTIONS)
@declared_option("chip", default=None, show_default=False)
@config_options
@command_options(DiffOptions, "settings")
@command_options(DiffLimits, "limits")
@progress_option
@json_option
@plugin_option
def command(
    files: tuple[str, ...],
    settings: DiffOptions,
    limits: DiffLimits,
    progress_mode: str,
    as_json: bool,
    plugins: tuple[str, ...],
    **others: Any,
) -> None:
    """Show what differs between two models: .tpum files, or sources.

    Nodes are matched by structure, so that another name is only another name, and a float model is compared with its
    INT8 form. A source is converted in float first, with the options of the other model. The outputs are compared on
    the samples. Exit code 5 if a limit is exceeded.

    \b
    tpuconvert diff old.tpum new.tpum --fail-on nodes,interface --max-size-growth 5%
    """
    markdown, page = settings.markdown, settings.page
    ensure_writable(markdown)
    ensure_page_name(page)
    keys = [limit.key for limit in GROWTH_LIMITS]
    growth = {key: others.pop(key) for key in keys if others[key] is not None}
    source_of = click.get_current_context().get_parameter_source
    options = {name: others[name] for name in others if name not in keys and source_of(name) != ParameterSource.DEFAULT}
    load_plugins(plugins)
    (first, first_weights), (second, second_weights) = _pair_files(files)
    with show_progress(progress_mode) as progress:
        weights = first_weights, second_weights
        difference = compare(
            first,
            second,
            weights,
            options,
            settings.data,
            settings.samples,
            as_read=settings.as_read,
            progress=progress,
        )
    if page is not None:
        difference.save(page)
    if markdown is not None:
        write_text(Path(markdown), to_markdown(difference))
    if as_json:
        print_json(difference)
    else:
        echo(difference.text(everything=settings.everything))
    difference.check(**vars(limits), **growth)


for _limit in reversed(GROWTH_LIMITS):
    command = click.option(
        f"--{_limit.key.replace('_', '-')}", _limit.key, type=_Growth(), metavar="SHARE", help=_limit.help
    )(command)


def _pair_files(files: tuple[str, ...]) -> list[tuple[str, str | None]]:
    """Return both models, each with its weights: a caffemodel that follows another file."""
    models: list[tuple[str, str | None]] = []
    for file in files:
        kind = SourceFile(file).kind if os.path.isfile(file) else None
        is_weights = file.lower().endswith(".caffemodel") or (kind is not None and kind.id == "caffemodel")
        if is_weights and models and models[-1][1] is None:
            models[-1] = (models[-1][0], file)
        else:
            models.append((file, None))
    ensure(len(models) == 2, f"{several(len(models), 'model')} where two are compared: {', '.join(files)}", hint=_USAGE)
    return models
