"""Sinking and canceling of permutes."""

import dataclasses

import numpy as np
import pytest

from tests.support.rules.graphs import (
    OTHER_Q,
    RELU,
    TANH,
    Q,
    annotate,
    conv,
    graph_of,
    ops,
    optimize_checked,
    random_constant,
    reasons,
)
from tpuconvert.optimizer import optimize
from tpuconvert.schema.graph.graph import Graph, Source, Value
from tpuconvert.schema.ops.arithmetic import Add, Mul
from tpuconvert.schema.ops.arithmetic_with_scalar import Muls
from tpuconvert.schema.ops.concat import Concat, Split
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.pad import Pad, PadType
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.ops.tile import Tile
from tpuconvert.schema.types import I8, QuantParams, Scalar

TO_NHWC, TO_NCHW = Permute((0, 2, 3, 1)), Permute((0, 3, 1, 2))
NCHW = (2, 3, 4, 5)
NHWC = (2, 4, 5, 3)


def around(function):
    """A channels-last operator between two channels-first ones; all permutes must cancel."""

    def build(g, x, *rest):
        middle = function(g, g.add(TO_NHWC, x), *rest)
        parts = middle if isinstance(middle, tuple) else (middle,)
        return tuple(g.add(TANH, g.add(TO_NCHW, part), name=f"y{index}") for index, part in enumerate(parts))

    return build


PADS = (0, 0, 1, 2, 0, 1, 0, 0)

NEUTRAL = {
    "unary": lambda g, x: g.add(RELU, g.add(Muls(Scalar.f32(2)), x)),
    "binary": lambda g, x: g.add(Add(), g.add(RELU, x), g.add(TANH, x)),
    "constant": lambda g, x: g.add(Mul(), x, random_constant(g, 1, 1, 1, 3)),
    "constant first": lambda g, x: g.add(Add(), random_constant(g, 1, 4, 1, 3), x),
    "ones": lambda g, x: g.add(Mul(), x, g.add(Reduce((0, 1, 2, 3)), x)),
    "pad": lambda g, x: g.add(Pad(Scalar.f32(1), PADS), x),
    "reflect": lambda g, x: g.add(Pad(Scalar.f32(0), PADS, PadType.PAD_REFLECT), x),
    "extract": lambda g, x: g.add(Extract((0, 1, 0, 1), (2, 4, 5, 3), (1, 2, 1, 1)), x),
    "tile": lambda g, x: g.add(Tile((1, 2, 1, 3)), x),
    "softmax": lambda g, x: g.add(Softmax(-1), x),
    "concat": lambda g, x: g.add(Concat(3), x, g.add(RELU, x), random_constant(g, 2, 4, 5, 2)),
    "concat after a constant": lambda g, x: g.add(Concat(-1), random_constant(g, 2, 4, 5, 2), x),
    "reduce": lambda g, x: g.add(Reduce((1, 2)), x),
    "reduce of the last": lambda g, x: g.add(Reduce((-1,), ReduceMethodType.REDUCE_MAX), x),
    "reduce of some": lambda g, x: g.add(Reduce((1, 3), axis_num=1), x),
    "split": lambda g, x: g.add_all(Split(3, 2, (1, 2)), x),
}


@pytest.mark.parametrize("name", NEUTRAL)
def test_cancels_around(name):
    graph, _ = optimize_checked(around(NEUTRAL[name]), NCHW)
    assert not {"permute", "reshape"} & set(ops(graph))


def test_cancels_around_two_permuted_operands():
    def build(g, x, y):
        return g.add(TO_NCHW, g.add(Add(), g.add(TO_NHWC, x), g.add(TO_NHWC, y)))

    assert ops(optimize_checked(build, NCHW, NCHW)[0]) == ["add"]


def test_names_show_the_layout():
    def build(g, x):
        return g.add(RELU, g.add(TO_NHWC, x, name="t"), name="y")

    graph, _ = optimize_checked(build, NCHW, rtol=0)
    assert [node.name for node in graph.nodes] == ["y:nchw", "y"]


