"""Functions of the host: BFLOAT16 words, weights, formats and sizes, which the contract's examples leave open."""

import math

import numpy as np
import pytest

from tests.support.operators.op_cases import f32
from tpuconvert.schema.arithmetic.bfloat16 import narrow, widen
from tpuconvert.schema.definition.op import Operand, operands_given
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.graph.legality import Status, check
from tpuconvert.schema.ops.host.channels import (
    ChannelSum16b,
    LrnCrossChannels,
    ShuffleForward,
    ShuffleType,
    TiledScale2d32f,
)
from tpuconvert.schema.ops.host.elementwise import EltwiseForward, EltwiseOperation, Unary32f, UnaryOperation
from tpuconvert.schema.ops.host.flat_tensors import TensorFormat
from tpuconvert.schema.ops.host.softmax import Softmax16b, Softmax32f
from tpuconvert.schema.types import F32, I8, U16, Chip, TensorType


def test_words_round_to_the_nearest_even():
    """Conversion preserves every BFLOAT16 word. Ties round to even, NaN stays NaN, and overflow gives infinity."""
    words = np.arange(1 << 16, dtype=np.uint16)
    numbers = widen(words)
    is_number = ~np.isnan(numbers)
    np.testing.assert_array_equal(narrow(numbers)[is_number], words[is_number])
    assert np.isnan(widen(narrow(numbers[~is_number]))).all()
    halves = (np.array([0x3F800000, 0x3F810000, 0x7F7F0000], np.uint32) + 0x8000).view(np.float32)
    assert narrow(halves).tolist() == [0x3F80, 0x3F82, 0x7F80]
    beside = np.array([0x3F808001, 0x3F807FFF], np.uint32).view(np.float32)
    assert narrow(beside).tolist() == [0x3F81, 0x3F80]


def test_sums_are_sequential_in_binary32():
    words = narrow(f32(2**24, 1, 1, 1))
    assert ChannelSum16b(channels=1, spatial=4).evaluate(words)[0].tolist() == [2**24]  # every 1 is rounded away
    assert ChannelSum16b(channels=1, spatial=4).evaluate(words[::-1])[0].tolist() == [
        2**24 + 4
    ]  # 3 first: a tie to even


def test_a_sum_has_weights_and_nothing_else_has():
    x = TensorType(F32, (3,))
    graph = Graph("host", "host")
    a, b = graph.input("a", x), graph.input("b", x)
    weight = graph.constant(f32(0.5, 2), "weight")
    y = graph.add(EltwiseForward(type=EltwiseOperation.Sum), a, b, weight)
    z = graph.add(EltwiseForward(type=EltwiseOperation.Max), a, b, None)
    assert (y.shape, z.shape) == ((3,), (3,))
    for node in graph.nodes:
        kinds = [None if value is None else value.type for value in node.inputs]
        assert check(node.op, Chip.BM1684, kinds, [x]).status is Status.WARNING
    for operation, operands in (("Sum", (x, x, None)), ("Max", (x, x, TensorType(F32, (2,))))):
        with pytest.raises(ShapeError, match="only Sum has, and needs, them"):
            EltwiseForward(type=EltwiseOperation[operation]).infer(*operands)
    with pytest.raises(ShapeError, match=r"weight must be \[2\]"):
        EltwiseForward(type=EltwiseOperation.Sum).infer(x, x, x)
    with pytest.raises(ShapeError, match="two or more arrays"):
        EltwiseForward(type=EltwiseOperation.Max).infer(x, None)


def test_a_repeated_operand_leaves_room_for_those_after_it():
    src, weight, other = Operand("src", variadic=True), Operand("weight"), Operand("other")
    assert operands_given((src, weight), 4) == [src, src, src, weight]
    assert operands_given((src, weight), 2) == [src, weight]
    assert operands_given((other, src), 3) == [other, src, src]
    assert operands_given((src,), 0) == []
    assert operands_given((other, weight), 1) == [other]


