"""host_yuv420_to_rgb: hand-worked pixels, and random planes against OpenCV."""

import numpy as np
import pytest

from tpuconvert.schema.arithmetic.yuv420 import rgb_to_yuv420, yuv420_to_rgb
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.ops.host.yuv import HostYuv420ToRgb
from tpuconvert.schema.types import DType, TensorType


def test_hand_worked_pixels() -> None:
    """Black, white and two grays without color: y = 16 is 0, y = 235 is 255, (126 - 16) * 1.164 = 128.04."""
    planes = np.array([[[16, 235], [126, 0], [128, 128]]], np.uint8)
    assert HostYuv420ToRgb().reference(planes)[0][0, :, :, 0].tolist() == [[0, 255], [128, 0]]
    red = np.array([[[81, 81], [81, 81], [90, 240]]], np.uint8)  # pure red of BT.601: 81, 90, 240
    assert HostYuv420ToRgb().reference(red)[0][0, 0, 0].tolist() == [254, 0, 0]
    assert HostYuv420ToRgb(blue_first=True).reference(red)[0][0, 0, 0].tolist() == [0, 0, 254]


@pytest.mark.parametrize("interleaved", [True, False])
def test_pixels_of_opencv(interleaved: bool) -> None:
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
    codes = (
        (cv2.COLOR_YUV2RGB_NV12, cv2.COLOR_YUV2BGR_NV12)
        if interleaved
        else (cv2.COLOR_YUV2RGB_I420, cv2.COLOR_YUV2BGR_I420)
    )
    for seed in range(200):
        draw = np.random.default_rng(seed)
        height, width = (2 * int(value) for value in draw.integers(1, 60, 2))
        planes = draw.integers(0, 256, (1, height * 3 // 2, width), np.uint8)
        for blue_first, code in enumerate(codes):
            found = HostYuv420ToRgb(interleaved, bool(blue_first)).reference(planes)[0]
            assert np.array_equal(found[0], cv2.cvtColor(planes[0], code)), (seed, height, width)


def test_all_values_of_one_block_are_those_of_opencv() -> None:
    """Every pair of U and V with 16 values of Y, which cover every case of saturation."""
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
    u, v = (part.astype(np.uint8) for part in np.meshgrid(np.arange(256), np.arange(256)))
    for y in range(0, 256, 17):
        planes = np.concatenate([np.full((512, 512), y, np.uint8), np.stack([u, v], -1).reshape(256, 512)])
        assert np.array_equal(
            yuv420_to_rgb(planes[None], interleaved=True)[0], cv2.cvtColor(planes, cv2.COLOR_YUV2RGB_NV12)
        )


def test_planes_of_opencv() -> None:
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
    for seed in range(200):
        draw = np.random.default_rng(seed)
        height, width = (2 * int(value) for value in draw.integers(1, 60, 2))
        pixels = draw.integers(0, 256, (1, height, width, 3), np.uint8)
        found = rgb_to_yuv420(pixels, interleaved=False)
        assert np.array_equal(found[0], cv2.cvtColor(pixels[0], cv2.COLOR_RGB2YUV_I420)), (seed, height, width)


def test_nv12_has_the_values_of_i420() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 6, 8, 3), np.uint8)
    both = [yuv420_to_rgb(rgb_to_yuv420(pixels, interleaved=kind), interleaved=kind) for kind in (True, False)]
    assert np.array_equal(*both)


@pytest.mark.parametrize("shape", [(1, 8, 4), (1, 6, 3), (1, 6, 4, 3), (1, "h", 4)])
def test_shapes_without_whole_blocks_are_refused(shape: tuple[int | str, ...]) -> None:
    with pytest.raises(ShapeError):
        HostYuv420ToRgb().infer(TensorType(DType.UINT8, shape))


def test_shapes() -> None:
    assert HostYuv420ToRgb().infer(TensorType(DType.UINT8, ("N", 6, 8)))[0].shape == ("N", 4, 8, 3)
