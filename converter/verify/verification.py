"""Result of a comparison of a model with its source, and limits for it. ``comparer.py`` makes the comparison."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tpuconvert.model.model import Model
from tpuconvert.schema.errors import OutputError, ThresholdError, UsageError
from tpuconvert.schema.text.plain_values import Unbounded
from tpuconvert.schema.text.visible_text import one_line
from tpuconvert.text.result import Result
from tpuconvert.text.styled_text import style
from tpuconvert.text.text_format import against_limit
from tpuconvert.verify.difference import ENGINE_ERROR, FLOAT_TOLERANCE, LAYER_SQNR, Difference
from tpuconvert.verify.exactness import Exactness, defines_integers
from tpuconvert.verify.metrics import MetricLimit, check_metrics
from tpuconvert.verify.opinion import OWN_READING, Opinion, OracleInfo
from tpuconvert.verify.output_tasks import OutputTask
from tpuconvert.verify.state_steps import StateCheck
from tpuconvert.verify.text import noise_lines, verdict_lines, verification_lines, verification_rows

QUANTIZED_COSINE = 0.95
"""Smallest accepted cosine similarity of outputs of a quantized model."""

MOST = 10
"""Largest number of tensors in the list of those that add most noise."""


@dataclass(frozen=True)
class Thresholds:
    """Limits for the outputs; None means unlimited.

    Args:
        max_difference: largest absolute difference, as a share of the source output's range.
        min_cosine: smallest cosine similarity.
        min_sqnr: smallest ratio of signal to difference, in decibel.
        max_different: largest number of integers, of all tensors, that differ from a quantized source.
        max_different_from_engine: the same for another engine that runs the source. There is no default limit, because
            some operators are not exact by decision (docs/reference/tflite.md).

    """

    max_difference: float | None = None
    min_cosine: float | None = None
    min_sqnr: float | None = None
    max_different: int | None = None
    max_different_from_engine: int | None = None

    @staticmethod
    def default(model: Model, exactness: Exactness | None = None) -> Thresholds:
        """Return the default limits.

        Outputs of float models equal the outputs of the source up to rounding. Outputs of INT8 models, and of models
        whose weights the conversion rounded, have a cosine similarity of at least ``QUANTIZED_COSINE``. The integers of
        a model with a quantized source must be equal if ``defines_integers``.
        """
        if model.quantize == "none" and not has_rounded_weights(model):
            return Thresholds(max_difference=FLOAT_TOLERANCE)
        is_exact = exactness is not None and defines_integers(model.graph, model.chip)
        return Thresholds(min_cosine=QUANTIZED_COSINE, max_different=0 if is_exact else None)


def has_rounded_weights(model: Model) -> bool:
    """Return True if the conversion rounded operands of the matmuls of a float model (``weight_type`` and so on)."""
    return not {"weight_type", "activation_type"}.isdisjoint(model.metadata.get("recipe", {}).get("options", {}))


@dataclass(frozen=True)
class NamedLimit:
    """Limits for the tensors and outputs whose names match a pattern with ``*``, ``?`` and ``[...]``."""

    pattern: str
    thresholds: Thresholds

    @staticmethod
    def parse(text: str) -> NamedLimit:
        """Parse ``PATTERN:KEY=NUMBER,...``, where KEY is ``difference``, ``cosine`` or ``sqnr``.

        Raises:
            UsageError: the text has another form.

        """
        pattern, _, limits = text.rpartition(":")
        values: dict[str, Any] = {}
        for part in limits.split(","):
            key, _, number = part.partition("=")
            if _LIMITS.get(key.strip()) in values:
                raise UsageError(f"'{text}' has the limit {key.strip()} twice", hint="leave one of them out")
            try:
                values[_LIMITS[key.strip()]] = float(number)
            except (KeyError, ValueError):
                values.clear()
                break
        if not pattern or not values:
            hint = f"PATTERN:KEY=NUMBER with one of {', '.join(_LIMITS)}, as in 'conv*:sqnr=25'"
            raise UsageError(f"'{text}' is not a limit for tensors", hint=hint)
        return NamedLimit(pattern, Thresholds(**values))


_LIMITS = {"difference": "max_difference", "cosine": "min_cosine", "sqnr": "min_sqnr"}


@dataclass(frozen=True, repr=False)
class Verification(
    Result,
    hidden=("defaults", "metric_limits"),
    added=("most_noise_added_at",),
    keys={"metrics": "metrics?", "first": "first_difference", "other_source": "other_source?"},
):
    """The comparison of a model with its source.

    Args:
        file: name of the model.
        samples: number of feeds.
        layers: differences of every tensor that both have, in execution order of the model.
        outputs: differences of the model's outputs, in order.
        is_quantized: whether the model computes with integers.
        unmatched: number of the model's tensors that the source does not have (they are intermediate results).
        origin: origin of random samples as text; empty for samples of the user.
        opinion: comparison of the source with another engine, or None.
        exactness: comparison of the integers of a quantized source; None if source or model compute in float.
        output_problems: messages about NaN and dead outputs.
        oracle: the program that says what the source computes.
        state: the steps in sequence of a model with state; None for other models.
        tasks: detections, strings, classes and masks that a quantized model has as its source does; empty without
            samples of the user.
        defaults: limits of the model if the user gives none.
        metrics: by metric of a plugin, the largest value for each output.
        metric_limits: these metrics with their limits.
        other_source: name of the file that the model was made from, if the source has another content.

    """

    file: str
    samples: int
    layers: tuple[Difference, ...]
    outputs: tuple[Difference, ...]
    is_quantized: bool
    unmatched: int
    origin: str = ""
    opinion: Opinion | None = None
    exactness: Exactness | None = None
    output_problems: tuple[str, ...] = ()
    oracle: OracleInfo = OWN_READING
    state: StateCheck | None = None
    tasks: tuple[OutputTask, ...] = ()
    defaults: Thresholds = Thresholds()
    metrics: Mapping[str, Mapping[str, Unbounded]] = field(default_factory=dict)
    metric_limits: tuple[MetricLimit, ...] = ()
    other_source: str = ""

    @property
    def worst(self) -> list[Difference]:
        """Tensors whose operator adds noise, the largest share first."""
        return sorted((layer for layer in self.layers if layer.added > 0.0), key=lambda layer: -layer.added)

    @property
    def first(self) -> Difference | None:
        """The first tensor with a difference that rounding does not explain, or None. Import differences come first."""
        imported = self.opinion.tensors if self.opinion is not None else ()
        return next((layer for layer in (*imported, *self.layers) if self._stands_out(layer)), None)

    @property
    def most_noise_added_at(self) -> list[str]:
        """Names of the first tensors of ``worst``."""
        return [layer.name for layer in self.worst[:MOST]]

    def _stands_out(self, layer: Difference) -> bool:
        if self.is_quantized and layer.stage not in ("import", "optimize"):
            return layer.sqnr < LAYER_SQNR
        if layer.stage == "import" and layer.max_absolute <= ENGINE_ERROR:
            return False
        return layer.relative > FLOAT_TOLERANCE

    def failures(self, thresholds: Thresholds, named: Sequence[NamedLimit] = ()) -> list[str]:
        """Return messages about outputs and tensors that miss their limits.

        Raises:
            UsageError: no tensor name matches the pattern of a limit.

        """
        failures = [*self._import_failures(), *self._integer_failures(thresholds)]
        for output in self.outputs:
            failures += limit_failures("output", output, thresholds)
        for limit in named:
            fitting = [
                (what, item)
                for what, items in (("tensor", self.layers), ("output", self.outputs))
                for item in items
                if fnmatch.fnmatchcase(item.name, limit.pattern)
            ]
            if not fitting:
                raise UsageError(f"no tensor that was compared fits '{limit.pattern}'", hint="see the table of tensors")
            for what, item in fitting:
                failures += limit_failures(what, item, limit.thresholds)
        return list(dict.fromkeys(failures))

    def _import_failures(self) -> list[str]:
        """Return messages about outputs that differ from the other engine: faults of the import."""
        if self.opinion is None:
            return []
        is_exact, engine = self.opinion.is_exact, self.opinion.engine
        failures = [f"import: {text}" for text in self.opinion.contradictions]
        failures += _engine_failures(f"import: as {engine} computes it, output", self.opinion.outputs, is_exact)
        if self.state is not None and self.state.engine:
            what = f"import: as {self.state.engine} computes it in {self.state.steps} steps, output"
            failures += _engine_failures(what, self.state.outputs, is_exact)
        return failures

    def _integer_failures(self, thresholds: Thresholds) -> list[str]:
        """Return messages if more integers differ than the limits, from the source or from another engine."""
        limit = thresholds.max_different
        if limit is None:
            return []
        if self.exactness is None:
            raise UsageError(
                "a limit for integers that differ, but source or model compute in float",
                hint="leave --max-different out, or limit --min-cosine, --min-sqnr or --max-difference",
            )
        failures = []
        if not (self.exactness.is_equal or 0 < self.exactness.different + self.exactness.output_different <= limit):
            failures.append(self.exactness.verdict)
        limit = thresholds.max_different_from_engine
        if limit is None:
            return failures
        engine = None if self.opinion is None else self.opinion.exactness
        if engine is not None and engine.different + engine.output_different > limit:
            failures.append(f"import: {engine.verdict}")
        if self.state is not None:
            different = [item for item in self.state.outputs if item.different > limit]
            failures += [
                f"import: {item.different} of {item.integers} integers of output '{item.name}' in {self.state.steps} "
                f"steps differ from {self.state.engine}"
                for item in different
            ]
        return failures

    def check(
        self,
        *,
        max_difference: float | None = None,
        min_cosine: float | None = None,
        min_sqnr: float | None = None,
        max_different: int | None = None,
        limits: Iterable[str | NamedLimit] = (),
    ) -> None:
        """Compare outputs, tensors and metrics with limits; without the first four arguments with the default limits.

        Args:
            max_difference: Largest absolute difference of an output, as a share of its range.
            min_cosine: Smallest cosine similarity of an output.
            min_sqnr: Smallest ratio of signal to difference of an output, in decibel.
            max_different: Largest number of integers that differ from a quantized source.
            limits: Limits for tensors by name, such as ``conv*:sqnr=25``.

        Raises:
            OutputError: An output is NaN or dead.
            ThresholdError: A limit is missed; the message names the first tensor and stage with a difference.
            UsageError: No tensor name matches the pattern of a limit.

        """
        thresholds = Thresholds(max_difference, min_cosine, min_sqnr, max_different, max_different)
        named = [NamedLimit.parse(limit) if isinstance(limit, str) else limit for limit in limits]
        self.check_limits(self.defaults if thresholds == Thresholds() else thresholds, named)
        check_metrics(self.metric_limits, self.metrics)

    def check_limits(self, thresholds: Thresholds, named: Sequence[NamedLimit] = ()) -> None:
        """Compare outputs and tensors with their limits.

        Raises:
            OutputError: an output is NaN or dead.
            ThresholdError: an output or tensor misses a limit; the message has the first tensor and stage with a
                difference.
            UsageError: no tensor name matches the pattern of a limit.

        """
        self.check_outputs()
        failures = self.failures(thresholds, named)
        if len(failures) > MOST:
            failures[MOST:] = [f"and {len(failures) - MOST} more"]
        if not failures:
            return
        first = self.first
        hint = "see the full table" if named else "the outputs themselves are the first tensors that differ"
        if first is not None:
            hint = f"the difference appears at '{first.name}' ({first.op}), stage {first.stage}; see the full table"
        if self.origin and self.is_quantized:
            hint += "; random numbers are not what ranges are made for: give samples with --data"
        raise ThresholdError("; ".join(failures), file=self.file, hint=hint)

    def check_outputs(self) -> None:
        """Refuse NaN and dead outputs.

        Raises:
            OutputError: an output is NaN or dead.

        """
        if not self.output_problems:
            return
        hint = "expected are outputs without NaN that vary; check weights, preprocessing and samples"
        if self.origin:
            hint += "; random numbers may be beyond what the model expects: give samples with --data"
        raise OutputError("; ".join(self.output_problems), file=self.file, hint=hint)

    def lines(self) -> list[str]:
        """Return the verdict, the table of tensors and outputs, and the metrics of plugins."""
        lines = verification_lines(self.to_dict())
        if self.other_source:
            made_from = f"the model was made from another content of '{one_line(self.other_source)}'"
            lines.append(style(f"{made_from}: the source is not the one of the conversion", "warning"))
        for name, values in self.metrics.items():
            lines += [f"{name} of '{output}': {number:.6g}" for output, number in values.items()]
        return lines

    def _notebook(self) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
        values = self.to_dict()
        return [*verdict_lines(values), *noise_lines(values)], verification_rows(values)


def _engine_failures(what: str, outputs: Iterable[Difference], is_exact: bool) -> list[str]:
    """Return messages about outputs that differ from another engine."""
    limits = Thresholds(FLOAT_TOLERANCE) if is_exact else Thresholds(min_cosine=QUANTIZED_COSINE)
    different = [output for output in outputs if output.max_absolute > ENGINE_ERROR]
    return [text for output in different for text in limit_failures(what, output, limits)]


def limit_failures(what: str, item: Difference, thresholds: Thresholds) -> list[str]:
    """Return messages about the limits that a tensor misses."""
    failures = []
    for limit, value, is_upper, quantity in (
        (thresholds.max_difference, item.relative, True, "difference (share of the range)"),
        (thresholds.min_cosine, item.cosine, False, "cosine"),
        (thresholds.min_sqnr, item.sqnr, False, "SQNR in dB"),
    ):
        if limit is not None and not (value <= limit if is_upper else value >= limit):
            text = against_limit(value, limit, is_least=not is_upper)
            failures.append(f"{what} '{item.name}': {quantity} {text}")
    return failures
