"""matmul_group_quantized: the definition against sums by hand, packing, and operands of the wrong size."""

from typing import Any

import numpy as np
import pytest

from tests.support.operators.op_cases import Case, f32, u8
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.ops.matmul_group_quantized import MatmulGroupQuantized, pack_codes, unpack_codes
from tpuconvert.schema.types import F32, I8, U8, DType, TensorType


def row(first: int, *, length: int = 8, fill: int = 0x88) -> list[int]:
    """A row of packed codes; all codes after the first byte are 8, the default zero point."""
    return [first, *[fill] * (length - 1)]


X = f32([1, 10, *[0] * 14], [0.5, -1, *[1000] * 14])
CASES = [
    Case(
        MatmulGroupQuantized(4, 16),
        [X, u8(row(0x3F)), f32([0.5])],
        [f32([0.5 * (7 - 50)], [0.5 * (3.5 + 5)])],
        "by hand: the low-order bits are first, codes 15 and 3 minus 8",
    ),
    Case(
        MatmulGroupQuantized(4, 16),
        [X, u8(row(0x3F, fill=0x11)), f32([0.5]), u8([0xF1]), f32(100)],
        [f32([0.5 * (14 + 20) + 100], [0.5 * (7 - 2) + 100])],
        "by hand: zero point 1 in the low-order bits; the other half of its byte is unused",
    ),
    Case(
        MatmulGroupQuantized(8, 16),
        [f32([2, *[0] * 16, 3]), u8([100, *[7] * 15, 9, 250, *[77] * 14]), f32([2, 0.25]), f32([0.5, 200])],
        [f32([2 * 99.5 * 2 + 3 * 50 * 0.25])],
        "by hand: two groups with float zero points; codes after the last column of x are ignored",
    ),
    Case(
        MatmulGroupQuantized(8, 16),
        [f32([1e8, 1, -1e8, *[0] * 13]), u8([129, 129, 129, *[0] * 13]), f32([1])],
        [f32([1])],
        "float32 would lose the 1",
    ),
    Case(
        MatmulGroupQuantized(8, 16, I8),
        [
            f32([127, 0.5, -1.5, *[0] * 13, 254, 3], [0] * 18),
            u8([130, 129, 126, *[0] * 13, 128, 138, *[9] * 14]),
            f32([0.5, 0.25]),
            None,
            f32(1),
        ],
        [f32([1 + 0.5 * (127 * 2 + 1 + 4) + 0.25 * 2 * (2 * 10)], [1])],
        "by hand: steps 1 and 2; ties 0.5, -1.5 and 3 / 2 round away from zero to 1, -2 and 2",
    ),
]


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_unpacks_what_it_packs(bits: int) -> None:
    codes = np.random.default_rng(bits).integers(0, 1 << bits, (3, 16), np.uint8)
    packed = pack_codes(codes, bits)
    assert packed.shape == (3, 16 * bits // 8)
    np.testing.assert_array_equal(unpack_codes(packed, bits), codes)


def test_packs_the_first_code_into_the_low_order_bits() -> None:
    assert pack_codes(u8([1, 2, 3]), 4).tolist() == [[0x21, 0x03]]
    assert pack_codes(u8([1, 2, 3, 0, 1]), 2).tolist() == [[0b00111001, 0b01]]


@pytest.mark.parametrize(
    "given", [{"bits": 3}, {"bits": 16}, {"activation_type": U8}, {"group": 8}, {"group": 48}, {"group": 0}], ids=str
)
def test_rejects_parameters(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(given))} is"):
        MatmulGroupQuantized(**given)


GOOD: dict[str, tuple[DType, tuple[Any, ...]]] = {
    "x": (F32, (2, "T", 40)),
    "codes": (U8, (3, 32)),
    "scale": (F32, (3, 2)),
    "zero_point": (U8, (3, 1)),
    "bias": (F32, (3,)),
}


def infer(**changes: tuple[DType, tuple[Any, ...]] | None) -> TensorType:
    types = {name: None if given is None else TensorType(*given) for name, given in {**GOOD, **changes}.items()}
    return MatmulGroupQuantized(4, 32).infer(**types)[0]


def test_infers_the_shape_of_the_result() -> None:
    assert infer() == TensorType(F32, (2, "T", 3))
    assert infer(zero_point=(F32, (3, 2)), bias=None) == TensorType(F32, (2, "T", 3))


@pytest.mark.parametrize(
    ("operand", "given"),
    [
        ("x", (F32, (2, 65))),
        ("x", (F32, (2, "K"))),
        ("x", (I8, (2, 40))),
        ("codes", (U8, (3, 31))),
        ("codes", (U8, (2, 32))),
        ("codes", (I8, (3, 32))),
        ("scale", (F32, (3, 1))),
        ("scale", (F32, (2, 2))),
        ("zero_point", (U8, (3, 2))),
        ("zero_point", (F32, (3, 1))),
        ("zero_point", (U8, (2, 1))),
        ("bias", (F32, (2,))),
    ],
    ids=str,
)
def test_rejects_operands_of_the_wrong_size(operand: str, given: tuple[DType, tuple[Any, ...]]) -> None:
    with pytest.raises(ShapeError, match="matmul_group_quantized"):
        infer(**{operand: given})
