"""Recognition of decomposed normalizations."""

import math

import numpy as np
import pytest

from tests.support.rules.graphs import TANH, Q, annotate, graph_of, ops, optimize_checked, random_constant, reasons
from tpuconvert.optimizer import optimize
from tpuconvert.schema.ops import formulas as f
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.normalization import GroupNorm, LayerNorm, RmsNorm
from tpuconvert.schema.types import Scalar

SHAPE = (2, 6, 4, 5)
EPSILON = float(np.float32(1e-3))
SQRT = Active(ActiveType.ACTIVE_SQRT)


def standardize(g, x, axes):
    c = f.sub(g, x, f.mean(g, x, axes))
    return f.mul(g, c, f.rsqrt(g, f.adds(g, f.mean(g, f.square(g, c), axes), EPSILON)))


RMS = {
    "x rsqrt(mean + e)": lambda g, x: f.mul(g, x, f.rsqrt(g, f.adds(g, f.mean(g, f.square(g, x), (3,)), EPSILON))),
    "rsqrt(mean + e) x": lambda g, x: f.mul(g, f.rsqrt(g, f.adds(g, f.mean(g, f.mul(g, x, x), (3,)), EPSILON)), x),
    "x / sqrt(mean + e)": lambda g, x: f.div(g, x, g.add(SQRT, f.adds(g, f.mean(g, f.square(g, x), (-1,)), EPSILON))),
}


@pytest.mark.parametrize("form", RMS)
def test_rms_norm(form):
    graph, _ = optimize_checked(RMS[form], SHAPE)
    assert [node.op for node in graph.nodes] == [RmsNorm(3, EPSILON)]


def test_folds_a_scale_into_rms_norm():
    def build(g, x):
        scaled = f.mul(g, RMS["x / sqrt(mean + e)"](g, x), random_constant(g, 1, 1, 1, 5))
        return f.mul(g, random_constant(g, 1, 1, 1, 5), scaled)

    graph, _ = optimize_checked(build, SHAPE)
    assert ops(graph) == ["rms_norm"]
    assert graph.nodes[0].inputs[1].shape == (5,)


@pytest.mark.parametrize("epsilon", [None, 0.1])
def test_recognizes_l2_norm_as_scaled_rms_norm(epsilon):
    def build(g, x):
        power = f.total(g, f.square(g, x), (2, 3))
        return f.div(g, x, g.add(SQRT, power if epsilon is None else f.adds(g, power, epsilon)))

    graph, _ = optimize_checked(build, SHAPE)
    (node,) = graph.nodes
    assert node.op.name == "rms_norm" and node.op.axis == 2
    assert node.op.epsilon == pytest.approx(0 if epsilon is None else 0.1 / 20)
    np.testing.assert_allclose(node.inputs[1].array, 1 / math.sqrt(20), rtol=1e-7)


@pytest.mark.parametrize(
    ("build", "rule", "reason"),
    [
        (
            lambda g, x: f.div(g, x, g.add(SQRT, f.adds(g, f.mean(g, f.square(g, x), (1,)), 1))),
            "recognize_rms_norm",
            "it does not normalize the last axes",
        ),
        (
            lambda g, x: f.div(g, x, g.add(SQRT, f.adds(g, f.mean(g, f.square(g, x), (3,)), -1e-3))),
            "recognize_rms_norm",
            "epsilon is negative",
        ),
        (
            lambda g, x: f.mul(g, RMS["x / sqrt(mean + e)"](g, x), random_constant(g, 1, 6, 1, 1)),
            "fold_scale_into_rms_norm",
            "the constant does not vary along the normalized axes alone",
        ),
        (
            lambda g, x: f.mul(g, standardize(g, x, (2, 3)), random_constant(g, 1, 1, 4, 5)),
            "recognize_instance_norm",
            None,
        ),
        (
            lambda g, x: f.mul(g, standardize(g, x, (3,)), random_constant(g, 1, 6, 1, 1)),
            "recognize_instance_norm",
            "it does not normalize the planes of channels",
        ),
        (
            lambda g, x: f.add(g, g.add(GroupNorm(2, EPSILON), x), random_constant(g, 1, 1, 4, 1)),
            "fold_bias_into_group_norm",
            "the constant is not a per-channel vector",
        ),
        (
            lambda g, x: f.mul(g, g.add(GroupNorm(2, EPSILON), x), random_constant(g, 1, 1, 4, 1)),
            "fold_scale_into_group_norm",
            "the constant is not a per-channel vector",
        ),
        (
            lambda g, x: f.reshape(g, g.add(LayerNorm(2, EPSILON), f.reshape(g, x, (2, 3, 40))), (2, 6, 5, 4)),
            "recognize_group_norm",
            "the second reshape does not undo the first",
        ),
        (
            lambda g, x: f.reshape(g, g.add(LayerNorm(2, EPSILON), f.reshape(g, x, (4, 3, 20))), SHAPE),
            "recognize_group_norm",
            "it does not normalize groups of channels",
        ),
    ],
)
def test_declines(build, rule, reason):
    _, trace = optimize_checked(build, SHAPE, rtol=1e-5)
    assert reasons(trace, rule) <= {reason}
    if reason is not None:
        assert reasons(trace, rule)


