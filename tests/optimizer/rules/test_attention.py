"""Recognition of decomposed attention, and its decomposition for quantization."""

from collections import Counter

import numpy as np
import pytest

from tests.support.rules.graphs import (
    EXP,
    TANH,
    Q,
    annotate,
    assert_same,
    graph_of,
    ops,
    optimize_checked,
    random_constant,
    reasons,
    run,
)
from tpuconvert.optimizer import optimize
from tpuconvert.optimizer.prepare_quantization import prepare
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.ops.arithmetic import Add, Div, Max, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Divs, Maxs, Muls, Rsubs
from tpuconvert.schema.ops.attention import Attention
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.compare import Eqs, Gts, Ne, Nes
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.ops.tile import Tile
from tpuconvert.schema.types import Scalar

SHAPE = (2, 3, 4, 6)
KEYS = BatchMatmul(right_transpose=True)


def pieces(g, query, key, value, scale=None, mask=None, product=KEYS, axis=3):
    scores = g.add(product, query, key)
    if scale is not None:
        scores = g.add(scale, scores)
    if mask is not None:
        scores = g.add(Add(), scores, mask)
    return g.add(BatchMatmul(), g.add(Softmax(axis), scores), value)


HALF = Muls(Scalar.f32(0.5))


def matrices_transposed(g, x):
    """Swap the last two axes of [a, b, c, d] as the dynamo exporter does: in a list of matrices."""
    a, b, c, d = x.shape
    return g.add(Reshape((a, b, d, c)), g.add(Permute((0, 2, 1)), g.add(Reshape((a * b, c, d)), x)))


@pytest.mark.parametrize(
    ("build", "scale"),
    [
        (lambda g, q, k, v: pieces(g, q, k, v), 1),
        (lambda g, q, k, v: pieces(g, q, k, v, HALF), 0.5),
        (lambda g, q, k, v: pieces(g, q, k, v, Divs(Scalar.f32(4))), 0.25),
        (lambda g, q, k, v: pieces(g, g.add(HALF, q), k, v), 0.5),
        (lambda g, q, k, v: pieces(g, g.add(HALF, q), g.add(HALF, k), v, HALF), 0.125),
        (lambda g, q, k, v: pieces(g, q, g.add(Permute((0, 1, 3, 2)), k), v, product=BatchMatmul()), 1),
        (lambda g, q, k, v: pieces(g, q, g.add(HALF, matrices_transposed(g, k)), v, product=BatchMatmul()), 0.5),
    ],
)
def test_recognizes_equivalent_forms(build, scale):
    graph, _ = optimize_checked(build, SHAPE, SHAPE, SHAPE)
    assert [node.op for node in graph.nodes] == [Attention(scale)]


def test_recognizes_a_constant_mask():
    def build(g, q, k, v):
        return pieces(g, q, k, v, HALF, random_constant(g, 1, 1, 4, 4))

    graph, _ = optimize_checked(build, SHAPE, SHAPE, SHAPE)
    assert ops(graph) == ["attention"] and graph.nodes[0].inputs[3].shape == (1, 1, 4, 4)


INFINITE, LOWEST = -np.inf, float(np.finfo(np.float32).min)
WIDE = Tile((1, 3, 4, 1))
COLUMNS = (2, 1, 1, 4)


def number(g, value):
    return g.constant(np.full(1, value, np.float32))


def seen(g, x, shape=COLUMNS):
    """1 if a column is visible, otherwise 0. The first column is always visible."""
    first = np.zeros(shape, np.float32)
    first[..., 0] = 1
    return g.add(Max(), g.add(Gts(Scalar.f32(0)), x), g.constant(first))


def of_bert(g, x):
    """(1 - seen) * -10000."""
    return g.add(Muls(Scalar.f32(-10000)), g.add(Rsubs(Scalar.f32(1)), seen(g, x)))


def expanded_first(g, x):
    """Mask as current exporters write it: broadcast, subtracted from 1, filled where it is not 0."""
    inverted = g.add(Rsubs(Scalar.f32(1)), g.add(Tile((1, 1, 4, 1)), seen(g, x)))
    filled = g.add(Nes(Scalar.f32(0)), inverted)
    return g.add(ConditionSelect(), filled, number(g, LOWEST), inverted)


def of_numbers(g, x):
    return g.add(ConditionSelect(), seen(g, x), number(g, 0), number(g, INFINITE))


