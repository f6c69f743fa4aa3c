"""Layer normalization with an 8-bit result: the fused step gives the bytes of the separate operators."""

from __future__ import annotations

from time import perf_counter

import numpy as np
import pytest

from tests.support.native_cases.random_graphs import Drawing, evaluate, needs_extension
from tpuconvert.runtime.native.builder.loader import available_isas
from tpuconvert.runtime.native.plan import NativePlan
from tpuconvert.schema.graph.graph import Value
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.normalization import LayerNorm
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.quantization.requant_fp32_to_int import RequantFp32ToInt
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.types import F32, I8, U8, Chip, TensorType

pytestmark = needs_extension


def reals(case: Drawing, shape: tuple[int, ...], center: float = 0.0, spread: float = 1.0) -> Value:
    """A graph input with numbers around a center."""
    case.feeds.append(case.rng.normal(center, spread, shape).astype(np.float32))
    return case.graph.input("x", TensorType(F32, shape))


def factors(case: Drawing, count: int) -> list[Value]:
    """A scale and a bias per element of a row."""
    rng = case.rng
    values = rng.normal(1, 0.3, count), rng.normal(0, 0.5, count)
    return [case.graph.constant(value.astype(np.float32)) for value in values]


def requant(case: Drawing, scale: float = 30.0, offset: int = 0) -> RequantFp32ToInt:
    """A rescale to signed or unsigned bytes."""
    out = (I8, U8)[int(case.rng.integers(2))]
    return RequantFp32ToInt(scale_val=float(np.float32(scale)), offset_val=offset, out_dtype=out)


@pytest.mark.parametrize("seed", range(30))
def test_alone(seed: int) -> None:
    case = Drawing(seed)
    rng = case.rng
    rows, count = int(rng.integers(1, 40)), int(rng.choice([1, 2, 7, 15, 16, 17, 33, 100, 192, 768]))
    center, spread = float(rng.choice([0.0, 3.0, 1000.0])), float(rng.choice([1e-6, 1.0, 1e4]))
    x = reals(case, (2, rows, count), center, spread)
    given = factors(case, count)[: int(rng.integers(0, 3))]
    y = case.graph.add(LayerNorm(axis=2, epsilon=float(rng.choice([0.0, 1e-6, 1e-2]))), x, *given)
    offset = int(rng.choice([0, 3, -128, 100]))
    case.check(case.graph.add(requant(case, float(rng.choice([25.3, 0.5, 4000.0])), offset), y))


@pytest.mark.parametrize("kept", range(4))
@pytest.mark.parametrize("seed", range(6))
def test_residual(seed: int, kept: int) -> None:
    """The sum and the normalized values may have other users."""
    case = Drawing(100 + seed)
    tokens, count = (197, 192) if seed == 0 else (int(case.rng.integers(1, 30)), int(case.rng.integers(1, 300)))
    a, b = reals(case, (1, tokens, count)), reals(case, (1, tokens, count), 0.3)
    total = case.graph.add(Add(), a, b)
    y = case.graph.add(LayerNorm(axis=2), total, *factors(case, count))
    outputs = [case.graph.add(requant(case), case.graph.add(Reshape((tokens, count)), y))]
    if kept & 1:
        outputs.append(case.graph.add(Add(), total, a))
    if kept & 2:
        outputs.append(case.graph.add(Add(), y, b))
    case.check(*outputs)


def test_readers_in_front_of_the_step() -> None:
    case = Drawing(7)
    a, b = reals(case, (4, 20)), reals(case, (4, 20))
    total = case.graph.add(Add(), a, b)
    early = case.graph.add(Add(), total, a)
    y = case.graph.add(LayerNorm(axis=1), case.graph.add(Add(), early, b), *factors(case, 20))
    case.check(case.graph.add(requant(case), y), case.graph.add(Add(), total, early), y)


def test_several_axes_and_other_orders() -> None:
    case = Drawing(8)
    x = case.graph.add(Permute((0, 2, 1)), reals(case, (3, 10, 6)))
    y = case.graph.add(LayerNorm(axis=1), x)
    case.check(case.graph.add(requant(case), y))


def test_numbers_that_are_none() -> None:
    case = Drawing(9)
    x = reals(case, (6, 50))
    feed = case.feeds[0]
    feed[0, 3], feed[1, 7], feed[2, 9], feed[3] = np.nan, np.inf, -np.inf, 5.0
    feed[4] *= 1e30
    case.check(case.graph.add(requant(case), case.graph.add(LayerNorm(axis=1), x)))


def test_ties() -> None:
    """Rows of two values normalize to one and minus one: products with halves are ties."""
    case = Drawing(10)
    case.feeds = [np.tile(np.array([1.0, -1.0, 3.0, 1.0], np.float32), (2, 1)).reshape(4, 2)]
    x = case.graph.input("x", TensorType(F32, (4, 2)))
    y = case.graph.add(LayerNorm(axis=1, epsilon=0.0), x)
    case.check(*(case.graph.add(RequantFp32ToInt(scale_val=scale, out_dtype=I8), y) for scale in (0.5, 1.5, 2.5, 64.5)))


@pytest.mark.parametrize("isa", available_isas())
def test_is_one_step(isa: str) -> None:
    case = Drawing(11)
    a, b = reals(case, (40, 64)), reals(case, (40, 64))
    y = case.graph.add(LayerNorm(axis=1), case.graph.add(Add(), a, b), *factors(case, 64))
    case.graph.output(case.graph.add(requant(case), y))
    plan = NativePlan(case.graph, Chip.BM1686.value, isa, 1)
    kinds = [step.kind for step in plan.profile(case.feeds, evaluate(Chip.BM1686), perf_counter)]
    assert kinds.count("norm_quantize") == 1 and not {"norm_float32", "quantize", "elementwise_float32"} & set(kinds)
