"""The doctor: everything that can be measured about samples and their preprocessing, in one report."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tpuconvert.conversion.conversion import Conversion
from tpuconvert.conversion.input_expectations import Expected, check_activations, expectations
from tpuconvert.conversion.options.options import Options, takes_groups
from tpuconvert.conversion.options.readers import read_method
from tpuconvert.conversion.options.source import SourceOptions
from tpuconvert.conversion.source import AnySource, Source, Weights, open_source, unexpected_second_file
from tpuconvert.conversion.source_loading import is_quantized_source, load_source, with_preprocessing_of
from tpuconvert.doctor.calibration import Sufficiency, lone_findings, measure
from tpuconvert.doctor.trial import Predict, Trial, VariantResult, compare_variants
from tpuconvert.doctor.variants import TrialSamples, short
from tpuconvert.evaluation.classes import LABELS, Labeled, in_order, load_labeled, read_labels
from tpuconvert.model.model import Model, load
from tpuconvert.plugins import load_plugins
from tpuconvert.progress import SILENT, Progress
from tpuconvert.runtime.session.session import Session
from tpuconvert.samples.array_files import load_arrays
from tpuconvert.samples.calibration_data import FeedSource, image_feeds, load_feeds
from tpuconvert.samples.finding import Finding
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.samples.sample_statistics import SampleStatistics
from tpuconvert.schema.errors import ThresholdError, UsageError
from tpuconvert.schema.graph.graph import Graph, Port
from tpuconvert.schema.types import Array, Chip
from tpuconvert.text.result import Result
from tpuconvert.text.styled_text import concat, style
from tpuconvert.text.text_format import several

SHOWN = 5
"""Number of variants in the text report."""

MOST_COMPARED = 500
"""Largest number of samples on which variants are tried. They are kept in memory, and more do not help to decide."""

Backend = Literal["auto", "native", "reference"]


@dataclass(frozen=True, repr=False)
class Diagnosis(Result, hidden=("trial",), added=("variants", "calibration"), keys={"findings": "warnings"}):
    """The report of the doctor.

    Args:
        file: the model.
        samples: number of samples.
        preprocess: the given preprocessing in the syntax of ``--preprocess``; empty if not given.
        findings: the warnings.
        trial: the comparison of variants, where the model is a classifier of images.
        calibration: whether the samples are enough for quantization; None for a quantized model.

    """

    file: str
    samples: int
    preprocess: str
    findings: list[Finding] = field(default_factory=list)
    trial: Trial | None = None
    calibration: Sufficiency | None = None

    @property
    def variants(self) -> list[VariantResult]:
        """The present preprocessing, then the others, best first; empty if they cannot be compared."""
        return [] if self.trial is None else [self.trial.current, *self.trial.variants]

    def check(self) -> None:
        """Turn warnings into an error.

        Raises:
            ThresholdError: there is a warning.

        """
        if self.findings:
            raise ThresholdError(f"{several(len(self.findings), 'warning')}: {self.findings[0]}", file=self.file)

    def _notebook(self) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
        rows = [(finding.id, finding.seen, finding.expected, finding.advice) for finding in self.findings]
        return self._lines([]), [("warning", "found", "expected", "change"), *rows]

    def lines(self) -> list[str]:
        """The report as text."""
        return self._lines(self.findings)

    def _lines(self, findings: Sequence[Finding]) -> list[str]:
        lines = [f"{self.file} on {several(self.samples, 'sample')}: {several(len(self.findings), 'warning')}"]
        if self.preprocess:
            lines.append(f"  preprocessing: {self.preprocess}")
        for finding in findings:
            lines += [
                concat(["  ", style(f"warning[{finding.id}]:", "warning"), f" {finding.seen}"]),
                f"    expected: {finding.expected}",
                f"    change:   {finding.advice}",
            ]
        return lines + self._trial_lines() + self._calibration_lines()

    def _trial_lines(self) -> list[str]:
        if self.trial is None:
            return []
        lines = ["  variants (top-1 with labels, entropy of the predictions in nats):"]
        for item in (self.trial.current, *self.trial.variants[:SHOWN]):
            top1 = "" if item.right is None else f"{item.right / item.samples:7.1%} "
            lines.append(f"    {top1}{item.entropy:6.3f}  {item.name} ({several(item.samples, 'sample')})")
        return lines

    def _calibration_lines(self) -> list[str]:
        curve = self.calibration
        if curve is None or not curve.moved:
            return []
        if curve.enough is not None:
            return [f"  calibration: {curve.enough} samples are enough: 95 % of the thresholds move by less than 1 %"]
        count, share = max(curve.moved.items())
        text = f"{share:.0%} of the thresholds move by more than 1 % from {count} to {curve.samples} samples"
        return [f"  calibration: {text}: more samples help"]


@takes_groups
def doctor(
    source: AnySource | Model,
    data: Any,
    weights: Weights = None,
    *,
    labels: Any = None,
    scores: str | None = None,
    backend: Literal["auto", "native", "reference"] = "auto",
    threads: int | None = None,
    chip: str | Chip = Chip.BM1686,
    preprocess: Preprocess | str | Mapping[str, Any] | None = None,
    source_options: SourceOptions | None = None,
    calibration_method: str = "auto",
    plugins: Iterable[str | Path] = (),
    progress: Progress | None = None,
) -> Diagnosis:
    """Check samples and their preprocessing against what a model expects.

    Args:
        source: a source as for ``convert``, a ``.tpum`` file, or a model.
        data: samples as ``convert`` takes them for calibration, or labeled samples as ``evaluate`` takes them.
        weights: the caffemodel that belongs to a prototxt.
        labels: index of the class of each sample: an array, or a file (.npy, .npz, or text with one per line).
        scores: the output with the scores of the classes; the first when None.
        backend: ``auto``, ``native`` or ``reference``.
        threads: of the native engine.
        chip: target chip, as for ``convert``.
        preprocess: preprocessing, as for ``convert``.
        source_options: options that decide how the source is read.
        calibration_method: method that finds ranges from samples, as for a quantization.
        plugins: Python files with custom operators and converters.
        progress: receives the stages.

    Returns:
        The warnings. ``check`` turns them into an error.

    Raises:
        UsageError: samples or labels that do not fit the model.
        TpuConvertError: as ``convert`` does.

    Example:
        >>> diagnosis = tc.doctor("digits.onnx", "labeled.npz", preprocess="color=GRAY,scale=16")
        >>> [finding.id for finding in diagnosis.findings]
        ['batch-norm-scale', 'better-variant']

    """
    load_plugins(plugins)
    settings = Options.of(source_options, chip=chip, preprocess=preprocess)
    method = read_method(calibration_method)
    if isinstance(source, Model):
        if weights is not None:
            raise UsageError("weights with a converted model, which contains them", hint="leave them out")
        return _diagnose(source, settings, method, data, labels, scores, backend, threads, progress or SILENT)
    with open_source(source, weights) as opened:
        return _diagnose(opened, settings, method, data, labels, scores, backend, threads, progress or SILENT)


def _diagnose(
    source: Source | Model,
    options: Options,
    method: str,
    data: Any,
    labels: Any,
    scores: str | None,
    backend: Backend,
    threads: int | None,
    progress: Progress,
) -> Diagnosis:
    progress.stage("load")
    expected: dict[str, Expected] | None = None
    if isinstance(source, Model):
        model, name = source, source.graph.name
    elif source.name.lower().endswith(".tpum"):
        if source.weights is not None:
            raise unexpected_second_file(source.weights)
        model, name = load(source.path), source.name
    else:
        options = options.without_fused_preprocess()  # on the host the same preprocessing can be varied
        graph = load_source(source, options)
        name = source.name or graph.name
        options = with_preprocessing_of(graph, options)
        expected = None if is_quantized_source(graph) else expectations(graph)
        model = Conversion(options, progress=progress).of_graph(graph)
    rule = options.preprocess if options.preprocess is not None else model.preprocess
    ports = model.graph.input_ports
    output = _scores_port(model, scores)
    feeds, classes = _load_samples(data, labels, ports, rule, output)
    progress.stage("calibrate", len(feeds))
    findings, sufficiency = check_statistics(model.graph, feeds, expected, method, threads=threads)
    trial = None
    if output is not None and len(ports) == 1 and (classes is not None or len(model.graph.output_ports) == 1):
        step = -(-feeds.samples // MOST_COMPARED)  # every step-th sample, because the samples may be sorted by class
        chosen = None if classes is None else classes.reshape(len(feeds), -1)[::step].reshape(-1)
        samples = TrialSamples(feeds.every(step), ports[0], rule)
        if samples.are_images:
            progress.stage("compare variants")
            with Session(model, backend=backend, threads=threads) as session:
                words = "as the samples are" if samples.rule is None else short(samples.rule)
                trial = compare_variants(samples, predictor(session, ports[0], output), chosen, words)
            findings += trial.findings
    text = short(rule) if rule is not None else ""
    return Diagnosis(name, feeds.samples, text, findings, trial, sufficiency)


def check_statistics(
    graph: Graph, feeds: FeedSource, expected: Mapping[str, Expected] | None, method: str, *, threads: int | None
) -> tuple[list[Finding], Sufficiency | None]:
    """Make the checks that need neither labels nor variants.

    Args:
        graph: the graph to run.
        feeds: the samples.
        expected: result of ``expectations``; None for a quantized graph, whose activations are not compared.
        method: calibration method.
        threads: of the native engine.

    """
    statistics = SampleStatistics(graph.input_ports, feeds.images)
    if expected is None:
        for feed in feeds:
            statistics.add(feed)
        return statistics.findings(), None
    ranges, sufficiency = measure(graph, statistics.watch(feeds), method, threads=threads)
    names = feeds.images if len(feeds.images) == len(feeds) else []
    findings = statistics.findings() + check_activations(graph, ranges, expected)
    inputs = [port.name for port in graph.input_ports]
    return findings + lone_findings(sufficiency, len(ranges), inputs, names), sufficiency


def _scores_port(model: Model, name: str | None) -> Port | None:
    """Return the output with one score per class, or None."""
    ports = {port.name: port for port in model.graph.output_ports}
    if name is not None and name not in ports:
        raise UsageError(f"there is no output '{name}'", hint=f"the model has {', '.join(ports)}")
    port = next(iter(ports.values())) if name is None else ports[name]
    extents = [extent for extent in port.shape[1:] if extent != 1]
    return port if len(extents) == 1 and isinstance(extents[0], int) and extents[0] >= 2 else None


def _classes(port: Port) -> int:
    (count,) = (extent for extent in port.shape[1:] if isinstance(extent, int) and extent != 1)
    return count


def _load_samples(
    data: Any, labels: Any, ports: list[Port], rule: Preprocess | None, output: Port | None
) -> tuple[FeedSource, Array | None]:
    """Load the samples, and the class index of each sample or None without labels."""
    classes: Array | None = None
    if labels is not None and output is None:
        raise UsageError("labels for a model without an output of scores", hint="scores names another output")
    if labels is None and output is not None and isinstance(data, str | os.PathLike) and _has_labels(Path(data)):
        labeled: Labeled = load_labeled(data, _classes(output))
        data, classes = labeled.samples, labeled.labels.astype(np.int64)
    is_images = isinstance(data, list) and data and all(isinstance(item, Path) for item in data)
    feeds = image_feeds(data, ports, rule) if is_images else load_feeds(data, ports, rule)
    if labels is not None:
        classes = in_order(read_labels(labels), feeds.images)
    if classes is None:
        return feeds, None
    assert output is not None
    if len(classes) < feeds.samples or len(classes) - feeds.samples >= max(1, feeds.samples // max(1, len(feeds))):
        raise UsageError(f"{len(classes)} labels for {several(feeds.samples, 'sample')}", hint="give one per sample")
    if classes.size and (classes.min() < 0 or classes.max() >= _classes(output)):
        raise UsageError(f"labels from {classes.min()} to {classes.max()}, expected 0 to {_classes(output) - 1}")
    return feeds, classes[: feeds.samples]


def _has_labels(path: Path) -> bool:
    if os.path.isdir(path):
        return any(entry.is_dir() for entry in path.iterdir())
    return path.suffix.lower() == ".npz" and os.path.isfile(path) and LABELS in load_arrays(path)


def predictor(session: Session, port: Port, output: Port) -> Predict:
    """Return a function that computes the scores of samples, in batches of the model's batch size."""

    def predict(x: Array) -> Array:
        size = port.shape[0] if port.shape and isinstance(port.shape[0], int) else 1
        results = []
        for start in range(0, len(x), size):
            batch = x[start : start + size]
            missing = size - len(batch)
            padded = np.concatenate([batch, np.repeat(batch[:1], missing, axis=0)]) if missing else batch
            batch_scores = session.run({port.name: padded})[output.name]
            results.append(batch_scores.reshape(size, -1)[: len(batch)])
        scores = np.concatenate(results)
        if output.quant is not None and scores.dtype.kind in "iu":
            scores = output.quant.dequantize(scores)
        return scores.astype(np.float64)

    return predict
