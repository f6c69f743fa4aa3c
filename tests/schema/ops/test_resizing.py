"""``interpolate``, ``upsample`` and ``batch_norm``, with values computed by hand and by ONNX."""

import itertools

import numpy as np
import pytest

from tests.support.onnx.reference import run_node
from tests.support.operators.op_cases import Case, f16, f32, i8
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.ops.batch_norm import BatchNorm
from tpuconvert.schema.ops.interpolate import Interpolate, InterpolateMode, PlatForm
from tpuconvert.schema.ops.upsample import Upsample
from tpuconvert.schema.types import F32, TensorType

NEAREST, BILINEAR = InterpolateMode
TENSORFLOW, OPENCV = PlatForm.TENSORFLOW, PlatForm.OPENCV


def tensorflow(size, method, **flags):
    return Interpolate(size=size, platform=TENSORFLOW, method=method, **flags)


PIXELS = f32([[[1, 3], [5, 7]]])
ROW = f32([[[0, 4]]])

CASES = [
    Case(Upsample(2), [i8([[[1, 2]]])], [i8([[[1, 1, 2, 2], [1, 1, 2, 2]]])], "every pixel twice"),
    Case(Upsample(1), [PIXELS], [PIXELS], "nothing to do"),
    Case(tensorflow((1, 4), BILINEAR), [ROW], [f32([[[0, 2, 4, 4]]])], "asymmetric: 0, 1/2, 1, 3/2"),
    Case(tensorflow((1, 4), BILINEAR, half_pixel_centers=True), [ROW], [f32([[[0, 1, 3, 4]]])], "-1/4, 1/4, 3/4, 5/4"),
    Case(tensorflow((1, 3), BILINEAR, align_corners=True), [ROW], [f32([[[0, 2, 4]]])], "0, 1/2, 1"),
    Case(tensorflow((1, 1), BILINEAR, align_corners=True), [ROW], [f32([[[0]]])], "one pixel: no division by zero"),
    Case(tensorflow((1, 3), NEAREST, align_corners=True), [ROW], [f32([[[0, 4, 4]]])], "1/2 rounds away from zero"),
    Case(tensorflow((1, 3), NEAREST), [ROW], [f32([[[0, 0, 4]]])], "0, 2/3, 4/3"),
    Case(tensorflow((1, 3), NEAREST, half_pixel_centers=True), [ROW], [f32([[[0, 4, 4]]])], "1/3, 1, 5/3"),
    Case(tensorflow((2, 1), BILINEAR), [PIXELS], [f32([[[1], [5]]])], "smaller"),
    Case(tensorflow((2, 4), BILINEAR), [f16([[[0, 1], [0, 1]]])], [f16([[[0, 0.5, 1, 1]] * 2])], "binary16"),
    Case(
        Interpolate(size=(1, 4), platform=OPENCV, method=BILINEAR), [ROW], [f32([[[0, 1, 3, 4]]])], "as half pixel"
    ),
    Case(
        Interpolate(scale_factor=(1.0, 1.5), platform=TENSORFLOW, method=NEAREST),
        [f32([[[1, 2, 3]]])],
        [f32([[[1, 1, 2, 3]]])],
        "floor(3 * 1.5) = 4 pixels; the ratio is 3/4, not 1/1.5",
    ),
    Case(
        BatchNorm(epsilon=1.0, scale=2.0),
        [f32([[[[3]], [[5]]]]).reshape(1, 2, 1, 1), f32(2, 4), f32(6, 16), f32(1, 3), f32(0, 1)],
        [f32(1, 4).reshape(1, 2, 1, 1), f32(1, 2), f32(3, 8)],
        "statistics are halved: (3 - 1) / 2, 3 * (5 - 2) / 3 + 1",
    ),
    Case(
        BatchNorm(epsilon=4.0, scale=0.0),
        [f32(6).reshape(1, 1, 1, 1), f32(5), f32(5), None, None],
        [f32(3).reshape(1, 1, 1, 1), f32(0), f32(0)],
        "scale 0 turns statistics into 0",
    ),
    Case(
        BatchNorm(epsilon=0.0, use_global_stats=False),
        [f32([[[1, 3], [1, 3]]]).reshape(1, 1, 2, 2), f32(9), f32(9), None, None],
        [f32([-1, 1], [-1, 1]).reshape(1, 1, 2, 2), f32(2), f32(1)],
        "statistics of x",
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case):
    case.check()


COORDINATES = {
    "half_pixel": {"half_pixel_centers": True},
    "align_corners": {"align_corners": True},
    "asymmetric": {},
}


@pytest.mark.parametrize("mode", COORDINATES)
@pytest.mark.parametrize("size", list(itertools.product((1, 3, 5, 12), (1, 4, 9))), ids=str)
def test_bilinear_agrees_with_onnx(mode, size):
    x = np.random.default_rng(0).standard_normal((1, 2, 5, 4)).astype(np.float32)
    sizes = np.array([1, 2, *size], np.int64)
    expected = run_node("Resize", [x, None, None, sizes], mode="linear", coordinate_transformation_mode=mode)
    (found,) = tensorflow(size, BILINEAR, **COORDINATES[mode]).evaluate(x)
    # Coordinates are float32 here and float64 in the reference.
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", list(itertools.product((1, 3, 5, 10), (2, 4, 8))), ids=str)
def test_nearest_agrees_with_onnx(size):
    x = np.random.default_rng(0).standard_normal((1, 2, 5, 4)).astype(np.float32)
    sizes = np.array([1, 2, *size], np.int64)
    floor = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    (found,) = tensorflow(size, NEAREST).evaluate(x)
    np.testing.assert_array_equal(found, run_node("Resize", [x, None, None, sizes], **floor))


def test_batch_norm_agrees_with_onnx():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, 4, 5)).astype(np.float32)
    gamma, beta, mean = (rng.standard_normal(3).astype(np.float32) for _ in range(3))
    variance = rng.uniform(0.1, 2, 3).astype(np.float32)
    expected = run_node("BatchNormalization", [x, gamma, beta, mean, variance], epsilon=1e-3)
    found = BatchNorm(epsilon=1e-3).evaluate(x, mean, variance, gamma, beta)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)  # float32 in the reference, float64 here


