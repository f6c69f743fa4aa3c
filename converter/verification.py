"""Is the model what the source is? Both run on the same samples, and every tensor that both have is compared.

Four stages can be wrong. Where another engine is installed that runs the source file itself, what it computes is
compared with the source graph first: a difference there came from the import. An engine that computes with integers
is compared with the model's outputs instead, and is not asked about single tensors.

Values match by name. Integers are compared by what they stand for; a tensor ``t`` of a channels-last source that the
graph holds channels-first is called ``t:nchw`` and is compared with its axes put back, one that it holds in another
shape ``t:reshaped``. Three programs run: the source graph as the frontend read it, the same graph optimized in float,
and the model. A difference that the optimized graph already has came from the optimizer; every other one from
quantization, or in a float model from legalization.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from tpuconvert.difference import Difference
from tpuconvert.model import Model
from tpuconvert.optimizer.quantize.traits import keeps_scale
from tpuconvert.oracle import OracleError, Statement
from tpuconvert.runtime.border import numpy_type
from tpuconvert.runtime.session import Session
from tpuconvert.schema.errors import ThresholdError, UsageError
from tpuconvert.schema.graph import Graph, Port, Value
from tpuconvert.schema.light_dataclass import dataclass
from tpuconvert.schema.types import Array

CHANNELS_FIRST = ":nchw"
RESHAPED = ":reshaped"
"""Behind the name of a tensor: the same elements in the same order, in another shape."""

FLOAT_TOLERANCE = 1e-4
"""Share of a tensor's range by which float programs may differ: sums in another order, not another meaning."""

LAYER_SQNR = 20.0
"""Decibel. A quantized layer below this lost more than one part in a hundred of its signal's power."""

ENGINE_ERROR = 1e-6
"""Other engines approximate functions: the sigmoid of onnxruntime is off by so much where it is near 0."""

QUANTIZED_COSINE = 0.95
"""Outputs in integers keep their direction at least so well."""

MOST = 10
"""So many of the tensors that add most noise are named."""


@dataclass(frozen=True)
class Thresholds:
    """What the outputs have to reach; a limit that is None is not looked at.

    Args:
        max_difference: largest absolute difference, as a share of the source output's range.
        min_cosine: smallest cosine similarity.
        min_sqnr: smallest ratio of signal to difference, in decibel.

    """

    max_difference: float | None = None
    min_cosine: float | None = None
    min_sqnr: float | None = None

    @staticmethod
    def default(model: Model) -> Thresholds:
        """Float models repeat the source up to rounding; INT8 models keep its direction."""
        if model.quantize == "none":
            return Thresholds(max_difference=FLOAT_TOLERANCE)
        return Thresholds(min_cosine=QUANTIZED_COSINE)


@dataclass(frozen=True)
class NamedLimit:
    """A limit for the tensors and outputs whose names fit a pattern with ``*``, ``?`` and ``[...]``."""

    pattern: str
    thresholds: Thresholds

    @staticmethod
    def parse(text: str) -> NamedLimit:
        """Read ``PATTERN:KEY=NUMBER``, where KEY is ``difference``, ``cosine`` or ``sqnr``; several with commas.

        Raises:
            UsageError: not of that form.

        """
        pattern, _, limits = text.rpartition(":")
        found: dict[str, float] = {}
        for part in limits.split(","):
            key, _, number = part.partition("=")
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


@dataclass(frozen=True)
class Opinion:
    """What another engine says about the source.

    Args:
        engine: its name and version.
        tensors: how far the source graph's tensors are from the engine's, in the order of the source graph.
        outputs: how far the source graph's outputs are; of a source in integers, the model's.
        is_exact: whether the engine computes with real numbers alone.
        problem: why there is nothing to compare; empty when there is.

    """

    engine: str
    tensors: tuple[Difference, ...] = ()
    outputs: tuple[Difference, ...] = ()
    is_exact: bool = True
    problem: str = ""

    def to_mapping(self) -> dict[str, Any]:
        """Plain values for JSON and reports."""
        largest = max((item.relative for item in (*self.tensors, *self.outputs)), default=0.0)
        return {
            "engine": self.engine,
            "tensors": len(self.tensors),
            "outputs": len(self.outputs),
            "is_exact": self.is_exact,
            "largest_difference": largest if math.isfinite(largest) else None,
            "problem": self.problem,
        }


