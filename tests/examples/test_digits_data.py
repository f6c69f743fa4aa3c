"""The images of the example: their range, their number and their parts."""

import numpy as np
import prepare_data
import pytest
from digits_data import FOLDER, PARTS, load_part

# Images of each digit in the published test part, as the data set's own description counts them.
PUBLISHED_COUNTS = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_images_are_those_of_the_published_test_part():
    with np.load(FOLDER / "digits.npz") as archive:
        images, labels = archive["images"], archive["labels"]
    assert (images.shape, images.dtype, labels.dtype) == ((1797, 8, 8), np.uint8, np.uint8)
    assert images.max() == 16
    assert np.bincount(labels).tolist() == PUBLISHED_COUNTS
    assert images[0, 0].tolist() == [0, 0, 5, 13, 9, 1, 0, 0]  # the first line of optdigits.tes


def test_parts_do_not_overlap_and_leave_nothing_out():
    with np.load(FOLDER / "digits.npz") as archive:
        parts = [archive[name] for name in PARTS]
    assert [len(part) for part in parts] == [1197, 100, 500]
    assert sorted(np.concatenate(parts)) == list(range(1797))


def test_no_image_of_the_test_part_is_in_another_part():
    seen = {image.tobytes() for name in ("train", "calibration") for image in load_part(name).images}
    assert not seen & {image.tobytes() for image in load_part("test").images}


@pytest.mark.parametrize(("name", "of_each"), [("calibration", 10), ("test", 50)])
def test_every_digit_is_as_frequent(name, of_each):
    assert np.bincount(load_part(name).labels).tolist() == [of_each] * 10


def test_the_split_can_be_repeated():
    with np.load(FOLDER / "digits.npz") as archive:
        for name, part in prepare_data.split_indices(archive["labels"]).items():
            np.testing.assert_array_equal(part, archive[name], err_msg=name)


def test_images_are_scaled_to_one():
    images = load_part("calibration").images
    assert (images.shape, images.dtype) == ((100, 1, 8, 8), np.float32)
    assert (images.min(), images.max()) == (0, 1)


def test_an_unknown_part_is_named():
    with pytest.raises(ValueError, match="no part named 'validation'; there are train, calibration, test"):
        load_part("validation")


def test_the_archive_can_be_made_from_the_text(tmp_path):
    with np.load(FOLDER / "digits.npz") as archive:
        stored = dict(archive)
    lines = [
        ",".join(map(str, [*image.flat, label]))
        for image, label in zip(stored["images"], stored["labels"], strict=True)
    ]
    text = tmp_path / "optdigits.tes"
    text.write_text("\n".join(lines))
    prepare_data.main(str(text), tmp_path / "again.npz")
    with np.load(tmp_path / "again.npz") as again:
        assert sorted(again) == sorted(stored)
        for name, value in stored.items():
            np.testing.assert_array_equal(again[name], value, strict=True, err_msg=name)


def test_another_text_is_refused(tmp_path):
    text = tmp_path / "other.csv"
    text.write_text("1,2,3\n4,5,6\n")
    with pytest.raises(SystemExit, match="expected 1797 lines of 64 counts"):
        prepare_data.main(str(text), tmp_path / "again.npz")
    assert not (tmp_path / "again.npz").exists()
