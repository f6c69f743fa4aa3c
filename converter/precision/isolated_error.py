"""Measurement of the error that each integer unit of a model causes at the outputs.

Float network and model run on every sample. The error of a unit has two parts:

- *activations*: the float nodes of the unit run on its quantized float operands. The difference from the float result
  is the part that results from the quantization of the operands.
- *weights*: the float nodes of the unit run on the dequantized operands that the unit has in the model. The difference
  of the model's result from this one is the part that results from weights, lookup tables and integer arithmetic. The
  operands are taken from the model because adaptive rounding chose the weights for them.

If the model has corrected biases, the mean error per output channel of linear operators is removed from both parts.
The biases compensate for the mean errors of all nodes before. If only one unit were in integers, its biases would
compensate for its own mean error. For the same reason the component of the weights' part that is proportional to the
error of the operands, as seen at the result, is removed, channel by channel: the reconstruction changes weights so that
they compensate for it.

The error is added to the float result of the unit, and the float nodes that depend on it run again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tpuconvert.model.model import Model
from tpuconvert.optimizer.quantize.traits import has_constant_weight
from tpuconvert.precision.integer_units import IntegerUnit
from tpuconvert.precision.output_noise import NoiseSum, Powers, to_decibel
from tpuconvert.progress import Progress
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.graph.graph_copy import copy_subgraph
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.types import Array, QuantParams

MEMORY = 1 << 28
"""Limit for stored tensors of float network and model, in bytes. At least the tensors of one feed are stored."""

_FEWEST_ELEMENTS = 8
"""Smallest number of elements per channel for a mean. With fewer, the mean would contain much of the noise."""

Feed = Mapping[str, Array]


class UnitNoise(NamedTuple):
    """Noise at the outputs that one unit causes.

    Args:
        total: both parts together.
        weights: the part from weights, tables and arithmetic.
        activations: the part from quantized operands.

    """

    total: NoiseSum
    weights: NoiseSum
    activations: NoiseSum


@dataclass(frozen=True)
class _Tensors:
    """Tensors of one feed by name: of the float network, and of the model."""

    floats: dict[str, Array]
    model: dict[str, Array]

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(array.nbytes for arrays in (self.floats, self.model) for array in arrays.values())


class IsolatedErrors:
    """Measurement of units, one after the other, on the same feeds.

    Args:
        graph: the float graph that was quantized.
        model: the quantized model.
        feeds: samples.
        has_corrected_biases: whether the conversion corrected biases on samples.

    """

    def __init__(self, graph: Graph, model: Model, feeds: Sequence[Feed], *, has_corrected_biases: bool) -> None:
        self.graph = graph
        self.model = model
        self.feeds = feeds
        self.total = NoiseSum(graph)
        self._corrects = has_corrected_biases
        self._compensations: dict[IntegerUnit, _Compensation] = {}
        self._accumulated: dict[str, Powers] = {}

    def compare(self, units: Sequence[IntegerUnit], progress: Progress) -> None:
        """Run float network and model on all feeds: measure the error of the model, and what units compensate for."""
        local_errors = [_LocalError(self.graph, unit) for unit in units]
        linear = [unit for unit in units if has_constant_weight(unit.node)]
        self._compensations = {unit: _Compensation(unit) for unit in linear if self._corrects}
        self._accumulated = {unit.stored.name: Powers() for unit in units}
        needed = _Needed(self.graph, self.model.graph, units)
        progress.stage("compare", len(self.feeds))
        with Session(self.graph, observed=True) as floats, Session(self.model, observed=True) as integers:
            for done, feed in enumerate(self.feeds, start=1):
                tensors = needed.run(floats, integers, feed)
                for unit, local in zip(units, local_errors, strict=True):
                    stored = _dequantize(unit.stored.quant, tensors.model[unit.stored.name])
                    self._accumulated[unit.stored.name].add(tensors.floats[unit.stored_value.name], stored)
                    if unit in self._compensations:
                        self._compensations[unit].add(local.parts(tensors))
                expected = [tensors.floats[value.name] for value in self.graph.outputs]
                actual = [
                    _dequantize(value.quant, tensors.model[value.name]).reshape(array.shape)
                    for value, array in zip(self.model.graph.outputs, expected, strict=True)
                ]
                self.total.add(expected, actual)
                progress.advance(done)

    def accumulated_sqnr(self, unit: IntegerUnit) -> float:
        """SQNR of the unit's result in the model, in decibel."""
        return to_decibel(self._accumulated[unit.stored.name].share)

    def estimate(self, units: Sequence[IntegerUnit], progress: Progress) -> list[float]:
        """Return the noise of units at the outputs on the first feed, as a share of the power of the outputs."""
        sums = [(NoiseSum(self.graph),) for _ in units]
        self._add(units, sums, self.feeds[:1], progress, "estimate")
        return [total.result().noise for (total,) in sums]

    def measure(self, units: Sequence[IntegerUnit], progress: Progress) -> list[UnitNoise]:
        """Return the noise of units at the outputs on all feeds. ``compare`` was called with these units."""
        sums = [UnitNoise(NoiseSum(self.graph), NoiseSum(self.graph), NoiseSum(self.graph)) for _ in units]
        self._add(units, sums, self.feeds, progress, "attribute")
        return sums

    def _add(
        self,
        units: Sequence[IntegerUnit],
        sums: Sequence[tuple[NoiseSum, ...]],
        feeds: Sequence[Feed],
        progress: Progress,
        stage: str,
    ) -> None:
        """Add the noise on some feeds to the sums of each unit: the total, and the parts if there are sums for them."""
        downstreams = [_Downstream(self.graph, unit.result) for unit in units]
        progress.stage(stage, len(feeds) * len(units))
        done = 0
        for chunk in self._chunks(_Needed(self.graph, self.model.graph, units, downstreams), feeds):
            for unit, downstream, noises in zip(units, downstreams, sums, strict=True):
                local = _LocalError(self.graph, unit, self._compensations.get(unit))
                downstream.open()
                for tensors in chunk:
                    expected = [tensors.floats[value.name] for value in self.graph.outputs]
                    weights, activations, _ = local.parts(tensors)
                    for noise, part in zip(noises, (weights + activations, weights, activations), strict=False):
                        noise.add(expected, downstream.outputs(tensors.floats, part) if part.any() else expected)
                    done += 1
                    progress.advance(done)
                downstream.close()

    def _chunks(self, needed: _Needed, feeds: Sequence[Feed]) -> Iterator[list[_Tensors]]:
        """Yield the tensors of several feeds at a time: as many as fit into ``MEMORY``."""
        chunk: list[_Tensors] = []
        with Session(self.graph, observed=True) as floats, Session(self.model, observed=True) as integers:
            for feed in feeds:
                tensors = needed.run(floats, integers, feed)
                if chunk and sum(item.size for item in chunk) + tensors.size > MEMORY:
                    yield chunk
                    chunk = []
                chunk.append(tensors)
        yield chunk


