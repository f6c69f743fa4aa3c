"""Folding of per-channel scales and biases into the previous and the next linear operator."""

import numpy as np
import pytest

from tests.support.each import each
from tests.support.rules.graphs import (
    RELU,
    TANH,
    annotate,
    conv,
    graph_of,
    ops,
    optimize_checked,
    random_constant,
    reasons,
)
from tpuconvert.optimizer import optimize
from tpuconvert.schema.ops.arithmetic import Add, Div, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Divs, Muls, Rdivs, Rsubs, Subs
from tpuconvert.schema.ops.batch_norm import BatchNorm
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.convolution.deconv import Deconv
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.types import I8, QuantParams, Scalar

X = (2, 4, 6, 7)
PREVIOUS, NEXT = "fold_scale_into_previous_linear", "fold_scale_into_next_linear"


def batch_norm(g, x, gamma=True, variance=1.0, **op):
    channels = x.shape[1]
    mean = random_constant(g, channels, name="mean")
    positive = np.abs(random_constant(g, channels, name="v", seed=3).array) * variance + min(variance, 0)
    inputs = [x, mean, g.constant(positive.astype(np.float32), "variance")]
    if gamma:
        inputs += [
            random_constant(g, channels, name="gamma", seed=4),
            random_constant(g, channels, name="beta", seed=5),
        ]
    return g.add_all(BatchNorm(**op), *inputs, names=(f"bn{len(g)}", "mean_o", "variance_o"))[0]


def per_channel(g, x, axis=1):
    return random_constant(g, *(extent if k == axis else 1 for k, extent in enumerate(x.shape)), name="c", seed=6)


AFFINE = {
    "batch_norm": batch_norm,
    "batch_norm without gamma": lambda g, x: batch_norm(g, x, gamma=False),
    "batch_norm with a scale": lambda g, x: batch_norm(g, x, scale=4.0, epsilon=0.1),
    "batch_norm with scale 0": lambda g, x: batch_norm(g, x, scale=0.0, epsilon=0.1),
    "mul": lambda g, x: g.add(Mul(), x, per_channel(g, x)),
    "mul, constant first": lambda g, x: g.add(Mul(), per_channel(g, x), x),
    "div": lambda g, x: g.add(Div(), x, per_channel(g, x)),
    "add": lambda g, x: g.add(Add(), x, per_channel(g, x)),
    "add, constant first": lambda g, x: g.add(Add(), per_channel(g, x), x),
    "sub": lambda g, x: g.add(Sub(), x, per_channel(g, x)),
    "sub, constant first": lambda g, x: g.add(Sub(), per_channel(g, x), x),
    "muls": lambda g, x: g.add(Muls(Scalar.f32(0.3)), x),
    "divs": lambda g, x: g.add(Divs(Scalar.f32(3)), x),
    "adds": lambda g, x: g.add(Adds(Scalar.f32(0.3)), x),
    "subs": lambda g, x: g.add(Subs(Scalar.f32(0.3)), x),
    "rsubs": lambda g, x: g.add(Rsubs(Scalar.f32(0.3)), x),
}
SHIFTLESS = ("mul", "mul, constant first", "div", "muls", "divs")


