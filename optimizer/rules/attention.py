"""Recognition of decomposed attention: softmax(query @ key' * scale + mask) @ value.

These are two batch matmuls with a softmax along the last axis between them. The scale may be a multiply or a division,
before or after the first matmul, or 1. The transpose of the keys may be a permute of lists of matrices between
reshapes.

A mask is an addition or a selection: where(c, scores, low) = scores + where(c, 0, low), if low is minus infinity or so
low that adding a score does not change it. Masks may be constant or computed. Several masks are added to each other
first, at the size that they have for one head.

A row that is masked entirely with minus infinity is the one difference: its softmax is NaN, while the composite returns
zeros. A guarded softmax also returns zeros. Some sources write it in one of these forms:

    powers / (sum + (sum == 0)), powers = exp(x - max(largest, lowest));    where(w != w, 0, w), w = softmax(x).

With a constant mask that hides a whole row, attention stays decomposed. A computed mask may hide a row in some runs
only: the rule then fires although it replaces NaN by zeros, because no source needs NaN, and preserving it would cost a
pass over the mask in every run (documented in docs/inside/engine.md).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import NamedTuple

import numpy as np

from tpuconvert.optimizer.engine.annotations import rounds
from tpuconvert.optimizer.engine.engine import Replacement, Skip, rule
from tpuconvert.optimizer.engine.node_properties import is_active, operand, operands, reduced_axes, scalar_factor
from tpuconvert.optimizer.engine.pattern import Match, p
from tpuconvert.optimizer.rules.tiles import repeats_unit_axes, shrink_repeats
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Div, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Divs, Maxs, Muls
from tpuconvert.schema.ops.attention import Attention
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.compare import Eqs, Ne
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.types import F32, Array

HIDDEN = -(2.0**100)
"""A mask that adds at most this number hides scores of magnitude up to 2^47 completely, even in float64."""

_MOST_MASKS = 4


def _is_along_rows(node: Node) -> bool:
    rank = operand(node).rank
    return isinstance(node.op, Softmax) and node.op.axis % rank == rank - 1


def _is_plain(node: Node) -> bool:
    return node.op == BatchMatmul()


def _reduces_rows(node: Node, method: ReduceMethodType) -> bool:
    op = node.op
    assert isinstance(op, Reduce)
    return op.method == method and op.keep_dims and reduced_axes(node) == [operand(node).rank - 1]


_IS_LARGEST = functools.partial(_reduces_rows, method=ReduceMethodType.REDUCE_MAX)
_IS_TOTAL = functools.partial(_reduces_rows, method=ReduceMethodType.REDUCE_SUM)


def _is_lowest(node: Node) -> bool:
    return isinstance(node.op, Maxs) and -math.inf < node.op.scalar.value <= HIDDEN


def _is_zero(node: Node) -> bool:
    return isinstance(node.op, Eqs) and node.op.scalar_i1.value == 0


LOWEST = p(Maxs, p(Reduce, "scores", name="largest", where=_IS_LARGEST), name="lowest", where=_is_lowest)
POWERS = p(
    Active,
    p(Sub, "scores", LOWEST, name="shifted", sole_user=True),
    name="powers",
    where=is_active(ActiveType.ACTIVE_EXP),
)
SUMS = p(Reduce, POWERS, name="sums", where=_IS_TOTAL)
GUARDED = p(Add, SUMS, p(Eqs, SUMS, name="empty", sole_user=True, where=_is_zero), name="guarded", sole_user=True)
PLAIN = p(Softmax, "scores", name="softmax", where=_is_along_rows)
IS_NAN = p(Ne, PLAIN, PLAIN, name="guarded", sole_user=True)
WEIGHTS = (
    dataclasses.replace(PLAIN, sole_user=True),
    p(Div, POWERS, GUARDED, name="softmax", sole_user=True),
    p(ConditionSelect, IS_NAN, "ZERO", PLAIN, name="selected", sole_user=True),
)


@rule(*(p(BatchMatmul, weights, "value", name="product", where=_is_plain) for weights in WEIGHTS), stage="fuse")
def recognize_attention(graph: Graph, m: Match) -> Replacement:
    """``softmax(query @ key' * scale + mask) @ value -> attention(query, key, value, mask)``."""
    is_guarded = m.binds("guarded")
    if m.binds("selected") and m.ZERO.array.any():
        return Skip("the replacement of NaN is not 0")
    if m.binds("selected") and (len(m.softmax.output.uses) > 3 or graph.is_output(m.softmax.output)):
        return Skip("softmax has other users")
    if set(m.scores.users) - set(m.nodes.values()) or graph.is_output(m.scores):
        return Skip("the scores have other users")
    scores = Scores(graph, m.scores)
    if not scores.operands:
        return Skip("the scores are not a matmul with transposed keys")
    inner = [*(node for node in m.nodes.values() if node is not m.product), *scores.inner]
    if any(rounds(item) for item in inner):
        return Skip("the source file quantizes an inner value")
    operands: list[Value] = [*scores.operands, m.value]
    if not math.isfinite(scores.scale) or {value.rank for value in operands} != {m.scores.rank}:
        return Skip("its operands differ in rank, or the scale is not a number")
    if is_guarded and not scores.masks:
        return Skip("its softmax is guarded, but there is no mask")
    mask = merge_masks(graph, scores.masks, m.product.output.name, m.scores.rank)
    if isinstance(mask, Skip):
        return mask
    operands += [] if mask is None else [mask]
    sources = tuple(dict.fromkeys(source for item in reversed(inner) for source in item.sources))
    return graph.add(Attention(scores.scale), *operands, sources=(*sources, *m.product.sources))


class SelectMask(NamedTuple):
    """A mask that is ``hidden`` where a condition is true (or, without ``where_true``, false), and 0 elsewhere."""

    condition: Value
    hidden: float
    where_true: bool


class Scores:
    """Decomposition of attention scores: operands of the matmul, scale, masks, and the nodes in between.

    ``operands`` is empty if the scores do not have this form. The caller checks the users of the scores.
    """

    def __init__(self, graph: Graph, scores: Value) -> None:
        self._graph = graph
        self._top = scores
        self.inner: list[Node] = []
        self.masks: list[Value | SelectMask] = []
        self.operands: list[Value] = []
        self.scale = 1.0
        unmasked: Value | None = scores
        while unmasked is not None and len(self.masks) < _MOST_MASKS:
            scores, unmasked = unmasked, self._remove_mask(unmasked)
        node = self._alone(self._remove_scale(scores), BatchMatmul)
        if node is None or not _uses_transposed_keys(node):
            return
        self.inner.append(node)
        query, key = operands(node)
        rows = self._plain(key, swaps=node.op == BatchMatmul())
        if rows is not None:
            self.operands = [self._plain(query, swaps=False) or query, rows]

    def _plain(self, value: Value, swaps: bool) -> Value | None:
        """Return an operand without its scale, which may be before a permute. Optionally swap the last two axes.

        None if the axes are to be swapped and there is no permute that the swap can be folded into.
        """
        value = self._remove_scale(value)
        rows = self._rows_of_matrices(value) if swaps else None
        if rows is not None:
            return rows
        permute = self._alone(value, Permute)
        if permute is None:
            return None if swaps else value
        assert isinstance(permute.op, Permute)
        x, order = self._remove_scale(operand(permute)), permute.op.order
        if x is permute.inputs[0] and not swaps:
            return value
        self.inner.append(permute)
        order = (*order[:-2], order[-1], order[-2]) if swaps else order
        return self._graph.add(Permute(order), x, name=f"{value.name}:rows" if swaps else f"{value.name}:unscaled")

    def _rows_of_matrices(self, value: Value) -> Value | None:
        """Return the operand of a transpose that is written for a list of matrices, between two reshapes; else None."""
        reshape = self._alone(value, Reshape)
        permute = None if reshape is None else self._alone(operand(reshape), Permute)
        if reshape is None or permute is None or not _transposes_matrices(permute, value):
            return None
        x = operand(permute)
        shape = (*value.shape[:-2], *x.shape[-2:])
        if sum(isinstance(extent, str) for extent in shape) > 1:
            return None
        self.inner += [reshape, permute]
        target = tuple(extent if isinstance(extent, int) else -1 for extent in shape)
        return self._graph.add(Reshape(target), x, name=f"{value.name}:rows")

    def _alone(self, value: Value, *ops: type[Op]) -> Node | None:
        """Return the producer of a value if this is its sole use and the producer has one of these operators."""
        node = value.producer
        is_alone = value is self._top or self._graph.is_sole_use(value)
        return node if node is not None and isinstance(node.op, ops) and is_alone else None

    def _remove_mask(self, value: Value) -> Value | None:
        """Record the last mask of a value and return the value before it, or None if there is no mask."""
        node = self._alone(value, Add, ConditionSelect)
        if node is None:
            return None
        mask = _read_add(node) if isinstance(node.op, Add) else _read_select(node)
        if mask is None or mask[0].type != value.type:
            return None
        self.inner.append(node)
        self.masks.append(mask[1])
        return mask[0]

    def _remove_scale(self, value: Value) -> Value:
        """Multiply the scale by the scalar of a mul or div and return its operand."""
        node = self._alone(value, Muls, Divs)
        if node is None:
            return value
        self.scale *= scalar_factor(node.op)
        self.inner.append(node)
        return operand(node)


def _uses_transposed_keys(node: Node) -> bool:
    """Return True for a matmul whose second operand is transposed, by its flag or by a permute before it."""
    if node.op == BatchMatmul(right_transpose=True):
        return True
    right = node.inputs[1]
    while right is not None and right.producer is not None and isinstance(right.producer.op, (Divs, Muls)):
        right = right.producer.inputs[0]
    permute = None if right is None else right.producer
    if permute is not None and isinstance(permute.op, Reshape):
        inner = operand(permute).producer
        permute = inner if inner is not None and right is not None and _transposes_matrices(inner, right) else None
    return node.op == BatchMatmul() and permute is not None and isinstance(permute.op, Permute)


def _transposes_matrices(node: Node, value: Value) -> bool:
    """Return True if a node swaps the last two axes only, and a value is its result with other axes before these."""
    if not isinstance(node.op, Permute):
        return False
    rank, order = node.output.rank, node.op.order
    return order == (*range(rank - 2), rank - 1, rank - 2) and value.shape[-2:] == node.output.shape[-2:]


def _read_add(node: Node) -> tuple[Value, Value] | None:
    """Return the scores and the mask that an add combines, or None."""
    first, second = operands(node)
    if _contains_matmul(first):
        return first, second
    return (second, first) if _contains_matmul(second) else None


def _contains_matmul(value: Value, depth: int = 2 + _MOST_MASKS) -> bool:
    """Return True if a value is such a matmul of transposed keys, possibly followed by scales and masks."""
    node = value.producer
    if node is None or depth == 0:
        return False
    if isinstance(node.op, BatchMatmul):
        return _uses_transposed_keys(node)
    is_scale, is_mask = isinstance(node.op, (Muls, Divs)), isinstance(node.op, (Add, ConditionSelect))
    return (is_scale or is_mask) and any(_contains_matmul(item, depth - 1) for item in operands(node))


def _read_select(node: Node) -> tuple[Value, SelectMask] | None:
    """Return the scores and the mask of a select between scores and a number, or None."""
    condition, *branches = operands(node)
    for index, hidden in enumerate(branches):
        is_hidden = hidden.is_constant and hidden.array.size == 1 and hidden.array.flat[0] <= HIDDEN
        if is_hidden and _contains_matmul(branches[1 - index]):
            return branches[1 - index], SelectMask(condition, float(hidden.array.flat[0]), where_true=index == 0)
    return None


def merge_masks(graph: Graph, masks: list[Value | SelectMask], name: str, rank: int) -> Value | Skip | None:
    """Merge masks into one by addition, constant parts at conversion time. Return None if there are no masks."""
    constant: Array | None = None
    computed: list[Value] = []
    for mask in masks:
        data = _data(mask)
        if data is None:
            computed.append(mask if isinstance(mask, Value) else _mask_of_condition(graph, mask, f"{name}:mask"))
        else:
            with np.errstate(all="ignore"):
                constant = data if constant is None else (constant + data).astype(np.float32)
    if constant is not None:
        if np.isnan(constant).any() or (constant == np.inf).any() or constant.size == 0:
            return Skip("its mask contains NaN or plus infinity")
        if (constant.max(axis=-1) == -np.inf).any():
            return Skip("its mask hides whole rows")
        shape = (1,) * (rank - constant.ndim) + constant.shape
        computed.insert(
            0, graph.constant(np.ascontiguousarray(shrink_repeats(constant.reshape(shape))), f"{name}:mask")
        )
    total: Value | None = None
    for mask in computed:
        total = mask if total is None else graph.add(Add(), total, mask, name=f"{name}:mask")
    return total


def _data(mask: Value | SelectMask) -> Array | None:
    """Return the elements of a constant mask; None if it is computed."""
    if isinstance(mask, Value):
        return mask.array if mask.is_constant and mask.dtype is F32 else None
    if not mask.condition.is_constant:
        return None
    is_true = mask.condition.array > 0
    return np.where(is_true if mask.where_true else ~is_true, np.float32(mask.hidden), np.float32(0))


def _mask_of_condition(graph: Graph, mask: SelectMask, name: str) -> Value:
    """Add a node that computes the mask of a condition, at the shape of the condition before it is broadcast."""
    condition = mask.condition
    while (node := condition.producer) is not None and repeats_unit_axes(condition):
        condition = operand(node)
    numbers = (mask.hidden, 0.0) if mask.where_true else (0.0, mask.hidden)
    branches = (graph.constant(np.full(1, number, np.float32), f"{name}:number") for number in numbers)
    return graph.add(ConditionSelect(), condition, *branches, name=name)