@dataclass(frozen=True)
class Verification:
    """The comparison of a model with its source.

    Args:
        file: name of the model.
        samples: number of feeds.
        layers: every tensor that both have, in the order in which the model computes them.
        outputs: the model's outputs, in order.
        is_quantized: whether the model computes with integers.
        unmatched: number of the model's tensors that the source does not have (they are steps between two of its own).
        origin: what the samples are, where they are not the user's.
        opinion: what another engine says about the source, where one was asked.

    """

    file: str
    samples: int
    layers: tuple[Difference, ...]
    outputs: tuple[Difference, ...]
    is_quantized: bool
    unmatched: int
    origin: str = ""
    opinion: Opinion | None = None

    @property
    def worst(self) -> list[Difference]:
        """Where most of the noise comes in: tensors whose own step adds any, the largest share first."""
        return sorted((layer for layer in self.layers if layer.added > 0.0), key=lambda layer: -layer.added)

    @property
    def first(self) -> Difference | None:
        """The first tensor with a difference that rounding does not explain, or None; the import's come first."""
        imported = self.opinion.tensors if self.opinion is not None else ()
        return next((layer for layer in (*imported, *self.layers) if self._stands_out(layer)), None)

    def _stands_out(self, layer: Difference) -> bool:
        if self.is_quantized and layer.stage not in ("import", "optimize"):
            return layer.sqnr < LAYER_SQNR
        if layer.stage == "import" and layer.max_absolute <= ENGINE_ERROR:
            return False
        return layer.relative > FLOAT_TOLERANCE

    def failures(self, thresholds: Thresholds, named: Sequence[NamedLimit] = ()) -> list[str]:
        """What the outputs do not reach, and the tensors that have limits of their own, in words.

        Raises:
            UsageError: no tensor has a name that fits the pattern of a limit.

        """
        found = self._import_failures()
        for output in self.outputs:
            found += _failures("output", output, thresholds)
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
                found += _failures(what, item, limit.thresholds)
        return list(dict.fromkeys(found))

    def _import_failures(self) -> list[str]:
        """Outputs that are not those of the other engine."""
        if self.opinion is None:
            return []
        limits = Thresholds(FLOAT_TOLERANCE) if self.opinion.is_exact else Thresholds(min_cosine=QUANTIZED_COSINE)
        what = f"as {self.opinion.engine} computes it, output"
        outputs = [output for output in self.opinion.outputs if output.max_absolute > ENGINE_ERROR]
        return [text for output in outputs for text in _failures(what, output, limits)]

    def check(self, thresholds: Thresholds, named: Sequence[NamedLimit] = ()) -> None:
        """Compare the outputs, and tensors that have limits of their own, with their limits.

        Raises:
            ThresholdError: naming the outputs, and the first tensor and stage where the difference appears.
            UsageError: no tensor has a name that fits the pattern of a limit.

        """
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

    def to_mapping(self) -> dict[str, Any]:
        """Plain values for JSON and reports."""
        return {
            "file": self.file,
            "samples": self.samples,
            "origin": self.origin,
            "is_quantized": self.is_quantized,
            "first_difference": self.first.to_mapping() if self.first else None,
            "outputs": [output.to_mapping() for output in self.outputs],
            "layers": [layer.to_mapping() for layer in self.layers],
            "most_noise_added_at": [layer.name for layer in self.worst[:MOST]],
            "unmatched": self.unmatched,
            "opinion": self.opinion.to_mapping() if self.opinion is not None else None,
        }


def _failures(what: str, item: Difference, thresholds: Thresholds) -> list[str]:
    """The limits that a tensor does not keep, in words."""
    found = []
    for limit, value, is_upper, quantity in (
        (thresholds.max_difference, item.relative, True, "difference (share of the range)"),
        (thresholds.min_cosine, item.cosine, False, "cosine"),
        (thresholds.min_sqnr, item.sqnr, False, "SQNR in dB"),
    ):
        if limit is not None and not (value <= limit if is_upper else value >= limit):
            side = "above" if is_upper else "below"
            found.append(f"{what} '{item.name}': {quantity} {value:.6g} is {side} {limit:g}")
    return found


