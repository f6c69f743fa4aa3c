"""Attention in pieces, and taken apart again for quantization."""

import numpy as np
import pytest
from optimizer.graphs import TANH, Q, annotated, assert_same, graph_of, ops, optimized, random_constant, reasons, run

from tpuconvert.optimizer import optimize
from tpuconvert.optimizer.quantize import prepare
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.arithmetic_with_scalar import Divs, Muls
from tpuconvert.schema.ops.attention import Attention
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.softmax import Softmax
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


DIAGONAL = np.where(np.eye(4), 0, -np.inf).astype(np.float32)[None, None]
HALF = Muls(Scalar.f32(0.5))


@pytest.mark.parametrize(
    ("build", "scale"),
    [
        (lambda g, q, k, v: pieces(g, q, k, v), 1),
        (lambda g, q, k, v: pieces(g, q, k, v, HALF), 0.5),
        (lambda g, q, k, v: pieces(g, q, k, v, Divs(Scalar.f32(4))), 0.25),
        (lambda g, q, k, v: pieces(g, g.add(HALF, q), k, v), 0.5),
        (lambda g, q, k, v: pieces(g, g.add(HALF, q), g.add(HALF, k), v, HALF), 0.125),
        (lambda g, q, k, v: pieces(g, q, g.add(Permute((0, 1, 3, 2)), k), v, product=BatchMatmul()), 1),
    ],
)
def test_spellings(build, scale):
    graph, _ = optimized(build, SHAPE, SHAPE, SHAPE)
    assert [node.op for node in graph.nodes] == [Attention(scale)]


def test_a_constant_mask():
    def build(g, q, k, v):
        return pieces(g, q, k, v, HALF, random_constant(g, 1, 1, 4, 4))

    graph, _ = optimized(build, SHAPE, SHAPE, SHAPE)
    assert ops(graph) == ["attention"] and graph.nodes[0].inputs[3].shape == (1, 1, 4, 4)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (
            lambda g, q, k, v: pieces(g, q, k, v, mask=g.add(Softmax(3), g.add(KEYS, q, k))),
            "its mask is not a constant of numbers",
        ),
        (
            lambda g, q, k, v: pieces(g, q, k, v, mask=g.constant(DIAGONAL)),
            "its mask is not a constant of numbers",
        ),
        (
            lambda g, q, k, v: g.add(BatchMatmul(), g.add(Softmax(3), g.add(TANH, g.add(KEYS, q, k))), v),
            "the scores are no product with the rows of the keys",
        ),
    ],
)
def test_declines(build, reason):
    graph = graph_of(build, SHAPE, SHAPE, SHAPE)
    trace = optimize(graph)
    assert "attention" not in ops(graph)
    assert reasons(trace, "recognize_attention") == {reason}


def test_weights_that_are_read_elsewhere_stay():
    def build(g, q, k, v):
        weights = g.add(Softmax(3), g.add(KEYS, q, k))
        return g.add(BatchMatmul(), weights, v), weights

    _, trace = optimized(build, SHAPE, SHAPE, SHAPE)
    assert reasons(trace, "recognize_attention") == {"softmax has other users"}


def test_a_grid_between_stays():
    def build(g, q, k, v):
        return g.add(BatchMatmul(), g.add(Softmax(3), annotated(g.add(KEYS, q, k), Q)), v)

    trace = optimize(graph_of(build, SHAPE, SHAPE, SHAPE))
    assert reasons(trace, "recognize_attention") == {"the source file quantizes what lies inside"}


@pytest.mark.parametrize("scale", [None, 0.5, 1.0])
@pytest.mark.parametrize("masked", [False, True])
def test_quantization_takes_it_apart(scale, masked):
    def build(g, q, k, v):
        return g.add(Attention(scale), q, k, v, *([random_constant(g, 1, 1, 4, 4)] if masked else []))

    before, after = graph_of(build, SHAPE, SHAPE, SHAPE), graph_of(build, SHAPE, SHAPE, SHAPE)
    prepare(after)
    expected = ["batch_matmul", "muls", "add", "softmax", "batch_matmul"]
    skipped = ([] if scale != 1 else ["muls"]) + ([] if masked else ["add"])
    assert ops(after) == [name for name in expected if name not in skipped]
    assert_same(run(before), run(after), 1e-6)


def test_a_rectifier_with_slopes_is_taken_apart():
    from tpuconvert.schema.ops.arithmetic import Max, Mul

    def build(g, x):
        slopes = g.constant(np.array([0.25, -1, 1], np.float32).reshape(1, 3, 1, 1))
        return g.add(Max(), x, g.add(Mul(), x, slopes))

    before, after = graph_of(build, SHAPE), graph_of(build, SHAPE)
    prepare(after)
    assert sorted(ops(after)) == ["active", "add", "conv", "mins"]
    assert_same(run(before), run(after), 1e-6)
