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

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tpuconvert.optimizer.quantize.weights.weight_rounding import Factor, Grid, factor_moments, round_to_grid
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.arithmetic.finite import is_finite
from tpuconvert.schema.arithmetic.half_floats import LARGEST, SMALLEST_NORMAL, is_exact_in_half
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.graph.graph_copy import copy_graph
from tpuconvert.schema.ops.gather_group_quantized import GatherGroupQuantized
from tpuconvert.schema.ops.generation import ShapeFetch
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.matmul_group_quantized import MatmulGroupQuantized, pack_codes
from tpuconvert.schema.ops.positions import Positions
from tpuconvert.schema.types import F32, Array, DType

LEAST_WEIGHTS = 1 << 14
"""Weights with fewer elements stay in float: they save little memory."""

MOST_INPUTS = 8192
"""Weights with more inputs are rounded to nearest. The time to factor the second moments grows with the cube."""

_MOST_BYTES = 1 << 30
"""Memory for second moments in one pass over the samples."""

_PART = 1 << 22
"""Number of weights that are rounded together."""

_SEARCHED = 1 << 15
"""Number of weights whose scales are searched together, in the L2 cache."""

WORTHWHILE_ERROR = 0.85
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

    @property
    def nbytes(self) -> int:
        """Size in a file."""
        scale = self.scale.nbytes // 2 if is_exact_in_half(self.scale) else self.scale.nbytes
        return self.codes.nbytes + scale + (0 if self.zero_point is None else self.zero_point.nbytes)


def packable_nodes(graph: Graph, form: GroupFormat) -> list[Node]:
    """Return the float matmuls whose weights can be packed, in the order of the graph."""
    return [node for node in graph.nodes if isinstance(node.op, MatrixMul) and _is_packable(node, form)]


def float_matmuls(graph: Graph, form: GroupFormat) -> dict[str, list[str]]:
    """Return the names of the float matmuls with constant weights that stay in float, by the reason."""
    reasons: dict[str, list[str]] = {}
    for node in graph.nodes:
        reason = _reason_against(node, form) if isinstance(node.op, MatrixMul) and _has_float_weight(node) else ""
        if reason:
            reasons.setdefault(reason, []).append(node.name)
    return reasons


def _is_packable(node: Node, form: GroupFormat) -> bool:
    return _has_float_weight(node) and not _reason_against(node, form)


def _has_float_weight(node: Node) -> bool:
    """Return True if a float operand is multiplied by a float constant."""
    x, weight = node.inputs[:2]
    if x is None or weight is None or x.is_constant or not weight.is_constant or weight.quant is not None:
        return False
    return x.dtype is F32 and node.output.dtype is F32


def _reason_against(node: Node, form: GroupFormat) -> str:
    """Return why the weight of a float matmul cannot be packed; empty if it can."""
    _, weight, *bias = node.inputs
    assert weight is not None, "checked"
    if any(value is not None and not (value.is_constant and value.dtype is F32) for value in bias):
        return "a bias that is computed"
    depth, columns = weight.type.static_shape
    if depth < form.group:
        return f"fewer than {form.group} inputs, one group"
    if depth * columns < LEAST_WEIGHTS:
        return f"fewer than {LEAST_WEIGHTS} weights"
    return "" if _has_finite_elements(weight) else "weights that are infinite or NaN"


def _has_finite_elements(constant: Value) -> bool:
    """Return True if all elements are finite. The memory of a constant in a mapped file is freed."""
    is_all_finite = is_finite(constant.array)
    constant.release_memory()
    return is_all_finite


def embedding_nodes(graph: Graph, form: GroupFormat, derived: Container[str]) -> list[Node]:
    """Return the lookups of rows of float tables by inputs of the graph, in the order of the graph.

    Args:
        graph: the graph.
        form: bits and groups.
        derived: names of inputs other than tokens, such as positions: their tables stay in float.
    """
    names = {value: port.name for value, port in zip(graph.inputs, graph.input_ports, strict=True)}
    return [
        node
        for node in graph.nodes
        if isinstance(node.op, IndexSelect)
        and node.op.dim == 0
        and _is_table(node.inputs[0], form)
        and _tokens_of(node.inputs[1], names, derived)
    ]