def test_merges_two_permutes():
    graph, _ = optimize_checked(lambda g, x: g.add(Permute((3, 0, 1, 2)), g.add(TO_NHWC, x)), NCHW, rtol=0)
    # by hand: result axis 0 is axis 3 of NHWC, which is C; then N, H, W
    assert [node.op for node in graph.nodes] == [Permute((1, 0, 2, 3))]


def test_permutes_the_remaining_axes_of_a_reduction():
    order = Permute((0, 3, 2, 1))
    moved, _ = optimize_checked(lambda g, x: g.add(Reduce((3,), keep_dims=False), g.add(order, x)), NCHW)
    assert ops(moved) == ["reduce", "permute"] and moved.nodes[1].op == Permute((0, 2, 1))
    in_place, _ = optimize_checked(lambda g, x: g.add(Reduce((1, 2), keep_dims=False), g.add(TO_NHWC, x)), NCHW)
    assert ops(in_place) == ["reduce"]


@pytest.mark.parametrize(
    ("build", "shapes", "rule", "reason"),
    [
        (
            lambda g, x, y: g.add(Add(), g.add(TO_NHWC, x), y),
            (NCHW, NHWC),
            "sink_permute_through_binary",
            "the other operand has no equal permute",
        ),
        (
            lambda g, x, y: g.add(Concat(3), y, g.add(TO_NHWC, x)),
            (NCHW, NHWC),
            "sink_permute_through_concat",
            "the operands do not all have the same permute",
        ),
        (
            lambda g, x: annotate(g.add(RELU, annotate(g.add(TO_NHWC, annotate(g.add(TANH, x)), name="p"), OTHER_Q))),
            (NCHW,),
            "sink_permute_through_unary",
            "the source file quantizes the result of permute",
        ),
    ],
)
def test_declines(build, shapes, rule, reason):
    graph, trace = optimize_checked(build, *shapes, rtol=0)
    assert "permute" in ops(graph)
    assert reasons(trace, rule) == {reason}


def test_passes_annotations_on():
    def build(g, x):
        y = annotate(g.add(TO_NHWC, annotate(g.add(TANH, x))))
        return annotate(g.add(RELU, y, name="y"), OTHER_Q)

    graph = graph_of(build, NCHW)
    optimize(graph)
    assert [(node.op.name, node.output.quant) for node in graph.nodes] == [
        ("active", Q),
        ("active", OTHER_Q),
        ("permute", OTHER_Q),
    ]


def test_a_permuted_constant_keeps_its_integers_and_axis():
    params = QuantParams((0.5, 0.25, 2.0), (0, 0, 0), I8, axis=3)
    stored = np.arange(3, dtype=np.int8).reshape(1, 1, 1, 3)

    def build(g, x):
        c = g.constant(params.dequantize(stored), "c", params, stored)
        return g.add(Mul(), g.add(TO_NHWC, x), c)

    graph, _ = optimize_checked(build, NCHW)
    (constant,) = [value for value in graph.values if value.is_constant]
    assert constant.shape == (1, 3, 1, 1) and constant.stored.shape == (1, 3, 1, 1)
    assert constant.quant == dataclasses.replace(params, axis=1)
    np.testing.assert_array_equal(constant.quant.dequantize(constant.stored), constant.array)


def flat_product(g, x, samples, order=TO_NHWC, bias=True):
    flat = g.add(Reshape((samples, -1)), g.add(order, x))
    inputs = [flat, random_constant(g, flat.shape[1], 7)] + ([random_constant(g, 1, 7, name="b")] if bias else [])
    return g.add(MatrixMul(), *inputs)


@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize("bias", [True, False])
def test_folds_a_permute_into_weights(samples, bias):
    graph, trace = optimize_checked(lambda g, x: flat_product(g, x, samples, bias=bias), (samples, 3, 4, 5))
    assert ops(graph) == ["reshape", "matrix_mul"]
    assert trace.fired["fold_permute_into_weights"] == 1
    assert "w" in {value.name for value in graph.values}


