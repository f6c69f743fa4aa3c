"""Activation functions of recurrent layers, by name: evaluation in binary64 and expansion into TPU operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas as f
from tpuconvert.schema.ops.activation import ActiveParam, ActiveType
from tpuconvert.schema.ops.compare import Gts
from tpuconvert.schema.ops.smooth_activation import HardSigmoid, Softplus
from tpuconvert.schema.types import Array, Scalar


class RecurrentFunction(NamedTuple):
    """An activation function with up to two parameters.

    Args:
        alpha: default of the first parameter, or None if the function does not have it.
        beta: default of the second parameter, or None.
        evaluate: ``evaluate(x, alpha, beta)`` in the precision of x.
        expand: ``expand(g, x, alpha, beta)`` adds equivalent operators.

    """

    alpha: float | None
    beta: float | None
    evaluate: Callable[[Array, float, float], Array]
    expand: Callable[[Graph, Value, float, float], Value]


def sigmoid(x: Array) -> Array:
    """Logistic function, in the type of ``x``."""
    result: Array = 1 / (1 + np.exp(-x))
    return result


def _expand_elu(g: Graph, x: Value, alpha: float) -> Value:
    if alpha == 1:
        return f.active(g, ActiveType.ACTIVE_ELU, x)
    negative = f.active(g, ActiveType.ACTIVE_ELU, f.muls(g, f.relu(g, f.muls(g, x, -1)), -1))
    return f.add(g, f.relu(g, x), f.muls(g, negative, alpha))


FUNCTIONS: dict[str, RecurrentFunction] = {
    "sigmoid": RecurrentFunction(None, None, lambda x, a, b: sigmoid(x), lambda g, x, a, b: f.sigmoid(g, x)),
    "tanh": RecurrentFunction(None, None, lambda x, a, b: np.tanh(x), lambda g, x, a, b: f.tanh(g, x)),
    "relu": RecurrentFunction(None, None, lambda x, a, b: np.maximum(x, 0), lambda g, x, a, b: f.relu(g, x)),
    "affine": RecurrentFunction(
        1.0, 0.0, lambda x, a, b: a * x + b, lambda g, x, a, b: f.adds(g, f.muls(g, x, a), b)
    ),
    "leakyrelu": RecurrentFunction(
        0.01, None, lambda x, a, b: np.where(x < 0, a * x, x),
        lambda g, x, a, b: g.add(ActiveParam(ActiveType.ACTIVE_LEAKY_RELU, (a,)), x),
    ),
    "thresholdedrelu": RecurrentFunction(
        1.0, None, lambda x, a, b: np.where(x > a, x, 0 * x),
        lambda g, x, a, b: f.mul(g, x, g.add(Gts(Scalar.f32(a)), x)),
    ),
    "scaledtanh": RecurrentFunction(
        1.0, 1.0, lambda x, a, b: a * np.tanh(b * x), lambda g, x, a, b: f.muls(g, f.tanh(g, f.muls(g, x, b)), a)
    ),
    "hardsigmoid": RecurrentFunction(
        0.2, 0.5, lambda x, a, b: np.clip(a * x + b, 0, 1), lambda g, x, a, b: HardSigmoid(a, b).formula(g, x)
    ),
    "elu": RecurrentFunction(
        1.0, None, lambda x, a, b: np.where(x < 0, a * np.expm1(np.minimum(x, 0)), x),
        lambda g, x, a, b: _expand_elu(g, x, a),
    ),
    "softsign": RecurrentFunction(
        None, None, lambda x, a, b: x / (1 + np.abs(x)),
        lambda g, x, a, b: f.div(g, x, f.adds(g, f.absolute(g, x), 1)),
    ),
    "softplus": RecurrentFunction(
        None, None, lambda x, a, b: np.logaddexp(0, x), lambda g, x, a, b: Softplus().formula(g, x)
    ),
}  # fmt: skip
"""The activation functions of ONNX, by name in lower case."""
