"""What the scores of attention are made of: a product of two tensors, factors, and masks that hide some of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tpuconvert.optimizer.engine import Skip
from tpuconvert.optimizer.rules.tiles import repeats_ones, shortened
from tpuconvert.schema.graph import Graph, Node, Value
from tpuconvert.schema.op import Op
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.arithmetic_with_scalar import Divs, Muls
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.types import F32, Array

HIDDEN = -(2.0**100)
"""At or below this number, a mask leaves nothing of a score: of one up to 2^47, even where binary64 adds them."""

_MOST_MASKS = 4


@dataclass(frozen=True)
class Choice:
    """A mask that is a number where a condition holds (or where it does not), and 0 elsewhere."""

    condition: Value
    hidden: float
    where_it_holds: bool


class Scores:
    """The operands of the product, the scale of the scores, their masks, and the nodes between.

    ``operands`` is empty where there is no such product. ``readers`` of the scores themselves are known to the caller.
    """

    def __init__(self, graph: Graph, scores: Value) -> None:
        self._graph = graph
        self._top = scores
        self.inner: list[Node] = []
        self.masks: list[Value | Choice] = []
        self.operands: list[Value] = []
        self.scale = 1.0
        unmasked: Value | None = scores
        while unmasked is not None and len(self.masks) < _MOST_MASKS:
            scores, unmasked = unmasked, self._unmasked(unmasked)
        node = self._alone(self._unscaled(scores), BatchMatmul)
        if node is None or not _reads_rows(node):
            return
        self.inner.append(node)
        query, key = node.inputs
        assert query is not None and key is not None
        rows = self._plain(key, swaps=node.op == BatchMatmul())
        if rows is not None:
            self.operands = [self._plain(query, swaps=False) or query, rows]

    def _plain(self, value: Value, swaps: bool) -> Value | None:
        """An operand without its factor, which may stand before a permute; with the last two axes swapped or not.

        None where they are to be swapped, and there is no permute that could do it.
        """
        value = self._unscaled(value)
        permute = self._alone(value, Permute)
        if permute is None:
            return None if swaps else value
        assert isinstance(permute.op, Permute) and permute.inputs[0] is not None
        x, order = self._unscaled(permute.inputs[0]), permute.op.order
        if x is permute.inputs[0] and not swaps:
            return value
        self.inner.append(permute)
        order = (*order[:-2], order[-1], order[-2]) if swaps else order
        return self._graph.add(Permute(order), x, name=f"{value.name}:rows" if swaps else f"{value.name}:unscaled")

    def _alone(self, value: Value, *ops: type[Op]) -> Node | None:
        """The producer of a value that nobody else reads, if it is of some operators."""
        node = value.producer
        is_alone = value is self._top or self._graph.is_sole_use(value)
        return node if node is not None and isinstance(node.op, ops) and is_alone else None

    def _unmasked(self, value: Value) -> Value | None:
        """What a value is behind its last mask, which is noted; None where there is none."""
        node = self._alone(value, Add, ConditionSelect)
        if node is None:
            return None
        found = _sum(node) if isinstance(node.op, Add) else _choice(node)
        if found is None or found[0].type != value.type:
            return None
        self.inner.append(node)
        self.masks.append(found[1])
        return found[0]

    def _unscaled(self, value: Value) -> Value:
        """What a value is a multiple of; the factor joins the others."""
        node = self._alone(value, Muls, Divs)
        if node is None or node.inputs[0] is None:
            return value
        assert isinstance(node.op, (Muls, Divs))
        number = node.op.scalar.value
        if isinstance(node.op, Divs):
            number = 1 / number if number else math.inf
        self.scale *= number
        self.inner.append(node)
        return node.inputs[0]


def _reads_rows(node: Node) -> bool:
    """Whether a product is one with the rows of its second operand, or with what a permute makes columns of them."""
    if node.op == BatchMatmul(right_transpose=True):
        return True
    right = node.inputs[1]
    while right is not None and right.producer is not None and isinstance(right.producer.op, (Divs, Muls)):
        right = right.producer.inputs[0]
    permute = None if right is None else right.producer
    return node.op == BatchMatmul() and permute is not None and isinstance(permute.op, Permute)


def _sum(node: Node) -> tuple[Value, Value] | None:
    """The scores and the mask of a sum."""
    first, second = node.inputs
    assert first is not None and second is not None
    if _is_product(first):
        return first, second
    return (second, first) if _is_product(second) else None


def _is_product(value: Value | None, depth: int = 2 + _MOST_MASKS) -> bool:
    """Whether there is a product with rows before a value, and only factors and masks between."""
    node = None if value is None else value.producer
    if node is None or depth == 0:
        return False
    if isinstance(node.op, BatchMatmul):
        return _reads_rows(node)
    return isinstance(node.op, (Add, ConditionSelect, Divs, Muls)) and any(
        _is_product(item, depth - 1) for item in node.inputs
    )


def _choice(node: Node) -> tuple[Value, Choice] | None:
    """The scores and the mask of a choice between scores and a number."""
    condition, *choices = node.inputs
    assert condition is not None
    for index, hidden in enumerate(choices):
        scores = choices[1 - index]
        assert hidden is not None
        if hidden.is_constant and hidden.array.size == 1 and hidden.array.flat[0] <= HIDDEN and _is_product(scores):
            assert scores is not None
            return scores, Choice(condition, float(hidden.array.flat[0]), where_it_holds=index == 0)
    return None


def joined_masks(graph: Graph, masks: list[Value | Choice], name: str, rank: int) -> Value | Skip | None:
    """One mask for several: their sum, with what is constant at conversion time. None for none."""
    constant: Array | None = None
    computed: list[Value] = []
    for mask in masks:
        data = _data(mask)
        if data is None:
            computed.append(mask if isinstance(mask, Value) else _chosen(graph, mask, f"{name}:mask"))
        else:
            with np.errstate(all="ignore"):
                constant = data if constant is None else (constant + data).astype(np.float32)
    if constant is not None:
        if np.isnan(constant).any() or (constant == np.inf).any() or constant.size == 0:
            return Skip("its mask holds what is no number, or plus infinity")
        if (constant.max(axis=-1) == -np.inf).any():
            return Skip("its mask hides whole rows")
        shape = (1,) * (rank - constant.ndim) + constant.shape
        computed.insert(0, graph.constant(np.ascontiguousarray(shortened(constant.reshape(shape))), f"{name}:mask"))
    total: Value | None = None
    for mask in computed:
        total = mask if total is None else graph.add(Add(), total, mask, name=f"{name}:mask")
    return total


def _data(mask: Value | Choice) -> Array | None:
    """The numbers of a constant mask."""
    if isinstance(mask, Value):
        return mask.array if mask.is_constant and mask.dtype is F32 else None
    if not mask.condition.is_constant:
        return None
    holds = mask.condition.array > 0
    return np.where(holds if mask.where_it_holds else ~holds, np.float32(mask.hidden), np.float32(0))


def _chosen(graph: Graph, mask: Choice, name: str) -> Value:
    """The mask of a condition, at the size that the condition has before it is expanded."""
    condition = mask.condition
    while repeats_ones(condition):
        assert condition.producer is not None and condition.producer.inputs[0] is not None
        condition = condition.producer.inputs[0]
    numbers = (mask.hidden, 0.0) if mask.where_it_holds else (0.0, mask.hidden)
    choices = (graph.constant(np.full(1, number, np.float32), f"{name}:number") for number in numbers)
    return graph.add(ConditionSelect(), condition, *choices, name=name)