@pytest.mark.parametrize(
    ("platform", "method", "flags", "expected"),
    [
        (PlatForm.CAFFE, BILINEAR, {}, [0, 2, 4]),
        (PlatForm.CAFFE, NEAREST, {}, [0, 0, 4]),
        (PlatForm.PYTORCH, BILINEAR, {"align_corners": True}, [0, 2, 4]),
        (PlatForm.PYTORCH, BILINEAR, {}, [0, 2, 4]),
        (PlatForm.PYTORCH, NEAREST, {}, [0, 0, 4]),
    ],
)
def test_reserved_platforms(platform, method, flags, expected):
    op = Interpolate(size=(1, 3), platform=platform, method=method, **flags)
    np.testing.assert_allclose(op.evaluate(ROW)[0].reshape(-1), expected, atol=1e-6)  # thirds are not exact
    assert not any(case.when(op) for support in op.dtypes.values() for case in support.cases)


def test_symbolic_extents_pass_through():
    x = TensorType(F32, ("N", 3, "H", 5))
    assert Upsample(2).infer(x)[0].shape == ("N", 3, "2*H", 10)
    assert tensorflow((7, 8), NEAREST).infer(x)[0].shape == ("N", 3, 7, 8)
    doubled = Interpolate(scale_factor=(2.0, 2.0), platform=TENSORFLOW, method=NEAREST)
    assert doubled.infer(x)[0].shape == ("N", 3, "2*H", 10)
    vector = TensorType(F32, (3,))
    assert BatchNorm().infer(x, vector, vector)[0] == x


@pytest.mark.parametrize(
    "parameters",
    [
        {"size": (1, 2), "align_corners": True, "half_pixel_centers": True},
        {"size": (1,)},
        {"size": (0, 2)},
        {},
        {"scale_factor": (1.0, float("inf"))},
        {"size": (1, 2), "platform": OPENCV, "method": NEAREST},
        {"size": (1, 2), "platform": OPENCV, "align_corners": True},
    ],
    ids=str,
)
def test_illegal_parameters(parameters):
    with pytest.raises(ValueError, match="interpolate"):
        Interpolate(**{"platform": TENSORFLOW, "method": BILINEAR, **parameters})


def test_types_that_do_not_fit():
    x, two, three = TensorType(F32, (1, 3, 4, 4)), TensorType(F32, (2,)), TensorType(F32, (3,))
    with pytest.raises(ShapeError, match=r"extent of mean_i must be 3, not 2, got FLOAT32\[1, 3, 4, 4\] and"):
        BatchNorm().infer(x, two, three)
    with pytest.raises(ShapeError, match="gamma and beta come together"):
        BatchNorm().infer(x, three, three, three)
    with pytest.raises(ShapeError, match="rank 4"):
        Upsample(2).infer(three)
    with pytest.raises(ShapeError, match="leave nothing"):
        Interpolate(scale_factor=(0.1, 1.0), platform=TENSORFLOW, method=NEAREST).infer(x)
    with pytest.raises(ValueError, match="at least 1"):
        Upsample(0)