@dataclass()
class _Comparison:
    """Collects differences while the programs run."""

    source_values: dict[str, Array] = field(default_factory=dict)
    by_name: dict[str, Difference] = field(default_factory=dict)
    unmatched: set[str] = field(default_factory=set)
    origins: dict[Value, tuple[str, ...]] = field(default_factory=dict)
    """What stands for a value when a later one asks where its noise came from: itself, or those it is made of."""

    def remember(self, value: Value, array: Array) -> None:
        """A tensor of the source graph."""
        self.source_values[value.name] = array

    def compare_source(self, graph: Graph, values: Mapping[str, Array]) -> None:
        """The tensors of the source graph, in its order, with those of another engine that mean the same kind."""
        operators = {value.name: node.op.name for node in graph.nodes for value in node.outputs}
        for name, mine in self.source_values.items():
            matched = _match(name, values)
            if matched is None or name not in operators or mine.dtype.kind != "f" or matched[1].dtype.kind != "f":
                continue
            wanted = matched[1]
            if wanted.shape == mine.shape or (wanted.size == mine.size == 1):
                difference = self.by_name.setdefault(name, Difference(name, operators[name], "import"))
                difference.add(wanted.reshape(mine.shape), mine)

    def compare(self, value: Value, array: Array) -> None:
        """A tensor of another program."""
        matched = _match(value.name.removesuffix(RESHAPED), self.source_values)
        quant = value.quant if value.dtype.is_integer else None
        real = quant.dequantize(array) if quant is not None else array
        self.origins[value] = origins = _origins(value, self.origins)
        if matched is not None and value.name.endswith(RESHAPED) and matched[1].size == real.size:
            matched = matched[0], matched[1].reshape(real.shape)
        if matched is None or matched[1].shape != real.shape:
            self.unmatched.add(value.name)
            return
        name, wanted = matched
        difference = self.by_name.setdefault(name, Difference(name))
        if name not in origins:  # a tensor that is only moved was made before
            difference.op = value.producer.op.name if value.producer is not None else "input"
            difference.reads = origins
            difference.moves = value.producer is not None and keeps_scale(value.producer.op)
        difference.add(wanted, real, quant)
        self.origins[value] = (name,)


def _origins(value: Value, known: dict[Value, tuple[str, ...]]) -> tuple[str, ...]:
    """The nearest compared tensors that a value is computed from."""
    inputs = value.producer.inputs if value.producer is not None else ()
    return tuple(dict.fromkeys(name for item in inputs if item is not None for name in known.get(item, ())))


def _match(name: str, values: Mapping[str, Array]) -> tuple[str, Array] | None:
    """The source's tensor of that name, with its axes in the order of the asking program."""
    if name in values:
        return name, values[name]
    if name.endswith(CHANNELS_FIRST):
        plain = name.removesuffix(CHANNELS_FIRST)
        if plain in values and values[plain].ndim >= 3:
            return plain, np.moveaxis(values[plain], -1, 1)
        return None
    other = name + CHANNELS_FIRST
    if other in values and values[other].ndim >= 3:
        return name, np.moveaxis(values[other], 1, -1)
    return None


