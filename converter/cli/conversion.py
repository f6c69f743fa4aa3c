"""What convert and quantize share: make a model, compare it where asked, write it, and say what came of it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpuconvert.cli.problems import ensure, ensure_model_name, ensure_report_name
from tpuconvert.schema.light_dataclass import dataclass

if TYPE_CHECKING:
    from tpuconvert.pipeline import Options
    from tpuconvert.progress import Progress
    from tpuconvert.watching import Watch


@dataclass(frozen=True)
class Files:
    """The files of a conversion, by what was typed.

    Args:
        model: the source.
        weights: of a Caffe model.
        calibration: samples.
        output: the model file to write; None for the source's name.
        report: a report to write as well.
        ranges: what calibrate has written.

    """

    model: str
    weights: str | None
    calibration: str | None
    output: str | None
    report: str | None
    ranges: str | None = None

    @property
    def target(self) -> Path:
        """The model file."""
        return Path(self.output) if self.output is not None else Path(f"{Path(self.model).stem}.tpum")

    def check(self) -> None:
        """Complain about names that cannot be written.

        Raises:
            UsageError: with what is wrong.

        """
        read = (self.model, self.weights, self.calibration, self.ranges)
        ensure_model_name(str(self.target), *read)
        ensure_report_name(self.report, *read)
        same = self.report is not None and Path(self.report) == self.target
        ensure(not same, f"{self.report}: named for the model and for the report")


def make(
    files: Files,
    settings: Options,
    progress: Progress,
    *,
    watch: Watch | None = None,
    with_verification: bool,
) -> dict[str, Any]:
    """Convert, compare, write model and report; returns the summary."""
    from tpuconvert.cli.output_files import write_report
    from tpuconvert.conversion_summary import summarize
    from tpuconvert.pipeline import convert_source, verify_source
    from tpuconvert.report import describe_model

    measured = None
    if files.ranges is not None:
        from tpuconvert.ranges_file import read_ranges

        measured = read_ranges(files.ranges)
    converted = convert_source(
        files.model, files.weights, settings, files.calibration, ranges=measured, progress=progress, watch=watch
    )
    verification = None
    if with_verification:
        from tpuconvert.verification import Thresholds  # with everything that a comparison needs

        verification = verify_source(
            converted, files.model, files.weights, settings, files.calibration, progress=progress
        )
        verification.check(Thresholds.default(converted))
    progress.stage("write")
    converted.save(files.target)
    if files.report is not None:
        write_report(Path(files.report), describe_model(converted, verification))
    return summarize(converted, files.target, verification, next_step(files, is_verified=verification is not None))


def tell(summary: dict[str, Any], *, as_json: bool) -> None:
    """Print what came of a conversion."""
    from tpuconvert.cli.json_output import print_json
    from tpuconvert.cli.terminal import echo_text
    from tpuconvert.conversion_summary import summary_lines

    if as_json:
        print_json(summary)
    else:
        echo_text("\n".join(summary_lines(summary)))


def next_step(files: Files, *, is_verified: bool) -> str:
    """The command that comes next: the comparison with the source, or a page to look at."""
    if is_verified:
        page = str(files.target.with_suffix(".html"))
        return shlex.join(["tpuconvert", "inspect", str(files.target), "--html", page])
    words = ["tpuconvert", "verify", files.model, *([files.weights] if files.weights else []), str(files.target)]
    if files.calibration is not None or files.ranges is not None:
        words += ["--data", files.calibration or "SAMPLES"]
    return shlex.join([*words, *_said_again()])


def _said_again() -> list[str]:
    """The options of this call about how the source is read: verify needs the same."""
    context = click.get_current_context()
    given: list[tuple[click.Option, Any]] = [
        (parameter, context.params.get(parameter.name))
        for parameter in context.command.params
        if isinstance(parameter, click.Option) and parameter.name is not None and parameter.name not in NOT_SAID_AGAIN
    ]
    given = [(option, value) for option, value in given if value not in (None, ()) and value != option.default]
    if not given:
        return []
    from tpuconvert.cli.verify import command as verify

    shared = {parameter.name for parameter in verify.params if isinstance(parameter, click.Option)}
    words: list[str] = []
    for parameter, value in given:
        if parameter.name not in shared:
            continue
        if parameter.is_bool_flag:
            words.append((parameter.opts if value else parameter.secondary_opts)[0])
        else:
            for each in value if parameter.multiple else (value,):
                words += [parameter.opts[0], str(each)]
    return words


NOT_SAID_AGAIN = ("preprocess", "output", "report", "as_json", "progress_mode")
"""What the model file is or holds itself, and what is about this call only."""