def _is_table(table: Value | None, form: GroupFormat) -> bool:
    if table is None or not table.is_constant or table.dtype is not F32 or table.quant is not None or table.rank != 2:
        return False
    rows, depth = table.type.static_shape
    return depth >= form.group and rows * depth >= LEAST_WEIGHTS and _has_finite_elements(table)


def _tokens_of(index: Value | None, names: Mapping[Value, str], derived: Container[str]) -> bool:
    """Return True if all inputs from which an index is computed are tokens, and not only their number."""
    has_tokens = False
    pending = [index]
    seen: set[Value] = set()
    while pending:
        value = pending.pop()
        if value is None or value in seen or value.is_constant:
            continue
        seen.add(value)
        if value.producer is None:
            if names.get(value, "") in derived:
                return False
            has_tokens = True
        elif isinstance(value.producer.op, (Positions, ShapeFetch)):
            return False
        else:
            pending += value.producer.inputs
    return has_tokens


class Moments(NamedTuple):
    """Means over the rows of an operand.

    Args:
        products: mean products of two inputs, [inputs, inputs], or mean squares, [inputs].
        rows: number of rows; None for exact means.
    """

    products: Array
    rows: int | None = None

    def factor(self) -> Factor | None:
        """Return the factor of finite mean products of two inputs, or None."""
        is_factored = self.products.ndim == 2 and is_finite(self.products)
        return factor_moments(self.products, self.rows) if is_factored else None

    def squares(self) -> Array:
        """Mean squares of the inputs."""
        return np.diagonal(self.products) if self.products.ndim == 2 else self.products


def second_moments(
    graph: Graph, nodes: Iterable[Node], batches: Iterable[Mapping[str, Array]]
) -> Iterator[tuple[str, Moments]]:
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
        bytes_needed = 4 * (width * width if width <= MOST_INPUTS else width)
        if part and size + bytes_needed > _MOST_BYTES:
            yield from _sum_products(graph, part, batches).items()
            part, size = [], 0
        part.append(name)
        size += bytes_needed
    yield from _sum_products(graph, part, batches).items()


def _sum_products(graph: Graph, names: Iterable[str], batches: Iterable[Mapping[str, Array]]) -> dict[str, Moments]:
    sums: dict[str, Array] = {}
    counts = dict.fromkeys(names, 0)

    def observe(value: Value, array: Array) -> None:
        if value.name not in counts:
            return
        rows = np.ascontiguousarray(array.reshape(-1, array.shape[-1]))
        is_wide = rows.shape[1] > MOST_INPUTS
        row_sums: Array = np.square(rows).sum(axis=0) if is_wide else rows.T @ rows
        if value.name not in sums:
            sums[value.name] = np.zeros(row_sums.shape, np.float32)
        # In binary32, which halves the memory: its rounding is far below the number that is added to the squares.
        sums[value.name] += row_sums
        counts[value.name] += len(rows)

    with Session(_without_other_results(graph, counts), observed=True) as session:
        for feeds in batches:
            session.run(feeds, observe=observe, borrow=True)
    for name, total in sums.items():
        total /= max(1, counts[name])
    return {name: Moments(total, counts[name]) for name, total in sums.items()}


def _without_other_results(graph: Graph, names: Iterable[str]) -> Graph:
    """Copy a graph without nodes on which no value of these names depends, such as the head of a language model."""
    copy = copy_graph(graph)
    values = [value for value in map(copy.find, names) if value is not None and value.producer is not None]
    if not values:
        return graph
    copy.outputs.clear()
    copy.output_ports.clear()
    for value in values:
        copy.output(value)
    copy.prune()
    return copy


class _Rounded(NamedTuple):
    """Dequantized weights, [outputs, inputs], with scales and integer zero points, [outputs, groups]."""

    weights: Array
    scale: Array
    zero: Array