class _Needed:
    """Names of the tensors that a measurement needs."""

    def __init__(
        self, graph: Graph, model: Graph, units: Sequence[IntegerUnit], downstreams: Sequence[_Downstream] = ()
    ) -> None:
        floats = {value for unit in units for value in (unit.result, unit.stored_value)}
        floats.update(item.value for unit in units for item in unit.operands)
        floats.update(value for downstream in downstreams for value in downstream.inputs)
        self._floats = {value.name for value in (*floats, *graph.outputs)}
        integers = {value for unit in units for value in (unit.integer, unit.stored)}
        integers.update(item.integer for unit in units for item in unit.operands)
        self._model = {value.name for value in (*integers, *model.outputs)}
        self._constants = [
            {value.name: value.array for value in program.outputs if value.is_constant} for program in (graph, model)
        ]

    def run(self, floats: Session, integers: Session, feed: Feed) -> _Tensors:
        """Run float network and model on a feed."""
        tensors = _Tensors(dict(self._constants[0]), dict(self._constants[1]))

        def observe_float(value: Value, array: Array) -> None:
            if value.name in self._floats:
                tensors.floats[value.name] = array

        def observe_model(value: Value, array: Array) -> None:
            if value.name in self._model:
                tensors.model[value.name] = array

        floats.run(feed, observe=observe_float)
        integers.run(feed, observe=observe_model)
        return tensors


