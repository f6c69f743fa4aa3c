"""Measures of a model on labeled samples, also in comparison with another model on the same inputs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tpuconvert.evaluation.classes import LABELS, Labeled, load_any
from tpuconvert.evaluation.metric import Metric, Sample, Setup, find_metric
from tpuconvert.evaluation.metrics.user_function import UserFunction
from tpuconvert.evaluation.model_runs import ModelFeeds, Outputs, run_on
from tpuconvert.evaluation.result import Evaluation
from tpuconvert.model.model import Model, load
from tpuconvert.outputs.labels import Labels
from tpuconvert.plugins import load_plugins
from tpuconvert.progress import SILENT, Progress
from tpuconvert.samples.calibration_data import FeedSource, load_feeds, single_images
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.types import Array
from tpuconvert.text.text_format import several
from tpuconvert.workers.choice import open_workers
from tpuconvert.workers.workers import ThisProcess, Workers

DEFAULT_METRICS = ("top1", "top5")


def evaluate(
    model: Model | str | os.PathLike[str],
    data: Any,
    labels: Any = None,
    *,
    metrics: Sequence[str | Callable[..., Any]] | str | Callable[..., Any] = DEFAULT_METRICS,
    reference: Model | str | os.PathLike[str] | None = None,
    unlabeled: bool = False,
    decode: str | Callable[..., Any] | None = None,
    scores: str | None = None,
    preprocess: Preprocess | str | Mapping[str, Any] | None = None,
    min_score: float = Setup.min_score,
    nms_iou: float = Setup.nms_iou,
    characters: Labels | None = None,
    backend: Literal["auto", "native", "reference"] = "auto",
    threads: int | None = None,
    progress: Progress | None = None,
    workers: int | Workers = 1,
    scheduler: str | None = None,
    plugins: Iterable[str | Path] = (),
) -> Evaluation:
    """Run a model on labeled samples and measure how good its results are.

    Args:
        model: the model, or its file.
        data: samples. For ``topK``: an ``.npz`` file with an array ``labels``, a folder with a folder of images per
            class, or with ``labels`` also a folder of images, a list of image files, or arrays. For ``map``, ``miou``,
            ``text`` and ``nme``: a folder of images or a list of image files. For a function: any of these.
        labels: for ``topK``, one class index per sample: an array, a ``.npy``, ``.npz`` or text file, or a mapping
            from file name to class. For ``map``: a COCO file, a folder with a text file per image, or one mapping
            ``{"boxes": [N, 4], "classes": [N]}`` per image. For ``miou``: a folder with a PNG per image, or arrays
            [height, width]. For ``text``: a text file, one text per image, or a mapping from file name to text. For
            ``nme``: an array [images, points, 2] of pixels, or a file of it.
        metrics: ``top1``, ``top5`` or another k; ``map`` (COCO average precision); ``miou``; ``text`` (right lines,
            and ``cer``); ``nme`` (error of landmarks); or a function of the outputs by name, with all samples along
            axis 0, and the list of labels, also as ``module:function``.
        reference: another model or its file, usually the float one. It is measured on the same samples, and the
            predictions for each sample are compared with its predictions.
        unlabeled: the samples have no labels. The predictions are only compared with the predictions of ``reference``.
        decode: how the outputs become boxes, text or points: the name of a head listed in
            ``docs/guides/evaluation.md``; found from the outputs when None. For ``map`` also a function of the outputs
            by name and of the size (height, width) of the image, or its name as ``module:function``. It returns boxes
            [N, 4] (left, top, right, bottom in pixels of the image), scores [N] and class indices [N].
        scores: for ``topK`` and ``miou``, the output with the scores; the first one when None.
        preprocess: preprocessing that replaces the model's, also as text ``key=value,...`` or as a mapping.
        min_score: smallest score of a detection of a built-in decoder.
        nms_iou: overlap above which built-in decoders suppress the box with the lower score.
        characters: for ``text``, the characters in the order of the classes, or a file with one per line; None uses the
            characters that an ONNX file stores.
        backend: ``auto``, ``native`` or ``reference``.
        threads: of the native engine.
        progress: receives the stages, as an object with the methods of ``tpuconvert.progress.Progress``.
        workers: number of threads that the samples are split over. ``tune`` passes open workers.
        scheduler: address of a dask scheduler, over whose workers the samples are split.
        plugins: Python files with custom operators.

    Returns:
        The measures. ``check`` compares them with limits.

    Raises:
        UsageError: samples, labels or outputs do not fit the metric; the message names them.
        CorruptInputError: a file of samples or labels is damaged.

    Example:
        >>> model = tc.convert("digits.onnx", preprocess="color=GRAY,scale=0.0625")
        >>> evaluation = tc.evaluate(model, "labeled.npz")
        >>> evaluation.values["top1"] > 0.9
        True
        >>> evaluation.check({"top1": 0.9})

    """
    load_plugins(plugins)
    names_of_models = _file_name(model), None if reference is None else _file_name(reference)
    model = model if isinstance(model, Model) else load(model)
    if reference is not None and not isinstance(reference, Model):
        reference = load(reference)
    names = [metrics] if isinstance(metrics, str) or callable(metrics) else list(dict.fromkeys(metrics))
    if not names:
        raise UsageError("no metrics", hint="give at least one, such as top1")
    if unlabeled and (reference is None or labels is not None):
        reason = "with labels" if labels is not None else "without another model"
        raise UsageError(f"unlabeled samples {reason}", hint="they are for the comparison with a reference model only")
    progress = SILENT if progress is None else progress
    rule = Preprocess.of(preprocess) if preprocess is not None else None
    setup = Setup(model, scores, rule or model.preprocess, decode, min_score, nms_iou, characters)
    measured = [_Measured(setup, [_new_metric(name, setup) for name in names])]
    if reference is not None:
        other = replace(setup, model=reference, preprocess=rule or reference.preprocess or model.preprocess)
        measured.append(_Measured(other, [_new_metric(name, other) for name in names]))
    labeled, file = _load(measured[0].metrics, data, labels, unlabeled)
    sources = [item.feeds(labeled, file) for item in measured]
    origin = next((str(item) for item in (labels, data) if isinstance(item, str | os.PathLike)), "")
    per_feed = _samples_per_feed(labeled, len(sources[0]), measured[0].batch_size(), origin)
    samples, backends = 0, [""]
    progress.stage("evaluate", len(sources[0]))
    with open_workers(workers, scheduler) as team:
        for results in _run(team, measured, sources, backend, threads, progress):
            backends = [outputs.backend for outputs in results]
            for group in zip(*(_split(outputs, per_feed) for outputs in results), strict=True):
                _count(measured, labeled, samples, group, unlabeled)
                samples += 1
    evaluation = _result(measured, samples, backends[0], unlabeled)
    return replace(evaluation, file=names_of_models[0], reference_file=names_of_models[1])


def _file_name(model: Model | str | os.PathLike[str]) -> str:
    return model.graph.name if isinstance(model, Model) else os.fspath(model)


@dataclass(frozen=True)
class _Measured:
    """A model with its metrics."""

    setup: Setup
    metrics: list[Metric]

    def feeds(self, labeled: Labeled, file: Path | None) -> FeedSource:
        """Return the feeds. Each image is opened when its feed is requested."""
        ports, rule = self.setup.model.graph.input_ports, self.setup.preprocess
        if labeled.are_images():
            return single_images(labeled.samples, ports, rule)
        source = load_feeds(labeled.samples, ports, rule)
        source.check_complete()
        return source if file is None else source.from_file(file, [LABELS])

    def batch_size(self) -> int:
        """Return the extent of the first input's first axis, or 1 if it is symbolic."""
        extents = self.setup.model.graph.input_ports[0].shape
        return extents[0] if extents and isinstance(extents[0], int) else 1

    def outputs(self) -> list[str]:
        """Return the names of the outputs that the metrics read."""
        read = {metric.output for metric in self.metrics}
        return [port.name for port in self.setup.model.graph.output_ports if None in read or port.name in read]


