"""Drawn results of planted networks: boxes, labels, points, masks and captions at known pixels."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import tpuconvert as tc
from tests.support.networks.planted_images import GRAY, classifier, detector, gray, planted
from tpuconvert.outputs.picture import GROUND, TRACK, class_color, text_color
from tpuconvert.schema.types import Array

BOX = (0.25, 0.5, 0.75, 0.9)


def drawn(model: tc.Model, image: Image.Image, **options: object) -> Array:
    """Pixels of the picture, [height, width, 3]."""
    with tc.Session(model) as session:
        return np.asarray(session.draw(image, **options).picture)  # type: ignore[arg-type]


def color_at(pixels: Array, x: float, y: float) -> tuple[int, ...]:
    return tuple(pixels[round(y), round(x)].tolist())


@pytest.mark.parametrize("scale", [1, 3])
def test_frame_is_on_the_edges_of_the_box(scale: int) -> None:
    """The line is 2 pixels wide up to a longer side of 800, and is inside the box."""
    width, height = 400 * scale, 400 * scale
    pixels = drawn(detector((1, 0.9, BOX)), gray(width, height), labels=["a", "b"])
    assert pixels.shape == (height, width, 3)
    line, color = max(2, round(width / 320)), class_color(1)
    left, top, right, bottom = 0.25 * width, 0.5 * height, 0.75 * width, 0.9 * height
    middle = (left + right) / 2, (top + bottom) / 2
    for x, y in ((left, middle[1]), (right - 1, middle[1]), (middle[0], bottom - 1), (middle[0], top)):
        assert color_at(pixels, x, y) == color
    for x, y in ((left - 1, middle[1]), (right, middle[1]), (middle[0], bottom), (left + line, middle[1]), middle):
        assert color_at(pixels, x, y) == GRAY


def test_box_in_a_cropped_image_is_in_pixels_of_the_whole_image() -> None:
    """``fit=crop`` takes the center square of 7/8 of the shorter side: 350 of 400, from x = 125 and y = 25."""
    model = detector((0, 0.9, (0, 0.5, 0.5, 1)), preprocess="color=RGB,fit=crop")
    with tc.Session(model) as session:
        drawing = session.draw(gray(600, 400), labels=["a"])
    assert drawing.found.objects[0].box == pytest.approx((125, 200, 300, 375))
    pixels = np.asarray(drawing.picture)
    assert color_at(pixels, 125, 300) == class_color(0)
    assert color_at(pixels, 299, 300) == class_color(0)
    assert color_at(pixels, 124, 300) == GRAY


def test_label_is_above_its_box_on_the_color_of_the_class() -> None:
    pixels = drawn(detector((2, 0.9, BOX)), gray(400, 400), labels=["a", "b", "c"])
    above = pixels[200 - 12 : 199, 100:140].reshape(-1, 3)
    colors, counts = np.unique(above, axis=0, return_counts=True)
    assert tuple(colors[counts.argmax()].tolist()) == class_color(2)
    assert (above == text_color(class_color(2))).all(axis=1).any()  # letters


def test_label_at_the_upper_border_is_inside_the_picture() -> None:
    pixels = drawn(detector((0, 0.9, (0, 0, 0.9, 0.9))), gray(400, 400), labels=["a"])
    assert pixels.shape == (400, 400, 3)
    assert color_at(pixels, 2, 10) == class_color(0)


def test_labels_do_not_hide_each_other() -> None:
    """Two boxes almost at one place: the second label is at another place, or left out."""
    rows = ((0, 0.9, (0.3, 0.5, 0.4, 0.6)), (1, 0.8, (0.32, 0.5, 0.42, 0.6)))
    both = drawn(detector(*rows), gray(400, 400), labels=["first", "second"])
    alone = drawn(detector(rows[0]), gray(400, 400), labels=["first", "second"])
    label = (slice(200 - 15, 200), slice(120, 170))
    assert np.array_equal(both[label], alone[label])


def test_box_beyond_the_image_is_cut() -> None:
    pixels = drawn(detector((0, 0.9, (-0.5, 0.25, 1.5, 0.75))), gray(400, 400), labels=["a"])
    assert color_at(pixels, 0, 200) == class_color(0)
    assert color_at(pixels, 399, 200) == class_color(0)


def test_empty_detections_keep_the_image_and_say_so() -> None:
    with tc.Session(detector()) as session:
        drawing = session.draw(gray(400, 300))
    assert str(drawing) == "nothing found"
    pixels = np.asarray(drawing.picture)
    assert (pixels[:300] == GRAY).all()
    assert color_at(pixels, 399, 301) == GROUND
    assert (pixels[300:] > 200).any()  # letters of the legend


def test_small_image_is_enlarged_by_a_whole_factor() -> None:
    pixels = drawn(detector((0, 0.9, BOX)), gray(32, 32), labels=["a"])
    assert pixels.shape == (320, 320, 3)
    assert color_at(pixels, 80, 220) == class_color(0)
    assert color_at(pixels, 79, 220) == GRAY


def yunet(score: float = 0.81) -> tc.Model:
    """A face in the cell of row 0, column 1 of stride 32 (the only row), with five landmarks."""
    outputs: dict[str, Array] = {}
    for stride in (8, 16, 32):
        count = (40 // stride) * (80 // stride)
        for kind, extent in (("cls", 1), ("obj", 1), ("bbox", 4), ("kps", 10)):
            outputs[f"{kind}_{stride}"] = np.zeros((1, count, extent), np.float32)
    outputs["cls_32"][0, 1] = outputs["obj_32"][0, 1] = score
    outputs["kps_32"][0, 1] = np.array([[0, 0], [0.5, 0], [0.25, 0.25], [0, 0.5], [0.5, 0.5]]).ravel()
    return planted(outputs, "color=BGR")


def test_landmarks_of_faces() -> None:
    with tc.Session(yunet()) as session:
        drawing = session.draw(gray(400, 200))
    (face,) = drawing.found.objects
    assert drawing.found.head == "yunet"
    assert (face.label, round(face.score, 3)) == ("face", 0.81)
    assert face.box == pytest.approx((80, -80, 240, 80))  # center (32, 0), 32 x 32, in an image 5 times as large
    assert np.array(face.points) == pytest.approx(np.array([[32, 0], [48, 0], [40, 8], [32, 16], [48, 16]]) * 5)
    pixels = np.asarray(drawing.picture)
    colors = [color_at(pixels, x, y) for x, y in face.points[2:]]
    assert colors == [class_color(2), class_color(3), class_color(4)]


@pytest.mark.parametrize(("head", "width"), [("points3d", 3), ("points2d", 2)])
def test_keypoints(head: str, width: int) -> None:
    points = np.zeros((6, width), np.float32)
    points[:, 0], points[:, 1] = [10, 20, 30, 40, 50, 60], [5, 10, 15, 20, 25, 30]
    outputs = {"points": points.reshape(1, 1, 1, -1), "presence": np.ones((1, 1, 1, 1), np.float32)}
    with tc.Session(planted(outputs)) as session:
        drawing = session.draw(gray(400, 200), decode=None if width == 3 else head)
    assert drawing.found.head == head
    assert np.array(drawing.found.points) == pytest.approx(points[:, :2] * 5)
    assert color_at(np.asarray(drawing.picture), 100, 50) == class_color(0)


def segments() -> tc.Model:
    """Class 0 on the left, class 1 in the upper right and class 2 in the lower right quarter."""
    scores = np.zeros((1, 3, 40, 80), np.float32)
    scores[0, 0, :, :40] = scores[0, 1, :20, 40:] = scores[0, 2, 20:, 40:] = 1
    return planted({"y": scores})


def test_mask_has_the_colors_of_the_classes_and_a_legend() -> None:
    with tc.Session(segments()) as session:
        drawing = session.draw(gray(400, 200), labels=["background", "sky", "road"])
    assert [(item.label, item.share) for item in drawing.found.segments] == [
        ("background", 0.5),
        ("sky", 0.25),
        ("road", 0.25),
    ]
    pixels = np.asarray(drawing.picture)
    assert color_at(pixels, 100, 100) == GRAY
    for index, y in ((1, 50), (2, 150)):
        wanted = 0.45 * np.array(GRAY) + 0.55 * np.array(class_color(index))
        assert np.abs(pixels[y, 300] - wanted).max() <= 1  # rounding
    legend = pixels[200:].reshape(-1, 3)
    assert all((legend == class_color(index)).all(axis=1).any() for index in (1, 2))
    assert not (legend == class_color(0)).all(axis=1).any()


def test_class_0_is_colored_if_its_label_is_no_background() -> None:
    pixels = drawn(segments(), gray(400, 200), labels=["water", "sky", "road"])
    assert color_at(pixels, 100, 100) != GRAY


def test_caption_of_a_classifier() -> None:
    image = gray(400, 200)
    with tc.Session(classifier(0.1, 0.7, 0.2)) as session:
        drawing = session.draw(image, labels=["cat", "dog", "bird"])
        assert session.draw(image).found.classes[0].label == "class 1"
    assert str(drawing).splitlines() == ["   70.0%  dog", "   20.0%  bird", "   10.0%  cat"]
    pixels = np.asarray(drawing.picture)
    assert np.array_equal(pixels[:200], np.asarray(image))
    bars = [int((row == TRACK).all(axis=1).sum()) for row in pixels[200:]]
    assert max(bars) == pytest.approx(0.7 * 394, abs=2)


def test_scores_that_are_no_probabilities_are_numbers() -> None:
    with tc.Session(classifier(-3.5, 12.25)) as session:
        assert str(session.draw(gray(400, 200))).splitlines() == ["   12.25  class 1", "    -3.5  class 0"]


def test_colors_of_classes_are_distinct_and_text_is_legible() -> None:
    """Contrast of text and ground is at least 4.5, the limit of WCAG for normal text."""
    colors = [class_color(index) for index in range(80)]
    assert len(set(colors)) == 80

    def luminance(color: tuple[int, int, int]) -> float:
        parts = np.array(color) / 255
        return float(
            np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]
        )

    for color in colors:
        light, dark = sorted((luminance(color), luminance(text_color(color))), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_pictures_are_deterministic(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        with tc.Session(segments()) as session:
            session.draw(gray(400, 200)).save(tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


@pytest.mark.parametrize("image", ["text.png", 3, np.zeros((4, 4, 4), np.uint8), np.zeros((4, 4, 3), np.float32)])
def test_what_is_no_image_is_refused(image: object) -> None:
    with tc.Session(detector()) as session, pytest.raises(tc.UsageError, match=r"not one image|no such file"):
        session.draw(image)


def test_missing_pillow_is_an_error_with_the_command(tmp_path: Path) -> None:
    detector().save(tmp_path / "net.tpum")
    program = (
        "import sys; sys.modules['PIL'] = None; import numpy as np, tpuconvert as tc\n"
        "try:\n    tc.Session('net.tpum').draw(np.zeros((40, 80, 3), np.uint8))\n"
        "except tc.MissingExtraError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["drawing results needs Pillow", "    pip install 'tpuconvert[images]'"]
