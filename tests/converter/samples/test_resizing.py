"""Resizing and letterbox: the pixels of Pillow and OpenCV, and the mapping of boxes back to the image."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tpuconvert.outputs.class_maps import class_map
from tpuconvert.outputs.head import DecodedImage
from tpuconvert.samples.preprocess import FITS, PILLOW_FILTERS, Preprocess, resize_pixels
from tpuconvert.schema.arithmetic.opencv_resizing import RESIZERS
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.types import Array

Size = tuple[int, int]

SMOOTH = 16
"""Side of the blocks of random images: noise of single pixels would hide errors of the position."""


def random_case(seed: int) -> tuple[Array, Size]:
    """Return a random image and size: smaller, larger, mixed, and divisors of the sides."""
    draw = np.random.default_rng(seed)
    height, width = (int(value) for value in draw.integers(1, 300, 2))
    size = tuple(int(value) for value in draw.integers(1, 300, 2))
    if seed % 5 == 1:
        size = (max(1, height // 2), max(1, width // 2))
        height, width = 2 * size[0], 2 * size[1]
    elif seed % 5 == 2:
        factors = draw.integers(1, 5, 2)
        height, width = int(size[0] * factors[0]), int(size[1] * factors[1])
    elif seed % 5 == 3:
        height, width = size[0] + height, size[1] + width
    channels = (1, 3)[seed % 2]
    if seed % 4 < 2:
        return draw.integers(0, 256, (height, width, channels), dtype=np.uint8), size
    coarse = draw.integers(0, 256, (height // SMOOTH + 1, width // SMOOTH + 1, channels), dtype=np.uint8)
    return coarse.repeat(SMOOTH, 0).repeat(SMOOTH, 1)[:height, :width], size


def check_opencv(method: str, count: int) -> None:
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
    flag = {
        "opencv-nearest": cv2.INTER_NEAREST,
        "opencv-linear": cv2.INTER_LINEAR,
        "opencv-area": cv2.INTER_AREA,
        "opencv-cubic": cv2.INTER_CUBIC,
        "opencv-lanczos4": cv2.INTER_LANCZOS4,
    }
    used = cv2.ipp.useIPP()
    cv2.ipp.setUseIPP(used and method != "opencv-cubic")  # IPP rounds some pixels in another way, see docs
    try:
        for seed in range(count):
            image, size = random_case(seed)
            wanted = cv2.resize(image, size[::-1], interpolation=flag[method]).reshape(*size, -1)
            assert np.array_equal(resize_pixels(image, size, method), wanted), (seed, image.shape, size)
    finally:
        cv2.ipp.setUseIPP(used)


def test_cubic_pixels_of_opencv_with_ipp_differ_by_one_step() -> None:
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
    for seed in range(60):
        image, size = random_case(seed)
        wanted = cv2.resize(image, size[::-1], interpolation=cv2.INTER_CUBIC).reshape(*size, -1)
        found = resize_pixels(image, size, "opencv-cubic")
        assert np.abs(found.astype(np.int16) - wanted).max() <= 1, (seed, image.shape, size)


def check_pillow(method: str, count: int) -> None:
    image_module = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    method_of_pillow = getattr(image_module.Resampling, PILLOW_FILTERS[method])
    for seed in range(count):
        image, size = random_case(seed)
        color = "RGB" if image.shape[2] == 3 else "GRAY"
        source = image_module.fromarray(image if color == "RGB" else image[..., 0])
        wanted = np.asarray(source.resize(size[::-1], method_of_pillow)).reshape(*size, -1)
        rule = Preprocess(size=size, color=color, layout="NHWC", resize=method)
        assert np.array_equal(rule.apply(image[np.newaxis])[0], wanted), (seed, image.shape, size)


@pytest.mark.parametrize("method", sorted(RESIZERS))
def test_opencv_pixels(method: str) -> None:
    check_opencv(method, 60)


@pytest.mark.parametrize("method", sorted(PILLOW_FILTERS))
def test_pillow_pixels(method: str) -> None:
    check_pillow(method, 60)


@pytest.mark.slow
@pytest.mark.parametrize("method", sorted(RESIZERS))
def test_opencv_pixels_of_many_images(method: str) -> None:
    check_opencv(method, 1000)


@pytest.mark.slow
@pytest.mark.parametrize("method", sorted(PILLOW_FILTERS))
def test_pillow_pixels_of_many_images(method: str) -> None:
    check_pillow(method, 1000)


def ultralytics_letterbox(cv2: Any, image: Array, size: Size) -> Array:
    """Letterbox as the preprocessing of YOLOv5 and YOLOv8 computes it, with OpenCV."""
    ratio = min(size[0] / image.shape[0], size[1] / image.shape[1])
    inner = round(image.shape[1] * ratio), round(image.shape[0] * ratio)
    half = (size[1] - inner[0]) / 2, (size[0] - inner[1]) / 2
    if image.shape[1::-1] != inner:
        image = cv2.resize(image, inner, interpolation=cv2.INTER_LINEAR)
    top, bottom = round(half[1] - 0.1), round(half[1] + 0.1)
    left, right = round(half[0] - 0.1), round(half[0] + 0.1)
    framed: Array = cv2.copyMakeBorder(image, top, bottom, left, right, cv2.BORDER_CONSTANT, value=(114, 114, 114))
    return framed


def test_letterbox_of_yolo() -> None:
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
    draw = np.random.default_rng(7)
    for height, width, size in ((375, 500, (64, 64)), (500, 333, (96, 160)), (31, 17, (64, 64)), (64, 64, (64, 64))):
        image = draw.integers(0, 256, (height, width, 3), dtype=np.uint8)
        rule = Preprocess(size=size, fit="letterbox", layout="NHWC", resize="opencv-linear")
        assert np.array_equal(rule.apply(image)[0], ultralytics_letterbox(cv2, image, size))


def test_border_and_corner_of_a_letterbox() -> None:
    image = np.full((1, 10, 20, 3), 255, np.uint8)
    centered = Preprocess(size=(20, 20), fit="letterbox", pad=7).apply(image)[0, 0]
    assert centered[:5].max() == centered[15:].max() == 7
    assert centered[5:15].min() == 255
    at_corner = Preprocess(size=(20, 20), fit="letterbox-top-left").apply(image)[0, 0]
    assert at_corner[:10].min() == 255
    assert (at_corner[10:] == 114).all()


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("shape", [(40, 90), (90, 40), (33, 33)])
def test_boxes_are_mapped_back_to_the_image(fit: str, shape: Size) -> None:
    """A bright square of the image is found at the same place after the mapping of its corners in the model's input."""
    image = np.zeros((*shape, 3), np.uint8)
    top, left, side = shape[0] // 2 - 4, shape[1] // 2 - 6, 12
    image[top : top + side, left : left + side] = 255
    rule = Preprocess(size=(160, 240), fit=fit, resize="opencv-nearest", pad=0)
    rows, columns = np.nonzero(rule.apply(image)[0, 0])
    found = np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1], np.float64)
    assert np.allclose(DecodedImage(rule, shape).from_input(found), [left, top, left + side, top + side], atol=0.5)


