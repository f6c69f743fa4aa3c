"""``tpuconvert evaluate``."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import click

from tpuconvert.cli.file_parameters import InputFile
from tpuconvert.cli.help_sections import SectionedCommand
from tpuconvert.cli.json_output import json_option, print_json
from tpuconvert.cli.option_fields import command_options
from tpuconvert.cli.preprocess_option import PreprocessOption
from tpuconvert.cli.problems import ensure, ensure_model_first
from tpuconvert.cli.progress_bar import show_progress
from tpuconvert.cli.shared_options import EngineOptions, plugin_option, progress_option, report_option
from tpuconvert.cli.terminal import echo, echo_text
from tpuconvert.doctor.doctor import Diagnosis, doctor
from tpuconvert.evaluation.evaluation import DEFAULT_METRICS, evaluate
from tpuconvert.evaluation.metric import METRIC_NAMES, Setup
from tpuconvert.evaluation.result import Evaluation, check_names, measure_names
from tpuconvert.model.model import load
from tpuconvert.option_declaration import REQUIRED, option
from tpuconvert.outputs.head import detector_names
from tpuconvert.plugins import load_plugins
from tpuconvert.report.report import report as write_model_report
from tpuconvert.samples.finding import Finding
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.text.plain_values import MERGED, Plain
from tpuconvert.text.styled_text import join_lines


@dataclass(frozen=True)
class EvaluationDocument(Plain, keys={"evaluation": MERGED}):
    """Measures on labeled samples.

    Args:
        doctor: result of doctor, with --doctor.

    """

    evaluation: Evaluation
    doctor: Diagnosis | None


class _Limit(click.ParamType):  # type: ignore[type-arg]  # a generic class only in later versions of click
    """``NAME=VALUE``."""

    name = "limit"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, float]:
        name, _, number = str(value).rpartition("=")
        try:
            return name, float(number)
        except ValueError:
            self.fail(f"'{value}' is not NAME=NUMBER, such as top1=0.75", param, ctx)


LOW_ACCURACY = 0.5
"""Top-1 accuracy below which another preprocessing is tried without being asked for."""

MOST_SAMPLES = 1000
"""Largest number of samples for which this is done: it calibrates on all of them."""

CAUSES = ("better-variant", "shifted-labels")
"""Warnings of the doctor that explain a low accuracy by other samples or labels."""


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(EngineOptions, PreprocessOption):
    """Options of ``evaluate`` that are arguments of ``tpuconvert.evaluate``."""

    data: str = option(
        REQUIRED,
        "A folder of images, or an .npz file. Without --labels: a folder of images per class, an .npz file with an "
        "array 'labels', or for map a folder with instances.json or text files.",
        metavar="SAMPLES",
        is_file=True,
    )
    labels: str | None = option(
        None,
        "Labels of the samples. For topK: .npy, .npz or text. map: a COCO file, or a folder of text files. miou: a "
        "folder of label images. text: lines 'file name<tab>text'. nme: .npy of points.",
        metavar="FILE",
        is_file=True,
    )
    metrics: tuple[str, ...] = option(
        DEFAULT_METRICS, f"What to measure: {METRIC_NAMES}.", flags="--metric", is_repeated=True
    )
    decode: str | None = option(
        None,
        f"For map, how outputs become boxes: {', '.join(detector_names())}, or module:function. For text and nme: ctc, "
        "points2d, points3d. Default: found from the outputs.",
        metavar="HEAD",
    )
    reference: str | None = option(
        None,
        "Also measure this .tpum model, usually the float one, and compare the predictions.",
        metavar="MODEL",
        is_file=True,
    )
    unlabeled: bool = option(False, "The samples have no labels: only compare with --reference.")
    scores: str | None = option(None, "The output that holds the scores. Default: the first.", metavar="OUTPUT")
    min_score: float = option(
        Setup.min_score, "Smallest score of a detection of a built-in decoder.", lower=0.0, upper=1.0
    )
    nms_iou: float = option(
        Setup.nms_iou, "Built-in decoders suppress boxes that overlap a better one by more.", lower=0.0, upper=1.0
    )
    characters: str | None = option(
        None,
        "For text: the characters of the model, one per line. Default: those that an ONNX file stored.",
        metavar="FILE",
        is_file=True,
    )
    workers: int = option(
        1,
        "Number of threads that the samples are split over. Results do not depend on it.",
        metavar="N",
        lower=1,
    )
    scheduler: str | None = option(
        None,
        "Address of a dask scheduler, such as tcp://host:8786: the samples are split over its workers.",
        metavar="ADDRESS",
    )


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """Limits of an evaluation, and what else is printed."""

    lower: tuple[tuple[str, float], ...] = option(
        (), "Fail (exit code 5) below.", flags="--min", type=_Limit(), metavar="NAME=X", is_repeated=True
    )
    upper: tuple[tuple[str, float], ...] = option(
        (), "Fail (exit code 5) above.", flags="--max", type=_Limit(), metavar="NAME=X", is_repeated=True
    )
    min_top1: float | None = option(None, "The same as --min top1=SHARE.", metavar="SHARE", lower=0.0, upper=1.0)
    min_top5: float | None = option(None, "The same as --min top5=SHARE.", metavar="SHARE", lower=0.0, upper=1.0)
    per_class: bool = option(False, "Also print the measures of each class.")
    doctor: bool = option(False, "Also look for a preprocessing that classifies better.")

    def limits(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return the lower and the upper limits by measure.

        Raises:
            UsageError: a measure has two limits of a kind.

        """
        short = list(self.short.items())
        for flag, limits in (("--min", [*short, *self.lower]), ("--max", self.upper)):
            names = [name for name, _ in limits]
            ensure(len(set(names)) == len(names), f"{flag}: a measure is given twice: {', '.join(names)}")
        return dict([*self.lower, *short]), dict(self.upper)

    @property
    def short(self) -> dict[str, float]:
        """Lower limits that have their own option."""
        limits = (("top1", self.min_top1), ("top5", self.min_top5))
        return {name: limit for name, limit in limits if limit is not None}


