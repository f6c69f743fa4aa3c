"""Data types, scalars and quantization parameters."""

import copy
import dataclasses
import math
import pickle
import warnings

import numpy as np
import pytest

from tpuconvert.schema.types import F16, F32, I8, I16, I32, U8, DType, QuantParams, Scalar, TensorType


def test_ranges_and_widths():
    assert [(d.bits, d.is_signed) for d in (F32, F16, I32, I16, I8, U8)] == [
        (32, True), (16, True), (32, True), (16, True), (8, True), (8, False),
    ]  # fmt: skip
    assert (I8.min, I8.max, U8.min, U8.max) == (-128, 127, 0, 255)


def test_numpy_types_map_back_and_others_are_refused():
    assert all(DType.of(dtype.numpy) is dtype for dtype in DType)
    for missing in ("int64", "float64", "bool"):
        with pytest.raises(ValueError, match=missing):
            DType.of(missing)


def test_scalars_are_never_rounded_silently():
    assert Scalar(I8, -128).value == -128
    for dtype, value in ((I8, 128), (U8, -1), (I32, 0.5), (F32, 0.1), (F16, 1e6)):
        with pytest.raises(ValueError, match="not representable"):
            Scalar(dtype, value)
    assert Scalar.f32(0.1).value == float(np.float32(0.1))
    assert math.isnan(Scalar(F32, math.nan).value)


def test_quantize_rounds_halves_away_from_zero_and_saturates():
    params = QuantParams.per_tensor(0.5, 0, I8)
    real = np.array([0.25, -0.25, 0.75, -0.75, 100.0, -100.0], np.float32)
    assert params.quantize(real).tolist() == [1, -1, 2, -2, 127, -128]


def test_quantize_per_axis_and_back():
    params = QuantParams((1.0, 0.25), (0, 10), U8, axis=1)
    real = np.array([[3.0, 2.0], [255.0, -2.5]], np.float32)
    assert params.quantize(real).tolist() == [[3, 18], [255, 0]]
    assert params.dequantize(params.quantize(real)).tolist() == real.tolist()


@pytest.mark.parametrize(
    "arguments",
    [
        ((1.0, 2.0), (0,), I8),
        ((1.0, 2.0), (0, 0), I8),
        ((0.0,), (0,), I8),
        ((math.inf,), (0,), I8),
        ((1.0,), (128,), I8),
    ],
)
def test_impossible_parameters_are_refused(arguments):
    with pytest.raises(ValueError, match=r"scale|zero points"):
        QuantParams(*arguments)


def test_static_shape_rejects_symbolic_extents():
    type_ = TensorType(F32, ("N", 3))
    assert str(type_) == "FLOAT32[N, 3]"
    assert not type_.is_static
    with pytest.raises(ValueError, match=r"\[N, 3\] is dynamic"):
        _ = type_.static_shape


def test_tensor_types_can_be_copied_and_sent() -> None:
    made = TensorType(F32, (1, "N"))
    assert pickle.loads(pickle.dumps(made)) == made == copy.deepcopy(made) == dataclasses.replace(made)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.shape = ()  # type: ignore[misc]  # that it does not change


def test_what_is_not_finite_has_defined_integers():
    """NaN is the zero point, infinities saturate; beyond binary32 dequantized values are infinite. Nothing warns."""
    params = QuantParams.per_tensor(0.5, 3, I8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = params.quantize(np.array([math.nan, math.inf, -math.inf, 1e300, 1.0]))
        assert found.tolist() == [3, 127, -128, 127, 5]
        huge = QuantParams.per_tensor(3e38, 0, I8).dequantize(np.array([2, -2, 1], np.int8))
    assert huge.tolist() == [math.inf, -math.inf, np.float32(3e38)]
