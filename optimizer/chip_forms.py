"""Float operators that a chip lacks, said with operators that it has: the first half of legalization.

The other half, ``optimizer.quantize.legalize``, makes the integer operators of a chip out of quantized nodes. A form is
tried only on nodes that are illegal on the target chip; everything else stays as it is. Forms:

| operator | form |
|---|---|
| axpy | muls, add |
| batch_norm with given statistics | mul and add per channel |
| ceil, floor, round | active with the function of that name |
| clshift, crshift | the slices from one place on, then those before it |
| interpolate | upsample, index_select or constant matrices: ``optimizer.resize_forms`` |
| lshift, rshift | the slices that stay, with zeros on one side |
| rdivs | div with a constant of one element |
| softmax | exp(x - max(x)) / sum(exp(x - max(x))) with two reductions |
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np

from tpuconvert.optimizer.affine import read_affine
from tpuconvert.optimizer.engine import Replacement, RewriteRule, RuleFunction, Skip, rules_of, run_rules
from tpuconvert.optimizer.pattern import Match, p
from tpuconvert.optimizer.pipeline import STAGES
from tpuconvert.optimizer.resize_forms import resize_without_interpolate
from tpuconvert.optimizer.trace import Trace
from tpuconvert.schema.graph import Graph, Node, Value
from tpuconvert.schema.legality import Status, check_use
from tpuconvert.schema.op import Op
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Div, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Axpy, Muls, Rdivs
from tpuconvert.schema.ops.batch_norm import BatchNorm
from tpuconvert.schema.ops.channel_shift import Clshift, Crshift, Lshift, Rshift
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.interpolate import Interpolate
from tpuconvert.schema.ops.pad import Pad
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.round_to_integer import Ceil, Floor, Round
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.types import F32, Chip, Scalar

STAGE = "chip forms"

_TIDY = ("join_of_slices", "merge_permutes", "merge_reshapes", "remove_same_shape", "shorten_moves", "slice_of_concat")
"""Rules that put together what the expansion of neighbours has left: they move elements and know nothing of chips."""


def fit_to_chip(
    graph: Graph, chip: Chip, trace: Callable[[str], None] | None = None, disabled: Collection[str] = ()
) -> Trace:
    """Replace nodes that a chip cannot run by forms that it can, in place.

    Args:
        graph: optimized float graph, with or without quantization annotations.
        chip: the target.
        trace: called with one line per form and outcome.
        disabled: names of forms that are not to be used.

    Returns:
        How often every form was used or declined, with the rules that tidy up behind them. A node without a form stays;
        ``schema.legality`` tells it.
    """
    counts = Trace()

    def is_illegal(node: Node) -> bool:
        is_float = all(value.dtype is F32 for value in node.outputs)
        return is_float and check_use(node, chip).status is Status.ILLEGAL

    rules = [
        RewriteRule(function.__name__, (p(ops, "x", name="op", where=is_illegal),), STAGE, function)
        for ops, function in FORMS
        if function.__name__ not in disabled
    ]
    rules += [item for stage in STAGES for item in rules_of(stage) if item.name in _TIDY and item.name not in disabled]
    if run_rules(graph, rules, counts):
        graph.prune()
    if trace is not None:
        for line in counts.lines():
            trace(line)
    return counts


def axpy_as_sum(graph: Graph, m: Match) -> Replacement:
    """Scaling and adding in two operators, which round as the one does."""
    scaled = graph.add(Muls(m.op.op.scalar), m.x, name=f"{m.op.name}:scaled")
    return graph.add(Add(), scaled, m.op.inputs[1])


def normalization_as_product_and_sum(graph: Graph, m: Match) -> Replacement:
    """A product and a sum with constants [1, C, 1, 1]."""
    affine = read_affine(graph, m.op, 1)
    if isinstance(affine, Skip):
        return affine
    k, b = (
        graph.constant(vector.astype(np.float32).reshape(1, -1, 1, 1), f"{m.op.name}:{name}")
        for vector, name in ((affine.k, "factors"), (affine.b, "shifts"))
    )
    scaled = graph.add(Mul(), m.x, k, name=f"{m.op.name}:scaled")
    return graph.add(Add(), scaled, b), None, None


_FUNCTIONS: dict[type[Op], ActiveType] = {
    Ceil: ActiveType.ACTIVE_CEIL,
    Floor: ActiveType.ACTIVE_FLOOR,
    Round: ActiveType.ACTIVE_ROUND,
}


def rounding_as_activation(graph: Graph, m: Match) -> Replacement:
    """The activation of the same name computes the same."""
    return graph.add(Active(_FUNCTIONS[type(m.op.op)]), m.x)


def reciprocal_as_quotient(graph: Graph, m: Match) -> Replacement:
    """The dividend as a tensor of one element, which the division expands."""
    scalar = np.full((1,) * m.x.rank, m.op.op.scalar.value, dtype=np.float32)
    return graph.add(Div(), graph.constant(scalar, f"{m.op.name}:dividend"), m.x)


def softmax_as_quotient(graph: Graph, m: Match) -> Replacement:
    """The definition, with the largest element taken away first so that no power overflows."""
    name, axis = m.op.name, m.op.op.axis % m.x.rank
    largest = graph.add(Reduce((axis,), ReduceMethodType.REDUCE_MAX), m.x, name=f"{name}:max")
    centred = graph.add(Sub(), m.x, largest, name=f"{name}:centred")
    powers = graph.add(Active(ActiveType.ACTIVE_EXP), centred, name=f"{name}:powers")
    total = graph.add(Reduce((axis,), ReduceMethodType.REDUCE_SUM), powers, name=f"{name}:sum")
    return graph.add(Div(), powers, total)


def rotation_as_slices(graph: Graph, m: Match) -> Replacement:
    """The slices of axis 1 from one place on, and then those before it."""
    channels = m.x.shape[1]
    if not m.x.type.is_static or 0 in m.x.shape:
        return Skip("its shape is not known before the model runs")
    first = (m.op.op.num if isinstance(m.op.op, Clshift) else -m.op.op.num) % channels
    if first == 0:
        return graph.add(Copy(), m.x)
    return graph.add(Concat(1), _slices(graph, m, first, channels), _slices(graph, m, 0, first))


def shift_as_border(graph: Graph, m: Match) -> Replacement:
    """The slices of axis 1 that stay, with zeros where others came in."""
    channels = m.x.shape[1]
    if not m.x.type.is_static or 0 in m.x.shape:
        return Skip("its shape is not known before the model runs")
    count = min(m.op.op.num, channels)
    if count == channels:
        return graph.add(Muls(Scalar.f32(0)), m.x)
    is_left = isinstance(m.op.op, Lshift)
    kept = _slices(graph, m, count, channels) if is_left else _slices(graph, m, 0, channels - count)
    border = (0, 0, *((0, count) if is_left else (count, 0)), *(0, 0) * (m.x.rank - 2))
    return graph.add(Pad(Scalar.f32(0), border), kept)


def _slices(graph: Graph, m: Match, begin: int, end: int) -> Value:
    shape = m.x.type.static_shape
    start, stop = (0, begin, *(0 for _ in shape[2:])), (shape[0], end, *shape[2:])
    return graph.add(Extract(start, stop, (1,) * len(shape)), m.x, name=f"{m.op.name}:from{begin}")


FORMS: tuple[tuple[type[Op] | tuple[type[Op], ...], RuleFunction], ...] = (
    (Axpy, axpy_as_sum),
    (BatchNorm, normalization_as_product_and_sum),
    (tuple(_FUNCTIONS), rounding_as_activation),
    ((Clshift, Crshift), rotation_as_slices),
    ((Lshift, Rshift), shift_as_border),
    (Interpolate, resize_without_interpolate),
    (Rdivs, reciprocal_as_quotient),
    (Softmax, softmax_as_quotient),
)