@click.command("evaluate", cls=SectionedCommand)
@click.argument("file", type=InputFile())
@command_options(EvaluateOptions)
@command_options(CheckOptions, "checks")
@plugin_option
@progress_option
@json_option
@report_option
def command(
    file: str,
    options: EvaluateOptions,
    checks: CheckOptions,
    plugins: tuple[str, ...],
    progress_mode: str,
    as_json: bool,
    report: str | None,
) -> None:
    """Run the .tpum FILE on labeled samples and measure how good its results are.

    \b
    tpuconvert evaluate net.tpum --data validation/ --min-top1 0.75 --doctor
    tpuconvert evaluate net.tpum --data images/ --labels val.txt --reference float.tpum \\
        --max flips=0.03
    tpuconvert evaluate detector.tpum --data coco/ --metric map --decode yolov8 --max map_drop=0.01
    """
    ensure_model_first(file, (options.data, options.reference))
    load_plugins(plugins)
    asked = tuple(dict.fromkeys((*options.metrics, *checks.short)))
    low, high = checks.limits()
    check_names([*low, *high], measure_names(asked, options.reference is not None, options.unlabeled))
    arguments = {**vars(options), "metrics": asked, "preprocess": options.rule}
    examined, causes = None, list[Finding]()
    with show_progress(progress_mode) as progress:
        evaluation = evaluate(file, progress=progress, **arguments)
        shared = {name: arguments[name] for name in ("data", "scores", "backend", "threads", "preprocess")}
        shared |= {"labels": options.labels if evaluation.right else None, "progress": progress}
        if checks.doctor:
            examined = doctor(load(file), **shared)
        elif _is_suspicious(evaluation):
            with contextlib.suppress(UsageError):  # samples that the doctor does not take; --doctor reports them
                causes = [item for item in doctor(load(file), **shared).findings if item.id in CAUSES]
    if report is not None:
        write_model_report(file, report, evaluation=evaluation)
    if as_json:
        print_json(EvaluationDocument(evaluation, examined))
    else:
        echo(join_lines(evaluation.lines(per_class=checks.per_class)))
        if examined is not None:
            echo_text(str(examined))
    for cause in causes:
        echo(f"warning: {cause.seen}: {cause.advice}; more with --doctor", err=True)
    evaluation.check(low, high)


def _is_suspicious(evaluation: Evaluation) -> bool:
    """Return True for a low top-1 accuracy, which may have a cause outside of the model."""
    is_small = evaluation.samples <= MOST_SAMPLES
    return is_small and "top1" in evaluation.right and evaluation.values["top1"] < LOW_ACCURACY
