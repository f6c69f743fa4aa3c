"""The work of ``convert`` and ``quantize``: convert, compare on request, write the files, and print a summary."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tpuconvert.cli.json_output import print_json
from tpuconvert.cli.problems import ensure, ensure_model_name
from tpuconvert.cli.terminal import echo_text
from tpuconvert.conversion.conversion import Conversion
from tpuconvert.conversion.options.options import Options
from tpuconvert.conversion.source import Source
from tpuconvert.model.accuracy_notes import KEY as ACCURACY
from tpuconvert.model.model import Model
from tpuconvert.progress import Progress
from tpuconvert.report.conversion_summary import ConversionSummary, summarize, summary_lines
from tpuconvert.report.report import report
from tpuconvert.samples.random_samples import unknown_extents
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.text.visible_text import shell_word
from tpuconvert.text.styled_text import join_lines

if TYPE_CHECKING:
    from tpuconvert.conversion.pass_instrumentation import Watch
    from tpuconvert.verify.verification import Verification


class Files(NamedTuple):
    """The files of a conversion, as given on the command line.

    Args:
        model: the source.
        weights: the weights of a Caffe model.
        calibration: calibration samples.
        output: the model file to write; None derives it from the name of the source.
        report: a report to write; None for no report.
        ranges: a ranges file written by ``tpuconvert calibrate``.

    """

    model: str
    weights: str | None
    calibration: str | None
    output: str | None
    report: str | None
    ranges: str | None = None

    @property
    def target(self) -> str:
        """Path of the model file to write."""
        return self.output if self.output is not None else f"{_stem(os.path.basename(self.model))}.tpum"

    def check(self) -> None:
        """Check the names of the files to write.

        Raises:
            UsageError: a file cannot be written under its name.

        """
        call = f"tpuconvert inspect {shell_word(self.model)}"
        ensure(
            self.output is not None or not self.model.lower().endswith(".tpum"),
            f"{self.model}: is named like a converted model, expected a source",
            hint=f"see what is in it: {call}; a source of this name needs -o",
        )
        ensure_model_name(self.target)
        same = self.report is not None and os.path.normpath(self.report) == os.path.normpath(self.target)
        ensure(not same, f"{self.report}: named for the model and for the report")


def convert_files(
    files: Files,
    options: Options,
    progress: Progress,
    *,
    watch: Watch | None = None,
    with_verification: bool,
    source_args: Callable[[str], list[str]],
    device: str = "",
) -> ConversionSummary:
    """Convert, compare with the source on request, and write model and report. Return the summary.

    Args:
        files: files to read and to write.
        options: options of the conversion.
        progress: receives the stages.
        watch: instrumentation of the optimizer's passes.
        with_verification: whether the model is compared with its source.
        source_args: returns the arguments with which the named command reads the source in the same way.
        device: chip of the vendor's compiler that the model is for, of whose export the model gets a note.

    """
    measured = None
    if files.ranges is not None:
        # 185 ms: imports the quantizer
        from tpuconvert.conversion.quantization.ranges_file import read_ranges

        measured = read_ranges(files.ranges)
    source = Source(files.model, files.weights)
    model = Conversion(
        options, files.calibration, ranges=measured, progress=progress, watch=watch, device=device
    ).of_source(source)
    verification = _verify(model, source, files, options, progress) if with_verification else None
    progress.stage("write")
    model.save(files.target)
    if files.report is not None:
        report(model, files.report, verification=verification)
    remedy = _remedy(files, options, source_args)
    is_inaccurate = any(note.kind == ACCURACY for note in model.notes)
    next_command = _next_command(model, files, source_args, is_verified=verification is not None)
    return summarize(model, files.target, verification, remedy if is_inaccurate else next_command, remedy)


def _verify(model: Model, source: Source, files: Files, options: Options, progress: Progress) -> Verification:
    if files.calibration is None:
        for name, extents in unknown_extents(model.graph.input_ports).items():
            text = f"--verify needs samples, and input '{name}' has no fixed shape ({', '.join(extents)})"
            raise UsageError(text, file=files.model, hint=f"fix it: --input-shapes {name}=..., or leave --verify out")
    # 330 ms: imports the quantizer, the engine and the oracles
    from tpuconvert.verify.source_comparison import verify_source

    verification = verify_source(model, source, options, files.calibration, oracle="auto", progress=progress)
    verification.check()
    return verification


def print_summary(summary: ConversionSummary, *, as_json: bool) -> None:
    """Print the summary of a conversion."""
    if as_json:
        print_json(summary)
    else:
        echo_text(join_lines(summary_lines(summary)))


def _next_command(model: Model, files: Files, source_args: Callable[[str], list[str]], *, is_verified: bool) -> str:
    """Return the suggested next command.

    It is ``verify``, which after a verification writes a report with the result. If a report was written, it is the
    measurement that the model still lacks: the error of each node of an INT8 model, or the run time. Without samples, a
    model is only inspected if random numbers cannot be its samples.
    """
    is_reported = is_verified and files.report is not None
    is_calibrated = files.calibration is not None or files.ranges is not None
    if is_reported and not is_calibrated:
        return command_text("bench", [], [files.target])
    report = ["--html", f"{_stem(files.target)}.html"]
    if files.calibration is None and (is_calibrated or unknown_extents(model.graph.input_ports)):
        return command_text("inspect", report, [files.target])
    command = "attribute" if is_reported else "verify"
    words = [] if files.calibration is None else ["--data", files.calibration]
    words += report if is_verified and not is_reported else []
    sources = [files.model, *([files.weights] if files.weights else [])]
    return command_text(command, [*words, *source_args(command)], [*sources, files.target])


def command_text(command: str, options: Sequence[str], files: Sequence[str]) -> str:
    """Return a command for a shell. A double dash precedes files if one of them begins with a dash."""
    has_dash = any(file.startswith("-") for file in files)
    return shlex.join(["tpuconvert", command, *([*options, "--", *files] if has_dash else [*files, *options])])


def _remedy(files: Files, options: Options, source_args: Callable[[str], list[str]]) -> str:
    """Return the next command for a model with an inaccurate output.

    It finds the nodes that cause the error. Packed weights have no integer nodes: they are replaced by wider ones.
    """
    sources = [files.model, *([files.weights] if files.weights else [])]
    data = [] if files.calibration is None else [files.calibration]
    if options.quantize is not None:
        words = [word for name in data for word in ("--data", name)]
        return command_text("attribute", [*words, *source_args("attribute")], [*sources, files.target])
    words = ["-o", files.target, "--chip", options.chip.value.lower()]
    if options.weight_type == "int4":
        words += ["--weight-type", "int8", *(word for name in data for word in ("--calibration", name))]
    return command_text("convert", [*words, *source_args("convert")], sources)


def _stem(name: str) -> str:
    """Return a file name without its suffix."""
    return os.path.splitext(name)[0]
