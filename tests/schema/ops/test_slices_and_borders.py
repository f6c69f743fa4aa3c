"""Extract, pad, tile and their aliases, index_select, space_to_batch, and the variants with run-time attributes."""

import numpy as np
import pytest

from tests.support.operators.op_cases import Case, f32, i8, i32, u8
from tpuconvert.schema.errors import ShapeError, UsageError
from tpuconvert.schema.ops.extract import Extract, ExtractV2
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.pad import Pad, PadType, PadV2
from tpuconvert.schema.ops.space_to_batch import BatchToSpace, BatchToSpaceV2, SpaceToBatch, SpaceToBatchV2
from tpuconvert.schema.ops.tile import Broadcast, Repeat, Tile, TileV2
from tpuconvert.schema.types import F32, I32, Chip, Scalar, TensorType

ZERO = Scalar.f32(0)
ROW = f32(1, 2, 3)
SQUARE = f32([[[1, 2], [3, 4]]])
T = PadType


CASES = [
    Case(Extract((1,), (3,), (1,)), [ROW], [f32(2, 3)], "up to the end"),
    Case(Extract((0,), (3,), (2,)), [ROW], [f32(1, 3)], "every second, rounded up"),
    Case(Extract((0, 1), (2, 2), (1, 1)), [i8([1, 2], [3, 4])], [i8([2], [4])], "a column"),
    Case(ExtractV2(), [ROW, i32(1), i32(3), i32(1)], [f32(2, 3)], "limits as tensors"),
    Case(Pad(Scalar.f32(9), (1, 2)), [ROW], [f32(9, 1, 2, 3, 9, 9)], "constant"),
    Case(Pad(ZERO, (0, 0)), [ROW], [ROW], "no padding"),
    Case(Pad(ZERO, (1, 1)), [f32()], [f32(0, 0)], "only padding"),
    Case(Pad(ZERO, (2, 2), T.PAD_REFLECT), [ROW], [f32(3, 2, 1, 2, 3, 2, 1)], "the outermost elements once"),
    Case(Pad(ZERO, (3, 3), T.PAD_SYMMETRIC), [ROW], [f32(3, 2, 1, 1, 2, 3, 3, 2, 1)], "the outermost elements twice"),
    Case(Pad(ZERO, (1, 3), T.PAD_EDGE), [ROW], [f32(1, 1, 2, 3, 3, 3, 3)], "the outermost elements again and again"),
    Case(Pad(ZERO, (0, 1), T.PAD_SYMMETRIC), [f32(5)], [f32(5, 5)], "one element"),
    Case(
        Pad(ZERO, (1, 0, 0, 1), T.PAD_REFLECT), [f32([1, 2], [3, 4])], [f32([3, 4, 3], [1, 2, 1], [3, 4, 3])], "corners"
    ),
    Case(PadV2(ZERO, T.PAD_EDGE), [ROW, i32(1, 0)], [f32(1, 1, 2, 3)], "paddings as a tensor", (Chip.BM1684,)),
    Case(Tile((2,)), [ROW], [f32(1, 2, 3, 1, 2, 3)], "the whole tensor, not its elements"),
    Case(Repeat((2,)), [ROW], [f32(1, 2, 3, 1, 2, 3)], "despite the name"),
    Case(Broadcast((3, 1)), [f32([1, 2])], [f32([1, 2], [1, 2], [1, 2])], "an axis of extent 1"),
    Case(Tile((1, 2)), [u8([1], [2])], [u8([1, 1], [2, 2])], "along axis 1"),
    Case(TileV2(), [ROW, i32(2)], [f32(1, 2, 3, 1, 2, 3)], "counts as a tensor"),
    Case(IndexSelect(0), [ROW, i32(2, 0, 2)], [f32(3, 1, 3)], "any order, repeatedly"),
    Case(IndexSelect(-1), [f32([1, 2], [3, 4]), i32(1)], [f32([2], [4])], "negative axis"),
    Case(IndexSelect(0), [ROW, i32()], [f32()], "no index"),
    Case(
        SpaceToBatch((2, 1), (0, 0, 0, 0)), [f32(SQUARE[0])], [f32([[[1, 2]]], [[[3, 4]]]).reshape(2, 1, 1, 2)], "rows"
    ),
    Case(
        SpaceToBatch((1, 2), (0, 0, 1, 1)),
        [f32(SQUARE[0])],
        [f32([[[0, 2], [0, 4]]], [[[1, 0], [3, 0]]]).reshape(2, 1, 2, 2)],
        "columns, with padding of 0",
    ),
    Case(
        BatchToSpace((1, 2), (1, 0, 1, 1)),
        [f32([[[0, 2], [0, 4]]], [[[1, 0], [3, 0]]]).reshape(2, 1, 2, 2)],
        [f32([[[3, 4]]])],
        "back, without the padding and the first row",
    ),
    Case(
        SpaceToBatchV2(),
        [f32(SQUARE[0]), i32(2, 1), i32(0, 0, 0, 0)],
        [f32([[[1, 2]]], [[[3, 4]]]).reshape(2, 1, 1, 2)],
        "values as tensors",
    ),
    Case(
        BatchToSpaceV2(),
        [f32([[[1, 2]]], [[[3, 4]]]).reshape(2, 1, 1, 2), i32(2, 1), i32(0, 0, 0, 0)],
        [f32(SQUARE[0])],
        "values as tensors",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case):
    case.check()


def test_blocks_come_back():
    x = np.arange(2 * 3 * 4 * 6, dtype=np.float32).reshape(2, 3, 4, 6)
    (blocks,) = SpaceToBatch((3, 2), (1, 1, 0, 2)).evaluate(x)
    assert blocks.shape == (12, 3, 2, 4)
    assert blocks[(2 * 2 + 1) * 2 + 1, 2, 0, 1] == x[1, 2, 0 * 3 + 2 - 1, 1 * 2 + 1]
    (back,) = BatchToSpace((3, 2), (1, 1, 0, 2)).evaluate(blocks)
    assert np.array_equal(back, x)


@pytest.mark.parametrize(
    ("op", "shape", "message"),
    [
        (Extract((0,), (4,), (1,)), (3,), r"\[3\].*0 to 4"),
        (Extract((2,), (2,), (1,)), (3,), r"2 to 2"),
        (Extract((-1,), (2,), (1,)), (3,), r"-1 to 2"),
        (Extract((0,), (2,), (0,)), (3,), r"steps of 0"),
        (Extract((0,), (2,), (1,)), (3, 3), r"\[3, 3\]"),
        (Pad(ZERO, (0, 3), T.PAD_REFLECT), (3,), r"\[3\].*PAD_REFLECT.*\[0, 3\]"),
        (Pad(ZERO, (4, 0), T.PAD_SYMMETRIC), (3,), r"\[3\].*PAD_SYMMETRIC"),
        (Pad(ZERO, (1, 0), T.PAD_EDGE), (0,), r"\[0\].*PAD_EDGE"),
        (Pad(ZERO, (-1, 0)), (3,), "negative"),
        (Pad(ZERO, (1, 1)), (3, 3), r"4 values for \[3, 3\]"),
        (Tile((1, 2)), (3,), r"\(1, 2\).*\[3\]"),
        (IndexSelect(1), (3,), r"axis 1 does not exist in \[3\]"),
        (SpaceToBatch((2, 2), (0, 0, 0, 1)), (1, 1, 2, 2), r"\[1, 1, 2, 2\].*\[1, 1, 2, 3\]"),
        (BatchToSpace((2, 2), (0, 0, 0, 0)), (6, 1, 2, 2), r"\[6, 1, 2, 2\]"),
        (BatchToSpace((1, 1), (2, 1, 0, 0)), (1, 1, 2, 2), r"\[2, 1, 0, 0\]"),
    ],
    ids=str,
)
def test_shape_errors(op, shape, message):
    types = [TensorType(F32, shape), TensorType(I32, (1,))][: len(op.inputs)]
    with pytest.raises(ShapeError, match=message):
        op.infer(*types)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Tile((0,)),
        lambda: Repeat((-1,)),
        lambda: SpaceToBatch((0, 1), (0, 0, 0, 0)),
        lambda: SpaceToBatch((1, 1), (0, 0, 0, -1)),
        lambda: BatchToSpace((1, 1, 1), (0, 0, 0, 0)),
        lambda: Pad(ZERO, (0, 0), 4),
    ],
)
def test_parameters_are_checked(make):
    with pytest.raises(ValueError, match=r"at least 1|edges|PadType"):
        make()