class _Compensation:
    """Compensation of the refinement for the errors of earlier nodes, per output channel of a linear unit.

    It consists of the means of both parts of the error, and of the component of the weights' part that is proportional
    to the effect of the operands' errors on the result.
    """

    def __init__(self, unit: IntegerUnit) -> None:
        self._axis = -1 if isinstance(unit.node.op, MatrixMul) else 1
        self._sums: list[Array] | None = None
        self._count = 0

    def add(self, parts: LocalParts) -> None:
        """Add the error on one feed."""
        axes = self._other_axes(parts.weights.ndim)
        weights, activations, inherited = (part.astype(np.float64) for part in parts)
        terms = (weights, activations, inherited, weights * inherited, inherited * inherited)
        sums = [term.sum(axes, keepdims=True) for term in terms]
        self._sums = sums if self._sums is None else [old + new for old, new in zip(self._sums, sums, strict=True)]
        self._count += weights.size // weights.shape[self._axis]

    def remove(self, parts: LocalParts) -> LocalParts:
        """Return the parts without the compensation."""
        if self._sums is None or self._count < _FEWEST_ELEMENTS:
            return parts
        weights, activations, inherited, product, square = (total / self._count for total in self._sums)
        variance = square - inherited**2
        share = np.clip((product - weights * inherited) / np.where(variance > 0, variance, 1.0), 0.0, 1.0)
        own = parts.weights - weights - share * (parts.inherited - inherited)
        return LocalParts(own.astype(np.float32), (parts.activations - activations).astype(np.float32), parts.inherited)

    def _other_axes(self, rank: int) -> tuple[int, ...]:
        return tuple(axis for axis in range(rank) if axis != self._axis % rank)


class LocalParts(NamedTuple):
    """Error of one unit at its result.

    Args:
        weights: the part from weights, tables and arithmetic.
        activations: the part from the quantization of its operands.
        inherited: float result minus that for the operands of the model.
    """

    weights: Array
    activations: Array
    inherited: Array


class _LocalError:
    """Error of one unit at its result."""

    def __init__(self, graph: Graph, unit: IntegerUnit, compensation: _Compensation | None = None) -> None:
        self._unit = unit
        self._compensation = compensation
        self._session = Session(copy_subgraph(graph, [item.value for item in unit.operands], [unit.result]))

    def parts(self, tensors: _Tensors) -> LocalParts:
        """Return the parts of the error, without what compensates for errors of earlier nodes."""
        unit, floats = self._unit, tensors.floats
        quant = unit.integer.quant
        dequantized, own = {}, {}
        for item in unit.operands:
            name = item.value.name
            dequantized[name] = _dequantize(item.integer.quant, tensors.model[item.integer.name])
            own[name] = _round(item.integer.quant, floats[name]) if item.is_own else floats[name]
        result = self._run(dequantized)
        weights = _dequantize(quant, tensors.model[unit.integer.name]) - _round(quant, result)
        moved = self._run(own)
        if unit.owns_result:
            moved = _round(quant, moved)
        float_result = floats[unit.result.name]
        parts = LocalParts(weights, moved - float_result, float_result - result)
        return parts if self._compensation is None else self._compensation.remove(parts)

    def _run(self, feed: Feed) -> Array:
        (result,) = self._session.run(feed).values()
        return result


class _Downstream:
    """The nodes of the float graph that depend on one value.

    Args:
        graph: the float graph.
        start: the value.

    Attributes:
        inputs: the value, and the values that these nodes use and that do not depend on it.

    """

    def __init__(self, graph: Graph, start: Value) -> None:
        self._graph = graph
        self._start = start
        dependent: set[Value] = set()
        inputs = {start: None}
        for node in graph.sorted_nodes():
            operands = [value for value in node.inputs if value is not None and not value.is_constant]
            if any(value is start or value in dependent for value in operands):
                dependent.update(node.outputs)
                inputs.update(dict.fromkeys(value for value in operands if value not in dependent))
        self.inputs = list(inputs)
        self._results = [value for value in dict.fromkeys(graph.outputs) if value in dependent]
        self._session: Session | None = None

    def open(self) -> None:
        """Plan the nodes."""
        if self._results:
            self._session = Session(copy_subgraph(self._graph, self.inputs, self._results))

    def close(self) -> None:
        """Release the plan."""
        self._session = None

    def outputs(self, values: Feed, error: Array) -> list[Array]:
        """Return the outputs of the float network with an error added to the value."""
        changed = {self._start.name: values[self._start.name] + error}
        if self._session is not None:
            feed = {value.name: changed.get(value.name, values[value.name]) for value in self.inputs}
            changed.update(self._session.run(feed))
        return [changed.get(value.name, values[value.name]) for value in self._graph.outputs]


def _dequantize(quant: QuantParams | None, values: Array) -> Array:
    return values if quant is None or values.dtype.kind not in "iu" else quant.dequantize(values)


def _round(quant: QuantParams | None, values: Array) -> Array:
    """Quantize and dequantize."""
    return values if quant is None else quant.dequantize(quant.quantize(values))
