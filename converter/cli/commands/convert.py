"""``tpuconvert convert``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from tpuconvert.cli.conversion_options import conversion_options, source_option_args
from tpuconvert.cli.convert_files import Files, convert_files, print_summary
from tpuconvert.cli.file_parameters import OutputFile
from tpuconvert.cli.help_sections import SectionedCommand
from tpuconvert.cli.json_output import json_option
from tpuconvert.cli.option_fields import command_options
from tpuconvert.cli.problems import ensure, ensure_writable
from tpuconvert.cli.progress_bar import show_progress
from tpuconvert.cli.shared_options import (
    calibration_option,
    model_output_option,
    progress_option,
    report_option,
    verify_option,
)
from tpuconvert.cli.terminal import echo_error
from tpuconvert.conversion.options.options import OPTIONS, Options
from tpuconvert.conversion.pass_instrumentation import Sink, Watch
from tpuconvert.option_declaration import option
from tpuconvert.plugins import load_plugins
from tpuconvert.schema.definition.chip_names import device_of


@dataclass(frozen=True, kw_only=True)
class PassOptions:
    """Instrumentation of the optimizer's passes."""

    trace: bool = option(False, "Print which rewrite rules fired, and why others declined. On stderr.")
    dumps: tuple[str, ...] = option(
        (),
        "Print or write the graph after a rule or pass. It is printed on stderr, or written as .tpum or text.",
        flags="--dump-after",
        metavar="NAME[=FILE]",
        type=OutputFile(is_named=True),
        is_repeated=True,
    )
    validate: bool = option(False, "Run the graph around every pass; report the rule that changes results.")
    validate_on: str | None = option(
        None,
        "As --validate, also on these samples. A folder of images, an .npz or .npy file.",
        metavar="DATA",
        is_file=True,
    )

    def watch(self, calibration: str | None) -> Watch | None:
        """Create the instrumentation. Calibration samples validate if there are no others.

        Raises:
            UsageError: a dump names no rule or pass, is given twice, or its file cannot be written.

        """
        validates = self.validate or self.validate_on is not None
        if not (self.trace or self.dumps or validates):
            return None
        sinks: dict[str, Sink] = {}
        for text in self.dumps:
            name, _, file = text.partition("=")
            ensure(name not in sinks, f"--dump-after {name} is given twice")
            ensure_writable(file or None)
            sinks[name] = Path(file) if file else echo_error
        return Watch(echo_error if self.trace else None, sinks, validates, self.validate_on or calibration)


@click.command("convert", cls=SectionedCommand)
@conversion_options(*OPTIONS)
@model_output_option
@calibration_option()
@command_options(PassOptions, "passes")
@verify_option
@report_option
@progress_option
@json_option
def command(
    model: str,
    weights: str | None,
    output: str | None,
    calibration: str | None,
    plugins: tuple[str, ...],
    passes: PassOptions,
    with_verification: bool,
    report: str | None,
    progress_mode: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Convert MODEL (ONNX, TFLite, or a Caffe prototxt with its WEIGHTS) to a .tpum file.

    \b
    tpuconvert convert net.onnx -o net.tpum --chip bm1686
    tpuconvert convert net.tflite -o net.tpum --quantize int8 --calibration images/ \\
        --preprocess mean=127.5,scale=0.0078125,layout=NHWC
    tpuconvert convert deploy.prototxt net.caffemodel -o net.tpum
    """
    files = Files(model, weights, calibration, output, report)
    files.check()
    load_plugins(plugins)
    checked = Options.of(**options)
    watch = passes.watch(calibration)
    with show_progress(progress_mode) as progress:
        summary = convert_files(
            files,
            checked,
            progress,
            watch=watch,
            with_verification=with_verification,
            source_args=source_option_args,
            device=device_of(options["chip"]),
        )
    print_summary(summary, as_json=as_json)
