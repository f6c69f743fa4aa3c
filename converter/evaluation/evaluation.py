"""Accuracy of a classifier on labelled samples."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tpuconvert.model import Model
from tpuconvert.progress import SILENT, Progress
from tpuconvert.samples.array_files import load_arrays
from tpuconvert.samples.calibration_data import FeedSource, load_feeds, single_images
from tpuconvert.samples.preprocess import IMAGE_SUFFIXES, Preprocess
from tpuconvert.schema.errors import ThresholdError, UsageError
from tpuconvert.schema.types import Array
from tpuconvert.text_format import against_limit, several
from tpuconvert.workers.choice import open_workers
from tpuconvert.workers.model_runs import run_on
from tpuconvert.workers.workers import ThisProcess

METRICS = {"top1": 1, "top5": 5}
"""Metric name -> number k: a sample counts if the right class is among the k highest scores."""

LABELS = "labels"


@dataclass(frozen=True)
class Accuracy:
    """Accuracy of a model.

    Args:
        samples: number of samples.
        output: name of the output with the scores.
        backend: backend that ran the model.
        right: metric name -> number of samples with the right class among the k highest scores.

    """

    samples: int
    output: str
    backend: str
    right: dict[str, int]

    def share(self, metric: str) -> float:
        """Accuracy by metric name, from 0 to 1."""
        return self.right[metric] / self.samples

    def check(self, least: dict[str, float]) -> None:
        """Compare the accuracy with lower limits from 0 to 1, given by metric name.

        Raises:
            ThresholdError: a measure is below its limit.

        """
        low = [
            f"{name} {against_limit(self.share(name), limit, is_least=True)}"
            for name, limit in least.items()
            if not self.share(name) >= limit
        ]
        if low:
            raise ThresholdError(f"{'; '.join(low)} on {several(self.samples, 'sample')}")


@dataclass(frozen=True)
class Labelled:
    """Samples (arrays by input name, or images) with their class indices."""

    samples: Any
    labels: Array


def load_labelled(path: str | os.PathLike[str], classes: int) -> Labelled:
    """Read an ``.npz`` file with an array ``labels``, or a folder with a folder of images per class.

    Each folder is a class: its name is the class index if all names are numbers, otherwise names are sorted.

    Args:
        path: the file or folder.
        classes: number of classes of the model; checked against the labels, and against folders whose names are not
            numbers.

    Raises:
        UsageError: there are no labels, or they do not match the classes or samples.
        CorruptInputError: a file does not have the format that its suffix indicates.

    """
    place = Path(path)
    if place.is_dir():
        return _from_folders(place, classes)
    if place.suffix.lower() != ".npz":
        raise UsageError(f"{place}: neither a folder per class nor an .npz file with '{LABELS}'")
    arrays = load_arrays(place)
    labels = arrays.pop(LABELS, None)
    if labels is None or not arrays:
        raise UsageError(f"holds no array '{LABELS}' beside the samples", file=str(place))
    labels = labels.reshape(-1)
    if labels.dtype.kind not in "iu" or labels.size == 0 or labels.min() < 0 or labels.max() >= classes:
        raise UsageError(f"'{LABELS}' are not whole numbers from 0 to {classes - 1}", file=str(place))
    return Labelled(next(iter(arrays.values())) if len(arrays) == 1 else arrays, labels)


def _from_folders(place: Path, classes: int) -> Labelled:
    folders = sorted(entry for entry in place.iterdir() if entry.is_dir())
    if not folders:
        raise UsageError(f"{place}: has no folder per class", hint="put the images of each class into its own folder")
    if all(folder.name.isdecimal() for folder in folders):
        numbers = [int(folder.name) for folder in folders]
    elif len(folders) == classes:
        numbers = list(range(classes))
    else:
        raise UsageError(
            f"{place}: {len(folders)} folders, the model knows {classes} classes",
            hint="name each folder with the number of its class",
        )
    if len(set(numbers)) < len(numbers) or max(numbers) >= classes:
        raise UsageError(f"{place}: the folders' names are not numbers of classes from 0 to {classes - 1}, each once")
    images, labels = [], []
    for number, folder in zip(numbers, folders, strict=True):
        found = sorted(entry for entry in folder.iterdir() if entry.suffix.lower() in IMAGE_SUFFIXES)
        images += found
        labels += [number] * len(found)
    if not images:
        raise UsageError(f"{place}: no images in its folders", hint=f"known: {', '.join(IMAGE_SUFFIXES)}")
    return Labelled(images, np.array(labels))


@np.errstate(all="ignore")
def evaluate(
    model: Model,
    data: str | os.PathLike[str],
    *,
    metrics: Sequence[str] = tuple(METRICS),
    output: str | None = None,
    preprocess: Preprocess | None = None,
    backend: Literal["auto", "native", "reference"] = "auto",
    threads: int | None = None,
    progress: Progress = SILENT,
    workers: int = 1,
    scheduler: str | None = None,
) -> Accuracy:
    """Run a classifier on labelled samples and count those it gets right.

    Args:
        model: the model.
        data: an ``.npz`` file with an array ``labels``, or a folder with a folder of images per class.
        metrics: names of the metrics, keys of METRICS.
        output: the output with the scores, one per class; the first one when None.
        preprocess: preprocessing that replaces the model's.
        backend: ``auto``, ``native`` or ``reference``.
        threads: of the native engine.
        progress: receives the stages.
        workers: number of processes that the samples are split over.
        scheduler: address of a dask scheduler, over whose workers the samples are split.

    Raises:
        UsageError: the samples do not fit, or the output holds no scores of classes.

    """
    ports = {port.name: port for port in model.graph.output_ports}
    name = next(iter(ports)) if output is None else output
    if name not in ports:
        raise UsageError(f"there is no output '{name}'", hint=f"the model has {', '.join(ports)}")
    extents = [extent for extent in ports[name].shape[1:] if isinstance(extent, int)]
    classes = math.prod(extents)
    if len(extents) < len(ports[name].shape[1:]) or classes < 2:
        raise UsageError(f"output '{name}' holds no scores of classes", hint="--scores NAME chooses another output")
    labelled = load_labelled(data, classes)
    rule = preprocess if preprocess is not None else model.preprocess
    right, total = dict.fromkeys(metrics, 0), 0
    feeds = _feeds(labelled, model, rule, Path(data))
    ran_on = ""
    progress.stage("evaluate", len(feeds))
    with open_workers(workers, scheduler) as team:
        if not isinstance(team, ThisProcess):
            feeds = feeds.with_contents()
        for found in run_on(team, model, feeds, [name], backend=backend, threads=threads, progress=progress.advance):
            ran_on, scores = found.backend, found.arrays[name]
            scores = scores.reshape(len(scores), -1).astype(np.float64)
            ranks = ranks_of(scores, labelled.labels[total : total + len(scores)])
            for metric in metrics:
                right[metric] += int((ranks < METRICS[metric]).sum())
            total += len(scores)
    if total != len(labelled.labels):
        raise UsageError(f"{len(labelled.labels)} labels for {several(total, 'sample')}", file=str(data))
    return Accuracy(total, name, ran_on, right)


def _feeds(labelled: Labelled, model: Model, rule: Preprocess | None, data: Path) -> FeedSource:
    """Return the feeds. Each image is opened when its feed is requested."""
    ports = model.graph.input_ports
    if isinstance(labelled.samples, list):
        return single_images(labelled.samples, ports, rule)
    source = load_feeds(labelled.samples, ports, rule)
    source.check_complete()
    return source.from_file(data, [LABELS])


def ranks_of(scores: Array, labels: Array) -> Array:
    """Return the number of classes ranked before the right one, [N]. Ties are ranked by class index; NaN is last."""
    own = np.take_along_axis(scores, labels[:, np.newaxis].astype(np.int64), axis=1)
    index = np.arange(scores.shape[1])
    before = ~(scores < own) & ~((scores == own) & (index >= labels[:, np.newaxis]))
    ranks: Array = before.sum(axis=1)
    return ranks
