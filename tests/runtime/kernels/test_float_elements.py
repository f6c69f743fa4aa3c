"""Element-wise float operators on the native engine: what is exact has the bytes of the references."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.native_cases.float_graphs import check_exact, evaluate, graph_of, normal, references, run
from tpuconvert.runtime.native.builder.loader import available_isas, extension
from tpuconvert.runtime.native.plan import NativePlan
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.activation import Active, ActiveParam, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Div, Max, Min, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Axpy, Divs, Maxs, Mins, Muls, Rdivs, Rsubs, Subs
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.quantization.dequant_int_to_fp32 import DequantIntToFp32
from tpuconvert.schema.ops.quantization.round_to_integer import Ceil, Floor, Round
from tpuconvert.schema.ops.smooth_activation import Gelu, Mish, Silu, Softplus
from tpuconvert.schema.types import I8, I16, U8, U16, Array, DType, Scalar, TensorType

pytestmark = pytest.mark.skipif(extension() is None, reason="the native engine was not built")

PAIRS = (Add, Sub, Mul, Div, Max, Min)
NUMBERS = (Adds, Subs, Rsubs, Muls, Divs, Rdivs, Maxs, Mins)

EXACT: tuple[Op, ...] = (
    Active(ActiveType.ACTIVE_RELU),
    Active(ActiveType.ACTIVE_SQRT),
    Active(ActiveType.ACTIVE_SQUARE),
    Active(ActiveType.ACTIVE_ABSVAL),
    Active(ActiveType.ACTIVE_ROUND),
    Active(ActiveType.ACTIVE_CEIL),
    Active(ActiveType.ACTIVE_FLOOR),
    ActiveParam(ActiveType.ACTIVE_LEAKY_RELU),
    ActiveParam(ActiveType.ACTIVE_LEAKY_RELU, (0.1,)),
    ActiveParam(ActiveType.ACTIVE_LEAKY_RELU, (-2.0,)),
    Clamp(Scalar.f32(-1.0), Scalar.f32(2.5)),
    Clamp(Scalar.f32(0.0), Scalar.f32(0.0)),
    Clamp(Scalar.f32(-0.0), Scalar.f32(1.0)),
    Ceil(),
    Floor(),
    Round(),
)


def numbers(rng: np.random.Generator, *shape: int) -> Array:
    """Normally distributed numbers, with ties of rounding, zeros of both signs, infinities and NaN among them."""
    values = normal(rng, *shape) * np.float32(4)
    flat = values.reshape(-1)
    special = (0.5, -0.5, 1.5, -2.5, 0.49999997, 0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 3e38, 8388609.0)
    for number in special:
        flat[rng.integers(flat.size)] = number
    return values


@pytest.mark.parametrize("op", EXACT, ids=str)
def test_functions(op: Op) -> None:
    x = numbers(np.random.default_rng(1), 3, 5, 7, 11)
    graph = graph_of([x.shape])
    graph.output(graph.add(op, graph.inputs[0]))
    check_exact(graph, [x], steps=1)


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("number", [0.3, -0.0, 2.0])
def test_with_a_number(kind: type[Op], number: float) -> None:
    x = numbers(np.random.default_rng(2), 4, 33)
    graph = graph_of([x.shape])
    graph.output(graph.add(kind(Scalar.f32(number)), graph.inputs[0]))  # type: ignore[call-arg]  # all take a scalar
    check_exact(graph, [x], steps=1)


SHAPES = (
    ((2, 5, 6, 7), (2, 5, 6, 7)),
    ((2, 5, 6, 7), (1, 5, 1, 1)),
    ((1, 5, 1, 1), (2, 5, 6, 7)),
    ((2, 5, 6, 7), (1, 1, 1, 1)),
    ((2, 5, 6, 7), (2, 1, 6, 7)),
    ((3, 1, 4), (1, 20, 4)),
    ((3, 1), (1, 20)),
    ((1, 1, 1), (1, 1, 1)),
    ((2, 3000), (2, 3000)),
    ((1,), (40,)),
)


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_two_operands(kind: type[Op], shapes: tuple[tuple[int, ...], ...]) -> None:
    rng = np.random.default_rng(3)
    feeds = [numbers(rng, *shape) for shape in shapes]
    graph = graph_of(shapes)
    graph.output(graph.add(kind(), *graph.inputs))
    check_exact(graph, feeds, steps=1)


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("shape", [(1, 5, 1, 1), (1, 1, 1, 1), (2, 5, 6, 7), (1, 1, 6, 1)])
def test_constants(kind: type[Op], is_first: bool, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(4)
    x, constant = numbers(rng, 2, 5, 6, 7), normal(rng, *shape)
    graph = graph_of([x.shape])
    operands = (graph.inputs[0], graph.constant(constant))
    graph.output(graph.add(kind(), *(operands[::-1] if is_first else operands)))
    check_exact(graph, [x], steps=1)


def test_orders_of_axes_in_memory() -> None:
    """A channels-last operand and a row-major one: one of them is copied."""
    rng = np.random.default_rng(5)
    feeds = [numbers(rng, 2, 6, 7, 5), numbers(rng, 2, 5, 6, 7), numbers(rng, 1, 5, 1, 1)]
    graph = graph_of([feed.shape for feed in feeds])
    last = graph.add(Permute((0, 3, 1, 2)), graph.inputs[0])
    scaled = graph.add(Mul(), last, graph.inputs[2])
    graph.output(graph.add(Sub(), graph.inputs[1], scaled))
    graph.output(scaled)
    check_exact(graph, feeds, steps=2)


def test_chains_are_one_step() -> None:
    rng = np.random.default_rng(6)
    feeds = [numbers(rng, 2, 5, 600), numbers(rng, 2, 5, 600), numbers(rng, 1, 5, 1)]
    graph = graph_of([feed.shape for feed in feeds])
    x, y, z = graph.inputs
    value = graph.add(Sub(), z, graph.add(Muls(Scalar.f32(0.7)), x))
    value = graph.add(Max(), y, graph.add(Active(ActiveType.ACTIVE_RELU), value))
    value = graph.add(Axpy(Scalar.f32(-1.3)), value, y)
    value = graph.add(Div(), graph.add(Adds(Scalar.f32(3.0)), value), z)
    graph.output(graph.add(Round(), value))
    check_exact(graph, feeds, steps=1)


def dequantize(shape: tuple[int, ...], dtype: DType, zero: int, scale: float) -> tuple[Graph, list[Array]]:
    """A graph without outputs that begins with a dequantization, and every kind of integer for it."""
    x = np.random.default_rng([9, *shape]).integers(dtype.min, dtype.max, shape, dtype.numpy, endpoint=True)
    x.reshape(-1)[:2] = dtype.min, dtype.max
    graph = Graph()
    integers = graph.input("x", TensorType(dtype, shape))
    graph.add(DequantIntToFp32(scale_val=float(np.float32(scale)), offset_val=zero), integers)
    return graph, [x]


@pytest.mark.parametrize("dtype", [I8, U8, I16, U16])
@pytest.mark.parametrize("zero", [0, -7, 40000])
@pytest.mark.parametrize(
    "shape", [(1, 3, 85, 7, 5), (2, 3, 4, 5, 3), (1, 1, 1, 5, 1000), (1, 1, 2, 1, 1), (3, 2, 40, 11, 9)]
)
def test_chains_that_begin_with_integers(dtype: DType, zero: int, shape: tuple[int, ...]) -> None:
    """Rows shorter and longer than a vector and than a block of the chain, in the order of the result's memory."""
    graph, feeds = dequantize(shape, dtype, zero, 0.00371)
    value = graph.add(Active(ActiveType.ACTIVE_SQUARE), graph.nodes[0].outputs[0])
    value = graph.add(Clamp(Scalar.f32(0.25), Scalar.f32(9000.0)), graph.add(Adds(Scalar.f32(-0.1)), value))
    graph.output(graph.add(Permute((0, 1, 3, 4, 2)), value))
    check_exact(graph, feeds, steps=1)


