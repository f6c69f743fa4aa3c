"""Values of a decoder that depend on positions and masks alone, computed for a few lengths of its caches.

A split decoder takes positions and the mask of its attention as inputs. The values that they replace are found by their
elements, because exporters write them in many forms: from ``attention_mask``, from ``position_ids``, or from shapes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tpuconvert.model.model import Model
from tpuconvert.runtime.derived_inputs import MASK
from tpuconvert.runtime.session.border import to_value
from tpuconvert.runtime.session.session_state import SessionState
from tpuconvert.schema.definition.extents import evaluate_extent
from tpuconvert.schema.definition.op import Trait
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.copy import Constdata
from tpuconvert.schema.ops.gather_group_quantized import GatherGroupQuantized
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.types import Array, DType

GATHERS = (IndexSelect, GatherGroupQuantized)
"""Operators that look up rows of an embedding."""

LENGTHS = ((3, 2), (5, 3), (3, 2))
"""Numbers of past and new tokens of the samples."""

HIDDEN_KEY = 1
"""Key that the attention mask of the last sample hides; the others hide none."""

_MASKED = -9999.0
"""Largest element of a mask that hides a key. Exporters write -10000, the lowest number of a type, or infinity."""


@dataclass
class Sample:
    """One set of inputs and the values that follow from them.

    Attributes:
        past: number of tokens in the caches.
        new: number of tokens of the run.
        visible: True for every key [past + new] that the attention mask does not hide.
        arrays: values by name.
    """

    past: int
    new: int
    visible: Array
    arrays: dict[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class SampledValues:
    """Result of ``sample_values``.

    Args:
        stream: values that depend on embedded tokens or caches.
        embedded: results of the operators that look up embeddings, or inputs with embedded tokens.
        samples: the other values, for some lengths.
    """

    stream: set[Value]
    embedded: tuple[Value, ...]
    samples: tuple[Sample, ...]

    def is_tokens(self, value: Value, tokens: Value) -> bool:
        """Return True if a value has the elements of the input with the ids of the tokens."""
        return value is not tokens and all(_is_sequence(s, value, s.arrays[tokens.name]) for s in self.samples)

    def is_positions(self, value: Value) -> bool:
        """Return True if a value is the position of each new token."""
        return all(_is_sequence(s, value, np.arange(s.past, s.past + s.new)) for s in self.samples[:-1])

    def mask_kind(self, value: Value) -> str:
        """Kind of a mask of 0 and large negative numbers, or an empty string.

        ``causal`` hides later keys, and perhaps padding; ``padding`` hides padding only.
        """
        kinds: set[str] = {"causal", "padding"}
        for sample in self.samples:
            array = sample.arrays.get(value.name)
            if array is None or array.dtype != np.float32 or array.ndim < 2:
                return ""
            kinds &= _mask_kinds(array, sample)
        return next(iter(sorted(kinds)), "")


def sample_values(model: Model, graph: Graph, extents: Sequence[Mapping[str, int]]) -> SampledValues:
    """Compute the values of a graph that do not depend on embedded tokens or caches.

    Args:
        model: the decoder.
        graph: its graph, or a copy with the same inputs.
        extents: symbolic extents for each of ``LENGTHS``.

    Raises:
        TpuConvertError: an operator cannot compute its values.
    """
    samples = [_sample_inputs(model, graph, index, numbers) for index, numbers in enumerate(extents)]
    state = SessionState(graph, model.states)
    others = {port.name for port in state.required}
    is_float = [value for value in graph.inputs if value.dtype.is_float]
    stream = set(is_float)
    pasts = {graph.inputs[item.input] for item in model.states}
    embedded = [value for value in is_float if value not in pasts]
    tokens = {
        value for value, port in zip(graph.inputs, graph.input_ports, strict=True) if port.name in others
    } - stream
    depends = set(tokens)
    for node in graph.sorted_nodes():
        if any(value in stream for value in node.inputs) and Trait.SHAPE_ONLY not in node.op.traits:
            stream.update(node.outputs)
        elif isinstance(node.op, GATHERS) and node.output.dtype.is_float and _looks_up(node, depends, samples):
            stream.add(node.output)
            embedded.append(node.output)
        else:
            for sample, numbers in zip(samples, extents, strict=True):
                _evaluate(node, model, sample, numbers)
            if any(value in depends for value in node.inputs):
                depends.update(node.outputs)
    return SampledValues(stream, tuple(embedded), tuple(samples))


def _looks_up(node: Node, depends: set[Value], samples: Sequence[Sample]) -> bool:
    """Return True if the index of a gather depends on tokens and is not the position of the new tokens."""
    index = node.inputs[0 if isinstance(node.op, GatherGroupQuantized) else 1]
    if index is None or index not in depends:
        return False
    return not all(_is_sequence(s, index, np.arange(s.past, s.past + s.new)) for s in samples[:-1])


def _sample_inputs(model: Model, graph: Graph, index: int, numbers: Mapping[str, int]) -> Sample:
    past, new = LENGTHS[index]
    state = SessionState(graph, model.states)
    state.length = past
    feeds: dict[str, Array] = {}
    for port in state.required:
        shape = [evaluate_extent(extent, numbers) if isinstance(extent, str) else extent for extent in port.shape]
        feeds[port.name] = np.resize(np.array([7, 4, 9]), shape)
    visible = np.ones(past + new, np.int64)
    if index == len(LENGTHS) - 1:
        visible[HIDDEN_KEY] = 0
        if any(port.name == MASK for port in state.inputs):
            feeds[MASK] = visible[None]
    complete, _ = state.complete(feeds)
    sample = Sample(past, new, visible != 0)
    for value, port in zip(graph.inputs, graph.input_ports, strict=True):
        if not value.dtype.is_float:
            sample.arrays[value.name] = to_value(complete[port.name], port, value, {})
    return sample


def _evaluate(node: Node, model: Model, sample: Sample, numbers: Mapping[str, int]) -> None:
    """Add the results of a node. Operands whose elements it does not use are zeros."""
    if isinstance(node.op, Constdata):
        operand = node.inputs[0]
        assert operand is not None
        sample.arrays[node.name] = operand.array
        return
    operands: list[Array | None] = []
    for value in node.inputs:
        if value is None or value.is_constant:
            operands.append(None if value is None else value.array)
        elif value.name in sample.arrays:
            operands.append(sample.arrays[value.name])
        else:
            shape = [evaluate_extent(extent, numbers) if isinstance(extent, str) else extent for extent in value.shape]
            operands.append(np.zeros(shape, value.dtype.numpy))
    with np.errstate(all="ignore"):
        results = node.op.evaluate(*operands, chip=model.chip)
    sample.arrays |= {value.name: array for value, array in zip(node.outputs, results, strict=True)}


def _is_sequence(sample: Sample, value: Value, expected: Array) -> bool:
    array = sample.arrays.get(value.name)
    if array is None or value.dtype is not DType.INT32 or array.size != expected.size:
        return False
    return max(array.shape) == array.size and np.array_equal(array.reshape(-1), expected.reshape(-1))


def _mask_kinds(array: Array, sample: Sample) -> set[str]:
    """Kinds of mask that an array can be in a sample."""
    total = sample.past + sample.new
    if array.size not in (total, sample.new * total) or array.shape[-1] != total:
        return set()
    rows = np.broadcast_to(array.reshape(-1, total), (sample.new, total))
    causal = np.arange(total)[None, :] <= sample.past + np.arange(sample.new)[:, None]
    padding = np.broadcast_to(sample.visible[None, :], causal.shape)
    expected = {"causal": (causal, causal & padding), "padding": (padding,)}
    return {kind for kind, masks in expected.items() if any(_hides(rows, mask) for mask in masks)}


def _hides(rows: Array, visible: Array) -> bool:
    return bool((rows[visible] == 0).all() and (rows[~visible] <= _MASKED).all())
