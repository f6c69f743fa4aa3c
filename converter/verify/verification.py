"""Verification of a model: run it and its source on the same samples, and compare every tensor that both have.

A difference is attributed to one of four stages. If another engine that can run the source file is installed, its
results are compared with the source graph first: a difference there comes from the import.

A source that is quantized defines integers. They are computed by its integer program: every node of the source graph
lowered separately, without the optimizer, run by the NumPy reference. Model and source are then compared integer by
integer (``exactness``), and the similarity of outputs is computed against these integers.

Values match by name. Integers are dequantized for the comparison. A tensor ``t`` of a channels-last source that is
channels-first in the graph is called ``t:nchw``; its axes are permuted back before the comparison. A tensor with
another shape in the graph is called ``t:reshaped``. Three programs run: the source graph as the frontend read it, the
same graph optimized in float, and the model. A difference that is present in the optimized graph comes from the
optimizer. Any other difference comes from quantization, or in a float model from legalization.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tpuconvert.conversion.model_building import has_integers
from tpuconvert.model.model import Model
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.errors import OutputError, ThresholdError, UsageError
from tpuconvert.schema.graph.control_flow import all_graphs, subgraphs_of
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.text.plain_values import Unbounded
from tpuconvert.schema.types import Array
from tpuconvert.text.result import Result
from tpuconvert.text.text_format import against_limit
from tpuconvert.verify.difference import AS_READ, ENGINE_ERROR, FLOAT_TOLERANCE, LAYER_SQNR, Difference
from tpuconvert.verify.exactness import OWN_PROGRAM, Exactness, defines_integers
from tpuconvert.verify.metrics import MetricLimit, check_metrics
from tpuconvert.verify.opinion import OWN_READING, Opinion, OracleInfo
from tpuconvert.verify.oracle import OracleError, Statement
from tpuconvert.verify.output_checks import EngineOutput, output_problems, output_statistics
from tpuconvert.verify.state_steps import StateCheck, StatePair
from tpuconvert.verify.tensor_comparison import (
    CHANNELS_FIRST,
    RESHAPED,
    Comparison,
    SourceTensors,
    add_output,
    compare_outputs,
    pair_outputs,
)
from tpuconvert.verify.text import noise_lines, verdict_lines, verification_lines, verification_rows

QUANTIZED_COSINE = 0.95
"""Smallest accepted cosine similarity of outputs of a quantized model."""

MOST = 10
"""Largest number of tensors in the list of those that add most noise."""


@dataclass(frozen=True)
class Thresholds:
    """Limits for the outputs; None is no limit.

    Args:
        max_difference: largest absolute difference, as a share of the source output's range.
        min_cosine: smallest cosine similarity.
        min_sqnr: smallest ratio of signal to difference, in decibel.
        max_different: largest number of integers, of all tensors, that differ from those of a quantized source.
        max_different_from_engine: the same for another engine that runs the source. There is no default limit, because
            some operators are not exact by decision (docs/tflite-exactness.md).

    """

    max_difference: float | None = None
    min_cosine: float | None = None
    min_sqnr: float | None = None
    max_different: int | None = None
    max_different_from_engine: int | None = None

    @staticmethod
    def default(model: Model, exactness: Exactness | None = None) -> Thresholds:
        """Return the default limits.

        Outputs of float models equal those of the source up to rounding. Outputs of INT8 models, and of models whose
        weights the conversion rounded, have a cosine similarity of at least ``QUANTIZED_COSINE``. The integers of a
        model with a quantized source must be equal if ``defines_integers``.
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
        found: dict[str, Any] = {}
        for part in limits.split(","):
            key, _, number = part.partition("=")
            if _LIMITS.get(key.strip()) in found:
                raise UsageError(f"'{text}' has the limit {key.strip()} twice", hint="leave one of them out")
            try:
                found[_LIMITS[key.strip()]] = float(number)
            except (KeyError, ValueError):
                found.clear()
                break
        if not pattern or not found:
            hint = f"PATTERN:KEY=NUMBER with one of {', '.join(_LIMITS)}, as in 'conv*:sqnr=25'"
            raise UsageError(f"'{text}' is not a limit for tensors", hint=hint)
        return NamedLimit(pattern, Thresholds(**found))


_LIMITS = {"difference": "max_difference", "cosine": "min_cosine", "sqnr": "min_sqnr"}