@pytest.mark.parametrize("mask", [of_bert, expanded_first, of_numbers])
def test_recognizes_a_computed_mask(mask):
    graph, _ = optimize_checked(lambda g, q, k, v, x: pieces(g, q, k, v, HALF, mask(g, x)), *[SHAPE] * 3, COLUMNS)
    (node,) = (node for node in graph.nodes if node.op == Attention(0.5))
    assert node.inputs[3].shape == COLUMNS, "as large as what it is computed from"
    assert len(graph) <= 5 and not {"softmax", "batch_matmul", "tile"} & set(ops(graph))


@pytest.mark.parametrize("low", [INFINITE, LOWEST])
@pytest.mark.parametrize("where_it_holds", [False, True])
def test_recognizes_a_select_as_mask(low, where_it_holds):
    def build(g, q, k, v, x):
        scores, hidden = g.add(HALF, g.add(KEYS, q, k)), number(g, low)
        condition = seen(g, x)
        if where_it_holds:
            condition = g.add(Eqs(Scalar.f32(0)), condition)
        choices = (hidden, scores) if where_it_holds else (scores, hidden)
        chosen = g.add(ConditionSelect(), g.add(WIDE, condition), *choices)
        return g.add(BatchMatmul(), g.add(Softmax(3), chosen), v)

    graph, _ = optimize_checked(build, *[SHAPE] * 3, COLUMNS)
    assert ops(graph)[-2:] == ["condition_select", "attention"] and "tile" not in ops(graph)


def test_adds_two_masks_first():
    """A causal mask of the model and a padding mask of the sample."""

    def build(g, q, k, v, x):
        triangle = g.constant(np.broadcast_to(np.tril(np.ones((4, 4), np.float32)), (2, 3, 4, 4)).copy())
        scores = g.add(ConditionSelect(), triangle, g.add(KEYS, q, k), number(g, LOWEST))
        return g.add(BatchMatmul(), g.add(Softmax(3), g.add(Add(), scores, of_bert(g, x))), v)

    graph, _ = optimize_checked(build, *[SHAPE] * 3, COLUMNS)
    attention = graph.nodes[-1]
    assert attention.op == Attention(1) and attention.inputs[3].producer.op == Add()
    assert {value.shape for value in attention.inputs[3].producer.inputs} == {COLUMNS, (1, 1, 4, 4)}


@pytest.mark.parametrize("mask", [of_bert, of_numbers])
def test_recognizes_a_guarded_softmax(mask):
    def build(g, q, k, v, x):
        scores = g.add(Add(), g.add(KEYS, q, k), mask(g, x))
        largest = g.add(Maxs(Scalar.f32(LOWEST)), g.add(Reduce((3,), ReduceMethodType.REDUCE_MAX), scores))
        powers = g.add(EXP, g.add(Sub(), scores, largest))
        sums = g.add(Reduce((3,), ReduceMethodType.REDUCE_SUM), powers)
        weights = g.add(Div(), powers, g.add(Add(), sums, g.add(Eqs(Scalar.f32(0)), sums)))
        return g.add(BatchMatmul(), weights, v)

    graph, _ = optimize_checked(build, *[SHAPE] * 3, COLUMNS)
    assert ops(graph)[-1] == "attention" and "softmax" not in ops(graph) and "div" not in ops(graph)


def heads(g, x):
    """Reshape [2, 4, 3 * 6] to [2, 3, 4, 6]."""
    return g.add(Permute((0, 2, 1, 3)), g.add(Reshape((2, 4, 3, 6)), x))


@pytest.mark.parametrize("is_guarded", [False, True])
def test_recognizes_the_export_of_pytorch(is_guarded):
    """Queries and keys are each scaled by the root of the scale, the keys are permuted twice, and NaN becomes 0."""

    def build(g, q, k, v, x):
        query, value = g.add(HALF, heads(g, q)), heads(g, v)
        key = g.add(HALF, g.add(Permute((0, 1, 3, 2)), heads(g, k)))
        scores = g.add(Add(), g.add(BatchMatmul(), query, key), of_numbers(g, x))
        weights = g.add(Softmax(3), scores)
        if is_guarded:
            weights = g.add(ConditionSelect(), g.add(Ne(), weights, weights), number(g, 0), weights)
        return g.add(BatchMatmul(), weights, value)

    graph, _ = optimize_checked(build, (2, 4, 18), (2, 4, 18), (2, 4, 18), COLUMNS)
    assert graph.nodes[-1].op == Attention(0.25)
    assert Counter(ops(graph)) == Counter(["reshape", "permute"] * 3 + ["gts", "max", "condition_select", "attention"])


