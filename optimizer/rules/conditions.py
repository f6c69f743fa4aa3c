"""Conditions and the choices they make, in fewer operators.

A truth is 0 or 1: what a comparison gives, or an input of booleans. For a truth c:

- c != 0 is c; (x == s) == 0 is x != s, and the other way round;
- choose(c == 0, a, b) = choose(c, b, a).

For any number x:

- k - x == 0 means x == k, and so do x - k == 0 and x + (-k) == 0: a difference of two binary32 numbers is 0 for equal
  ones only. So does "not equal", also for what is not a number;
- choose(x != 0, a, x) = choose(x != 0, a, 0) and choose(x == 0, x, a) = choose(x == 0, 0, a): masks that exporters
  fill at what is not 0.
"""

from __future__ import annotations

import numpy as np

from tpuconvert.optimizer.engine import Replacement, Skip, rule
from tpuconvert.optimizer.pattern import Match, p
from tpuconvert.optimizer.value_properties import is_truth
from tpuconvert.schema.graph import Graph, Node
from tpuconvert.schema.op import Op
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Rsubs, Subs
from tpuconvert.schema.ops.compare import Comparison, Eq, Eqs, Ne, Nes, ScalarComparison, TensorComparison
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.types import F32, Scalar


def _is_float(node: Node) -> bool:
    return all(value is not None and value.dtype is F32 for value in (*node.inputs, *node.outputs))


def _with_zero(node: Node) -> bool:
    return isinstance(node.op, (Eqs, Nes)) and node.op.scalar_i1.value == 0 and _is_float(node)


@rule(p(Nes, "x", name="op", where=_with_zero), stage="canonicalize", formerly="truth_of_truth")
def remove_boolean_test(graph: Graph, m: Match) -> Replacement:
    """C != 0 is c, for a truth."""
    if not is_truth(graph, m.x):
        return Skip("its operand may be another number than 0 and 1")
    return m.x if m.x.quant == m.op.output.quant else Skip("it changes the quantization")


def _is_equality(node: Node) -> bool:
    assert isinstance(node.op, (TensorComparison, ScalarComparison))
    return node.op.comparison in (Comparison.EQ, Comparison.NE) and _is_float(node)


INNER = p((TensorComparison, ScalarComparison), name="inner", sole_user=True, where=_is_equality)


@rule(p(Eqs, INNER, name="op", where=_with_zero), stage="canonicalize", formerly="negated_comparison")
def fold_negation_into_comparison(graph: Graph, m: Match) -> Replacement:
    """(x == y) == 0 is x != y, and the other way round."""
    inner: Op = m.inner.op
    if isinstance(inner, (Eqs, Nes)):
        other = Nes if isinstance(inner, Eqs) else Eqs
        return graph.add(other(inner.scalar_i1), *m.inner.inputs)
    return graph.add(Ne() if isinstance(inner, Eq) else Eq(), *m.inner.inputs)


@rule(
    p(ConditionSelect, p(Eqs, "c", name="negated", where=_with_zero), "a", "b", name="op"),
    stage="canonicalize",
    formerly="choice_of_negated",
)
def swap_select_branches(graph: Graph, m: Match) -> Replacement:
    """choose(c == 0, a, b) = choose(c, b, a), for a truth."""
    if not is_truth(graph, m.c):
        return Skip("its condition may be another number than 0 and 1")
    return graph.add(ConditionSelect(), m.c, m.b, m.a)


@rule(
    p(
        (Eqs, Nes),
        p((Adds, Rsubs, Subs), "x", name="difference", sole_user=True, where=_is_float),
        name="op",
        where=_with_zero,
    ),
    stage="canonicalize",
    formerly="comparison_of_difference",
)
def fold_offset_into_comparison(graph: Graph, m: Match) -> Replacement:
    """K - x == 0 is x == k, and so on."""
    number = m.difference.op.scalar.value
    if not np.isfinite(number):
        return Skip("the number is not finite")
    return graph.add(type(m.op.op)(Scalar(F32, -number if isinstance(m.difference.op, Adds) else number)), m.x)


@rule(
    p(ConditionSelect, p(Nes, "x", name="test", where=_with_zero), "a", "x", name="op"),
    p(ConditionSelect, p(Eqs, "x", name="test", where=_with_zero), "x", "a", name="op"),
    stage="canonicalize",
    formerly="choice_of_what_is_zero",
)
def replace_select_branch_by_zero(graph: Graph, m: Match) -> Replacement:
    """choose(x != 0, a, x) = choose(x != 0, a, 0)."""
    if m.x.is_constant:
        return Skip("it is constant")
    zero = graph.constant(np.zeros(1, np.float32), f"{m.op.output.name}:zero")
    choices = (m.a, zero) if isinstance(m.test.op, Nes) else (zero, m.a)
    return graph.add(ConditionSelect(), m.test.output, *choices)
