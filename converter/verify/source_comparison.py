"""Comparison of a model with its source file."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tpuconvert.fused_preprocess import source_feeds
from tpuconvert.model import Model
from tpuconvert.optimizer import fit_to_chip, optimize
from tpuconvert.optimizer.quantize import as_float, legalize
from tpuconvert.options import Options
from tpuconvert.progress import SILENT, Progress
from tpuconvert.runtime.session import Session
from tpuconvert.samples.calibration_data import load_feeds
from tpuconvert.samples.random_samples import random_feeds
from tpuconvert.schema.graph import Graph
from tpuconvert.schema.types import Array, Chip
from tpuconvert.source_loading import (
    fixed_arrays,
    has_original_interface,
    is_quantized_source,
    load_source,
    source_format,
    with_preprocessing_of,
)
from tpuconvert.verify.metrics import MetricLimit, metric
from tpuconvert.verify.oracle import find_oracle
from tpuconvert.verify.verification import Verification, verify

if TYPE_CHECKING:
    from tpuconvert.samples.calibration_data import CalibrationSource

VERIFICATION_SAMPLES = 4
"""Default number of compared feeds. A few suffice, because each gives many elements per tensor."""


def source_program(graph: Graph, model: Model) -> Graph:
    """Return the graph with which a model is compared.

    A quantized source defines integers. They are computed by its lowering for BM1686 without the optimizer, because
    this chip can rescale as the source formats do. Any other source, and a quantized one whose model computes in float,
    is compared in float.
    """
    if model.quantize == "none" or not is_quantized_source(graph):
        return as_float(graph)
    return legalize(graph, Chip.BM1686).graph


@np.errstate(all="ignore")  # Difference counts non-finite elements
def verify_source(
    model: Model,
    source: str | os.PathLike[str],
    weights: str | os.PathLike[str] | None,
    options: Options,
    data: CalibrationSource | None = None,
    *,
    samples: int = VERIFICATION_SAMPLES,
    oracle: str = "none",
    progress: Progress = SILENT,
) -> Verification:
    """Compare a model with its source file.

    Args:
        model: the converted model.
        source: the source file.
        weights: the caffemodel of a prototxt.
        options: options of the conversion. Without preprocessing in them, the preprocessing of the model is used.
        data: samples; None uses random numbers from a fixed seed.
        samples: largest number of feeds to compare.
        oracle: another engine that runs the source too: ``auto`` for one that is installed, its name, or ``none``.
        progress: receives the stages.

    Raises:
        UsageError: the samples do not fit, or the model has another source.
        MissingExtraError: the requested engine is not installed.

    """
    progress.stage("load the source")
    options = options.for_model(model.preprocess)
    graph = load_source(source, weights, options)
    optimized = load_source(source, weights, options)
    optimize(optimized, chip=model.chip, disabled=options.disable_rules)
    fit_to_chip(optimized, model.chip, disabled=options.disable_rules)
    is_quantized = is_quantized_source(graph)
    graph, optimized = (source_program(each, model) for each in (graph, optimized))
    feeds, origin = _feeds(graph, options, data, samples), "of random numbers" if data is None else ""
    kind = source_format(source)
    is_alike = has_original_interface(options, kind)  # True if another engine accepts the same feeds
    is_alike = is_alike and (kind == "onnx" or not options.fix_inputs)
    if is_quantized and options.tflite_rounding != "double":
        is_alike = False  # the engine runs the reference kernels, which round twice
    engine = find_oracle(oracle, kind, source) if is_alike else None
    said = None
    if engine is not None:
        progress.stage(f"run the source with {engine.title}")
        ports, inputs = graph.input_ports, feeds
        if options.fuse_preprocess != "none":
            rule = with_preprocessing_of(graph, options).preprocess
            assert rule is not None, "a graph without preprocessing cannot have fused preprocessing"
            ports = load_source(source, weights, options.without_fused_preprocess()).input_ports
            inputs = list(source_feeds(ports[0], feeds, rule))
        said = engine.title, engine.run(ports, inputs, fixed_arrays(options))
    progress.stage("verify", samples)
    return verify(
        graph,
        optimized,
        model,
        feeds,
        origin=origin,
        oracle=said,
        is_quantized_source=is_quantized,
        allow_nan=options.allow_non_finite,
        progress=progress.advance,
    )


def _feeds(graph: Graph, options: Options, data: CalibrationSource | None, samples: int) -> list[dict[str, Array]]:
    """Return the first samples of the user, or random samples."""
    if data is None:
        return random_feeds(graph.input_ports, samples)
    return list(itertools.islice(load_feeds(data, graph.input_ports, options.preprocess, most=samples), samples))


@np.errstate(all="ignore")
def measure_metrics(
    limits: Sequence[MetricLimit],
    model: Model,
    source: str | os.PathLike[str],
    weights: str | os.PathLike[str] | None,
    options: Options,
    data: CalibrationSource | None,
    samples: int,
) -> dict[str, dict[str, float]]:
    """Return the largest value over the samples for each metric and output.

    Args:
        limits: the metrics.
        model: the converted model.
        source: the source file.
        weights: the caffemodel of a prototxt.
        options: options of the conversion.
        data: samples; None uses random numbers from a fixed seed.
        samples: largest number of feeds to compare.

    """
    options = options.for_model(model.preprocess)
    graph = source_program(load_source(source, weights, options), model)
    ports = {port.name: port for port in model.graph.output_ports}
    found: dict[str, dict[str, float]] = {limit.name: {} for limit in limits}

    with Session(graph) as wanted_session, Session(model) as got_session:
        for sample in _feeds(graph, options, data, samples):
            wanted, got = wanted_session.run(sample), got_session.run(sample)
            for output, port in ports.items():
                arrays = (wanted[output], got[output])
                floats = [port.quant.dequantize(array) if port.quant is not None else array for array in arrays]
                for limit in limits:
                    number = float(metric(limit.name)(*floats))
                    found[limit.name][output] = max(found[limit.name].get(output, number), number)
    return found
