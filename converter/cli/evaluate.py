"""``tpuconvert evaluate``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from tpuconvert.cli.file_parameters import InputFile
from tpuconvert.cli.json_output import json_option, print_json
from tpuconvert.cli.problems import ensure
from tpuconvert.cli.progress_bar import show_progress
from tpuconvert.cli.shared_options import (
    engine_options,
    plugin_option,
    preprocess_option,
    progress_option,
    report_option,
    workers_options,
)
from tpuconvert.cli.terminal import echo, echo_text
from tpuconvert.doctor.doctor import Diagnosis, doctor
from tpuconvert.evaluation.evaluation import DEFAULT_METRICS, evaluate
from tpuconvert.evaluation.metric import METRIC_NAMES, Setup
from tpuconvert.evaluation.result import Evaluation, check_names, measure_names
from tpuconvert.model.model import load
from tpuconvert.outputs.decoders import decoder_names
from tpuconvert.plugins import load_plugins
from tpuconvert.report.report import report as write_model_report
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.text.plain_values import MERGED, Plain
from tpuconvert.text.styled_text import join_lines


@dataclass(frozen=True)
class EvaluationDocument(Plain, keys={"evaluation": MERGED}):
    """Measures on labelled samples.

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


@click.command("evaluate")
@click.argument("file", type=InputFile())
@click.option(
    "--data",
    type=InputFile(),
    required=True,
    metavar="SAMPLES",
    help="A folder of images, or an .npz file. Without --labels: a folder of images per class, an .npz file with an "
    "array 'labels', or for map a folder with instances.json or text files.",
)
@click.option(
    "--labels",
    type=InputFile(),
    help="topK: .npy, .npz or text. map: a COCO file, or a folder of text files. miou: a folder of label images.",
)
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    default=DEFAULT_METRICS,
    show_default=True,
    help=f"What to measure: {METRIC_NAMES}. Several: repeat it.",
)
@click.option(
    "--decode",
    metavar="HEAD",
    help=f"For map, how outputs become boxes: {', '.join(decoder_names())}, or module:function.",
)
@click.option(
    "--reference",
    type=InputFile(),
    metavar="MODEL",
    help="Also measure this .tpum model, usually the float one, and compare the predictions.",
)
@click.option("--unlabelled", is_flag=True, help="The samples have no labels: only compare with --reference.")
@click.option("--min", "least", type=_Limit(), multiple=True, metavar="NAME=X", help="Fail (exit code 5) below.")
@click.option("--max", "most", type=_Limit(), multiple=True, metavar="NAME=X", help="Fail (exit code 5) above.")
@click.option("--min-top1", type=click.FloatRange(0, 1), metavar="SHARE", help="The same as --min top1=SHARE.")
@click.option("--min-top5", type=click.FloatRange(0, 1), metavar="SHARE", help="The same as --min top5=SHARE.")
@click.option("--scores", metavar="OUTPUT", help="The output that holds the scores. Default: the first.")
@click.option(
    "--min-score",
    type=click.FloatRange(0, 1),
    default=Setup.min_score,
    show_default=True,
    help="Smallest score of a detection of a built-in decoder.",
)
@click.option(
    "--nms-iou",
    type=click.FloatRange(0, 1),
    default=Setup.nms_iou,
    show_default=True,
    help="Built-in decoders suppress boxes that overlap a better one by more.",
)
@click.option("--per-class", is_flag=True, help="Also print the measures of each class.")
@preprocess_option
@engine_options
@workers_options
@click.option("--doctor", "with_doctor", is_flag=True, help="Also look for a preprocessing that classifies better.")
@plugin_option
@progress_option
@json_option
@report_option
def command(
    file: str,
    data: str,
    labels: str | None,
    metrics: tuple[str, ...],
    decode: str | None,
    reference: str | None,
    unlabelled: bool,
    least: tuple[tuple[str, float], ...],
    most: tuple[tuple[str, float], ...],
    min_top1: float | None,
    min_top5: float | None,
    scores: str | None,
    min_score: float,
    nms_iou: float,
    per_class: bool,
    preprocess: str | None,
    backend: Any,
    threads: int | None,
    workers: int,
    scheduler: str | None,
    with_doctor: bool,
    plugins: tuple[str, ...],
    progress_mode: str,
    as_json: bool,
    report: str | None,
) -> None:
    """Run the .tpum FILE on labelled samples and measure how good its results are.

    \b
    tpuconvert evaluate net.tpum --data validation/ --min-top1 0.75 --doctor
    tpuconvert evaluate net.tpum --data images/ --labels val.txt --reference float.tpum --max flips=0.03
    tpuconvert evaluate detector.tpum --data coco/ --metric map --decode yolov8 --max map_drop=0.01
    """
    load_plugins(plugins)
    short = {name: limit for name, limit in (("top1", min_top1), ("top5", min_top5)) if limit is not None}
    asked = tuple(dict.fromkeys((*metrics, *short)))
    for option, names in (("--min", [*short, *(name for name, _ in least)]), ("--max", [name for name, _ in most])):
        ensure(len(set(names)) == len(names), f"{option}: a measure is given twice: {', '.join(names)}")
    low, high = {**dict(least), **short}, dict(most)
    check_names([*low, *high], measure_names(asked, reference is not None, unlabelled))
    rule = Preprocess.parse(preprocess) if preprocess is not None else None
    examined = None
    with show_progress(progress_mode) as progress:
        found = evaluate(
            file,
            data,
            labels,
            metrics=asked,
            reference=reference,
            unlabelled=unlabelled,
            decode=decode,
            scores=scores,
            preprocess=rule,
            min_score=min_score,
            nms_iou=nms_iou,
            backend=backend,
            threads=threads,
            progress=progress,
            workers=workers,
            scheduler=scheduler,
        )
        if with_doctor:
            examined = doctor(
                load(file),
                data,
                labels=labels if found.right else None,
                scores=scores,
                backend=backend,
                threads=threads,
                progress=progress,
                preprocess=rule,
            )
    if report is not None:
        write_model_report(file, report, evaluation=found)
    if as_json:
        print_json(EvaluationDocument(found, examined))
    else:
        echo(join_lines(found.lines(per_class=per_class)))
        if examined is not None:
            echo_text(str(examined))
    found.check(low, high)
