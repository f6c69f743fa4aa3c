"""Choice of the tensors that have 16 bits because precision rules request it for nodes (``int16``, BM1686).

The results of a selected node have 16 bits. So do its operands if they can be computed with 16 bits: results of linear
operators, adds and multiplies, data movement and clamps of such values, and values that are quantized from float. All
other integer nodes read an 8-bit form of these tensors.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tpuconvert.optimizer.engine.node_properties import computed_operands
from tpuconvert.optimizer.quantize.traits import (
    has_constant_weight,
    has_whole_windows,
    is_arithmetic,
    is_average_pool,
    is_max_pool,
    is_product,
    is_table,
    keeps_scale,
)
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.graph.legality import Status, check
from tpuconvert.schema.ops.pad import Pad
from tpuconvert.schema.types import I16, Chip, TensorType


@dataclass(frozen=True)
class WidePlan:
    """The effect of ``int16`` rules.

    Args:
        values: values with 16 bits.
        readers: names of the nodes that take operands of 16 bits.
    """

    values: frozenset[Value] = frozenset()
    readers: frozenset[str] = frozenset()

    def reads(self, node: Node) -> bool:
        """Return True if an annotated node takes operands of 16 bits. Only selected linear operators split them."""
        result = node.outputs[0].quant
        return node.name in self.readers or (result is not None and result.dtype is I16 and not is_product(node.op))


NO_PLAN = WidePlan()
"""Plan without rules."""


def plan_wide_values(graph: Graph, selected: Collection[str], floats: Collection[str], chip: Chip) -> WidePlan:
    """Choose the values with 16 bits.

    Args:
        graph: float graph.
        selected: names of the nodes with an ``int16`` rule.
        floats: names of the nodes that stay float.
        chip: the target. Only BM1686 has operators for it.
    """
    if chip is not Chip.BM1686 or not selected:
        return NO_PLAN
    nodes = [node for node in graph.sorted_nodes() if node.name in selected and node.name not in floats]
    plan = _Plan(set(floats))
    for node in nodes:
        for value in node.outputs:
            plan.add_results(value)
    for node in nodes:
        if takes_16_bits(node):
            plan.readers.add(node.name)
            for value in computed_operands(node):
                plan.widen(value)
    return WidePlan(frozenset(plan.values), frozenset(plan.readers))


class _Plan:
    """A plan under construction."""

    def __init__(self, floats: set[str]) -> None:
        self.floats = floats
        self.values: set[Value] = set()
        self.readers: set[str] = set()

    def add_results(self, value: Value) -> None:
        """Add the result of a selected node, and the results of clamps that are its sole users, whose scale it gets."""
        self.values.add(value)
        user = next(iter(value.users), None)
        if user is not None and len(value.uses) == 1 and user.op.clamp_range() is not None:
            self.readers.add(user.name)
            self.add_results(user.outputs[0])

    def widen(self, value: Value) -> bool:
        """Add a value if it can be computed with 16 bits. Return True if it has them."""
        node = value.producer
        if value in self.values:
            return True
        if node is None or node.name in self.floats or is_product(node.op) or node.op.name in ("add", "sub", "mul"):
            self.values.add(value)
            return True
        if not (keeps_scale(node.op) or node.op.clamp_range() is not None) or not takes_16_bits(node):
            return False
        widened = [self.widen(operand) for operand in computed_operands(node)]
        if not any(widened):
            return False
        self.values.update(node.outputs)
        self.readers.add(node.name)
        return True


def takes_16_bits(node: Node) -> bool:
    """Return True if BM1686 has a form of the node with operands of 16 bits."""
    op = node.op
    if has_constant_weight(node) or is_arithmetic(op) or is_table(op) or is_max_pool(op) or isinstance(op, Pad):
        return True
    if is_average_pool(op):
        return has_whole_windows(node)
    if not keeps_scale(op):
        return False
    types = [None if value is None else TensorType(I16, value.shape) for value in node.inputs]
    results = [TensorType(I16, value.shape) for value in node.outputs]
    return check(op, Chip.BM1686, types, results).status is not Status.ILLEGAL