def test_the_host_takes_what_its_table_says():
    op = Unary32f(type=UnaryOperation.Abs)
    for dtype, status in ((F32, Status.WARNING), (I8, Status.ILLEGAL)):
        x = TensorType(dtype, (1,))
        assert check(op, Chip.BM1682, [x], [x]).status is status


@pytest.mark.parametrize("layout", [TensorFormat.NCHW, TensorFormat.NHWC], ids=lambda item: item.name)
def test_shuffling_back_and_forth(layout):
    x0, x1 = (np.random.default_rng(3).normal(size=n * 5).astype(np.float32) for n in (6, 4))
    settings = {"channels0": 6, "channels1": 4, "spatial": 5, "format": layout}
    halves = ShuffleForward(**settings, type=ShuffleType.SPLIT).evaluate(x0, x1)
    again = ShuffleForward(**settings, type=ShuffleType.INTERLEAVE).evaluate(*halves)
    np.testing.assert_array_equal(again[0], x0)
    np.testing.assert_array_equal(again[1], x1)


def test_unary_functions_beyond_the_examples():
    x = f32(0.0, -0.0, math.inf, -math.inf, math.nan, 2.5, -2.5, 1e-45)
    one = {operation: Unary32f(type=operation).evaluate(x)[0] for operation in UnaryOperation}
    assert one[UnaryOperation.Round][5:7].tolist() == [3, -3]
    assert one[UnaryOperation.Rsqrt][:3].tolist() == [math.inf, -math.inf, 0]
    assert one[UnaryOperation.Erf][2:4].tolist() == [1, -1]
    assert one[UnaryOperation.Sign][5:].tolist() == [1, -1, 1]
    assert not one[UnaryOperation.Zero].any()
    np.testing.assert_array_equal(
        one[UnaryOperation.Not].view(np.uint32) ^ x.view(np.uint32), np.full(8, 2**32 - 1, np.uint32)
    )


def test_half_width_softmax_is_the_other_rounded():
    words = narrow(np.random.default_rng(4).normal(size=24).astype(np.float32))
    settings = {"outer": 2, "count": 3, "inner": 4}
    wide = Softmax32f(**settings).evaluate(widen(words))[0]
    np.testing.assert_array_equal(Softmax16b(**settings).evaluate(words)[0], narrow(wide))
    np.testing.assert_allclose(wide.reshape(2, 3, 4).sum(axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize(
    ("op", "sizes", "message"),
    [
        (ChannelSum16b(channels=2, spatial=3), (5,), r"src must be \[6\]"),
        (LrnCrossChannels(half=1, channels=2, spatial=3, k=(1, 1, 1)), (7,), r"src must be \[6\]"),
        (TiledScale2d32f(channels=2, height=3, width=4), (24, 8, 5), r"hor must be \[6\]"),
        (ShuffleForward(channels0=4, channels1=2, spatial=2, type=ShuffleType.SPLIT), (6, 6), r"src0 must be \[8\]"),
        (Softmax32f(outer=1, count=2, inner=3), (5,), r"src must be \[6\]"),
    ],
)
def test_sizes_that_do_not_fit(op, sizes, message):
    with pytest.raises(ShapeError, match=message):
        op.infer(*(TensorType(U16 if isinstance(op, ChannelSum16b) else F32, (size,)) for size in sizes))


@pytest.mark.parametrize(
    "make",
    [
        lambda: ChannelSum16b(channels=0, spatial=1),
        lambda: ChannelSum16b(channels=1, spatial=1, format=TensorFormat.Unknown),
        lambda: ShuffleForward(channels0=3, channels1=1, spatial=1, type=ShuffleType.SPLIT),
        lambda: LrnCrossChannels(half=-1, channels=1, spatial=1, k=(1, 1, 1)),
    ],
)
def test_parameters_out_of_range(make):
    with pytest.raises(ValueError, match=r"channel|shuffle|lrn"):
        make()