@pytest.mark.parametrize("index", [-1, 3])
def test_index_outside_fails_the_run(index):
    with pytest.raises(UsageError, match=rf"index {index} is outside of 0..2"):
        IndexSelect(0).evaluate(ROW, i32(0, index))


@pytest.mark.parametrize(
    ("op", "values"),
    [
        (ExtractV2(), [i32(0), i32(4), i32(1)]),
        (PadV2(ZERO, T.PAD_REFLECT), [i32(3, 0)]),
        (TileV2(), [i32(0)]),
    ],
)
def test_run_time_values_are_checked(op, values):
    with pytest.raises(ShapeError, match=r"\[3\]"):
        op.evaluate(ROW, *values)


@pytest.mark.parametrize(
    ("op", "count"), [(ExtractV2(), 2), (PadV2(ZERO), 3), (TileV2(), 2), (SpaceToBatchV2(), 3), (BatchToSpaceV2(), 3)]
)
def test_run_time_values_need_the_right_number(op, count):
    x = TensorType(F32, (1, 1, 2, 2) if "batch" in op.name else (3,))
    with pytest.raises(ShapeError, match=rf"\[{count}\]"):
        op.infer(x, *[TensorType(I32, (count,))] * (len(op.inputs) - 1))


def test_symbolic_extents():
    x = TensorType(F32, ("N", 3, "H", "W"))
    assert Pad(ZERO, (0, 0, 0, 0, 1, 2, 0, 0)).infer(x)[0].shape == ("N", 3, "H+3", "W")
    assert Tile((2, 1, 1, 1)).infer(x)[0].shape == ("2*N", 3, "H", "W")
    assert IndexSelect(0).infer(x, TensorType(I32, (5,)))[0].shape == (5, 3, "H", "W")
    assert IndexSelect(0).infer(x, TensorType(I32, ("K",)))[0].shape == ("K", 3, "H", "W")
    assert SpaceToBatch((2, 2), (0, 0, 0, 0)).infer(x)[0].shape == ("4*N", 3, "H/2", "W/2")
    assert BatchToSpace((2, 2), (0, 0, 0, 0)).infer(x)[0].shape == ("N/4", 3, "2*H", "2*W")
    assert Extract((0, 0, 0, 0), (1, 3, 8, 8), (1, 1, 2, 2)).infer(x)[0].shape == (1, 3, 4, 4)


@pytest.mark.parametrize(
    ("op", "local"),
    [
        (Extract((0, 0), (1, 3), (1, 1)), True),
        (Extract((0, 1), (1, 3), (1, 1)), False),
        (Extract((0, 0), (1, 3), (1, 2)), False),
        (Pad(ZERO, (0, 0, 0, 0)), True),
        (Pad(ZERO, (0, 0, 1, 0)), False),
        (Tile((2, 1)), True),
        (Tile((1, 2)), False),
        (Broadcast((2, 1)), True),
    ],
    ids=str,
)
def test_locality(op, local):
    x = TensorType(F32, (2, 3))
    assert op.locality.condition is not None
    assert op.locality.condition(op, (x,), op.infer(x), Chip.BM1684) is local