def test_class_map_of_a_letterbox_covers_the_image() -> None:
    """The border of the model's input is not part of the map: the classes of the image's halves are found."""
    rule = Preprocess(size=(8, 8), fit="letterbox")
    classes = np.full((1, 8, 8), 9)
    classes[0, 2:4], classes[0, 4:6] = 1, 2  # an image of 20 x 40 occupies the rows 2 to 5
    found = class_map(classes, "classes", rule, (20, 40))
    assert (found[:10] == 1).all()
    assert (found[10:] == 2).all()


def test_older_files_keep_their_text() -> None:
    assert "resize" not in Preprocess().to_dict()
    assert "pad" not in str(Preprocess())
    rule = Preprocess(fit="letterbox", resize="opencv-area", pad=0)
    assert str(rule).endswith("resize=opencv-area,pad=0")
    assert Preprocess.parse(str(rule)) == Preprocess.from_mapping(rule.to_dict()) == rule


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("resize=bilinear", "resize is 'bilinear'"),
        ("pad=1,2", "pad has 2 values"),
        ("pad=256", "pad is 256"),
        ("pad=0.5", "pad is 0.5"),
        ("pad=nan", "pad is nan"),
        ("fit=contain", "fit is 'contain'"),
    ],
)
def test_invalid_values_are_named(text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        Preprocess.parse(text)
