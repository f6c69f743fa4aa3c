"""Elementary functions of the native engine: within 0.52 ULP of the function in float64, the same
bytes on every instruction set; results that decide integers are the references themselves.

The bound 0.52 is half a unit for the rounding to binary32 and what a relative error of 2^-30 can add to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from tpuconvert.runtime.native.builder.loader import available_isas, extension
from tpuconvert.runtime.native.plan import NativePlan
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.smooth_activation import Gelu, GeluForm, HardSigmoid, HardSwish, Mish, Silu, Softplus
from tpuconvert.schema.types import F32, Array, TensorType

pytestmark = pytest.mark.skipif(extension() is None, reason="the native engine was not built")

Function = Callable[[Array], Array]
_ERFC = np.frompyfunc(math.erfc, 1, 1)


def _softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


FUNCTIONS: dict[str, tuple[Op, Function]] = {
    "exp": (Active(ActiveType.ACTIVE_EXP), np.exp),
    "ln": (Active(ActiveType.ACTIVE_LN), np.log),
    "tanh": (Active(ActiveType.ACTIVE_TANH), np.tanh),
    "sigmoid": (Active(ActiveType.ACTIVE_SIGMOID), lambda x: 1 / (1 + np.exp(-x))),
    "elu": (Active(ActiveType.ACTIVE_ELU), lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0)))),
    "sqrt": (Active(ActiveType.ACTIVE_SQRT), np.sqrt),
    "rsqrt": (Active(ActiveType.ACTIVE_RSQRT), lambda x: 1 / np.sqrt(x)),
    "sin": (Active(ActiveType.ACTIVE_SIN), np.sin),
    "cos": (Active(ActiveType.ACTIVE_COS), np.cos),
    "gelu": (Gelu(), lambda x: x * 0.5 * _ERFC(-x * math.sqrt(0.5)).astype(np.float64)),
    "gelu_tanh": (
        Gelu(GeluForm.TANH),
        lambda x: x / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    ),
    "silu": (Silu(), lambda x: x / (1 + np.exp(-x))),
    "silu 1.7": (Silu(1.7), lambda x: x / (1 + np.exp(-1.7 * x))),
    "hard_sigmoid": (HardSigmoid(0.3, 0.4), lambda x: np.clip(0.3 * x + 0.4, 0, 1)),
    "hard_swish": (HardSwish(), lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    "softplus": (Softplus(), _softplus),
    "mish": (Mish(), lambda x: x * np.tanh(_softplus(x))),
}

VANISHING = ("gelu", "gelu_tanh", "silu", "silu 1.7", "hard_swish", "mish")
"""At minus infinity the formula is infinity times 0, and the function 0."""


def operands() -> Array:
    """Every exponent with random digits, and a dense range around 0; about 100 000 numbers."""
    rng = np.random.default_rng(7)
    bits = rng.integers(0, 1 << 32, 60_000, np.uint32)
    every = bits.view(np.float32)
    near = rng.uniform(-20, 20, 30_000).astype(np.float32)
    around_one = rng.uniform(0.5, 2, 10_000).astype(np.float32)
    special = np.array([0, -0.0, 1, -1, np.inf, -np.inf, 1e-45, -1e-45, 3.4e38, -3.4e38, 88.7, -104], np.float32)
    return np.concatenate([every[np.isfinite(every)], near, around_one, special])


def run(op: Op, x: Array, isa: str, threads: int = 1) -> Array:
    """The function on the native engine, of a tensor that no integer depends on."""
    graph = Graph()
    graph.output(graph.add(op, graph.input("x", TensorType(F32, x.shape))))
    plan = NativePlan(graph, "BM1686", isa, threads)
    assert not plan.reference_nodes
    return plan.run([x], lambda node, arrays: node.op.evaluate(*arrays))[0]


def errors(found: Array, exact: Array) -> Array:
    """Distance from the exact value in float32 ULP."""
    with np.errstate(all="ignore"):
        unit = np.spacing(np.minimum(np.abs(exact), np.finfo(np.float32).max).astype(np.float32)).astype(np.float64)
        return np.abs(found.astype(np.float64) - exact) / unit


@pytest.mark.parametrize("name", FUNCTIONS)
def test_error(name: str) -> None:
    op, function = FUNCTIONS[name]
    x = operands()
    with np.errstate(all="ignore"):
        exact = function(x.astype(np.float64))
    if name in VANISHING:
        exact = np.where(np.isneginf(x), 0.0, exact)
    found = run(op, x, available_isas()[-1])
    with np.errstate(over="ignore"):
        rounded = exact.astype(np.float32)
    overflows = np.isinf(rounded)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(exact))
    np.testing.assert_array_equal(found[overflows], rounded[overflows])
    normal = ~np.isnan(exact) & ~overflows
    worst = errors(found, exact)[normal]
    assert worst.max() <= 0.52, (name, worst.max(), x[normal][worst.argmax()])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_same_on_every_instruction_set(name: str) -> None:
    op, _ = FUNCTIONS[name]
    x = operands()[:20_011]
    first, *others = [run(op, x, isa, threads).tobytes() for isa in available_isas() for threads in (1, 2, 4)]
    assert all(other == first for other in others)
