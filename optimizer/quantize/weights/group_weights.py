"""Weights of float matmuls in 4 or 8 bits with one scale per output and group of inputs.

The scales of a group are searched: the one with the smallest squared error of the rounded weights wins, where the error
of a weight counts by the mean square of its input, if samples are given. With samples, the weights are then rounded one
input at a time, and the others compensate for the error (``weight_rounding.py``).

Language models have a few inputs that are much larger than the others. ``pack_with_outliers`` moves a group of them to
the end, and gives them a second group of weights for the error of the first: x = (others, outliers, outliers). This
doubles their bits. Source: Zhao et al., Improving Neural Network Quantization without Retraining using Outlier Channel
Splitting (2019), for weights and with halves instead of a remainder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tpuconvert.optimizer.quantize.weights.weight_rounding import Grid, round_to_grid
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.arithmetic.finite import is_finite
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.matmul_group_quantized import MatmulGroupQuantized, pack_codes
from tpuconvert.schema.types import F32, Array, DType

Float64 = npt.NDArray[np.float64]

LEAST_WEIGHTS = 1 << 14
"""Weights with fewer elements stay in float: they save little memory."""

MOST_INPUTS = 8192
"""Weights with more inputs are rounded to nearest. The time to factor the second moments grows with the cube."""

_MOST_BYTES = 1 << 30
"""Memory for second moments in one pass over the samples."""

_PART = 1 << 20
"""Number of weights whose scales are searched together."""

WORTHWHILE_ERROR = 0.75
"""Error with a second group for outliers, relative to that without, above which the group is not worth its bits."""

_SHRINK = {4: np.linspace(0.65, 1.15, 21), 8: np.linspace(0.9, 1.02, 7)}
"""Scales to try by bits, relative to the one with which no weight of the group saturates."""


@dataclass(frozen=True)
class GroupFormat:
    """Bits and group size of the weights; with ``has_zero_points``, a group has a zero point besides its scale."""

    bits: int
    group: int
    has_zero_points: bool = False

    @property
    def most(self) -> int:
        """Largest code."""
        return (1 << self.bits) - 1


class PackedWeight(NamedTuple):
    """A packed weight.

    Args:
        node: name of its node.
        codes: packed codes, [outputs, bytes].
        scale: [outputs, groups].
        zero_point: packed zero points, or None.
        error: squared error of the result, relative to its square. Without samples, inputs are independent.
        order: inputs that the weight multiplies, if they differ from the inputs of the float weight.
    """

    node: str
    codes: Array
    scale: Array
    zero_point: Array | None
    error: float
    order: Array | None = None


def packable_nodes(graph: Graph, form: GroupFormat) -> list[Node]:
    """Return the float matmuls whose weights can be packed, in the order of the graph."""
    return [node for node in graph.nodes if isinstance(node.op, MatrixMul) and _is_packable(node, form)]


def _is_packable(node: Node, form: GroupFormat) -> bool:
    x, weight, *bias = node.inputs
    if x is None or weight is None or x.is_constant or not weight.is_constant or weight.quant is not None:
        return False
    if any(value is not None and not (value.is_constant and value.dtype is F32) for value in bias):
        return False
    depth, columns = weight.array.shape
    if x.dtype is not F32 or node.output.dtype is not F32 or depth < form.group or depth * columns < LEAST_WEIGHTS:
        return False
    return is_finite(weight.array)


def second_moments(
    graph: Graph, nodes: Iterable[Node], batches: Iterable[Mapping[str, Array]]
) -> Iterator[tuple[str, Array]]:
    """Yield the mean products of two inputs of each node, by name of its operand; only mean squares of many inputs.

    The samples are iterated several times if the sums need much memory.
    """
    widths: dict[str, int] = {}
    for node in nodes:
        x, weight = node.inputs[:2]
        assert x is not None and weight is not None, "packable"
        widths[x.name] = weight.array.shape[0]
    part: list[str] = []
    size = 0
    for name, width in widths.items():
        bytes_needed = 8 * (width * width if width <= MOST_INPUTS else width)
        if part and size + bytes_needed > _MOST_BYTES:
            yield from _sum_products(graph, part, batches).items()
            part, size = [], 0
        part.append(name)
        size += bytes_needed
    yield from _sum_products(graph, part, batches).items()


def _sum_products(graph: Graph, names: Iterable[str], batches: Iterable[Mapping[str, Array]]) -> dict[str, Array]:
    sums: dict[str, Array] = {}
    counts = dict.fromkeys(names, 0)

    def observe(value: Value, array: Array) -> None:
        if value.name not in counts:
            return
        rows = array.reshape(-1, array.shape[-1]).astype(np.float64)
        row_sums = rows.T @ rows if rows.shape[1] <= MOST_INPUTS else np.square(rows).sum(axis=0)
        sums[value.name] = sums[value.name] + row_sums if value.name in sums else row_sums
        counts[value.name] += len(rows)

    with Session(graph, observed=True) as session:
        for feeds in batches:
            session.run(feeds, observe=observe, borrow=True)
    return {name: total / max(1, counts[name]) for name, total in sums.items()}


class _Rounded(NamedTuple):
    """Dequantized weights, [outputs, inputs], with scales and integer zero points, [outputs, groups]."""

    weights: Float64
    scale: Array
    zero: Float64


def pack_weight(node: str, weight: Array, form: GroupFormat, moments: Array | None = None) -> PackedWeight:
    """Quantize a weight, [inputs, outputs].

    Args:
        node: name of its node.
        weight: the float weight.
        form: bits and groups.
        moments: mean products of two inputs, [inputs, inputs], or mean squares, [inputs]. None without samples.
    """
    exact = np.ascontiguousarray(weight.T, np.float64)
    used = np.ones(exact.shape[1]) if moments is None else moments
    rounded = _round(exact, used, form)
    return _pack(node, [rounded], form, _relative_error(rounded.weights, exact, used))


def outlier_inputs(moments: Array, form: GroupFormat) -> Array | None:
    """Return a group of inputs whose weights deserve a second group, in ascending order, or None.

    These inputs must have most of the power of all inputs, and the second group must cost at most 1/8 of the bits.
    """
    if form.bits != 4 or moments.ndim != 2 or len(moments) % form.group or len(moments) < 8 * form.group:
        return None
    squares = np.diagonal(moments)
    largest = np.sort(np.argsort(-squares, kind="stable")[: form.group])
    return largest if is_finite(moments) and squares[largest].sum() > squares.sum() / 2 else None


def pack_with_outliers(node: str, weight: Array, form: GroupFormat, moments: Array, outliers: Array) -> PackedWeight:
    """Quantize a weight, [inputs, outputs], for the other inputs, the outliers, and the outliers again.

    The weights of the other inputs are rounded first, the weights of the outliers compensate for their errors.
    """
    exact = np.ascontiguousarray(weight.T, np.float64)
    others = np.setdiff1d(np.arange(len(moments)), outliers)
    order = np.concatenate([others, outliers, outliers])
    inner = moments[np.ix_(outliers, outliers)]
    inner = inner + np.eye(len(inner)) * (1e-6 * np.trace(inner) / len(inner) + 1e-30)
    cross = moments[np.ix_(outliers, others)]
    shares = np.linalg.solve(inner, cross)
    remaining = moments[np.ix_(others, others)] - cross.T @ shares
    first = _round(exact[:, others], remaining, form)
    target = exact[:, outliers] + (exact[:, others] - first.weights) @ shares.T
    coarse = _round(target, np.diagonal(inner), form)
    fine = _round(target - coarse.weights, inner, form)
    result = np.empty_like(exact)
    result[:, others], result[:, outliers] = first.weights, coarse.weights + fine.weights
    packed = _pack(node, [first, coarse, fine], form, _relative_error(result, exact, moments))
    return packed._replace(order=order)


def _round(exact: Float64, moments: Array, form: GroupFormat) -> _Rounded:
    """Search scales and round weights, [outputs, inputs]."""
    squares = np.diagonal(moments) if moments.ndim == 2 else moments
    scale, zero = _search_scales(exact, squares, form)
    per_input = np.arange(exact.shape[1]) // form.group
    grid = Grid(scale[:, per_input].T.astype(np.float64), -zero[:, per_input].T, form.most - zero[:, per_input].T)
    rounded = np.clip(np.rint(exact / grid.scale.T), grid.low.T, grid.high.T) * grid.scale.T
    if moments.ndim == 2 and is_finite(moments):
        compensated = round_to_grid(exact, moments, grid)
        is_better = _errors(compensated - exact, moments) < _errors(rounded - exact, moments)
        rounded = np.where(is_better[:, None], compensated, rounded)
    return _Rounded(rounded, scale, zero)


def _pack(node: str, parts: list[_Rounded], form: GroupFormat, error: float) -> PackedWeight:
    """Pack weights that were rounded in parts of whole groups; the last group of the last part may be shorter."""
    rounded, scale, zero = (np.concatenate(arrays, axis=1) for arrays in zip(*parts, strict=True))
    per_input = np.arange(rounded.shape[1]) // form.group
    codes = np.full((len(rounded), scale.shape[1] * form.group), 1 << (form.bits - 1), np.uint8)
    codes[:, : rounded.shape[1]] = np.rint(rounded / scale[:, per_input].astype(np.float64)) + zero[:, per_input]
    zero_point = pack_codes(zero.astype(np.uint8), form.bits) if form.has_zero_points else None
    return PackedWeight(node, pack_codes(codes, form.bits), scale, zero_point, error)


def _relative_error(rounded: Float64, exact: Float64, moments: Array) -> float:
    """Squared error of the result, relative to its square."""
    power = _errors(exact, moments).sum()
    return float(_errors(rounded - exact, moments).sum() / power) if power > 0 else 0.0


def _errors(differences: Float64, moments: Array) -> Float64:
    """Mean squared error of each output for errors of the weights, [outputs, inputs]."""
    if moments.ndim == 1:
        return np.square(differences) @ moments
    result: Float64 = np.einsum("oi,oi->o", differences @ moments, differences)
    return np.maximum(result, 0.0)


def _search_scales(exact: Float64, squares: Array, form: GroupFormat) -> tuple[Array, Float64]:
    """Return scales in binary32 and integer zero points, [outputs, groups]."""
    outputs, depth = exact.shape
    groups = -(-depth // form.group)
    padded = np.zeros((outputs, groups * form.group))
    padded[:, :depth] = exact
    importance = np.zeros(groups * form.group)
    importance[:depth] = squares
    # Inputs that are 0 in all samples count a little, so that their weights are still represented.
    importance += 1e-6 * importance.mean() + 1e-30
    parts = padded.reshape(outputs, groups, form.group)
    scale, zero = np.empty((outputs, groups), np.float32), np.empty((outputs, groups))
    step = max(1, _PART // (groups * form.group))
    for start in range(0, outputs, step):
        part = slice(start, start + step)
        scale[part], zero[part] = _search(parts[part], importance.reshape(groups, form.group), form)
    return scale, zero


def _search(weights: Float64, importance: Float64, form: GroupFormat) -> tuple[Array, Float64]:
    """Try scales for weights [outputs, groups, group], and keep those with the smallest error."""
    best_scale = np.ones(weights.shape[:2], np.float32)
    best_zero = np.full(weights.shape[:2], float(1 << (form.bits - 1)))
    best_error = np.full(weights.shape[:2], np.inf)
    for scale, zero in _candidates(weights, form):
        rounded: Array = scale.astype(np.float32)
        rounded = np.where(np.abs(rounded) < np.finfo(np.float32).tiny, np.float32(1), rounded)
        wide = rounded[:, :, None].astype(np.float64)
        codes = np.clip(np.rint(weights / wide) + zero[:, :, None], 0, form.most)
        error = (np.square((codes - zero[:, :, None]) * wide - weights) * importance).sum(axis=2)
        is_better = error < best_error
        best_scale = np.where(is_better, rounded, best_scale)
        best_zero = np.where(is_better, zero, best_zero)
        best_error = np.where(is_better, error, best_error)
    return best_scale, best_zero


def _candidates(weights: Float64, form: GroupFormat) -> Iterator[tuple[Float64, Float64]]:
    """Yield scales and zero points, [outputs, groups].

    Without zero points there is one more code below the middle than above it, so that the sign of the scale matters.
    """
    middle = float(1 << (form.bits - 1))
    if not form.has_zero_points:
        largest = np.abs(weights).max(axis=2)
        zero = np.full(largest.shape, middle)
        for factor in _SHRINK[form.bits]:
            yield largest * (factor / middle), zero
            yield largest * (-factor / middle), zero
        return
    low, high = np.minimum(weights.min(axis=2), 0), np.maximum(weights.max(axis=2), 0)
    span = np.where(high > low, (high - low) / form.most, 1.0)
    for factor in _SHRINK[form.bits]:
        scale = span * factor
        for shift in (-0.5, 0.0, 0.5):
            yield scale, np.clip(np.rint(-(low + high) / (2 * scale) + form.most / 2 + shift), 0, form.most)


def replace_by_packed(graph: Graph, node: Node, weight: PackedWeight, form: GroupFormat) -> None:
    """Replace a float matmul by one with a packed weight. The result keeps its name."""
    x, old, *rest = node.inputs
    assert x is not None and old is not None, "is_packable"
    if weight.order is not None:
        x = _reordered(graph, node, x, weight.order)
    bias = rest[0] if rest else None
    with graph.derived_from(node):
        codes = graph.constant(weight.codes, f"{old.name}:codes")
        scale = graph.constant(weight.scale, f"{old.name}:scale")
        zero = None if weight.zero_point is None else graph.constant(weight.zero_point, f"{old.name}:zero_point")
        flat = None if bias is None else graph.constant(bias.array.reshape(-1), bias.name)
        result = graph.add(MatmulGroupQuantized(form.bits, form.group), x, codes, scale, zero, flat)
    _replace(graph, node, result)


def _reordered(graph: Graph, node: Node, x: Value, order: Array) -> Value:
    """Return an operand of a matmul with its last axis in another order; several matmuls share it."""
    positions = order.astype(np.int32)
    for user in x.users:
        if isinstance(user.op, IndexSelect) and user.op.dim == x.rank - 1 and _equals(user.inputs[1], positions):
            return user.output
    with graph.derived_from(node):
        return graph.add(IndexSelect(dim=x.rank - 1), x, graph.constant(positions, f"{x.name}:order"))


def _equals(value: Value | None, array: Array) -> bool:
    """Return True if a value is a constant with this content."""
    return value is not None and value.is_constant and np.array_equal(value.array, array)


def replace_activation_type(graph: Graph, node: Node, dtype: DType) -> None:
    """Replace a matmul with a packed weight by one with this type of activations. The result keeps its name."""
    assert isinstance(node.op, MatmulGroupQuantized), "selected by the caller"
    with graph.derived_from(node):
        result = graph.add(replace(node.op, activation_type=dtype), *node.inputs)
    _replace(graph, node, result)


def _replace(graph: Graph, node: Node, result: Value) -> None:
    """Replace a node by the producer of ``result``, which gets its name."""
    name = node.name
    graph.replace_uses(node.output, result)
    graph.remove(node)
    graph.rename(result, name)
