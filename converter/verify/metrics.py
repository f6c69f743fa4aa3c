"""Metrics of plugins for the difference between outputs of a model and of its source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tpuconvert.schema.errors import ThresholdError, UsageError
from tpuconvert.schema.types import Array
from tpuconvert.schema.user_code import note_definition
from tpuconvert.text.text_format import against_limit

Metric = Callable[[Array, Array], float]
"""Function of the source's output and the model's output that returns a number."""

_METRICS: dict[str, Metric] = {}


def metric(name: str) -> Metric:
    """Return the metric with this name.

    Raises:
        UsageError: there is none.

    """
    if name not in _METRICS:
        listed = f"there are: {', '.join(sorted(_METRICS))}"
        hint = listed if _METRICS else "load the plugin that registers it (--plugin)"
        raise UsageError(f"there is not a metric '{name}'", hint=hint)
    return _METRICS[name]


@dataclass(frozen=True)
class MetricLimit:
    """A metric and its upper limit; None if the metric is only printed."""

    name: str
    upper: float | None = None

    @staticmethod
    def parse(text: str) -> MetricLimit:
        """Read ``NAME`` or ``NAME<=NUMBER``.

        Raises:
            UsageError: the text has another form, or there is no such metric.

        """
        name, sign, number = text.partition("<=")
        try:
            limit = MetricLimit(name.strip(), float(number) if sign else None)
        except ValueError:
            raise UsageError(f"'{text}' is not a metric", hint="NAME, or NAME<=NUMBER") from None
        metric(limit.name)
        return limit


def check_metrics(limits: Sequence[MetricLimit], values: Mapping[str, Mapping[str, float]]) -> None:
    """Check that no metric exceeds its limit.

    Raises:
        ThresholdError: a metric exceeds its limit or is NaN; the message names the metric and the output.

    """
    for limit in limits:
        for output, number in values[limit.name].items():
            if limit.upper is not None and not number <= limit.upper:
                text = against_limit(number, limit.upper, is_least=False)
                raise ThresholdError(f"{limit.name} of '{output}': {text}")


def register_metric(name: str) -> Callable[[Metric], Metric]:
    """Decorator that adds a metric, for ``--metric NAME``, that compares an output with the output of the source.

    The function takes the outputs of the source and of the model as arrays, and returns a number.

    Raises:
        UsageError: the name is taken.

    """

    def register(function: Metric) -> Metric:
        if name in _METRICS:
            raise UsageError(f"there is a metric '{name}' already", hint="choose another name")
        note_definition(function)
        _METRICS[name] = function
        return function

    return register
