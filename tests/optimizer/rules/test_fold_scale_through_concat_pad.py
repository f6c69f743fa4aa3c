"""Folding of per-channel scales and biases across concats, pads and flattens."""

import numpy as np
import pytest

from tests.support.rules.graphs import (
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
from tpuconvert.schema.ops.arithmetic import Add, Mul
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Muls, Subs
from tpuconvert.schema.ops.batch_norm import BatchNorm
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.pad import Pad
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.types import Scalar

SHAPE = (1, 3, 6, 5)


def normalize(g, x):
    parts = [random_constant(g, x.shape[1], seed=k) for k in range(4)]
    parts[1] = g.constant(np.abs(parts[1].array) + 0.5)
    return g.add_all(BatchNorm(), x, *parts)[0]


def concatenate(g, *parts, axis=1):
    return g.add(Concat(axis), *parts)


def add_pad(g, x, number=0.0):
    return g.add(Pad(Scalar.f32(number), (0, 0, 0, 0, 1, 1, 0, 2)), x)


FIRES = {
    "normalize concatenation": (
        lambda g, x: normalize(g, concatenate(g, conv(g, x, 4), conv(g, x, 2, bias=False))),
        ["conv", "conv", "concat"],
    ),
    "shifted concatenation": (
        lambda g, x: g.add(Add(), random_constant(g, 1, 6, 1, 1), concatenate(g, conv(g, x, 4), conv(g, x, 2))),
        ["conv", "conv", "concat"],
    ),
    "concatenation with a normalize branch": (
        lambda g, x: conv(g, concatenate(g, normalize(g, x), g.add(TANH, x)), 4),
        ["active", "concat", "conv"],
    ),
    "concatenation of normalize branches": (
        lambda g, x: conv(g, concatenate(g, normalize(g, x), g.add(Muls(Scalar.f32(2)), x)), 4),
        ["concat", "conv"],
    ),
    "pad after a scale": (
        lambda g, x: conv(g, add_pad(g, g.add(Mul(), x, random_constant(g, 1, 3, 1, 1))), 4),
        ["conv"],
    ),
    "pad after a bias": (
        lambda g, x: conv(g, add_pad(g, g.add(Subs(Scalar.f32(0.5)), x)), 4),
        ["pad", "conv"],
    ),
    "pad whose value becomes zero": (
        lambda g, x: conv(g, add_pad(g, g.add(Adds(Scalar.f32(0.5)), x), 0.5), 4),
        ["conv"],
    ),
    "bias after a pad": (
        lambda g, x: g.add(TANH, g.add(Adds(Scalar.f32(0.5)), add_pad(g, conv(g, x, 4), 0.25))),
        ["conv", "pad", "active"],
    ),
    "flattened": (
        lambda g, x: g.add(MatrixMul(), g.add(Reshape((1, 90)), normalize(g, x)), random_constant(g, 90, 4)),
        ["reshape", "matrix_mul"],
    ),
}


@pytest.mark.parametrize("form", FIRES)
def test_fires(form):
    build, expected = FIRES[form]
    assert sorted(ops(optimize_checked(build, SHAPE, rtol=1e-5)[0])) == sorted(expected)


PADDED = {"pad_h_t": 1, "pad_w_l": 1}
DECLINES = {
    "a branch that is read elsewhere": (
        lambda g, x: (normalize(g, concatenate(g, y := conv(g, x, 4), conv(g, x, 2))), g.add(TANH, y)),
        "fold_scale_through_concat",
        "a linear operator has other users",
    ),
    "a shifted branch before padding": (
        lambda g, x: conv(g, concatenate(g, g.add(Adds(Scalar.f32(1)), x), x), 4, **PADDED),
        "fold_branch_scales_into_linear",
        "a bias before a padding conv would differ at the edges",
    ),
    "different pad values before": (
        lambda g, x: conv(g, add_pad(g, normalize(g, x), 1), 4),
        "fold_scale_into_conv_after_pad",
        "the pad value would differ between channels",
    ),
    "different pad values after": (
        lambda g, x: normalize(g, add_pad(g, conv(g, x, 4))),
        "fold_scale_into_conv_before_pad",
        "the pad value would differ between channels",
    ),
    "mixed by the reshape": (
        lambda g, x: g.add(MatrixMul(), g.add(Reshape((3, 30)), normalize(g, x)), random_constant(g, 30, 4)),
        "fold_scale_through_flatten",
        "the reshape does more than flatten one sample",
    ),
}


@pytest.mark.parametrize("form", DECLINES)
def test_declines(form):
    build, rule, reason = DECLINES[form]
    _, trace = optimize_checked(build, SHAPE, rtol=1e-5)
    assert reasons(trace, rule) == {reason}


def test_declines_a_concat_with_another_operand():
    graph, _ = optimize_checked(
        lambda g, x: normalize(g, concatenate(g, conv(g, x, 4, kernel=1), g.add(RELU, x))), SHAPE
    )
    assert "batch_norm" in ops(graph)


def test_declines_a_quantized_inner_value():
    def build(g, x):
        return conv(g, concatenate(g, annotate(g.add(Adds(Scalar.f32(1)), x), Q), x), 4)

    trace = optimize(graph_of(build, SHAPE))
    assert reasons(trace, "fold_branch_scales_into_linear") == {"a scaled branch is a graph output or is quantized"}
