"""Recognition of decomposed layer normalization."""

import numpy as np
import pytest

from tests.support.rules.graphs import annotate, graph_of, ops, optimize_checked, random_constant, reasons
from tpuconvert.optimizer import optimize
from tpuconvert.schema.ops import formulas as f
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.normalization import LayerNorm

SHAPE = (2, 5, 8)
EPSILON = float(np.float32(1e-3))


def standardize(g, x, axes=(2,), other=None, quotient="rsqrt", square="square"):
    c = f.sub(g, x, f.mean(g, x, axes))
    squares = f.square(g, c) if square == "square" else f.mul(g, c, c)
    shifted = f.adds(g, f.mean(g, squares, other or axes), 1e-3)
    if quotient == "sqrt":
        return f.div(g, c, g.add(Active(ActiveType.ACTIVE_SQRT), shifted))
    root = f.rsqrt(g, shifted)
    return f.mul(g, c, root) if quotient == "rsqrt" else f.mul(g, root, c)


@pytest.mark.parametrize("square", ["square", "product"])
@pytest.mark.parametrize("quotient", ["rsqrt", "rsqrt first", "sqrt"])
def test_fires(quotient, square):
    graph, _ = optimize_checked(lambda g, x: standardize(g, x, quotient=quotient, square=square), SHAPE)
    assert [node.op for node in graph.nodes] == [LayerNorm(2, EPSILON)]


FACTORS = {
    "scale and bias": lambda g, y: f.add(g, f.mul(g, y, random_constant(g, 1, 1, 8)), random_constant(g, 1, 1, 8)),
    "constants first": lambda g, y: f.add(g, random_constant(g, 1, 1, 8), f.mul(g, random_constant(g, 1, 1, 8), y)),
    "bias": lambda g, y: f.add(g, y, random_constant(g, 1, 1, 8)),
    "scale": lambda g, y: f.mul(g, y, random_constant(g, 1, 1, 8)),
}


@pytest.mark.parametrize("form", FACTORS)
def test_folds_scales(form):
    graph, _ = optimize_checked(lambda g, x: FACTORS[form](g, standardize(g, x)), SHAPE)
    assert ops(graph) == ["layer_norm"]
    scale, bias = (*graph.nodes[0].inputs, None)[1:3]
    assert (scale is not None, bias is not None) == (form != "bias", form != "scale")
    assert all(value is None or value.shape == (8,) for value in (scale, bias))


def test_several_axes():
    def build(g, x):
        return f.mul(g, standardize(g, x, (1, 2)), random_constant(g, 1, 5, 8))

    graph, _ = optimize_checked(build, SHAPE)
    assert [node.op for node in graph.nodes] == [LayerNorm(1, EPSILON)]
    assert graph.nodes[0].inputs[1].shape == (5, 8)


OTHERS = ("recognize_rms_norm", "recognize_instance_norm")
"""They take what layer_norm leaves."""


@pytest.mark.parametrize(
    ("build", "rule", "reason"),
    [
        (
            lambda g, x: standardize(g, x, (1,)),
            "recognize_layer_norm",
            "it does not normalize the last axes",
        ),
        (
            lambda g, x: standardize(g, x, (2,), (1, 2)),
            "recognize_layer_norm",
            "mean and variance are taken over different axes",
        ),
        (
            lambda g, x: (standardize(g, x), f.square(g, f.sub(g, x, f.mean(g, x, (2,))))),
            "recognize_layer_norm",
            "centered has other users",
        ),
        (
            lambda g, x: f.mul(g, standardize(g, x), random_constant(g, 1, 5, 1)),
            "fold_scale_into_layer_norm",
            "the constant does not vary along the normalized axes alone",
        ),
        (
            lambda g, x: f.add(g, standardize(g, x), random_constant(g, 2, 5, 8)),
            "fold_bias_into_layer_norm",
            "the constant does not vary along the normalized axes alone",
        ),
    ],
)
def test_declines(build, rule, reason):
    _, trace = optimize_checked(build, SHAPE, disabled=OTHERS)
    assert reasons(trace, rule) == {reason}


def test_declines_a_centered_value_that_is_a_graph_output():
    def build(g, x):
        c = f.sub(g, x, f.mean(g, x, (2,)))
        return f.mul(g, c, f.rsqrt(g, f.adds(g, f.mean(g, f.square(g, c), (2,)), 1e-3))), c

    graph, trace = optimize_checked(build, SHAPE, disabled=OTHERS)
    assert reasons(trace, "recognize_layer_norm") == {"centered has other users"}
    assert "layer_norm" not in ops(graph)


def test_declines_a_quantized_inner_value():
    def build(g, x):
        c = annotate(f.sub(g, x, f.mean(g, x, (2,))))
        return f.mul(g, c, f.rsqrt(g, f.adds(g, f.mean(g, f.square(g, c), (2,)), 1e-3)))

    trace = optimize(graph_of(build, SHAPE), disabled=OTHERS)
    assert reasons(trace, "recognize_layer_norm") == {"the source file quantizes the result of centered"}
