"""Head of the landmark networks of MediaPipe."""

import numpy as np
import pytest

from tpuconvert.outputs.head import DecodedImage, Points, find_head, recognize_head
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.types import Array

RULE = Preprocess(size=(224, 224))
IMAGE = DecodedImage(RULE, (112, 448))


def points_of(outputs: dict[str, Array]) -> Array:
    head = recognize_head(outputs, RULE)
    assert head.name == "mediapipe_landmarks"
    decoded = head.decode(outputs, IMAGE)
    assert isinstance(decoded, Points)
    return decoded.places


def table(count: int, width: int) -> Array:
    """Points (2 k, 3 k) with further values."""
    values = np.full((count, width), -1.0, np.float32)
    values[:, 0], values[:, 1] = 2 * np.arange(count), 3 * np.arange(count)
    return values


def in_image(count: int) -> Array:
    """The same points in an image of half the height and twice the width of the input."""
    return np.stack([4 * np.arange(count), 1.5 * np.arange(count)], axis=1)


@pytest.mark.parametrize("is_first", [True, False])
def test_points_of_a_hand_are_in_pixels_not_in_meters(is_first: bool) -> None:
    hand, one = table(21, 3).reshape(1, 63), np.ones((1, 1), np.float32)
    arrays = [hand, one, one, hand / 1000] if is_first else [hand / 1000, one, one, hand]
    np.testing.assert_allclose(points_of({f"y{k}": array for k, array in enumerate(arrays)}), in_image(21), atol=1e-4)


def test_points_of_a_pose_without_auxiliary_ones() -> None:
    arrays = [table(39, 5).reshape(1, 195), *(np.zeros((1, size)) for size in (1, 65536, 159744, 117))]
    np.testing.assert_allclose(points_of({f"y{k}": array for k, array in enumerate(arrays)}), in_image(33))


def test_points_of_an_eye_precede_those_in_its_iris() -> None:
    found = points_of({"iris": table(5, 3).reshape(1, 15), "eye": table(71, 3).reshape(1, 213)})
    np.testing.assert_allclose(found, np.concatenate([in_image(71), in_image(5)]))


def test_other_outputs_are_described() -> None:
    with pytest.raises(
        UsageError, match=r"expected the outputs of a landmark network of MediaPipe, found 'y' \[1, 64\]"
    ):
        find_head("mediapipe_landmarks").decode({"y": np.zeros((1, 64))}, IMAGE)
