"""Result of an evaluation, and limits for its measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tpuconvert.evaluation.metric import find_metric
from tpuconvert.schema.errors import ThresholdError, UsageError
from tpuconvert.text.result import Result
from tpuconvert.text.text_format import against_limit, several


@dataclass(frozen=True, repr=False)
class Evaluation(Result):
    """Measures of a model on labeled samples.

    Args:
        samples: number of samples.
        output: name of the output with the scores; None if the metrics read all outputs.
        backend: backend that ran the model.
        values: measures by name, such as ``top1``, ``map`` and ``map50``; built-in ones are from 0 to 1.
        right: for each top-k accuracy, the number of samples that count.
        per_class: by metric, the measure for each class index. Accuracies are not measured per class.
        reference: ``values`` of the other model; None without one.
        agreement: comparison of the predictions for each sample with the other model: ``flips``,
            ``kept`` and ``detections``, or ``changed_pixels``. Empty without another model.
        file: name of the model.
        reference_file: name of the other model; None without one.

    """

    samples: int
    output: str | None
    backend: str
    values: dict[str, float]
    right: dict[str, int] = field(default_factory=dict)
    per_class: dict[str, dict[int, float]] = field(default_factory=dict)
    reference: dict[str, float] | None = None
    agreement: dict[str, float] = field(default_factory=dict)
    file: str = ""
    reference_file: str | None = None

    def lines(self, *, per_class: bool = False) -> list[str]:
        """Return the measures, also of the other model; with ``per_class`` also of each class."""
        scores = f", scores '{self.output}'" if self.output is not None else ""
        lines = [f"{self.file} on {several(self.samples, 'sample')}{scores}, {self.backend} backend"]
        for name, value in self.values.items():
            right = f"  ({self.right[name]} right)" if name in self.right else ""
            other = ""
            if self.reference is not None:
                other = f"  ({measure_text(name, self.reference[name])} with {self.reference_file})"
            lines.append(f"  {name}  {measure_text(name, value)}{right}{other}")
        lines += [f"  {name}  {measure_text(name, value)}" for name, value in self.agreement.items()]
        for name, values in self.per_class.items() if per_class else ():
            lines += [f"  {name} of class {index}  {measure_text(name, value)}" for index, value in values.items()]
        return lines

    def _notebook(self) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
        rows = [(name, measure_text(name, value)) for name, value in self.measures().items()]
        return self.lines()[:1], [("measure", "value"), *rows]

    def measures(self) -> dict[str, float]:
        """Return what can have limits: values, agreement, and the loss of each value, such as ``top1_drop``."""
        drops = {drop_of(name): value - self.values[name] for name, value in (self.reference or {}).items()}
        return {**self.values, **self.agreement, **drops}

    def check(self, least: Mapping[str, float] | None = None, most: Mapping[str, float] | None = None) -> None:
        """Compare measures with limits.

        Args:
            least: lower limits by name of a measure.
            most: upper limits by name of a measure.

        Raises:
            ThresholdError: a measure is beyond its limit, or NaN.
            UsageError: there is no such measure.

        """
        measures = self.measures()
        low, high = dict(least or {}), dict(most or {})
        check_names([*low, *high], list(measures))
        failed = [
            f"{name} {against_limit(measures[name], limit, is_least=True)}"
            for name, limit in low.items()
            if not measures[name] >= limit
        ] + [
            f"{name} {against_limit(measures[name], limit, is_least=False)}"
            for name, limit in high.items()
            if not measures[name] <= limit
        ]
        if failed:
            raise ThresholdError(f"{'; '.join(failed)} on {several(self.samples, 'sample')}")


def measure_text(name: str, value: float) -> str:
    """Return a measure as text: shares in percent, counts and results of functions as they are."""
    is_share = isinstance(value, float) and ":" not in name
    return f"{value:.2%}" if is_share else f"{value:.8g}"


def drop_of(name: str) -> str:
    """Return the name of the measure of how much ``name`` lost against the other model."""
    return f"{name}_drop"


def check_names(names: Sequence[str], measured: Sequence[str]) -> None:
    """Check names of measures.

    Raises:
        UsageError: a name is not among ``measured``.

    """
    for name in names:
        if name not in measured:
            raise UsageError(f"a limit for '{name}', which is not measured", hint=f"measured: {', '.join(measured)}")


def measure_names(metrics: Sequence[str], has_reference: bool, unlabeled: bool) -> list[str]:
    """Return the names of what ``Evaluation.measures`` contains with these metrics.

    Raises:
        UsageError: there is no such metric.

    """
    kinds = {name: find_metric(name) for name in metrics}
    values = [] if unlabeled else [value for name, kind in kinds.items() for value in kind.value_names(name)]
    if not has_reference:
        return values
    agreements = [name for kind in kinds.values() for name in kind.agreement_names]
    return list(dict.fromkeys([*values, *agreements, *map(drop_of, values)]))
