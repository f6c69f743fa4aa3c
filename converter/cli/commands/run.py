"""``tpuconvert run``."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpuconvert.cli.drawn_results import (
    DrawingOptions,
    OutputSummary,
    Score,
    add_labels,
    interpret_images,
    result_lines,
    write_pictures,
)
from tpuconvert.cli.file_parameters import InputFile, OutputFolder
from tpuconvert.cli.help_sections import SectionedCommand
from tpuconvert.cli.json_output import json_option, print_json
from tpuconvert.cli.option_fields import command_options
from tpuconvert.cli.output_files import write_arrays
from tpuconvert.cli.preprocess_option import PreprocessOption
from tpuconvert.cli.problems import ensure, ensure_model_first, ensure_writable
from tpuconvert.cli.shared_options import SessionOptions, plugin_option
from tpuconvert.cli.tensor_dump import check_dump_folder, dump_tensors
from tpuconvert.cli.terminal import echo
from tpuconvert.conversion.options.readers import read_names
from tpuconvert.model.model import load
from tpuconvert.option_declaration import option
from tpuconvert.plugins import load_plugins
from tpuconvert.runtime.session.batches import check_joinable
from tpuconvert.runtime.session.session import Session
from tpuconvert.samples.array_files import load_arrays
from tpuconvert.samples.calibration_data import load_feeds
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.text.spelling import did_you_mean

if TYPE_CHECKING:
    from tpuconvert.outputs.interpretation import Interpretation
    from tpuconvert.schema.types import Array, QuantParams

BEST = 5
"""Number of samples that are shown, and of highest scores per sample."""


@dataclass(frozen=True)
class RunDocument:
    """Results of a run in numbers that show whether they are plausible.

    Args:
        samples: number of samples.
        results: with --draw, --decode or --labels: the results for each image, in the order of ``pictures``.
        drawn: the pictures that were written.

    """

    samples: int
    pictures: list[str]
    outputs: list[OutputSummary]
    results: list[Interpretation]
    drawn: list[Path]


@dataclass(frozen=True, kw_only=True)
class RunOptions(SessionOptions, PreprocessOption):
    """Options of ``run`` in addition to the options of drawings."""

    output: str | None = option(
        None,
        "Write all outputs; samples are concatenated along the first axis.",
        flags="-o --output",
        metavar="OUT.npz",
        is_output=True,
    )
    outputs: str | None = option(
        None,
        "Outputs or computed tensors to return. Only the nodes that they need are run. Separate names by commas.",
        metavar="NAMES",
    )
    dump: str | None = option(
        None,
        "New folder for every tensor of the run of one sample. It gets .npy files, and tensors.json with their names.",
        metavar="FOLDER",
        type=OutputFolder(),
    )


@click.command("run", cls=SectionedCommand)
@click.argument("file", type=InputFile())
@click.argument("inputs", type=InputFile(is_named=True), nargs=-1, metavar="[NAME=]INPUT...", required=True)
@command_options(RunOptions)
@command_options(DrawingOptions, "drawing")
@json_option
@plugin_option
def command(
    file: str,
    inputs: tuple[str, ...],
    options: RunOptions,
    drawing: DrawingOptions,
    as_json: bool,
    plugins: tuple[str, ...],
) -> None:
    """Run the .tpum FILE on inputs: an image, a folder of images, .npy or .npz; NAME= where there are several.

    \b
    tpuconvert run net.tpum cat.jpg
    tpuconvert run net.tpum tokens=a.npy mask=b.npy -o out.npz
    tpuconvert run net.tpum cat.jpg --outputs conv5 -o conv5.npz
    tpuconvert run net.tpum cat.jpg --dump tensors/
    tpuconvert run net.tpum photo.jpg --labels labels.txt --draw result.png
    tpuconvert run detector.tpum photos/ --decode yolov8 --draw results/
    """
    import numpy as np

    output = options.output
    ensure(
        output is None or output.lower().endswith(".npz"),
        f"{output}: outputs are written as .npz",
        hint=f"name it {os.path.splitext(output or '')[0]}.npz",
    )
    ensure(
        options.outputs is None or (drawing.draw, drawing.decode) == (None, None),
        "--outputs with --draw or --decode",
        hint="leave one out",
    )
    ensure(not (options.outputs and options.dump), "--outputs with --dump", hint="--dump writes every tensor")
    ensure_writable(output)
    check_dump_folder(options.dump)
    ensure_model_first(file, inputs)
    load_plugins(plugins)
    model = load(file)
    rule = options.rule or model.preprocess
    feeds = load_feeds(_inputs(inputs, [tensor.name for tensor in model.inputs]), model.graph.input_ports, rule)
    feeds.check_complete()
    drawing.check(feeds)
    names = drawing.class_names(model)
    if len(feeds) > 1:
        check_joinable(model.graph.input_ports, model.graph.output_ports)
    engine = {item.name: getattr(options, item.name) for item in fields(SessionOptions)}
    with Session(model, **engine) as session:
        if options.dump is not None:
            ensure(len(feeds) == 1, f"--dump with {len(feeds)} samples", hint="give one sample")
            result, count = dump_tensors(session, next(iter(feeds)), Path(options.dump))
            echo(f"wrote {count} tensors to {options.dump}", err=True)
            results = [result]  # a second run would continue the states of a model
        else:
            results = [session.run(feed, outputs=read_names(options.outputs)) for feed in feeds]
    interpretations = interpret_images(drawing, model, rule, feeds, results)
    outputs: dict[str, Array] = results[0]
    if len(results) > 1:
        outputs = {name: np.concatenate([np.atleast_1d(result[name]) for result in results]) for name in results[0]}
    if output is not None:
        write_arrays(Path(output), outputs)
    pictures = write_pictures(drawing, feeds, interpretations)
    images = feeds.images
    tensors = (model.graph.find(name) for name in outputs)
    quants = [None if tensor is None else tensor.quant for tensor in tensors]
    summaries = [_summary(name, array, quant) for (name, array), quant in zip(outputs.items(), quants, strict=True)]
    add_labels(summaries, names, images)
    if as_json:
        print_json(RunDocument(feeds.samples, images, summaries, interpretations, pictures))
        return
    echo(feeds.description)
    for summary in summaries:
        echo(
            f"{summary.name}  {summary.dtype}{list(summary.shape)}  "
            f"min {summary.min:.6g}  max {summary.max:.6g}  mean {summary.mean:.6g}"
        )
        samples = summary.shape[0] if summary.best else 0
        titles = images if len(images) == samples else [f"sample {index}" for index in range(samples)]
        for title, best in zip(titles, summary.best, strict=False):
            scores = "  ".join(f"{f'{item.index} {item.label}'.strip()}: {item.value:.4g}" for item in best)
            echo(f"    {title:<{max(map(len, titles[:BEST]))}}  {scores}")
        if samples > BEST:
            echo(f"    and {samples - BEST} more" + ("" if output else "; -o OUT.npz writes all"))
    for line in result_lines(images, interpretations, summaries):
        echo(line)
    for path in [*([output] if output is not None else []), *pictures]:
        echo(f"wrote {path}")


def _inputs(texts: tuple[str, ...], names: list[str]) -> Any:
    """Return the argument of ``load_feeds``: one path, or arrays by input name."""
    named: dict[str, str] = {}
    for text in texts:
        name, separator, path = text.partition("=")
        if separator and name in names:
            ensure(name not in named, f"input '{name}' is given twice")
            named[name] = path
        elif len(texts) == 1 and (not separator or Path(text).exists()):
            return text
        elif separator and not Path(text).exists():
            alike = did_you_mean(name, names)
            hint = f"{alike}\nits inputs: {', '.join(names)}" if alike else f"its inputs: {', '.join(names)}"
            raise UsageError(f"the model has no input '{name}'", hint=hint)
        else:
            ensure(False, f"'{text}' names no input", hint=f"NAME=FILE for each of {', '.join(names)}")
    if len(names) == 1:
        return named[names[0]]
    arrays = {}
    for name, path in named.items():
        ensure(path.lower().endswith((".npy", ".npz")), f"{path}: a model with several inputs takes .npy files")
        loaded = load_arrays(Path(path))
        ensure(len(loaded) == 1, f"{path}: has {len(loaded)} arrays, one is wanted for '{name}'")
        arrays[name] = next(iter(loaded.values()))
    return arrays


def _summary(name: str, array: Array, quant: QuantParams | None) -> OutputSummary:
    """Return statistics of an output, and the highest scores of the first samples; of integers their real values."""
    import numpy as np

    is_integer = array.dtype.kind in "iu"
    numbers = quant.dequantize(array).astype(np.float64) if is_integer and quant is not None else array
    best = []
    if array.ndim == 2 and array.shape[1] > 1 and (quant is not None or not is_integer):
        for row in numbers[:BEST].astype(np.float64):
            order = np.argsort(-row, kind="stable")[:BEST]
            best.append([Score(int(index), float(row[index])) for index in order])
    low, high, mean = (numbers.min(), numbers.max(), numbers.mean(dtype=np.float64)) if array.size else (0.0,) * 3
    return OutputSummary(name, array.dtype.name, array.shape, float(low), float(high), float(mean), best)