def deconv(g, x, groups=1, **op):
    w = random_constant(g, x.shape[1], 6 // groups, 3, 3, name="deconv_w")
    return g.add(Deconv(groups=groups, **op), x, w, name="deconv")


def matrix_mul(g, x, bias=True):
    inputs = [x, random_constant(g, x.shape[1], 5, name="m_w")] + (
        [random_constant(g, 1, 5, name="m_b")] if bias else []
    )
    return g.add(MatrixMul(), *inputs, name="product")


PRODUCTS = {
    "conv": (lambda g, x: conv(g, x, 6), X),
    "conv without bias": (lambda g, x: conv(g, x, 6, bias=False, pad_h_t=1), X),
    "grouped conv": (lambda g, x: conv(g, x, 6, groups=2), X),
    "depthwise conv": (lambda g, x: conv(g, x, 8, groups=4), X),
    "deconv": (deconv, X),
    "grouped deconv": (lambda g, x: deconv(g, x, groups=2, stride_h=2, stride_w=2, pad_h_b=-1), X),
    "matrix_mul": (matrix_mul, (3, 4)),
    "matrix_mul without bias": (lambda g, x: matrix_mul(g, x, bias=False), (3, 4)),
}

PAIRS = [
    (product, affine)
    for product, (_, shape) in PRODUCTS.items()
    for affine in AFFINE
    if len(shape) == 4 or not affine.startswith("batch_norm")  # which takes four axes
]


@each("product, affine", PAIRS)
def test_folds_into_previous_linear(product, affine):
    make, shape = PRODUCTS[product]
    graph, trace = optimize_checked(lambda g, x: AFFINE[affine](g, make(g, x)), shape, rtol=1e-5)
    assert len(graph) == 1 and trace.fired[PREVIOUS] == 1


@each("product, affine", PAIRS)
def test_folds_into_next_linear(product, affine):
    make, shape = PRODUCTS[product]
    graph, trace = optimize_checked(lambda g, x: make(g, AFFINE[affine](g, x)), shape, rtol=1e-5)
    pads = product == "conv without bias"
    if affine in SHIFTLESS or not (pads or "deconv" in product):
        assert len(graph) == 1 and trace.fired[NEXT] == 1
    else:
        what = "a padding conv" if pads else "a deconv"
        assert reasons(trace, NEXT) == {f"a bias before {what} would differ at the edges"}


def test_result_takes_the_last_name_and_constants_keep_theirs():
    graph, _ = optimize_checked(lambda g, x: batch_norm(g, conv(g, x, 6)), X, rtol=1e-5)
    assert [node.name for node in graph.nodes] == ["bn1"]
    assert {value.name for value in graph.values if value.is_constant} == {"conv_w", "conv_b"}


def test_a_new_bias_is_named_after_the_linear_operator():
    graph, _ = optimize_checked(lambda g, x: g.add(Adds(Scalar.f32(1)), conv(g, x, 6, bias=False)), X, rtol=1e-5)
    assert graph.find("conv:bias").shape == (1, 6, 1, 1)


def test_folds_a_chain():
    def build(g, x):
        y = conv(g, x, 6)
        for name in ("batch_norm", "mul", "add", "divs", "rsubs"):
            y = AFFINE[name](g, y)
        return g.add(RELU, y)

    assert ops(optimize_checked(build, X, rtol=1e-5)[0]) == ["conv", "active"]


def test_folds_normalization_of_a_channels_last_input():
    def build(g, x):
        y = g.add(Div(), g.add(Sub(), x, per_channel(g, x, 3)), per_channel(g, x, 3))
        return conv(g, g.add(Permute((0, 3, 1, 2)), y), 6)

    assert ops(optimize_checked(build, (2, 6, 7, 4), rtol=1e-5)[0]) == ["permute", "conv"]


@pytest.mark.parametrize(
    ("shape", "target", "axis"),
    [((3, 4), (3, 5, 1, 1), 1), ((6, 4), (2, 3, 5), 2), ((6, 4), (1, 2, 3, 5), 3)],
    ids=str,
)
def test_folds_across_a_reshape_that_keeps_channels(shape, target, axis):
    def build(g, x):
        y = g.add(Reshape(target), matrix_mul(g, x))
        return g.add(Add(), y, per_channel(g, y, axis))

    assert ops(optimize_checked(build, shape, rtol=1e-5)[0]) == ["matrix_mul", "reshape"]


def test_folds_batch_norm_after_a_fully_connected_layer():
    def build(g, x):
        return g.add(Reshape((3, 5)), batch_norm(g, g.add(Reshape((3, 5, 1, 1)), matrix_mul(g, x))))

    assert ops(optimize_checked(build, (3, 4), rtol=1e-5)[0]) == ["matrix_mul"]


@pytest.mark.parametrize("op", [Muls(Scalar.f32(0.5)), Divs(Scalar.f32(4)), Adds(Scalar.f32(2))], ids=str)
def test_folds_a_scalar_across_a_reshape_that_mixes_channels(op):
    """As the scale of queries that are split into heads."""
    graph, _ = optimize_checked(lambda g, x: g.add(op, g.add(Reshape((2, 2, 5)), matrix_mul(g, x))), (4, 4), rtol=1e-5)
    assert ops(graph) == ["matrix_mul", "reshape"]


def quantized_weights(g, x):
    y = conv(g, x, 6)
    w = y.producer.inputs[1]
    w.quant = QuantParams.per_tensor(0.1, 0, I8)
    w.stored = w.quant.quantize(w.array)
    return y


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (
            lambda g, x: batch_norm(g, conv(g, x, 6), use_global_stats=False),
            "its statistics are not constant",
        ),
        (lambda g, x: (batch_norm(g, conv(g, x, 6)), g.add(RELU, g.find("mean_o"))), "its statistics have users"),
        (
            lambda g, x: batch_norm(g, conv(g, x, 6), variance=-1.0),
            "variance + epsilon is not positive in every channel",
        ),
        (lambda g, x: (batch_norm(g, y := conv(g, x, 6)), g.add(TANH, y)), "linear has other users"),
        (lambda g, x: (batch_norm(g, y := conv(g, x, 6)), y), "linear has other users"),
        (
            lambda g, x: g.add(Mul(), y := conv(g, x, 6), per_channel(g, y, 2)),
            "the constant is not a per-channel vector",
        ),
        (lambda g, x: g.add(Divs(Scalar.f32(0)), conv(g, x, 6)), "a divisor is zero"),
        (
            lambda g, x: g.add(Muls(Scalar.f32(3e38)), conv(g, x, 6)),
            "the folded weights are beyond the range of their type",
        ),
        (
            lambda g, x: g.add(Add(), conv(g, x, 1), random_constant(g, 1, 6, 1, 1)),
            "it is not a float operator that keeps the shape",
        ),
        (lambda g, x: g.add(Muls(Scalar.f32(2)), quantized_weights(g, x)), "the source file quantizes the weights"),
        (
            lambda g, x: g.add(Muls(Scalar.f32(2)), annotate(conv(g, x, 6))),
            "the source file quantizes the result of linear",
        ),
        (
            lambda g, x: g.add(Add(), g.add(Reshape((2, 4, 30)), conv(g, x, 6)), random_constant(g, 1, 4, 1)),
            "the reshape mixes channels",
        ),
    ],
)
def test_declines_previous_linear(build, reason):
    graph = graph_of(build, X)
    trace = optimize(graph)
    graph.validate()
    assert reasons(trace, PREVIOUS) == {reason}
    assert not trace.fired[PREVIOUS]


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda g, x: (conv(g, y := g.add(Muls(Scalar.f32(2)), x), 6), g.add(TANH, y)), "op has other users"),
        (
            lambda g, x: conv(g, annotate(g.add(Muls(Scalar.f32(2)), x)), 6),
            "the source file quantizes the result of op",
        ),
        (lambda g, x: conv(g, g.add(Mul(), x, per_channel(g, x, 3)), 6), "the constant is not a per-channel vector"),
    ],
)
def test_declines_next_linear(build, reason):
    graph = graph_of(build, X)
    trace = optimize(graph)
    assert reasons(trace, NEXT) == {reason}