@pytest.mark.parametrize("dtype", [I8, I16])
@pytest.mark.parametrize("function", [ActiveType.ACTIVE_SIGMOID, ActiveType.ACTIVE_TANH])
def test_integers_in_the_same_step_change_nothing(dtype: DType, function: ActiveType) -> None:
    graph, feeds = dequantize((1, 3, 85, 9, 8), dtype, 3, 0.0041)
    graph.output(graph.add(Active(function), graph.nodes[0].outputs[0]))
    singly = NativePlan(graph, "BM1686", available_isas()[-1], 1, is_observed=True)
    (expected,) = singly.run(feeds, evaluate)
    (found,) = run(graph, feeds, steps=1)
    assert found.tobytes() == expected.tobytes()


def test_what_somebody_else_reads_is_stored() -> None:
    x = numbers(np.random.default_rng(7), 4, 50)
    graph = graph_of([x.shape])
    middle = graph.add(Muls(Scalar.f32(0.5)), graph.inputs[0])
    graph.output(graph.add(Add(), middle, middle))
    graph.output(graph.add(Adds(Scalar.f32(1.0)), middle))
    check_exact(graph, [x], steps=3)


@pytest.mark.parametrize(
    "op",
    [
        *(Active(kind) for kind in ActiveType if kind not in (ActiveType.UNKNOWN_ACTIVE_TYPE,)),
        Gelu(),
        Silu(),
        Mish(),
        Softplus(),
    ],
    ids=str,
)
def test_functions_that_decide_integers(op: Op) -> None:
    """In binary64 by the mathematical library: the same number as the reference, but for one in many millions."""
    x = np.random.default_rng(8).uniform(-10, 10, 5000).astype(np.float32)
    graph = graph_of([x.shape])
    y = graph.add(op, graph.inputs[0])
    graph.output(y)
    graph.output(graph.add(Cast(DType.INT32), y))
    np.testing.assert_array_equal(run(graph, [x])[0], references(graph, [x])[0])
