"""Masks of an attention, recognized by their elements for a few lengths of the caches.

Exporters write the mask of a decoder in many forms: lookups of ``attention_mask`` by positions, triangles, comparisons
of ranges, selections. Most of them are functions of ``attention_mask``, of the number of past tokens and of the number
of new tokens. ``recognize_masks`` computes them for some of these, and replaces a mask with the elements of

    where(key <= query, where(attention_mask of key, 0, padding), where(attention_mask of key, causal, both))

by nodes with this formula, which are correct at every position for caches with room for more tokens. Masks that depend
on other inputs, such as ``position_ids``, which a caller may set to any numbers, stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tpuconvert.runtime.derived_inputs import MASK
from tpuconvert.schema.definition.extents import evaluate_extent
from tpuconvert.schema.definition.op import Trait
from tpuconvert.schema.errors import TpuConvertError
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.arithmetic import Add, Mul
from tpuconvert.schema.ops.arithmetic_with_scalar import Muls
from tpuconvert.schema.ops.attention import Attention
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.compare import Ges, Le, Nes
from tpuconvert.schema.ops.copy import Constdata
from tpuconvert.schema.ops.generation import ShapeFetch
from tpuconvert.schema.ops.positions import Positions
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.types import F32, Array, Chip, Scalar

_LENGTHS = ((0, 4, ()), (3, 2, ()), (5, 3, (1,)), (6, 1, (0, 1)), (0, 5, (0, 1)), (9, 1, ()), (4, 2, (5,)))
"""Numbers of past and new tokens, and the tokens that the attention mask hides, of the samples.