def verify(
    source: Graph,
    optimized: Graph,
    model: Model,
    feeds: Iterable[dict[str, Array]],
    *,
    origin: str = "",
    oracle: tuple[str, Iterator[Statement]] | None = None,
    is_quantized_source: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Verification:
    """Compare a model with its source on samples.

    Args:
        source: the graph as the frontend read it.
        optimized: the same after the float optimizer.
        model: the model.
        feeds: samples; a handful is enough, every tensor has many elements.
        origin: what the samples are, in words that follow "4 samples"; empty when they are the user's.
        oracle: another engine's name, and what it computes for these samples.
        is_quantized_source: whether ``source`` is the real form of integers.
        progress: called with the number of samples done.

    Raises:
        UsageError: the model has other inputs or outputs than the source.

    """
    _check_same_ports(source, model)
    final, middle, imported = _Comparison(), _Comparison(), _Comparison()
    outputs = [Difference(port.name, "output") for port in model.graph.output_ports]
    source_outputs = {port.name: Difference(port.name, "output", "import") for port in source.output_ports}
    engine, problem, is_exact = "", "", not is_quantized_source
    opinions: Iterator[Statement] = iter(())
    if oracle is not None:
        engine, opinions = oracle
    samples = 0
    with Session(source) as first, Session(optimized) as second, Session(model) as third:
        for feed in feeds:
            final.source_values = middle.source_values = imported.source_values = {}
            wanted = first.run(feed, observe=final.remember)
            statement = None
            if oracle is not None and not problem:
                try:
                    statement = next(opinions)
                except OracleError as error:
                    problem = str(error)
            if statement is not None:
                is_exact = is_exact and not statement.rounds
                if is_exact:
                    imported.compare_source(source, statement.tensors)
            second.run(feed, observe=middle.compare)
            got = third.run(feed, observe=final.compare)
            if statement is not None:
                _compare_outputs(source, got if is_quantized_source else wanted, statement, source_outputs)
            for output, source_port, port in zip(outputs, source.output_ports, model.graph.output_ports, strict=True):
                output.add(_real(wanted[source_port.name], source_port), _real(got[port.name], port))
            samples += 1
            if progress is not None:
                progress(samples)
    if not samples:
        raise UsageError("there are no samples to compare with")
    is_quantized = model.quantize != "none"
    for difference in final.by_name.values():
        before = max((final.by_name[name].noise for name in difference.reads), default=0.0)
        makes_noise = math.isfinite(before) and not difference.moves  # parts of a tensor differ in noise without a step
        difference.added = max(0.0, difference.noise - before) if makes_noise else 0.0
    for difference in (*final.by_name.values(), *outputs):
        difference.stage = _stage(difference, middle.by_name.get(difference.name), is_quantized)
    opinion = None
    if oracle is not None:
        compared = tuple(item for item in source_outputs.values() if item.is_used)
        opinion = Opinion(engine, tuple(imported.by_name.values()), compared, is_exact, problem)
    return Verification(
        model.graph.file or model.graph.name,
        samples,
        tuple(final.by_name.values()),
        tuple(outputs),
        is_quantized,
        len(final.unmatched),
        origin,
        opinion,
    )


def _compare_outputs(
    source: Graph, mine: Mapping[str, Array], statement: Statement, differences: Mapping[str, Difference]
) -> None:
    """Outputs with those of the same name, or where names are others (a signature's) of the same place."""
    ports = source.output_ports
    same_count = len(ports) == len(statement.outputs)
    for number, port in enumerate(ports):
        name = statement.outputs[number] if same_count and port.name not in statement.tensors else port.name
        theirs = statement.tensors.get(name)
        if theirs is not None and theirs.size == mine[port.name].size:
            array = _real(theirs, port) if theirs.dtype.kind in "iu" else theirs
            differences[port.name].add(array.reshape(mine[port.name].shape), _real(mine[port.name], port))


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


def _real(array: Array, port: Port) -> Array:
    return port.quant.dequantize(array) if port.quant is not None and array.dtype.kind in "iu" else array


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


def unknown_extents(ports: Sequence[Port]) -> dict[str, list[str]]:
    """Open extents per port, as far as nothing says what to take: a number of samples, which stands in front, is 1."""
    samples = {port.shape[0] for port in ports if len(port.shape) > 1}
    found = {port.name: [extent for extent in port.shape if isinstance(extent, str)] for port in ports}
    found = {name: [extent for extent in extents if extent not in samples] for name, extents in found.items()}
    return {name: extents for name, extents in found.items() if extents}


def random_feeds(ports: list[Port], count: int, seed: int = 0) -> list[dict[str, Array]]:
    """Samples where there are no real ones: normal numbers, or the whole range of an 8-bit integer type.

    An open number of samples is 1.

    Raises:
        UsageError: another extent is not known.

    """
    for name, extents in unknown_extents(ports).items():
        raise UsageError(f"input '{name}' has no fixed shape ({', '.join(extents)})", hint="give samples with --data")
    generator = np.random.default_rng(seed)
    feeds = []
    for _ in range(count):
        feed: dict[str, Array] = {}
        for port in ports:
            shape = [extent if isinstance(extent, int) else 1 for extent in port.shape]
            dtype = numpy_type(port.dtype)
            if dtype.kind not in "biu":
                feed[port.name] = generator.standard_normal(shape).astype(dtype)
            elif dtype.kind == "b":
                feed[port.name] = generator.integers(0, 2, shape).astype(dtype)
            else:
                low, high = (np.iinfo(dtype).min, np.iinfo(dtype).max) if dtype.itemsize == 1 else (0, 1)
                feed[port.name] = generator.integers(low, high + 1, shape).astype(dtype)
        feeds.append(feed)
    return feeds
