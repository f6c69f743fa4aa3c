"""gather_group_quantized: rows by hand, and operands of the wrong size."""

import re
from typing import Any

import numpy as np
import pytest

from tests.support.operators.op_cases import Case, f32, i32, u8
from tpuconvert.schema.errors import ShapeError, UsageError
from tpuconvert.schema.ops.gather_group_quantized import GatherGroupQuantized
from tpuconvert.schema.types import F32, I32, U8, TensorType

TABLE = [[0x3F, *[0x88] * 7], [0x90, *[0x88] * 7]]
CASES = [
    Case(
        GatherGroupQuantized(3, 4, 16),
        [i32(1, 0, 1), u8(*TABLE), f32([0.5], [2])],
        [f32([-16, 2, 0], [3.5, -2.5, 0], [-16, 2, 0])],
        "by hand: codes minus 8, the low-order bits are first, columns after the third are ignored",
    ),
    Case(
        GatherGroupQuantized(2, 8, 16),
        [i32(1), u8([0] * 16, [7, 250, *[0] * 14]), f32([1], [0.5]), u8([0], [10])],
        [f32([-1.5, 120])],
        "by hand: 8 bits with zero point 10",
    ),
]


def test_rejects_an_index_out_of_range() -> None:
    with pytest.raises(UsageError, match=re.escape("index 2 is outside of 0..1")):
        GatherGroupQuantized(3, 4, 16).reference(i32(2), u8(*TABLE), f32([0.5], [2]))


@pytest.mark.parametrize(
    "types",
    [
        [(F32, (4,)), (U8, (9, 32)), (F32, (9, 2))],
        [(I32, (4, 1)), (U8, (9, 32)), (F32, (9, 2))],
        [(I32, (4,)), (U8, (9, 31)), (F32, (9, 2))],
        [(I32, (4,)), (U8, (9, 32)), (F32, (8, 2))],
        [(I32, (4,)), (U8, (9, 32)), (F32, (9, 2)), (U8, (9, 2))],
    ],
    ids=str,
)
def test_rejects_operands_of_the_wrong_size(types: list[tuple[Any, tuple[int, ...]]]) -> None:
    op = GatherGroupQuantized(40)
    assert op.infer(TensorType(I32, ("T",)), TensorType(U8, (9, 32)), TensorType(F32, (9, 2))) == (
        TensorType(F32, ("T", 40)),
    )
    with pytest.raises(ShapeError):
        op.infer(*(TensorType(*given) for given in types))


@pytest.mark.parametrize("given", [{"depth": 0}, {"depth": 3, "bits": 2}, {"depth": 3, "group": 24}], ids=str)
def test_rejects_parameters(given: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"is (0|2|24)"):
        GatherGroupQuantized(**given)


def test_result_is_new() -> None:
    (y,) = GatherGroupQuantized(3, 4, 16).reference(i32(), u8(*TABLE), f32([0.5], [2]))
    assert y.shape == (0, 3)
    assert y.dtype == np.float32