@dataclass(frozen=True, repr=False)
class Verification(
    Result,
    hidden=("defaults", "metric_limits"),
    added=("most_noise_added_at",),
    keys={"metrics": "metrics?", "first": "first_difference"},
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
        defaults: limits of the model if the user gives none.
        metrics: by metric of a plugin, the largest value for each output.
        metric_limits: these metrics with their limits.

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
    defaults: Thresholds = Thresholds()
    metrics: Mapping[str, Mapping[str, Unbounded]] = field(default_factory=dict)
    metric_limits: tuple[MetricLimit, ...] = ()

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
        """Return messages about outputs that differ from those of the other engine: faults of the import."""
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
        most = thresholds.max_different
        if most is None:
            return []
        if self.exactness is None:
            raise UsageError(
                "a limit for integers that differ, but source or model compute in float",
                hint="leave --max-different out, or limit --min-cosine, --min-sqnr or --max-difference",
            )
        failures = []
        if not (self.exactness.is_equal or 0 < self.exactness.different + self.exactness.output_different <= most):
            failures.append(self.exactness.verdict)
        most = thresholds.max_different_from_engine
        if most is None:
            return failures
        engine = None if self.opinion is None else self.opinion.exactness
        if engine is not None and engine.different + engine.output_different > most:
            failures.append(f"import: {engine.verdict}")
        if self.state is not None:
            different = [item for item in self.state.outputs if item.different > most]
            failures += [
                f"import: {item.different} of {item.integers} integers of output '{item.name}' in {self.state.steps} "
                f"steps differ from those of {self.state.engine}"
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
            max_different: Largest number of integers that differ from those of a quantized source.
            limits: Limits for tensors by name, such as ``conv*:sqnr=25``.

        Raises:
            OutputError: An output is NaN or dead.
            ThresholdError: A limit is missed; the message names the first tensor and stage with a difference.
            UsageError: No tensor name matches the pattern of a limit.

        """
        given = Thresholds(max_difference, min_cosine, min_sqnr, max_different, max_different)
        named = [NamedLimit.parse(limit) if isinstance(limit, str) else limit for limit in limits]
        self.check_limits(self.defaults if given == Thresholds() else given, named)
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
        for name, values in self.metrics.items():
            lines += [f"{name} of '{output}': {number:.6g}" for output, number in values.items()]
        return lines

    def _notebook(self) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
        values = self.to_dict()
        return [*verdict_lines(values), *noise_lines(values)], verification_rows(values)


def _engine_failures(what: str, outputs: Iterable[Difference], is_exact: bool) -> list[str]:
    """Return messages about outputs that differ from those of another engine."""
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


def verify(
    source: Graph,
    optimized: Graph,
    model: Model,
    feeds: Iterable[dict[str, Array]],
    *,
    origin: str = "",
    oracle: tuple[str, Iterator[Statement]] | None = None,
    is_quantized_source: bool = False,
    states: Sequence[StatePair] = (),
    allow_nan: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Verification:
    """Compare a model with its source on samples.

    Args:
        source: the graph of the frontend; for a quantized source its integer program.
        optimized: the source graph after the optimizer.
        model: the model.
        feeds: samples. A few suffice, because every tensor has many elements.
        origin: origin of random samples, as text after "4 samples"; empty for samples of the user.
        oracle: name of another engine, and its results for these samples.
        is_quantized_source: whether the source file is quantized.
        states: states that each program passes from one feed to the next. The feeds contain those of the source.
        allow_nan: whether NaN is accepted in an output if source and model both have it.
        progress: called with the number of samples done.

    Raises:
        UsageError: the inputs or outputs of the model differ from those of the source.

    """
    _check_same_ports(source, model)
    tensors = SourceTensors()
    final, middle, imported = Comparison(tensors), Comparison(tensors), Comparison(tensors)
    outputs = [Difference(port.name, "output") for port in model.graph.output_ports]
    source_outputs = {port.name: Difference(port.name, "output", "import") for port in source.output_ports}
    statistics = output_statistics(source), output_statistics(model.graph)
    engine, problem, is_exact = "", "", not is_quantized_source
    in_integers = has_integers(source)
    deviations = tuple(str(item) for each in all_graphs(source) for item in each.deviations)
    opinions: Iterator[Statement] = iter(())
    if oracle is not None:
        engine, opinions = oracle
    state_outputs = {state.output for state in states}
    own_outputs = [port for port in source.output_ports if port.name not in state_outputs]
    heard = {
        port.name: EngineOutput(*pair)
        for port, *pair in zip(source.output_ports, output_statistics(source), output_statistics(source), strict=True)
    }
    contradictions: list[str] = []
    carried: list[dict[str, Array]] = [{}, {}]
    samples = 0
    # The reference defines the integers of a quantized source: the oracle must not depend on the native engine.
    with (
        Session(source, backend="reference" if in_integers else "auto") as first,
        Session(optimized, observed=True) as second,
        Session(model, observed=True) as third,
    ):
        for feed in feeds:
            tensors.clear()
            wanted = first.run(feed, observe=tensors.remember)
            statement = None
            if oracle is not None and not problem:
                try:
                    statement = next(opinions, None)
                except OracleError as error:
                    problem = str(error)
            if statement is not None:
                is_exact = is_exact and not statement.rounds
                if is_exact or in_integers:
                    imported.compare_source(source, statement.tensors)
            halfway = second.run({**feed, **carried[0]}, observe=middle.compare)
            got = third.run({**feed, **carried[1]}, observe=final.compare)
            carried = [{state.input: results[state.output] for state in states} for results in (halfway, got)]
            if statement is not None:
                mine = got if is_quantized_source and not in_integers else wanted
                contradictions += compare_outputs(own_outputs, mine, statement, source_outputs)
                for port, array in pair_outputs(own_outputs, statement):
                    heard[port.name].engine.add(array)
                    heard[port.name].reading.add(mine[port.name])
            for index, port in enumerate(model.graph.output_ports):
                theirs = source.output_ports[index]
                add_output(outputs[index], theirs, wanted[theirs.name], port, got[port.name])
                statistics[0][index].add(wanted[theirs.name])
                statistics[1][index].add(got[port.name])
            samples += 1
            if progress is not None:
                progress(samples)
    if not samples:
        raise UsageError("there are no samples to compare with")
    is_quantized = model.quantize != "none"
    for difference in final.by_name.values():
        before = max((final.by_name[name].noise for name in difference.reads), default=0.0)
        makes_noise = math.isfinite(before) and not difference.moves  # a part can be noisier than the whole
        difference.added = max(0.0, difference.noise - before) if makes_noise else 0.0
    deviating = _deviating_tensors(source)
    for difference in (*final.by_name.values(), *outputs):
        difference.stage = _stage(difference, middle.by_name.get(difference.name), is_quantized and not in_integers)
        if difference.stage == "same" and difference.name in deviating:
            difference.stage = AS_READ
    opinion = None
    if oracle is not None:
        compared = tuple(item for item in source_outputs.values() if item.is_used)
        integers = Exactness.of(engine, imported.by_name.values(), compared, deviations) if in_integers else None
        faults = [item.contradiction for item in heard.values() if item.contradiction]
        opinion = Opinion(
            engine,
            tuple(imported.by_name.values()),
            compared,
            is_exact,
            problem,
            integers,
            max((item.engine.samples for item in heard.values()), default=0),
            tuple(f"{text} {engine}" for text in dict.fromkeys([*contradictions, *faults])),
        )
        if integers is not None and integers.different + integers.output_different:
            deviations = (*deviations, integers.verdict)
    exactness = Exactness.of(OWN_PROGRAM, final.by_name.values(), outputs, deviations) if in_integers else None
    return Verification(
        model.graph.file or model.graph.name,
        samples,
        tuple(final.by_name.values()),
        tuple(outputs),
        is_quantized,
        len(final.unmatched),
        origin,
        opinion,
        exactness,
        tuple(output_problems(*statistics, allow_nan=allow_nan, engine=engine, heard=heard)),
        defaults=Thresholds.default(model, exactness),
    )


def _deviating_tensors(graph: Graph) -> set[str]:
    """Names of tensors and outputs that depend on a node with a known deviation from the standard."""
    deviating = {(item.node, item.op) for each in all_graphs(graph) for item in each.deviations}
    reached: set[Value] = set()
    for node in graph.sorted_nodes():
        is_own = any((source.node, source.op) in deviating for source in node.sources)
        bodies = [graph for body in subgraphs_of(node.op).values() for graph in all_graphs(body.graph)]
        is_own = is_own or any(body.deviations for body in bodies)
        if is_own or any(value in reached for value in node.inputs):
            reached.update(node.outputs)
    outputs = {port.name for port, value in zip(graph.output_ports, graph.outputs, strict=True) if value in reached}
    return outputs | {value.name.removesuffix(CHANNELS_FIRST).removesuffix(RESHAPED) for value in reached}


def _stage(difference: Difference, optimized: Difference | None, is_quantized: bool) -> str:
    if difference.max_absolute == 0.0:
        return "same"
    if optimized is not None and optimized.relative > FLOAT_TOLERANCE:
        return "optimize"
    if is_quantized:
        return "quantize"
    if optimized is not None and optimized.max_absolute > 0.0:
        return "optimize"
    return "legalize"


def _check_same_ports(source: Graph, model: Model) -> None:
    for what, mine, theirs in (
        ("inputs", source.input_ports, model.graph.input_ports),
        ("outputs", source.output_ports, model.graph.output_ports),
    ):
        if [port.name for port in mine] != [port.name for port in theirs]:
            raise UsageError(
                f"the {what} differ: the source has {[port.name for port in mine]}, "
                f"the model {[port.name for port in theirs]}",
                hint="give the same files, --inputs and --outputs as for the conversion",
            )
