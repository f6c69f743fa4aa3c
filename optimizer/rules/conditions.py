"""Simplification of comparisons and selections.

For a Boolean tensor c, which contains 0 and 1 only:

- ``c != 0 -> c``; ``(x == s) == 0 -> x != s``; ``(x != s) == 0 -> x == s``;
- ``where(c == 0, a, b) -> where(c, b, a)``.

For any x:

- ``k - x == 0 -> x == k``, and likewise for ``x - k``, ``x + (-k)`` and for ``!=``. This is exact, NaN included: a
  difference of two float32 numbers is 0 only if they are equal;
- ``where(x != 0, a, x) -> where(x != 0, a, 0)`` and ``where(x == 0, x, a) -> where(x == 0, 0, a)``: exporters write
  masks in this form.
"""

from __future__ import annotations

import numpy as np

from tpuconvert.optimizer.engine.engine import Replacement, Skip, rule
from tpuconvert.optimizer.engine.node_properties import is_float32
from tpuconvert.optimizer.engine.pattern import Match, p
from tpuconvert.optimizer.rules.value_properties import is_boolean
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Graph, Node
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Rsubs, Subs
from tpuconvert.schema.ops.compare import Comparison, Eq, Eqs, Ne, Nes, ScalarComparison, TensorComparison
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.types import F32, Scalar


def _with_zero(node: Node) -> bool:
    return isinstance(node.op, (Eqs, Nes)) and node.op.scalar_i1.value == 0 and is_float32(node)


@rule(p(Nes, "x", name="op", where=_with_zero), stage="canonicalize")
def remove_boolean_test(graph: Graph, m: Match) -> Replacement:
    """``c != 0 -> c`` for a Boolean tensor c."""
    if not is_boolean(graph, m.x):
        return Skip("its operand may differ from 0 and 1")
    return m.x if m.x.quant == m.op.output.quant else Skip("it changes the quantization")


def _is_equality(node: Node) -> bool:
    assert isinstance(node.op, (TensorComparison, ScalarComparison))
    return node.op.comparison in (Comparison.EQ, Comparison.NE) and is_float32(node)


INNER = p((TensorComparison, ScalarComparison), name="inner", sole_user=True, where=_is_equality)


@rule(p(Eqs, INNER, name="op", where=_with_zero), stage="canonicalize")
def fold_negation_into_comparison(graph: Graph, m: Match) -> Replacement:
    """``(x == y) == 0 -> x != y`` and ``(x != y) == 0 -> x == y``."""
    inner: Op = m.inner.op
    if isinstance(inner, (Eqs, Nes)):
        other = Nes if isinstance(inner, Eqs) else Eqs
        return graph.add(other(inner.scalar_i1), *m.inner.inputs)
    return graph.add(Ne() if isinstance(inner, Eq) else Eq(), *m.inner.inputs)


@rule(p(ConditionSelect, p(Eqs, "c", name="negated", where=_with_zero), "a", "b", name="op"), stage="canonicalize")
def swap_select_branches(graph: Graph, m: Match) -> Replacement:
    """``where(c == 0, a, b) -> where(c, b, a)`` for a Boolean tensor c."""
    if not is_boolean(graph, m.c):
        return Skip("its condition may differ from 0 and 1")
    return graph.add(ConditionSelect(), m.c, m.b, m.a)


@rule(
    p(
        (Eqs, Nes),
        p((Adds, Rsubs, Subs), "x", name="difference", sole_user=True, where=is_float32),
        name="op",
        where=_with_zero,
    ),
    stage="canonicalize",
)
def fold_offset_into_comparison(graph: Graph, m: Match) -> Replacement:
    """``k - x == 0 -> x == k``, and likewise for ``x - k``, ``x + k`` and ``!=``."""
    number = m.difference.op.scalar.value
    if not np.isfinite(number):
        return Skip("the number is not finite")
    return graph.add(type(m.op.op)(Scalar(F32, -number if isinstance(m.difference.op, Adds) else number)), m.x)


@rule(
    p(ConditionSelect, p(Nes, "x", name="test", where=_with_zero), "a", "x", name="op"),
    p(ConditionSelect, p(Eqs, "x", name="test", where=_with_zero), "x", "a", name="op"),
    stage="canonicalize",
)
def replace_select_branch_by_zero(graph: Graph, m: Match) -> Replacement:
    """``where(x != 0, a, x) -> where(x != 0, a, 0)``."""
    if m.x.is_constant:
        return Skip("it is constant")
    zero = graph.constant(np.zeros(1, np.float32), f"{m.op.output.name}:zero")
    branches = (m.a, zero) if isinstance(m.test.op, Nes) else (zero, m.a)
    return graph.add(ConditionSelect(), m.test.output, *branches)