def test_recognizes_instance_norm_with_scale_and_bias():
    def build(g, x):
        y = f.mul(g, standardize(g, x, (2, 3)), random_constant(g, 1, 6, 1, 1))
        return f.add(g, y, random_constant(g, 1, 6, 1, 1, seed=3))

    graph, _ = optimize_checked(build, SHAPE)
    assert [node.op for node in graph.nodes] == [GroupNorm(6, EPSILON)]
    assert [value.shape for value in graph.nodes[0].inputs] == [SHAPE, (6,), (6,)]


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_recognizes_group_norm_between_reshapes(groups):
    def build(g, x):
        inner = standardize(g, f.reshape(g, x, (2, groups, 120 // groups)), (2,))
        return f.add(g, f.reshape(g, inner, SHAPE), random_constant(g, 1, 6, 1, 1))

    graph, _ = optimize_checked(build, SHAPE)
    assert [node.op for node in graph.nodes] == [GroupNorm(groups, EPSILON)]


def test_declines_a_quantized_inner_value():
    def build(g, x):
        power = annotate(f.mean(g, f.square(g, x), (3,)), Q)
        return f.mul(g, x, f.rsqrt(g, f.adds(g, power, EPSILON)))

    trace = optimize(graph_of(build, SHAPE))
    assert reasons(trace, "recognize_rms_norm") == {"the source file quantizes the result of power"}


def test_declines_a_square_with_other_users():
    def build(g, x):
        square = f.square(g, x)
        return f.mul(g, x, f.rsqrt(g, f.adds(g, f.mean(g, square, (3,)), Scalar.f32(1).value))), g.add(TANH, square)

    _, trace = optimize_checked(build, SHAPE)
    assert reasons(trace, "recognize_rms_norm") == {"square has other users"}


def factor_and_shift(g, x, axes, shape, scaled=True, swap=False):
    """Form of TensorFlow: x * r + (b - mean * r)."""
    mean = f.mean(g, x, axes)
    r = f.rsqrt(g, f.adds(g, f.mean(g, f.square(g, f.sub(g, x, mean)), axes), EPSILON))
    if scaled:
        r = f.mul(g, r, random_constant(g, *shape))
    rest = f.sub(g, random_constant(g, *shape, seed=5), f.mul(g, r, mean) if swap else f.mul(g, mean, r))
    return f.add(g, rest, f.mul(g, r, x)) if swap else f.add(g, f.mul(g, x, r), rest)


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(
    ("axes", "shape", "expected"),
    [((3,), (1, 1, 1, 5), "layer_norm"), ((2, 3), (1, 6, 1, 1), "group_norm")],
)
def test_recognizes_a_scale_and_bias(axes, shape, expected, scaled, swap):
    graph, _ = optimize_checked(lambda g, x: factor_and_shift(g, x, axes, shape, scaled, swap), SHAPE, rtol=1e-5)
    found = [name for name in ops(graph) if name != "add"]
    assert found == ([expected] if scaled or expected == "layer_norm" else ["layer_norm"])


def test_declines_another_scale_factor():
    def build(g, x):
        mean, r = f.mean(g, x, (3,)), g.add(TANH, f.mean(g, f.square(g, x), (3,)))
        return f.add(g, f.mul(g, x, r), f.sub(g, random_constant(g, 1, 1, 1, 5), f.mul(g, mean, r)))

    _, trace = optimize_checked(build, SHAPE, rtol=1e-5)
    assert reasons(trace, "factor_out_centered_value") == {"the factor is not 1 / sqrt(...), alone or times a constant"}


def test_declines_a_variance_without_the_centered_value():
    def build(g, x):
        mean = f.mean(g, x, (3,))
        r = f.rsqrt(g, f.adds(g, f.mean(g, f.square(g, x), (3,)), 1))
        return f.add(g, f.mul(g, x, r), f.sub(g, random_constant(g, 1, 1, 1, 5), f.mul(g, mean, r)))

    _, trace = optimize_checked(build, SHAPE, rtol=1e-5)
    assert reasons(trace, "factor_out_centered_value") == {"x - mean(x) is not computed elsewhere"}
