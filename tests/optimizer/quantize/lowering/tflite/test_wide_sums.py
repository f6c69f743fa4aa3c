"""Sums of TFLite models whose operands are quantized with 32 bits, for which the integer rules have no scale."""

import pytest

import tpuconvert as tc
from tests.support.tflite.models import T, serialize, single


def test_a_32_bit_operand_of_a_sum_is_refused() -> None:
    a, b = (T(shape=(2, 3), type=kind, scale=(0.05,), zero_point=(0,)) for kind in ("INT8", "INT32"))
    y = T(shape=(2, 3), type="INT8", scale=(0.1,), zero_point=(0,))
    with pytest.raises(tc.UnsupportedError, match="not on this chip"):
        tc.convert(serialize(single("ADD", [a, b], [y])))
