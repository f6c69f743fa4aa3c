"""Measures of how far results are from those of the source, that plugins bring along."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tpuconvert.schema.errors import ThresholdError, UsageError
from tpuconvert.schema.types import Array
from tpuconvert.text_format import against_limit

if TYPE_CHECKING:
    from tpuconvert.model import Model
    from tpuconvert.options import Options
    from tpuconvert.samples.calibration_data import CalibrationSource

Metric = Callable[[Array, Array], float]
"""The source's result and the model's -> a number."""

_METRICS: dict[str, Metric] = {}


def add_metric(name: str) -> Callable[[Metric], Metric]:
    """Register a function under a name.

    Raises:
        UsageError: the name is taken.

    """

    def register(function: Metric) -> Metric:
        if name in _METRICS:
            raise UsageError(f"there is a metric '{name}' already", hint="choose another name")
        _METRICS[name] = function
        return function

    return register


def metric(name: str) -> Metric:
    """The metric of a name.

    Raises:
        UsageError: there is none.

    """
    if name not in _METRICS:
        known = f"there are: {', '.join(sorted(_METRICS))}"
        hint = known if _METRICS else "load the plugin that registers it (--plugin)"
        raise UsageError(f"there is no metric '{name}'", hint=hint)
    return _METRICS[name]


@dataclass(frozen=True)
class MetricLimit:
    """A metric, and the largest number that it may give; None where it is only told."""

    name: str
    most: float | None = None

    @staticmethod
    def parse(text: str) -> MetricLimit:
        """Read ``NAME`` or ``NAME<=NUMBER``.

        Raises:
            UsageError: not of that form, or there is no such metric.

        """
        name, sign, number = text.partition("<=")
        try:
            limit = MetricLimit(name.strip(), float(number) if sign else None)
        except ValueError:
            raise UsageError(f"'{text}' is no metric", hint="NAME, or NAME<=NUMBER") from None
        metric(limit.name)
        return limit


@np.errstate(all="ignore")
def measured(
    limits: Sequence[MetricLimit],
    model: Model,
    source: str,
    weights: str | None,
    options: Options,
    data: CalibrationSource | None,
    samples: int,
) -> dict[str, dict[str, float]]:
    """What metrics say about each output: the largest number over the samples, by metric and output.

    Args:
        limits: the metrics.
        model: the converted model.
        source: the file it was made from.
        weights: the caffemodel of a prototxt.
        options: those of the conversion.
        data: samples; random numbers of a fixed seed when None.
        samples: how many to look at, at most.

    """
    from tpuconvert.runtime.session import Session
    from tpuconvert.samples.calibration_data import load_feeds
    from tpuconvert.samples.random_samples import random_feeds
    from tpuconvert.source_loading import load_source
    from tpuconvert.verify.source_comparison import source_program

    graph = source_program(load_source(source, weights, options), model)
    ports = {port.name: port for port in model.graph.output_ports}
    found: dict[str, dict[str, float]] = {limit.name: {} for limit in limits}
    feeds: Iterable[dict[str, Array]]
    if data is None:
        feeds = random_feeds(graph.input_ports, samples)
    else:
        feeds = itertools.islice(load_feeds(data, graph.input_ports, options.preprocess or model.preprocess), samples)
    with Session(graph) as wanted_session, Session(model) as got_session:
        for sample in feeds:
            wanted, got = wanted_session.run(sample), got_session.run(sample)
            for output, port in ports.items():
                arrays = (wanted[output], got[output])
                real = [port.quant.dequantize(array) if port.quant is not None else array for array in arrays]
                for limit in limits:
                    number = float(metric(limit.name)(*real))
                    found[limit.name][output] = max(found[limit.name].get(output, number), number)
    return found


def check_metrics(limits: Sequence[MetricLimit], found: dict[str, dict[str, float]]) -> None:
    """See that no metric is above its limit.

    Raises:
        ThresholdError: one is, or is not a number; the message has the metric and the output.

    """
    for limit in limits:
        for output, number in found[limit.name].items():
            if limit.most is not None and not number <= limit.most:
                text = against_limit(number, limit.most, is_least=False)
                raise ThresholdError(f"{limit.name} of '{output}': {text}")
