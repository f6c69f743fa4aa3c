"""host_fit_image: hand-worked pixels, and every method against OpenCV."""

import numpy as np
import pytest

from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.ops.host.fit_image import METHODS, HostFitImage
from tpuconvert.schema.types import DType, TensorType


def test_hand_worked_pixels() -> None:
    """A row of two pixels is doubled by the nearest pixel, in the middle of a background of 9."""
    x = np.array([[[[1], [2]]]], np.uint8)
    nearest = METHODS.index("opencv-nearest")
    op = HostFitImage(size=(3, 5), inner=(2, 4), box=(0, 0, 1, 2), corner=(1, 1), pad=9, method=nearest)
    assert op.reference(x)[0][0, :, :, 0].tolist() == [[9, 9, 9, 9, 9], [9, 1, 1, 2, 2], [9, 1, 1, 2, 2]]


def test_a_part_of_the_same_size_is_copied() -> None:
    x = np.arange(48, dtype=np.uint8).reshape(2, 4, 6, 1)
    found = HostFitImage(size=(2, 3), inner=(2, 3), box=(1, 2, 2, 3)).reference(x)[0]
    assert np.array_equal(found, x[:, 1:3, 2:5])


@pytest.mark.parametrize("method", METHODS)
def test_pixels_of_opencv(method: str) -> None:
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
    flags = {"area": "AREA", "cubic": "CUBIC", "lanczos4": "LANCZOS4", "linear": "LINEAR", "nearest": "NEAREST"}
    used = cv2.ipp.useIPP()
    cv2.ipp.setUseIPP(False)  # IPP rounds cubic pixels in another way
    try:
        for seed in range(20):
            draw = np.random.default_rng(seed)
            image = draw.integers(0, 256, (1, *draw.integers(20, 90, 2), 3), np.uint8)
            box = (3, 5, int(draw.integers(1, 17)), int(draw.integers(1, 15)))
            inner = tuple(int(value) for value in draw.integers(1, 40, 2))
            op = HostFitImage(size=(64, 50), inner=inner, box=box, corner=(7, 9), pad=114, method=METHODS.index(method))
            wanted = np.full((64, 50, 3), 114, np.uint8)
            part = np.ascontiguousarray(image[0, 3 : 3 + box[2], 5 : 5 + box[3]])
            flag = getattr(cv2, f"INTER_{flags[method.removeprefix('opencv-')]}")
            wanted[7 : 7 + inner[0], 9 : 9 + inner[1]] = cv2.resize(part, inner[::-1], interpolation=flag)
            assert np.array_equal(op.reference(image)[0][0], wanted), seed
    finally:
        cv2.ipp.setUseIPP(used)


@pytest.mark.parametrize(
    "changes",
    [{"pad": 256}, {"method": 5}, {"inner": (0, 3)}, {"corner": (1, 0)}, {"box": (-1, 0, 2, 2)}],
)
def test_wrong_attributes_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="host_fit_image"):
        HostFitImage(**{"size": (2, 3), "inner": (2, 3), "box": (0, 0, 2, 3), **changes})  # type: ignore[arg-type]


def test_shapes() -> None:
    op = HostFitImage(size=(4, 5), inner=(2, 3), box=(0, 0, 6, 8))
    assert op.infer(TensorType(DType.UINT8, ("N", 6, 8, 3)))[0].shape == ("N", 4, 5, 3)
    for shape in ((1, 5, 8, 3), (1, 6, "W", 3)):
        with pytest.raises(ShapeError):
            op.infer(TensorType(DType.UINT8, shape))
