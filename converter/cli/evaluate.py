"""``tpuconvert evaluate``."""

from __future__ import annotations

from typing import Any

import click

from tpuconvert.cli.file_parameters import InputFile
from tpuconvert.cli.json_output import json_option, print_json
from tpuconvert.cli.progress_bar import show_progress
from tpuconvert.cli.shared_options import (
    engine_options,
    plugin_option,
    preprocess_option,
    progress_option,
    workers_options,
)
from tpuconvert.cli.terminal import echo, echo_text
from tpuconvert.diagnosis.doctor import diagnose
from tpuconvert.evaluation import evaluate
from tpuconvert.model import load
from tpuconvert.options import Options
from tpuconvert.plugins import load_plugins
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.text_format import several


@click.command("evaluate")
@click.argument("file", type=InputFile())
@click.option(
    "--data",
    type=InputFile(),
    required=True,
    metavar="LABELLED",
    help="An .npz file with an array 'labels', or a folder with a folder of images per class.",
)
@click.option(
    "--metric",
    "metrics",
    type=click.Choice(["top1", "top5"]),
    multiple=True,
    default=("top1", "top5"),
    show_default=True,
    help="What to count. Several: repeat it.",
)
@click.option("--min-top1", type=click.FloatRange(0, 1), metavar="SHARE", help="Fail (exit code 5) below, as 0.95.")
@click.option("--min-top5", type=click.FloatRange(0, 1), metavar="SHARE", help="Fail (exit code 5) below.")
@click.option("--scores", metavar="OUTPUT", help="The output that holds the scores. Default: the first.")
@preprocess_option
@engine_options
@workers_options
@click.option("--doctor", "with_doctor", is_flag=True, help="Also look for a preprocessing that classifies better.")
@plugin_option
@progress_option
@json_option
def command(
    file: str,
    data: str,
    metrics: tuple[str, ...],
    min_top1: float | None,
    min_top5: float | None,
    scores: str | None,
    preprocess: str | None,
    backend: Any,
    threads: int | None,
    workers: int,
    scheduler: str | None,
    with_doctor: bool,
    plugins: tuple[str, ...],
    progress_mode: str,
    as_json: bool,
) -> None:
    """Run the .tpum FILE on labelled samples and count those it gets right.

    Each folder is a class: its name is the class index if all names are numbers, otherwise names are sorted.

    \b
    tpuconvert evaluate net.tpum --data validation/ --min-top1 0.75 --doctor
    """
    load_plugins(plugins)
    least = {name: limit for name, limit in (("top1", min_top1), ("top5", min_top5)) if limit is not None}
    asked = tuple(dict.fromkeys((*metrics, *least)))
    rule = Preprocess.parse(preprocess) if preprocess is not None else None
    model = load(file)
    examined = None
    with show_progress(progress_mode) as progress:
        found = evaluate(
            model,
            data,
            metrics=asked,
            output=scores,
            preprocess=rule,
            backend=backend,
            threads=threads,
            progress=progress,
            workers=workers,
            scheduler=scheduler,
        )
        if with_doctor:
            examined = diagnose(model, None, Options(preprocess=rule), data, None, scores, backend, threads, progress)
    if as_json:
        print_json(
            {
                "file": file,
                "output": found.output,
                "backend": found.backend,
                "samples": found.samples,
                "accuracy": {name: found.share(name) for name in asked},
                "right": found.right,
                "doctor": None if examined is None else examined.to_mapping(),
            }
        )
    else:
        echo(f"{file} on {several(found.samples, 'sample')}, scores '{found.output}', {found.backend} backend")
        for name in asked:
            echo(f"  {name}  {found.share(name):.2%}  ({found.right[name]} right)")
        if examined is not None:
            echo_text("\n".join(examined.lines()))
    found.check(least)
