"""The separate file of calibration images equals the images in the archive."""

import numpy as np
import prepare_data
from digits_data import FOLDER


def test_calibration_file_is_the_part_of_the_archive() -> None:
    with np.load(FOLDER / "digits.npz") as archive, np.load(FOLDER / "calibration.npz") as alone:
        assert alone.files == ["images"]
        assert np.array_equal(alone["images"], archive["images"][archive["calibration"]])


def test_preparation_makes_both_files(tmp_path) -> None:
    with np.load(FOLDER / "digits.npz") as archive:
        rows = np.concatenate([archive["images"].reshape(-1, 64), archive["labels"][:, None]], axis=1)
    np.savetxt(tmp_path / "digits.tes", rows, fmt="%d", delimiter=",")
    prepare_data.main(str(tmp_path / "digits.tes"), tmp_path / "digits.npz")
    with np.load(tmp_path / "calibration.npz") as again, np.load(FOLDER / "calibration.npz") as alone:
        assert np.array_equal(again["images"], alone["images"])