def _new_metric(name: str | Callable[..., Any], setup: Setup) -> Metric:
    if isinstance(name, str):
        return find_metric(name)(setup, name)
    return UserFunction(setup, getattr(name, "__name__", type(name).__name__), name)


def _load(metrics: Sequence[Metric], data: Any, labels: Any, unlabeled: bool) -> tuple[Labeled, Path | None]:
    """Load the samples and labels, and return the file of arrays that has both.

    Raises:
        UsageError: the metrics need different labels.

    """
    owners = {type(metric): metric for metric in metrics if metric.has_own_labels}
    if len(owners) > 1:
        raise UsageError(
            f"{' and '.join(metric.name for metric in owners.values())} need different labels",
            hint="evaluate one of them at a time",
        )
    if isinstance(data, list | tuple) and data and all(isinstance(item, str | os.PathLike) for item in data):
        data = [Path(item) for item in data]
    if unlabeled:
        return Labeled(load_any(data, None).samples, None), None
    labeled = next(iter(owners.values()), metrics[0]).load(data, labels)
    is_file = labels is None and isinstance(data, str | os.PathLike) and os.path.isfile(data)
    return labeled, Path(data) if is_file and labeled.labels is not None else None


def _samples_per_feed(labeled: Labeled, feeds: int, batch: int, file: str) -> int:
    """Return the number of samples per feed; labels decide whether the first axis of the inputs counts samples.

    Raises:
        UsageError: there are too many labels, or too few.

    """
    if labeled.labels is None:
        return batch
    count = len(labeled.labels)
    if count not in (feeds, feeds * batch):
        message = f"{several(count, 'label')} for {several(feeds * batch, 'sample')}"
        raise UsageError(message, file=file, hint="give one label per sample")
    return count // feeds