@pytest.mark.parametrize(("factor", "fires"), [(1e30, True), (1e-30, True), (3e38, False), (np.nan, False)])
def test_folds_weights_up_to_the_largest_float(factor, fires):
    def build(g, x):
        w = g.constant(np.full((6, 4, 3, 3), 2, np.float32), "w")
        c = g.constant(np.full((1, 6, 1, 1), factor, np.float32), "c")
        return g.add(Mul(), g.add(Conv(), x, w), c)

    graph = graph_of(build, X)
    trace = optimize(graph)
    assert bool(trace.fired[PREVIOUS]) is fires
    assert not (fires and reasons(trace, PREVIOUS))
    assert fires or reasons(trace, PREVIOUS) == {"the folded weights are beyond the range of their type"}


def test_a_scalar_divided_by_the_result_is_not_affine():
    graph, trace = optimize_checked(lambda g, x: g.add(Rdivs(Scalar.f32(1)), conv(g, x, 6)), X)
    assert ops(graph) == ["conv", "rdivs"] and not trace.skip_counts


def test_shared_weights_are_not_overwritten():
    def build(g, x):
        y = conv(g, x, 6)
        again = g.add(y.producer.op, g.add(TANH, x), *y.producer.inputs[1:])
        return g.add(Muls(Scalar.f32(2)), y), again

    graph, _ = optimize_checked(build, X, rtol=1e-5)
    assert sorted(ops(graph)) == ["active", "conv", "conv"]
