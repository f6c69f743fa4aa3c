"""Identification of the activation that a unary function equals, independent of its form.

The function is evaluated in float32 at 1,500 points from -10^4 to 10^4, dense around zero. It is identified with an
activation if they differ by at most ``_TOLERANCE`` * max(1, |x|) everywhere. The polynomial approximation of erf needs
this tolerance. The two closest activations, both forms of GELU, differ by 200 times as much.

Points where the function overflows are ignored: ln(1 + exp(x)) is infinite above 88, where softplus is x.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from tpuconvert.optimizer.engine.node_properties import computed_operands, operands, scalar_factor
from tpuconvert.schema.definition.op import Op, Trait
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.arithmetic_with_scalar import Divs, Muls
from tpuconvert.schema.ops.smooth_activation import (
    CompositeActivation,
    Gelu,
    GeluForm,
    HardSwish,
    Mish,
    Silu,
    Softplus,
)
from tpuconvert.schema.types import Array

_TOLERANCE = 2e-6

_FEWEST_FINITE = 1000

_MOST_CURVED = 8
"""Maximum number of operators other than sums and products. A known form has one to four: polynomials are
not activation functions, and long chains of functions are not evaluated."""


Step: TypeAlias = tuple[Op, tuple[int | float, ...]]
"""One node of a form: its operator, and its operands. An integer is the position of an earlier step, or -1 for x; a
float is a scalar constant."""


def activation_of(x: Value, nodes: Sequence[Node]) -> CompositeActivation | None:
    """Return the activation that nodes compute of x, or None. The nodes are element-wise and in topological order."""
    curved = sum(Trait.AFFINE not in node.op.traits for node in nodes)
    if not 0 < curved <= _MOST_CURVED:
        return None
    form = _form_of(x, nodes)
    return None if form is None else _activation_of_form(form)


def _form_of(x: Value, nodes: Sequence[Node]) -> tuple[Step, ...] | None:
    """Return the steps of nodes, without their names. Return None if an operand does not depend on x alone."""
    positions = {x: -1}
    steps: list[Step] = []
    for node in nodes:
        if not positions.keys() >= set(computed_operands(node)):
            return None
        operand_codes = [float(v.array.flat[0]) if v.is_constant else positions[v] for v in operands(node)]
        positions[node.outputs[0]] = len(steps)
        steps.append((node.op, tuple(operand_codes)))
    return tuple(steps)


# A network repeats its activations, and each of them has about ten cones, so that most forms are seen before.
@functools.lru_cache(maxsize=1024)
def _activation_of_form(form: tuple[Step, ...]) -> CompositeActivation | None:
    y = _evaluate(form)
    finite = np.isfinite(y)
    if finite.sum() < _FEWEST_FINITE:
        return None
    limit = _TOLERANCE * np.maximum(1, np.abs(_points()))[finite]
    for op in (*_KNOWN, *_silus(form)):
        if (np.abs(y - _values(op))[finite] <= limit).all():
            return op
    return None


@functools.cache
def _points() -> Array:
    return np.concatenate([np.linspace(-12, 12, 1001), np.geomspace(1e-4, 1e4, 250), -np.geomspace(1e-4, 1e4, 250)])


def _evaluate(form: Sequence[Step]) -> Array:
    """Evaluate a form at all points."""
    x = _points().astype(np.float32)
    results: list[Array] = []
    with np.errstate(all="ignore"):
        for op, codes in form:
            arrays = [
                np.full(1, code, np.float32) if isinstance(code, float) else x if code < 0 else results[code]
                for code in codes
            ]
            (result,) = op.evaluate(*arrays)
            results.append(result)
    return results[-1]


_KNOWN: tuple[CompositeActivation, ...] = (
    Silu(),
    HardSwish(),
    Gelu(GeluForm.ERF),
    Gelu(GeluForm.TANH),
    Softplus(),
    Mish(),
)


def _silus(form: Sequence[Step]) -> list[CompositeActivation]:
    """Candidates x * sigmoid(alpha * x), with alpha from the scalar factors of the steps."""
    alphas = [scalar_factor(op) for op, _ in form if isinstance(op, (Muls, Divs))]
    return [Silu(float(np.float32(alpha))) for alpha in alphas if np.isfinite(alpha)]


@functools.lru_cache(maxsize=64)
def _values(op: Op) -> Array:
    assert isinstance(op, CompositeActivation)
    with np.errstate(all="ignore"):
        return op.function(_points().astype(np.float32).astype(np.float64))
