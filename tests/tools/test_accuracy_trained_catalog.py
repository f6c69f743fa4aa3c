"""The catalog of trained models in public wheels: entries, samples and files, without a network."""

import dataclasses
import re
import zipfile
from hashlib import sha256
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest
from PIL import Image

from tests.support.each import each
from tools.accuracy.trained import pictures, wheels
from tools.accuracy.trained.byte_files import TYPES, content, first_and_last_bytes
from tools.accuracy.trained.catalog import (
    CATALOG,
    Calibration,
    Item,
    measured_names,
    read_catalog,
    read_items,
    read_packages,
)
from tools.accuracy.trained.crops import SIDE, Square, eyes, faces
from tools.accuracy.trained.metrics import metric_of
from tools.accuracy.trained.samples import SETS, WAKE_WORD_SETS, WINDOWS, load
from tools.accuracy.trained.sounds import melody, notes

ENTRIES = read_catalog()
DRAWS = range(3)
AT_LEAST = {"detector": 8, "segmentation": 4, "text": 4, "audio": 4, "landmarks": 4}


def sources(items: list[Item]) -> set[tuple[str, int]]:
    """Sources of the items: windows of one spoken clip are not independent."""
    return {
        ("clip", item.index // WINDOWS) if item.set in WAKE_WORD_SETS else (item.set.partition("_")[0], item.index)
        for item in items
    }


def test_names_and_checksums_are_unique() -> None:
    text = CATALOG.read_text(encoding="utf-8")
    assert re.findall(r"^  (\w+):$", text, re.MULTILINE) == list(ENTRIES)
    checksums = [entry.sha256 for entry in ENTRIES.values()]
    assert all(re.fullmatch(r"[0-9a-f]{64}", checksum) for checksum in checksums)
    assert len({*checksums}) == len({(entry.package, entry.path) for entry in ENTRIES.values()}) == len(ENTRIES)


def test_packages_have_a_version_and_a_license() -> None:
    packages = read_packages()
    assert {entry.package for entry in ENTRIES.values()} == set(packages)
    assert all(re.fullmatch(r"[a-z0-9-]+==[\d.]+", package) and license for package, license in packages.items())


def test_there_are_enough_models_of_each_task() -> None:
    tasks = [ENTRIES[name].task for name in measured_names()]
    assert len(tasks) >= 25
    assert all(tasks.count(task) >= count for task, count in AT_LEAST.items())


@pytest.mark.parametrize("name", measured_names())
def test_entry_is_complete(name: str) -> None:
    entry = ENTRIES[name]
    assert metric_of(name).title
    assert entry.format in ("onnx", "tflite")
    assert set(entry.constants) <= set(entry.shapes)
    assert {item.set for item in read_items([*entry.calibration.of, *entry.evaluation])} <= SETS


@pytest.mark.parametrize("draw", DRAWS)
@each("name", measured_names())
def test_calibration_and_evaluation_do_not_overlap(name: str, draw: int) -> None:
    entry = ENTRIES[name]
    drawn = entry.calibration.draw(draw)
    assert len({*drawn}) == len(drawn) == entry.calibration.take
    assert not sources(drawn) & sources(read_items(entry.evaluation))


@pytest.mark.parametrize(("made", "period", "first"), [("captcha", 2, 0), ("page", 4, 0), ("turned", 4, 9000)])
def test_photos_behind_text_do_not_overlap(made: str, period: int, first: int) -> None:
    """The last picture of each period has a photo with its index, modulo 128, behind it."""
    for entry in ENTRIES.values():
        parts = [
            [first + item.index for item in read_items(items) if item.set == made]
            for items in (entry.calibration.of, entry.evaluation)
        ]
        photos = [{index % 128 for index in part if index % period == period - 1} for part in parts]
        assert not photos[0] & photos[1]


def test_photos_of_the_catalog_exist(data_root: Path) -> None:
    for entry in ENTRIES.values():
        for item in read_items([*entry.calibration.of, *entry.evaluation]):
            folder = item.set.partition("_")[0]
            assert folder not in pictures.FOLDERS or item.index < len(pictures.photos(folder)), entry.name


def test_draws_take_items_of_the_pool() -> None:
    pool = Calibration(3, ("line 0:10:2", "page 7:9"))
    every = [Item("line", index) for index in (0, 2, 4, 6, 8)] + [Item("page", 7), Item("page", 8)]
    assert read_items(pool.of) == every
    assert pool.draw(0) == every[:3]
    assert pool.draw(1) == pool.draw(1) != pool.draw(2)
    assert all(item in every for item in pool.draw(1))


def test_sounds_and_files_depend_on_the_index_only() -> None:
    for make in (melody, notes):
        first, second = make(3, 4000), make(4, 4000)
        assert first.dtype == np.float32 and first.shape == (4000,) and np.abs(first).max() <= 1
        assert np.array_equal(first, make(3, 4000)) and not np.array_equal(first, second)


def test_files_have_the_beginning_of_their_type(data_root: Path) -> None:
    begins = {
        1: b"{",
        2: b"<!DOCTYPE",
        12: b"\x1f\x8b",
        15: b"PK",
        17: b"SQLite",
        18: b"RIFF",
        21: b"\x89PNG",
        23: b"\xff\xd8",
    }
    assert all(content(index).startswith(start) for index, start in begins.items())
    assert len(TYPES) == 24


def test_first_and_last_bytes_are_without_white_space() -> None:
    values = first_and_last_bytes(b"  abc \n")
    assert values.shape == (2048,)
    assert values[:5].tolist() == [97, 98, 99, 32, 10]  # only the white space before is removed
    assert values[-6:].tolist() == [256, 32, 32, 97, 98, 99]
    assert values[5:-5].tolist() == [256] * 2038


def test_constants_fill_the_other_inputs() -> None:
    (feed,) = load(ENTRIES["swift_f0"], [Item("melody", 0)], lambda name, x: {})
    assert {name: array.shape for name, array in feed.items()} == {"audio": (1, 32000), "fmin": (), "fmax": ()}
    assert feed["fmax"] == np.float32(2093.75)


def test_square_is_cut_out_upright() -> None:
    """The x axis of the square points down: the white lower half of the picture becomes the right half."""
    pixels = np.zeros((400, 400, 3), np.uint8)
    pixels[200:] = 255
    cut = np.asarray(Square(200, 200, 200, np.pi / 2).cut(Image.fromarray(pixels)))
    assert cut.shape == (SIDE, SIDE, 3)
    assert (cut[:, : SIDE // 2 - 2] == 0).all() and (cut[:, SIDE // 2 + 2 :] == 255).all()


def test_faces_are_squares_in_the_photo() -> None:
    """A photo of 384 x 192 is halved, with borders of 48 above and below. The cell at row 20, column 10 has a face."""
    boxes, logits = np.zeros((1, 48 * 48, 16), np.float32), np.full((1, 48 * 48, 1), -9, np.float32)
    cell = 20 * 48 + 10  # its center is (42, 82)
    boxes[0, cell, 2:4] = 20, 30
    boxes[0, cell, 4:8] = -5, 0, 5, 10  # the eyes, relative to the center
    logits[0, cell] = 5
    outputs = {"reshaped_regressor_face_4": boxes, "reshaped_classifier_face_4": logits}
    (face,) = faces(Image.new("RGB", (384, 192)), lambda name, x: outputs)
    assert (face.x, face.y, face.side) == pytest.approx((84, 68, 1.5 * 60))
    assert face.angle == pytest.approx(np.pi / 4)
    (eye,) = eyes(Image.new("RGB", (384, 192)), lambda name, x: outputs)
    assert (eye.x, eye.y, eye.side) == pytest.approx((94, 88, 0.9 * 20 * np.sqrt(2)))


def test_file_is_extracted_if_its_checksum_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = ENTRIES["swift_f0"]
    with zipfile.ZipFile(tmp_path / "swift_f0-0.3.0-py3-none-any.whl", "w") as archive:
        archive.writestr(entry.path, b"not the model")
    with pytest.raises(wheels.UnavailableModelError, match=f"has the checksum .*, expected {entry.sha256}"):
        wheels.fetch(entry, tmp_path)
    assert not list(tmp_path.glob("*.onnx"))
    right = dataclasses.replace(entry, sha256=sha256(b"not the model").hexdigest())
    assert wheels.fetch(right, tmp_path).read_bytes() == b"not the model"
    assert [path.name for path in tmp_path.glob("*.onnx")] == ["swift_f0.onnx"]


def test_reason_of_a_failed_download_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels.subprocess, "run", lambda *_, **__: CompletedProcess([], 1, "", "ERROR: no network\n"))
    with pytest.raises(wheels.UnavailableModelError, match=r"swift-f0==0.3.0 cannot be downloaded: ERROR: no network"):
        wheels.fetch(ENTRIES["swift_f0"], tmp_path)