Some samples hide a query from itself, so that all keys of a row are hidden."""

_LONGEST = 1 << 18
"""Number of tokens of the longest sample, in which a mask that hides distant keys differs from one that does not."""

_MOST_ELEMENTS = 1 << 21
"""Largest number of elements of a value that is computed."""


class _NotSampledError(Exception):
    """A value depends on elements of the caches or on inputs that are not known."""


_FAILURES = (_NotSampledError, TpuConvertError, ValueError, IndexError)
"""Exceptions of a value that cannot be computed for some lengths, such as positions after the end of a table."""


@dataclass
class _Sample:
    """One set of inputs, and the values that were computed from them."""

    past: int
    new: int
    visible: Array
    numbers: Mapping[str, int]
    arrays: dict[Value, Array]


class _Tokens(NamedTuple):
    """Inputs that determine masks, and the symbols of the lengths."""

    cache: Value
    axis: int
    ids: Value
    mask: Value | None
    total: str


class _Hidden(NamedTuple):
    """Elements of a mask: for later keys, for keys that the attention mask hides, and for keys that are both."""

    causal: float
    padding: float
    both: float


def recognize_masks(graph: Graph, cache: Value, axis: int, total: str, added: str, chip: Chip) -> bool:
    """Replace recognized masks in a graph, and remove the nodes that computed them. Return True if there are any.

    Args:
        graph: is changed.
        cache: one of the caches.
        axis: its axis of the tokens.
        total: symbol of the number of all tokens.
        added: symbol or number of the new tokens.
        chip: whose arithmetic is computed.
    """
    masks = {
        node.inputs[3]: None
        for node in graph.nodes
        if isinstance(node.op, Attention) and len(node.inputs) > 3 and node.inputs[3] is not None
    }
    candidates = [mask for mask in masks if mask is not None and mask.producer is not None and total in mask.shape]
    ids = _input_with(graph, added, without=MASK)
    if not candidates or ids is None:
        return False
    named = _input_with(graph, total, name=MASK)
    tokens = _Tokens(cache, axis, ids, named, total)
    samples = [_sample(tokens, item, added) for item in _LENGTHS]
    replaced: dict[tuple[_Hidden, bool], Value] = {}
    for mask in candidates:
        hidden = _hidden_elements(mask, samples, chip)
        if hidden is None or mask.rank != 4 or mask.shape[1] != 1 or mask.shape[-1] != total:
            continue
        if not _hides_no_distant_key(mask, tokens, added, chip):
            continue
        depends = named is not None and _depends_on(mask, named)
        key = hidden, depends
        if key not in replaced:
            replaced[key] = _add_mask(graph, tokens, hidden, mask, depends=depends)
        graph.replace_uses(mask, replaced[key])
    graph.prune()
    graph.sort()
    return bool(replaced)


def _input_with(graph: Graph, extent: str, *, name: str = "", without: str = "") -> Value | None:
    """Return an integer input [batch, tokens] with this number of tokens."""
    for value, port in zip(graph.inputs, graph.input_ports, strict=True):
        is_named = port.name == name if name else port.name != without
        if is_named and value.rank == 2 and str(value.shape[1]) == extent and not value.dtype.is_float:
            return value
    return None


def _sample(tokens: _Tokens, lengths: tuple[int, int, tuple[int, ...]], added: str) -> _Sample:
    past, new, hidden = lengths
    new = int(added) if added.isdigit() else new
    past_symbol = str(tokens.cache.shape[tokens.axis])
    numbers = {past_symbol: past, tokens.total: past + new, **({} if added.isdigit() else {added: new})}
    batch = tokens.ids.shape[0] if isinstance(tokens.ids.shape[0], int) else 1
    visible = np.ones((batch, past + new), np.int64)
    for row in range(batch):
        visible[row, [index for index in hidden if index + row < past + new]] = 0
    if tokens.mask is None:
        visible[:] = 1
    arrays = {} if tokens.mask is None else {tokens.mask: visible.astype(tokens.mask.dtype.numpy)}
    return _Sample(past, new, visible != 0, numbers, arrays)


def _value_of(value: Value, sample: _Sample, chip: Chip) -> Array:
    """Compute a value of a sample from its inputs.

    Raises:
        _NotSampledError: it depends on other elements, or is large.
        TpuConvertError: an operator cannot compute it.
    """
    stack = [value]
    while stack:
        current = stack[-1]
        node = current.producer
        if current in sample.arrays or current.is_constant:
            stack.pop()
        elif node is None or isinstance(node.op, Attention):
            raise _NotSampledError(current.name)
        else:
            is_shape = Trait.SHAPE_ONLY in node.op.traits
            waiting = [
                item
                for item in node.inputs
                if not is_shape and item is not None and not item.is_constant and item not in sample.arrays
            ]
            stack += waiting
            if not waiting:
                _evaluate(node, sample, chip)
    return value.array if value.is_constant else sample.arrays[value]


def _evaluate(node: Node, sample: _Sample, chip: Chip) -> None:
    operands: list[Array | None] = []
    for value in node.inputs:
        if value is None or value.is_constant:
            operands.append(None if value is None else value.array)
        elif value in sample.arrays:
            operands.append(sample.arrays[value])
        else:
            shape = [evaluate_extent(str(extent), sample.numbers) for extent in value.shape]
            operands.append(np.broadcast_to(np.zeros((), value.dtype.numpy), shape))
    if isinstance(node.op, Constdata):
        assert operands[0] is not None
        sample.arrays[node.output] = operands[0]
        return
    with np.errstate(all="ignore"):
        results = node.op.evaluate(*operands, chip=chip)
    if any(array.size > _MOST_ELEMENTS for array in results):
        raise _NotSampledError(node.name)
    sample.arrays.update(zip(node.outputs, results, strict=True))


def _hidden_elements(mask: Value, samples: list[_Sample], chip: Chip) -> _Hidden | None:
    """Return the elements of a mask that is 0 for the visible keys in all samples; None for another mask."""
    elements: tuple[set[float], set[float], set[float]] = set(), set(), set()
    for sample in samples:
        try:
            array = _value_of(mask, sample, chip)
        except _FAILURES:
            return None
        total = sample.past + sample.new
        batch = len(sample.visible)
        if array.dtype != np.float32 or array.ndim != 4 or array.shape[-1] != total:
            return None
        if array.shape[0] not in (1, batch) or array.shape[1:3] not in ((1, 1), (1, sample.new)):
            return None
        array = np.broadcast_to(array, (batch, 1, sample.new, total))
        is_past = np.arange(total)[None, :] <= sample.past + np.arange(sample.new)[:, None]
        causal = np.broadcast_to(~is_past[None, None], array.shape)
        padding = np.broadcast_to(~sample.visible[:, None, None, :], array.shape)
        if (array[~causal & ~padding] != 0).any():
            return None
        for numbers, where in zip(elements, (causal & ~padding, padding & ~causal, causal & padding), strict=True):
            numbers.update(map(float, np.unique(array[where])))
    if any(len(numbers) > 1 for numbers in elements) or not elements[0]:
        return None
    causal_number, padding_number, both = (next(iter(numbers), 0.0) for numbers in elements)
    return _Hidden(causal_number, padding_number, both)


def _hides_no_distant_key(mask: Value, tokens: _Tokens, added: str, chip: Chip) -> bool:
    """Return True if the last query attends to all keys at the largest length that the graph supports.

    A stored table of a mask, or of positions, limits the length.
    """
    new = int(added) if added.isdigit() else 1

    def array_of(total: int) -> Array | None:
        try:
            array = _value_of(mask, _sample(tokens, (total - new, new, ()), added), chip)
        except _FAILURES:
            return None
        return array if array.shape[-1] == total else None

    array = array_of(_LONGEST)
    if array is None:
        low, high = max(past + count for past, count, _ in _LENGTHS), _LONGEST
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if array_of(middle) is None else (middle, high)
        array = array_of(low)
    return array is not None and not array[..., -1, :].any()


def _depends_on(value: Value, source: Value) -> bool:
    """Return True if the elements of a value are computed from the elements of another one."""
    seen: set[Value] = set()
    stack = [value]
    while stack:
        current = stack.pop()
        if current is source:
            return True
        if current not in seen and current.producer is not None and Trait.SHAPE_ONLY not in current.producer.op.traits:
            stack += [item for item in current.producer.inputs if item is not None]
        seen.add(current)
    return False


def _add_mask(graph: Graph, tokens: _Tokens, hidden: _Hidden, like: Value, *, depends: bool) -> Value:
    """Add nodes for a mask [batch, 1, new tokens, all tokens]."""

    def number(value: float, name: str) -> Value:
        return graph.constant(np.full(1, value, np.float32), f"{like.name}:{name}")

    assert like.producer is not None
    with graph.derived_from(like.producer):
        past = graph.add(ShapeFetch(tokens.axis, tokens.axis + 1), tokens.cache)
        query = graph.add(Add(), graph.add(Positions(1), tokens.ids), past)
        all_tokens = tokens.mask if tokens.mask is not None else _value_with_total(graph, tokens)
        key = graph.add(Positions(all_tokens.shape.index(tokens.total)), all_tokens)
        rows = graph.add(Reshape((1, 1, -1, 1)), graph.add(Cast(F32), query))
        columns = graph.add(Reshape((1, 1, 1, -1)), graph.add(Cast(F32), key))
        is_past = graph.add(Le(), columns, rows)
        zero, causal = number(0.0, "zero"), number(hidden.causal, "causal")
        if not depends or tokens.mask is None:
            return graph.add(ConditionSelect(), is_past, zero, causal)
        batch = tokens.mask.shape[0]
        assert isinstance(batch, int)
        visible = graph.add(
            Reshape((batch, 1, 1, -1)), graph.add(Nes(Scalar.f32(0)), graph.add(Cast(F32), tokens.mask))
        )
        if len({*hidden}) == 1:
            return graph.add(ConditionSelect(), graph.add(Mul(), is_past, visible), zero, causal)
        code = graph.add(Add(), graph.add(Muls(Scalar.f32(2)), is_past), visible)
        result = graph.add(ConditionSelect(), graph.add(Ges(Scalar.f32(1)), code), causal, number(hidden.both, "both"))
        result = graph.add(
            ConditionSelect(), graph.add(Ges(Scalar.f32(2)), code), number(hidden.padding, "padding"), result
        )
        return graph.add(ConditionSelect(), graph.add(Ges(Scalar.f32(3)), code), zero, result)


def _value_with_total(graph: Graph, tokens: _Tokens) -> Value:
    """Return a cache after the run, whose extent is the number of all tokens."""
    return next(value for value in graph.outputs if tokens.total in value.shape)