def test_folds_a_permute_into_stored_integers():
    params = QuantParams((0.5,) * 7, (0,) * 7, I8, axis=1)
    stored = np.random.default_rng(0).integers(-9, 9, (60, 7)).astype(np.int8)

    def build(g, x):
        w = g.constant(params.dequantize(stored), "w", params, stored)
        return g.add(MatrixMul(), g.add(Reshape((1, 60)), g.add(TO_NHWC, x)), w)

    graph, _ = optimize_checked(build, (1, 3, 4, 5))
    w = graph.find("w")
    assert not np.array_equal(w.stored, stored) and w.quant == params
    np.testing.assert_array_equal(params.dequantize(w.stored), w.array)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda g, x: flat_product(g, x, 6, Permute((1, 0, 2, 3))), "the reshape does more than flatten one sample"),
        (lambda g, x: flat_product(g, x, 8), "the reshape does more than flatten one sample"),
        (
            lambda g, x: (flat_product(g, x, 2), g.add(TANH, g.nodes[1].output)),
            "reshape has other users",
        ),
    ],
)
def test_declines_to_fold_into_weights(build, reason):
    graph, trace = optimize_checked(build, NCHW)
    assert "permute" in ops(graph)
    assert reasons(trace, "fold_permute_into_weights") == {reason}


def test_a_channels_last_block_keeps_one_permute_at_each_end():
    """As read from TFLite: a permute before and after every convolution."""

    def build(g, x):
        def conv_nhwc(x, channels, name, **op):
            kernel = op.pop("kernel", 1)
            return g.add(TO_NHWC, conv(g, g.add(TO_NCHW, x), channels, name, kernel, **op))

        first = g.add(RELU, conv_nhwc(x, 8, "expand"))
        padded = g.add(Pad(Scalar.f32(0), (0, 0, 1, 1, 1, 1, 0, 0)), first)
        deep = g.add(RELU, conv_nhwc(padded, 8, "depthwise", kernel=3, groups=8))
        squeeze = g.add(Softmax(3), g.add(Reduce((1, 2)), deep))
        last = conv_nhwc(g.add(Mul(), deep, squeeze), 3, "project")
        return g.add(Add(), last, x)

    graph, trace = optimize_checked(build, NHWC)
    names = ops(graph)
    # the addition reads the input as it is: one permute for the convolutions, one for their result
    assert names.count("permute") == 2 and "pad" not in names
    assert trace.fired["fold_pad_into_conv"] == 1
    assert names == [
        "permute",
        "conv",
        "active",
        "conv",
        "active",
        "reduce",
        "softmax",
        "mul",
        "conv",
        "permute",
        "add",
    ]


def test_keeps_a_permute_before_a_split_that_stops_it():
    def build(g, x):
        parts = g.add_all(Split(3, 2), g.add(TO_NHWC, x))
        return tuple(g.add(Reshape((20, 4)), part) for part in parts)

    graph, _ = optimize_checked(build, (2, 4, 4, 5), rtol=0)
    assert ops(graph) == ["permute", "split", "reshape", "reshape"]


def test_nodes_keep_their_own_sources() -> None:
    """A permute that sinks past many nodes does not mix their sources."""

    def build(g: Graph, x: Value) -> Value:
        with g.source(Source("f", "move", "Transpose")):
            x = g.add(TO_NHWC, x)
        for index, op in enumerate((RELU, TANH, RELU, TANH)):
            with g.source(Source("f", f"op_{index}", "Op")):
                x = g.add(op, x)
        return x

    graph, _ = optimize_checked(build, NCHW)
    assert [[source.node for source in node.sources] for node in graph.nodes] == [
        *([f"op_{index}"] for index in range(4)),
        ["move"],
    ]


@pytest.mark.parametrize("is_quantized", [True, False])
def test_a_quantized_softmax_stays_on_the_axis_of_its_integer_form(is_quantized):
    def build(g, x):
        y = g.add(Softmax(1), g.add(Permute((0, 3, 2, 1)), x))
        return annotate(y) if is_quantized else y

    graph = graph_of(build, (1, 3, 4, 5))
    trace = optimize(graph)
    assert ops(graph) == (["permute", "softmax"] if is_quantized else ["softmax", "permute"])
    expected = {"quantized, softmax has an integer form along axis 1 only"} if is_quantized else set()
    assert reasons(trace, "sink_permute_through_axis_op") == expected