@pytest.mark.parametrize("seen_value", [0, 1])
def test_keeps_transposed_keys_with_other_users(seen_value):
    """Without the permute or scale in between, the keys are not known to be transposed: both shapes are equal here."""

    def build(g, q, k, v):
        columns = g.add(Permute((0, 1, 3, 2)), g.add(TANH, g.add(Permute((0, 2, 1, 3)), k)))
        scaled = g.add(HALF, columns)
        mixed = g.add(BatchMatmul(), g.add(Softmax(3), g.add(BatchMatmul(), q, scaled)), v)
        return mixed, (columns, scaled)[seen_value]

    square = (2, 4, 4, 4)
    optimize_checked(build, square, square, square)


def test_declines_another_replacement_of_nan():
    def build(g, q, k, v, x):
        weights = g.add(Softmax(3), g.add(Add(), g.add(KEYS, q, k), of_numbers(g, x)))
        chosen = g.add(ConditionSelect(), g.add(Ne(), weights, weights), number(g, 1), weights)
        return g.add(BatchMatmul(), chosen, v)

    trace = optimize_checked(build, *[SHAPE] * 3, COLUMNS)[1]
    assert reasons(trace, "recognize_attention") == {"the replacement of NaN is not 0"}


DIAGONAL_ONLY = np.where(np.eye(4), 0, -np.inf).astype(np.float32)[None, None]
ROW_HIDDEN = np.array([[0, 0, 0, 0], [-np.inf] * 4, [0, 0, 0, 0], [0, 0, 0, 0]], np.float32)[None, None]


def test_declines_a_constant_mask_with_infinite_rows():
    graph, _ = optimize_checked(
        lambda g, q, k, v: pieces(g, q, k, v, mask=g.constant(DIAGONAL_ONLY)), SHAPE, SHAPE, SHAPE
    )
    assert ops(graph) == ["attention"]


def with_mask(g, q, k, v, mask):
    return pieces(g, q, k, v, mask=mask)


@pytest.mark.parametrize("rows", [(), (1,), (0, 2)], ids=str)
def test_fully_masked_rows_are_zeros(rows):
    """These rows are NaN in the source. All other rows equal the rows of the source."""
    shapes = (*[SHAPE] * 3, (1, 1, 4, 4))
    before, after, kept = (graph_of(with_mask, *shapes) for _ in range(3))
    optimize(after)
    optimize(kept, disabled=("recognize_attention",))
    assert ops(after) == ["attention"] and "attention" not in ops(kept)
    rng = np.random.default_rng(0)
    feeds = {port.name: rng.normal(size=port.shape).astype(np.float32) for port in after.input_ports}
    feeds["x3"][:, :, list(rows)] = -np.inf
    (source,), (found,), (pieces_of_it,) = (
        Session(graph, backend="reference").run(feeds).values() for graph in (before, after, kept)
    )
    hidden = np.isin(np.arange(4), rows)
    assert np.isnan(source[:, :, hidden]).all() and not found[:, :, hidden].any()
    np.testing.assert_allclose(found[:, :, ~hidden], source[:, :, ~hidden], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(np.isnan(pieces_of_it), np.isnan(source))


def two_products(g, q, k, v):
    scores = g.add(KEYS, q, k)
    return g.add(Mul(), pieces(g, q, k, v), g.add(BatchMatmul(), g.add(TANH, scores), v))


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda g, q, k, v: pieces(g, q, k, v, mask=g.constant(ROW_HIDDEN)), "its mask hides whole rows"),
        (
            lambda g, q, k, v: pieces(
                g, q, k, v, mask=g.constant(np.where(np.eye(4), np.inf, 0).astype(np.float32)[None, None])
            ),
            "its mask contains NaN or plus infinity",
        ),
        (
            lambda g, q, k, v: g.add(BatchMatmul(), g.add(Softmax(3), g.add(TANH, g.add(KEYS, q, k))), v),
            "the scores are not a matmul with transposed keys",
        ),
        (two_products, "the scores have other users"),
        (
            lambda g, q, k, v: g.add(
                BatchMatmul(),
                g.add(
                    Softmax(3),
                    g.add(ConditionSelect(), g.add(KEYS, q, q), g.add(KEYS, q, k), number(g, -1000)),
                ),
                v,
            ),
            "the scores are not a matmul with transposed keys",
        ),
    ],
)
def test_declines(build, reason):
    graph = graph_of(build, SHAPE, SHAPE, SHAPE)
    trace = optimize(graph)
    assert "attention" not in ops(graph)
    assert reasons(trace, "recognize_attention") == {reason}


