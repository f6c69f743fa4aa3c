"""What convert and quantize share: make a model, compare it where asked, write it, and say what came of it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tpuconvert.cli.problems import ensure, ensure_model_name, ensure_report_name

if TYPE_CHECKING:
    from tpuconvert.options import Options
    from tpuconvert.pass_instrumentation import Watch
    from tpuconvert.progress import Progress


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
    def target(self) -> str:
        """The model file."""
        return self.output if self.output is not None else f"{_stem(os.path.basename(self.model))}.tpum"

    def check(self) -> None:
        """Complain about names that cannot be written.

        Raises:
            UsageError: with what is wrong.

        """
        ensure(
            self.output is not None or not self.model.lower().endswith(".tpum"),
            f"{self.model}: is named like a converted model, expected a source",
            hint="use 'tpuconvert run' or 'tpuconvert inspect' with it; a source of this name needs -o OUT.tpum",
        )
        ensure_model_name(self.target)
        ensure_report_name(self.report)
        same = self.report is not None and os.path.normpath(self.report) == os.path.normpath(self.target)
        ensure(not same, f"{self.report}: named for the model and for the report")


def make(
    files: Files,
    settings: Options,
    progress: Progress,
    *,
    watch: Watch | None = None,
    with_verification: bool,
    said_again: Sequence[str] = (),
) -> dict[str, Any]:
    """Convert, compare, write model and report; returns the summary.

    Args:
        files: those that were named.
        settings: the options of the conversion.
        progress: receives the stages.
        watch: how the optimizer is watched.
        with_verification: whether the model is compared with its source.
        said_again: words that a later comparison with the source needs as well.

    """
    from tpuconvert.pipeline import convert_source
    from tpuconvert.report.conversion_summary import summarize

    measured = None
    if files.ranges is not None:
        from tpuconvert.quantize.ranges_file import read_ranges

        measured = read_ranges(files.ranges)
    converted = convert_source(
        files.model, files.weights, settings, files.calibration, ranges=measured, progress=progress, watch=watch
    )
    verification = None
    if with_verification:
        from tpuconvert.verify.source_comparison import verify_source  # with everything that a comparison needs
        from tpuconvert.verify.verification import Thresholds

        verification = verify_source(
            converted, files.model, files.weights, settings, files.calibration, progress=progress
        )
        verification.check(Thresholds.default(converted, verification.exactness))
    progress.stage("write")
    converted.save(files.target)
    if files.report is not None:
        from pathlib import Path

        from tpuconvert.cli.output_files import write_report
        from tpuconvert.report.model_description import describe_model

        write_report(Path(files.report), describe_model(converted, verification))
    return summarize(
        converted, files.target, verification, next_step(files, said_again, is_verified=verification is not None)
    )


def tell(summary: dict[str, Any], *, as_json: bool) -> None:
    """Print what came of a conversion."""
    if as_json:
        from tpuconvert.cli.json_output import print_json

        print_json(summary)
    else:
        from tpuconvert.cli.terminal import echo_text
        from tpuconvert.report.conversion_summary import summary_lines

        echo_text("\n".join(summary_lines(summary)))


def next_step(files: Files, said_again: Sequence[str], *, is_verified: bool) -> str:
    """The command that comes next: the comparison with the source, or a page to look at."""
    if is_verified:
        return shlex.join(["tpuconvert", "inspect", files.target, "--html", f"{_stem(files.target)}.html"])
    words = ["tpuconvert", "verify", files.model, *([files.weights] if files.weights else []), files.target]
    if files.calibration is not None or files.ranges is not None:
        words += ["--data", files.calibration or "SAMPLES"]
    return shlex.join([*words, *said_again])


def _stem(name: str) -> str:
    """A file's name without its suffix."""
    return os.path.splitext(name)[0]
