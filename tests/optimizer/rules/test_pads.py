"""Folding of pads into the following convolution or pooling."""

import math

import pytest

from tests.support.rules.graphs import OTHER_Q, RELU, TANH, Q, annotate, conv, graph_of, ops, optimize_checked, reasons
from tpuconvert.optimizer import optimize
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.pad import Pad, PadType
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.types import Scalar

X = (1, 3, 6, 7)
LOWEST = -3.4028234663852886e38


def pad(g, x, top=0, bottom=1, left=2, right=0, value=0.0, channels=0, mode=PadType.PAD_CONSTANT):
    paddings = (0, 0, 0, channels, top, bottom, left, right)
    return g.add(Pad(Scalar.f32(value), paddings, mode), x, name="padded")


def pool(g, x, **op):
    given = {"stride_h": 2, "stride_w": 1, "kernel_h": 3, "kernel_w": 3, **op}
    return g.add(Pool(**given), x)


def average(g, x, **op):
    return pool(g, x, pooling_type=PoolType.AVE, **op)


@pytest.mark.parametrize("op", [{}, {"pad_h_t": 1, "pad_w_r": 2}, {"stride_h": 2, "dw": 2}], ids=str)
def test_folds_a_pad_into_conv(op):
    graph, trace = optimize_checked(lambda g, x: conv(g, pad(g, x), 4, **op), X)
    assert ops(graph) == ["conv"] and trace.fired["fold_pad_into_conv"] == 1
    new = graph.nodes[0].op
    assert (new.pad_h_t, new.pad_h_b) == (op.get("pad_h_t", 0), 1)
    assert (new.pad_w_l, new.pad_w_r) == (2, op.get("pad_w_r", 0))


def test_folds_across_a_permute():
    def build(g, x):
        y = g.add(Pad(Scalar.f32(0), (0, 0, 0, 1, 2, 0, 0, 0)), x)
        return conv(g, g.add(Permute((0, 3, 1, 2)), y), 4)

    graph, _ = optimize_checked(build, (1, 6, 7, 3))
    assert ops(graph) == ["permute", "conv"]


def test_keeps_a_pad_with_other_users():
    graph, _ = optimize_checked(lambda g, x: (conv(g, y := pad(g, x), 4), g.add(TANH, y)), X)
    assert sorted(ops(graph)) == ["active", "conv", "pad"]
    assert graph.find("conv").producer.inputs[0] is graph.inputs[0]


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda g, x: conv(g, pad(g, x, value=1.0), 4), "the pad value is not zero"),
        (lambda g, x: conv(g, pad(g, x, channels=1), 4), "it pads the batch or channel axis"),
        (
            lambda g, x: conv(g, annotate(pad(g, annotate(g.add(TANH, x))), OTHER_Q), 4),
            "the source file quantizes the result of pad",
        ),
    ],
)
def test_conv_declines(build, reason):
    graph, trace = optimize_checked(build, X)
    assert "pad" in ops(graph)
    assert reasons(trace, "fold_pad_into_conv") == {reason}


def test_ignores_reflection_pads():
    graph, trace = optimize_checked(lambda g, x: conv(g, pad(g, x, mode=PadType.PAD_REFLECT), 4), X)
    assert ops(graph) == ["pad", "conv"] and not trace.skip_counts


def test_folds_a_pad_with_the_same_scale():
    graph = graph_of(lambda g, x: conv(g, annotate(pad(g, annotate(g.add(TANH, x)))), 4), X)
    optimize(graph)
    assert ops(graph) == ["active", "conv"] and graph.find("conv").producer.inputs[0].quant == Q


MAXIMA = {
    "relu": lambda g, x: pool(g, pad(g, g.add(RELU, x))),
    "sigmoid": lambda g, x: pool(g, pad(g, g.add(Active(ActiveType.ACTIVE_SIGMOID), x))),
    "joined": lambda g, x: pool(
        g, pad(g, g.add(Concat(1), g.add(RELU, x), pool(g, g.add(RELU, x), stride_h=1, pad_h=1, pad_w=1)))
    ),
    "lowest": lambda g, x: pool(g, pad(g, x, value=LOWEST)),
    "minus infinity": lambda g, x: pool(g, pad(g, x, value=-math.inf)),
}


@pytest.mark.parametrize("name", MAXIMA)
def test_folds_a_pad_into_max_pooling(name):
    graph, trace = optimize_checked(MAXIMA[name], X, rtol=0)
    assert "pad" not in ops(graph) and trace.fired["fold_pad_into_pool"] == 1


@pytest.mark.parametrize("counts", [True, False])
def test_folds_a_pad_into_average_pooling_that_counts_it(counts):
    graph, _ = optimize_checked(lambda g, x: average(g, pad(g, x), is_ave_count_zero_pad=counts), X)
    assert ops(graph) == ["pool"] and graph.nodes[0].op.is_ave_count_zero_pad


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda g, x: pool(g, pad(g, x)), "the padding can be larger than the image"),
        (lambda g, x: pool(g, pad(g, g.add(RELU, x), bottom=3)), "a window can be entirely in the padding"),
        (lambda g, x: average(g, pad(g, x, value=1.0)), "the pad value is not zero"),
        (lambda g, x: average(g, pad(g, x, channels=1)), "it pads the batch or channel axis"),
        (lambda g, x: average(g, pad(g, x), pad_h=1), "the pooling itself pads"),
        (
            lambda g, x: average(g, pad(g, x), is_ceil_mode=True),
            "the pooling result depends on which elements are padding",
        ),
        (
            lambda g, x: average(g, pad(g, x), is_global_pooling=True),
            "the pooling result depends on which elements are padding",
        ),
    ],
)
def test_pooling_declines(build, reason):
    graph, trace = optimize_checked(build, X)
    assert "pad" in ops(graph)
    assert reasons(trace, "fold_pad_into_pool") == {reason}


def test_merges_nested_pads():
    def build(g, x):
        return pad(g, pad(g, x, channels=1, value=2.0), top=3, value=2.0)

    graph, _ = optimize_checked(build, X, rtol=0)
    assert [node.op.paddings for node in graph.nodes] == [(0, 0, 0, 1, 3, 2, 4, 0)]


@pytest.mark.parametrize("outer", [{"value": 1.0}, {"mode": PadType.PAD_REFLECT}], ids=str)
def test_keeps_pads_with_different_values(outer):
    graph, trace = optimize_checked(lambda g, x: pad(g, pad(g, x, bottom=2), **outer), X, rtol=0)
    assert ops(graph) == ["pad", "pad"]
    assert reasons(trace, "merge_pads") == {"the pad values differ"}