def test_declines_weights_with_other_users():
    def build(g, q, k, v):
        weights = g.add(Softmax(3), g.add(KEYS, q, k))
        return g.add(BatchMatmul(), weights, v), weights

    _, trace = optimize_checked(build, SHAPE, SHAPE, SHAPE)
    assert reasons(trace, "recognize_attention") == {"softmax has other users"}


def test_declines_a_quantized_inner_value():
    def build(g, q, k, v):
        return g.add(BatchMatmul(), g.add(Softmax(3), annotate(g.add(KEYS, q, k), Q)), v)

    trace = optimize(graph_of(build, SHAPE, SHAPE, SHAPE))
    assert reasons(trace, "recognize_attention") == {"the source file quantizes an inner value"}


@pytest.mark.parametrize("scale", [None, 0.5, 1.0])
@pytest.mark.parametrize("masked", [False, True])
def test_quantization_decomposes_attention(scale, masked):
    def build(g, q, k, v):
        return g.add(Attention(scale), q, k, v, *([random_constant(g, 1, 1, 4, 4)] if masked else []))

    before, after = graph_of(build, SHAPE, SHAPE, SHAPE), graph_of(build, SHAPE, SHAPE, SHAPE)
    prepare(after)
    expected = ["batch_matmul", "muls", "add", "softmax", "batch_matmul"]
    skipped = ([] if scale != 1 else ["muls"]) + ([] if masked else ["add"])
    assert ops(after) == [name for name in expected if name not in skipped]
    assert_same(run(before), run(after), 1e-6)


def hidden_rows(rows):
    """A mask that hides some rows completely, and the last column of the others."""
    mask = np.zeros((1, 1, 4, 4), np.float32)
    mask[..., 3] = -np.inf
    mask[:, :, rows] = -np.inf
    return mask


@pytest.mark.parametrize("rows", [[], [1], [0, 1, 2, 3]])
@pytest.mark.parametrize("is_computed", [False, True])
def test_decomposed_attention_gives_zeros_for_masked_rows(rows, is_computed):
    """Like the composite operator. A constant mask that hides no row needs no guard."""

    def build(g, q, k, v, *x):
        mask = g.constant(hidden_rows(rows))
        return g.add(Attention(), q, k, v, g.add(Add(), x[0], mask) if is_computed else mask)

    shapes = [SHAPE] * 3 + [(1, 1, 4, 4)] * is_computed
    before, after = graph_of(build, *shapes), graph_of(build, *shapes)
    prepare(after)
    want = run(before)
    assert "attention" not in ops(after) and not np.isnan(next(iter(want.values()))).any()
    assert_same(want, run(after), 1e-6)
    is_guarded = is_computed or bool(rows)
    assert ("gts" in ops(after)) == is_guarded


def test_a_finite_computed_mask_needs_no_guard():
    after = graph_of(lambda g, q, k, v, x: g.add(Attention(), q, k, v, of_bert(g, x)), *[SHAPE] * 3, COLUMNS)
    prepare(after)
    pieces_of_it = ["batch_matmul", "muls", "add", "softmax", "batch_matmul"]
    assert Counter(ops(after)) == Counter(["gts", "max", "rsubs", "muls", *pieces_of_it])


def test_quantization_decomposes_prelu():
    def build(g, x):
        slopes = g.constant(np.array([0.25, -1, 1], np.float32).reshape(1, 3, 1, 1))
        return g.add(Max(), x, g.add(Mul(), x, slopes))

    before, after = graph_of(build, SHAPE), graph_of(build, SHAPE)
    prepare(after)
    assert sorted(ops(after)) == ["active", "add", "conv", "mins"]
    assert_same(run(before), run(after), 1e-6)