def _run(
    team: Workers,
    measured: Sequence[_Measured],
    sources: Sequence[FeedSource],
    backend: Literal["auto", "native", "reference"],
    threads: int | None,
    progress: Progress,
) -> Iterator[tuple[Outputs, ...]]:
    if not isinstance(team, ThisProcess):
        sources = [source.with_contents() for source in sources]
    models = [
        ModelFeeds(item.setup.model, source, item.outputs()) for item, source in zip(measured, sources, strict=True)
    ]
    return run_on(team, models, backend=backend, threads=threads, progress=progress.advance)


def _split(outputs: Outputs, count: int) -> list[Mapping[str, Array]]:
    """Return the outputs of each sample of a feed, with a batch axis of extent 1.

    Raises:
        UsageError: an output has another number of samples.

    """
    if count == 1:
        return [outputs.arrays]
    for name, array in outputs.arrays.items():
        if array.shape[:1] != (count,):
            raise UsageError(
                f"output '{name}' {list(array.shape)} is not one row for each of the {count} samples of a batch",
                hint="convert the model with batch size 1: --input-shapes NAME=1,...",
            )
    return [{name: array[i : i + 1] for name, array in outputs.arrays.items()} for i in range(count)]


@np.errstate(all="ignore")
def _count(
    measured: Sequence[_Measured],
    labeled: Labeled,
    index: int,
    outputs: tuple[Mapping[str, Array], ...],
    unlabeled: bool,
) -> None:
    """Add one sample to all metrics, unless it has no label, and compare the predictions of both models."""
    label = None if labeled.labels is None else labeled.labels[index]
    image = labeled.samples[index] if labeled.are_images() else None
    predictions = []
    for item, arrays in zip(measured, outputs, strict=True):
        sample = Sample(arrays, image)
        predictions.append([metric.predict(sample) for metric in item.metrics])
        if not unlabeled:
            for metric, prediction in zip(item.metrics, predictions[-1], strict=True):
                metric.add(prediction, label)
    for other in predictions[1:]:
        for metric, mine, theirs in zip(measured[0].metrics, predictions[0], other, strict=True):
            metric.compare(mine, theirs)


@np.errstate(all="ignore")
def _result(measured: Sequence[_Measured], samples: int, backend: str, unlabeled: bool) -> Evaluation:
    metrics = measured[0].metrics
    outputs = [metric.output for metric in metrics if metric.output is not None]
    evaluation = Evaluation(samples, outputs[0] if outputs else None, backend, {})
    if not unlabeled:
        values = [{k: v for metric in item.metrics for k, v in metric.values().items()} for item in measured]
        evaluation = replace(
            evaluation,
            values=values[0],
            right={name: count for metric in metrics for name, count in metric.right_samples().items()},
            per_class={metric.name: shares for metric in metrics if (shares := metric.per_class())},
            reference=values[1] if len(values) > 1 else None,
        )
    if len(measured) > 1:
        compared = {name: value for metric in metrics for name, value in metric.agreement().items()}
        evaluation = replace(evaluation, agreement=compared)
    return evaluation
