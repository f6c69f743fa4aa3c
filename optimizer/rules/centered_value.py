"""Recovery of ``x - mean(x)`` from a scale and bias.

``x * r + (b - mean(x) * r) -> (x - mean(x)) * r + b``. TensorFlow writes normalizations in the first form, with
``r = g / sqrt(variance + epsilon)``. The rules that recognize normalizations expect the second form,
``((x - mean(x)) / sqrt(...)) * g + b``.
"""

from __future__ import annotations

from collections.abc import Iterator

from tpuconvert.optimizer.engine import Replacement, Skip, rule
from tpuconvert.optimizer.pattern import Match, Pattern, p
from tpuconvert.schema.graph import Graph, Node, Value
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Mul, Sub
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.types import F32


def _is_mean(node: Node) -> bool:
    return isinstance(node.op, Reduce) and node.op.method == ReduceMethodType.REDUCE_MEAN and node.op.keep_dims


def _is_float(node: Node) -> bool:
    return node.outputs[0].dtype is F32


def _either(op: type[Mul] | type[Add], first: Pattern | str, second: Pattern | str, name: str) -> tuple[Pattern, ...]:
    """Both orders of the operands."""
    return (
        p(op, first, second, name=name, sole_user=True, where=_is_float),
        p(op, second, first, name=name, sole_user=True, where=_is_float),
    )


MEAN = p(Reduce, "x", name="mean", where=_is_mean)


def _patterns() -> Iterator[Pattern]:
    for scaled in _either(Mul, "x", "r", "scaled"):
        for shift in _either(Mul, MEAN, "r", "shift"):
            yield from _either(Add, scaled, p(Sub, "b", shift, name="rest", sole_user=True), "sum")


@rule(*_patterns(), stage="canonicalize", formerly="gather_centred_value")
def factor_out_centered_value(graph: Graph, m: Match) -> Replacement:
    """``x * r + (b - mean(x) * r) -> (x - mean(x)) * r + b``, multiplying by the factors of r one after the other."""
    factors = _factors(m.r)
    if factors is None:
        return Skip("the factor is not 1 / sqrt(...), alone or times a constant")
    mean: Value = m.mean.output
    centred = next((user.outputs[0] for user in mean.users if user.op == Sub() and user.inputs == (m.x, mean)), None)
    if centred is None:
        return Skip("x - mean(x) is not computed elsewhere")
    for factor in factors:
        centred = graph.add(Mul(), centred, factor, name=f"{m.sum.name}:centred")
    if centred.type != m.sum.output.type:
        return Skip("adding b changes the shape")
    return graph.add(Add(), centred, m.b)


def _factors(r: Value) -> list[Value] | None:
    """The factors of r: the reciprocal of the root first, then the other one."""
    node = r.producer
    if node is None:
        return None
    if isinstance(node.op, Mul):
        first, second = node.inputs
        assert first is not None and second is not None
        root, constant = (second, first) if first.is_constant else (first, second)
        return [root, constant] if constant.is_constant and _is_reciprocal_root(root) else None
    return [r] if _is_reciprocal_root(r) else None


def _is_reciprocal_root(value: Value) -> bool:
    node = value.producer
    return node is not None and isinstance(node.op, Active) and node.op.active_type == ActiveType.ACTIVE_RSQRT