def pack_weight(
    node: str, weight: Array, form: GroupFormat, moments: Moments | None = None, factor: Factor | None = None
) -> PackedWeight:
    """Quantize a weight, [inputs, outputs], some outputs at a time.

    Args:
        node: name of its node.
        weight: the float weight.
        form: bits and groups.
        moments: means over the samples; None without samples.
        factor: factor of the moments, if it is known.
    """
    used = Moments(np.ones(weight.shape[0])) if moments is None else moments
    factor = factor or used.factor()
    is_half = _fits_half(weight, form)
    narrow = used.products.astype(np.float32, copy=False)
    parts, error, power = [], 0.0, 0.0
    step = max(1, _PART // weight.shape[0])
    for start in range(0, weight.shape[1], step):
        exact = np.ascontiguousarray(weight[:, start : start + step].T)
        rounded = _round(exact, used.squares(), form, factor, is_half=is_half)
        parts.append(_codes_of([rounded], form))
        error += float(_errors(rounded.weights - exact, narrow).sum())
        power += float(_errors(exact, narrow).sum())
    return _pack(node, parts, form, error / power if power > 0 else 0.0)


def _fits_half(weight: Array, form: GroupFormat) -> bool:
    """Return True if FLOAT16 has scales for a weight: the largest is a normal number, and small ones lose little."""
    largest = max(abs(float(weight.max())), abs(float(weight.min()))) / form.most
    return SMALLEST_NORMAL <= largest <= LARGEST / 4


def outlier_inputs(moments: Moments, form: GroupFormat) -> Array | None:
    """Return a group of inputs whose weights deserve a second group, in ascending order, or None.

    These inputs must have a quarter of the power of all inputs, and the second group must cost at most 1/8 of the bits.
    """
    squares = moments.squares()
    if form.bits != 4 or moments.products.ndim != 2 or len(squares) % form.group or len(squares) < 8 * form.group:
        return None
    largest = np.sort(np.argsort(-squares, kind="stable")[: form.group])
    return largest if is_finite(moments.products) and squares[largest].sum() > squares.sum() / 4 else None


def pack_with_outliers(node: str, weight: Array, form: GroupFormat, moments: Moments, outliers: Array) -> PackedWeight:
    """Quantize a weight, [inputs, outputs], for the other inputs, the outliers, and the outliers again.

    The weights of the other inputs are rounded first, the weights of the outliers compensate for their errors.
    """
    exact = np.ascontiguousarray(weight.T, np.float64)
    is_half = _fits_half(weight, form)
    products, rows = moments.products.astype(np.float64), moments.rows
    others = np.setdiff1d(np.arange(len(products)), outliers)
    order = np.concatenate([others, outliers, outliers])
    inner = products[np.ix_(outliers, outliers)]
    inner = inner + np.eye(len(inner)) * (1e-6 * np.trace(inner) / len(inner) + 1e-30)
    cross = products[np.ix_(outliers, others)]
    shares = np.linalg.solve(inner, cross)
    remaining = Moments(products[np.ix_(others, others)] - cross.T @ shares, rows)
    first = _round(exact[:, others], remaining.squares(), form, remaining.factor(), is_half=is_half)
    target = exact[:, outliers] + (exact[:, others] - first.weights) @ shares.T
    coarse = _round(target, np.diagonal(inner), form, is_half=is_half)
    fine_moments = Moments(inner, rows)
    fine = _round(target - coarse.weights, fine_moments.squares(), form, fine_moments.factor(), is_half=is_half)
    result = np.empty_like(exact)
    result[:, others], result[:, outliers] = first.weights, coarse.weights + fine.weights
    error, power = (_errors(weights, products).sum() for weights in (result - exact, exact))
    packed = _pack(node, [_codes_of([first, coarse, fine], form)], form, float(error / power) if power > 0 else 0.0)
    return packed._replace(order=order)


def _round(exact: Array, squares: Array, form: GroupFormat, factor: Factor | None = None, *, is_half: bool) -> _Rounded:
    """Search scales and round weights, [outputs, inputs].

    Args:
        exact: the weights.
        squares: mean squares of the inputs.
        form: bits and groups.
        factor: factor of the mean products of two inputs. The errors then count by what remains after compensation.
        is_half: True for scales that are numbers of FLOAT16.
    """
    importance = squares if factor is None else factor.remaining_squares()
    scale, zero = _search_scales(exact, importance, form, is_half=is_half)
    per_input = np.arange(exact.shape[1]) // form.group
    grid = Grid(*(np.ascontiguousarray(part[:, per_input].T) for part in (scale, -zero, form.most - zero)))
    rounded = np.clip(np.rint(exact / grid.scale.T), grid.low.T, grid.high.T) * grid.scale.T
    if factor is not None:
        compensated = round_to_grid(exact, factor, grid)
        is_better = factor.errors(compensated - exact) < factor.errors(rounded - exact)
        rounded = np.where(is_better[:, None], compensated, rounded)
    return _Rounded(rounded, scale, zero)


class _Codes(NamedTuple):
    """Packed codes, scales and zero points of some outputs."""

    codes: Array
    scale: Array
    zero_point: Array | None


def _codes_of(parts: list[_Rounded], form: GroupFormat) -> _Codes:
    """Return the codes of parts of whole groups of inputs; the last group of the last part may be shorter."""
    rounded, scale, zero = (np.concatenate(arrays, axis=1) for arrays in zip(*parts, strict=True))
    per_input = np.arange(rounded.shape[1]) // form.group
    codes = np.full((len(rounded), scale.shape[1] * form.group), 1 << (form.bits - 1), np.uint8)
    codes[:, : rounded.shape[1]] = np.rint(rounded / scale[:, per_input]) + zero[:, per_input]
    zero_point = pack_codes(zero.astype(np.uint8), form.bits) if form.has_zero_points else None
    return _Codes(pack_codes(codes, form.bits), scale, zero_point)


def _pack(node: str, parts: list[_Codes], form: GroupFormat, error: float) -> PackedWeight:
    """Return a packed weight from parts of its outputs."""
    codes, scale = (np.concatenate([part[index] for part in parts]) for index in range(2))
    zero_points = [part.zero_point for part in parts if part.zero_point is not None]
    return PackedWeight(node, codes, scale, np.concatenate(zero_points) if zero_points else None, error)


def _errors(differences: Array, moments: Array) -> Array:
    """Mean squared error of each output for errors of the weights, [outputs, inputs]."""
    if moments.ndim == 1:
        return np.square(differences) @ moments
    result: Array = np.einsum("oi,oi->o", differences @ moments, differences)
    return np.maximum(result, 0.0)


def _search_scales(exact: Array, squares: Array, form: GroupFormat, *, is_half: bool) -> tuple[Array, Array]:
    """Return scales and integer zero points, [outputs, groups], in binary32. Scales are numbers of FLOAT16 or not."""
    outputs, depth = exact.shape
    groups = -(-depth // form.group)
    padded = np.zeros((outputs, groups * form.group), np.float32)
    padded[:, :depth] = exact
    importance = np.zeros(groups * form.group)
    importance[:depth] = squares
    # Inputs that are 0 in all samples count a little, so that their weights are still represented.
    importance += 1e-6 * importance.mean() + 1e-30
    importance /= importance.max()
    importances = importance.astype(np.float32).reshape(groups, form.group)
    parts = padded.reshape(outputs, groups, form.group)
    scale, zero = (np.empty((outputs, groups), np.float32) for _ in range(2))
    step = max(1, _SEARCHED // (groups * form.group))
    for start in range(0, outputs, step):
        part = slice(start, start + step)
        scale[part], zero[part] = _search(parts[part], importances, form, is_half=is_half)
    return scale, zero


def _search(weights: Array, importance: Array, form: GroupFormat, *, is_half: bool) -> tuple[Array, Array]:
    """Try scales for weights [outputs, groups, group], and keep those with the smallest error."""
    best_scale = np.ones(weights.shape[:2], np.float32)
    best_zero = np.full(weights.shape[:2], float(1 << (form.bits - 1)), np.float32)
    best_error = np.full(weights.shape[:2], np.inf, np.float32)
    errors = np.empty(weights.shape, np.float32)
    for candidate, zero in _candidates(weights, form):
        scale = candidate.astype(np.float16).astype(np.float32) if is_half else candidate.astype(np.float32)
        scale[np.abs(scale) < np.finfo(np.float32).tiny] = 1
        wide = scale[:, :, None]
        low = -zero[:, :, None] if form.has_zero_points else np.float32(-(1 << (form.bits - 1)))
        np.rint(np.multiply(weights, np.float32(1) / wide, out=errors), out=errors)
        np.minimum(np.maximum(errors, low, out=errors), low + np.float32(form.most), out=errors)
        errors *= wide
        errors -= weights
        np.square(errors, out=errors)
        error = np.matmul(errors.swapaxes(0, 1), importance[:, :, None])[:, :, 0].T
        is_better = error < best_error
        best_scale[is_better] = scale[is_better]
        best_zero[is_better] = zero[is_better]
        best_error[is_better] = error[is_better]
    return best_scale, best_zero


def _candidates(weights: Array, form: GroupFormat) -> Iterator[tuple[Array, Array]]:
    """Yield scales and zero points, [outputs, groups].

    Without zero points there is one more code below the middle than above it, so that the sign of the scale matters.
    """
    middle = float(1 << (form.bits - 1))
    if not form.has_zero_points:
        largest = np.abs(weights).max(axis=2)
        zero = np.full(largest.shape, middle, np.float32)
        for factor in _SHRINK[form.bits].tolist():
            yield largest * (factor / middle), zero
            yield largest * (-factor / middle), zero
        return
    low, high = np.minimum(weights.min(axis=2), 0), np.maximum(weights.max(axis=2), 0)
    span = np.where(high > low, (high - low) / np.float32(form.most), np.float32(1))
    for factor in _SHRINK[form.bits].tolist():
        scale = span * factor
        for shift in (-0.5, 0.0, 0.5):
            yield scale, np.clip(np.rint(-(low + high) / (2 * scale) + form.most / 2 + shift), 0, form.most)


class PackedConstants(NamedTuple):
    """Constants of a packed weight, which all its users share."""

    codes: Value
    scale: Value
    zero_point: Value | None

    @staticmethod
    def add(graph: Graph, weight: PackedWeight, name: str) -> PackedConstants:
        """Add them to a graph, with names that begin with the name of the float weight."""
        codes, scale = graph.constant(weight.codes, f"{name}:codes"), graph.constant(weight.scale, f"{name}:scale")
        zero = None if weight.zero_point is None else graph.constant(weight.zero_point, f"{name}:zero_point")
        return PackedConstants(codes, scale, zero)


def replace_lookup(graph: Graph, node: Node, constants: PackedConstants, form: GroupFormat) -> None:
    """Replace the lookup of rows of a float table by one in a packed table. The result keeps its name."""
    table, index = node.inputs
    assert table is not None and index is not None, "both operands are required"
    with graph.derived_from(node):
        op = GatherGroupQuantized(table.array.shape[1], form.bits, form.group)
        result = graph.add(op, index, *constants)
    _replace(graph, node, result)


def replace_by_packed(
    graph: Graph, node: Node, weight: PackedWeight, form: GroupFormat, shared: PackedConstants | None = None
) -> None:
    """Replace a float matmul by one with a packed weight, whose constants may exist. The result keeps its name."""
    x, old, *rest = node.inputs
    assert x is not None and old is not None, "is_packable"
    if weight.order is not None:
        x = _reordered(graph, node, x, weight.order)
    bias = rest[0] if rest else None
    with graph.derived_from(node):
        constants = shared or PackedConstants.add(graph, weight, old.name)
        flat = None if bias is None else graph.constant(bias.array.reshape(-1), bias.name)
        result = graph.add(MatmulGroupQuantized(form.bits, form.group), x, *constants, flat)
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
