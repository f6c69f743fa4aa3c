"""Calibration feeds from folders, files and iterables."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tpuconvert.samples.calibration_data import load_feeds
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.errors import CorruptInputError, UsageError
from tpuconvert.schema.graph.graph import Port
from tpuconvert.schema.types import DType, QuantParams

X = Port("x", "float32", (1, 3, 4, 5))
RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float32)


def test_array_is_cut_into_batches() -> None:
    data = floats(6, 3, 4, 5)
    feeds = list(load_feeds(data, [Port("x", "float32", (2, 3, 4, 5))]))
    assert len(feeds) == 3
    assert all(np.array_equal(feed["x"], data[2 * i : 2 * i + 2]) for i, feed in enumerate(feeds))


def test_last_batch_that_is_not_full_is_said_to_be_left_out() -> None:
    feeds = load_feeds(floats(5, 3, 4, 5), [Port("x", "float32", (2, 3, 4, 5))])
    assert (len(feeds), feeds.samples) == (2, 4)
    assert "1 sample left out" in feeds.description


@pytest.mark.parametrize(
    ("shape", "count"), [((3, 4, 5), 1), ((1, 3, 4, 5), 1), ((7, 3, 4, 5), 7), ((7, 1, 3, 4, 5), 7)]
)
def test_single_samples_batches_and_stacks(shape: tuple[int, ...], count: int) -> None:
    data = floats(*shape)
    feeds = list(load_feeds(data, [X]))
    assert [feed["x"].shape for feed in feeds] == [(1, 3, 4, 5)] * count
    assert np.array_equal(np.concatenate([feed["x"] for feed in feeds]).ravel(), data.ravel())


def test_free_batch_takes_one_sample_at_a_time() -> None:
    feeds = list(load_feeds(floats(3, 7), [Port("x", "float32", ("N", 7))]))
    assert [feed["x"].shape for feed in feeds] == [(1, 7)] * 3


def test_iterables_of_arrays_and_mappings() -> None:
    data = [floats(1, 3, 4, 5) for _ in range(3)]

    def generate() -> Iterator[Any]:
        yield from data

    for source in (data, generate(), [{"x": item} for item in data]):
        feeds = load_feeds(source, [X])
        for _ in range(2):  # calibration may iterate over the feeds several times
            assert [np.array_equal(feed["x"], item) for feed, item in zip(feeds, data, strict=True)] == [True] * 3


def test_several_inputs_by_name(tmp_path: Path) -> None:
    ports = [Port("a", "float32", (1, 2)), Port("b", "int64", (1,))]
    a, b = floats(4, 2), np.arange(4)
    np.savez(tmp_path / "data.npz", b=b, a=a, extra=np.zeros(3))
    feeds = load_feeds(tmp_path / "data.npz", ports)
    assert "array 'extra' left out" in feeds.description
    assert [list(feed) for feed in feeds] == [["a", "b"]] * 4
    assert [int(feed["b"][0]) for feed in feeds] == [0, 1, 2, 3]


def test_rank_zero_input() -> None:
    [feed] = load_feeds({"x": np.float32(3)}, [Port("x", "float32", ())])
    assert feed["x"].shape == ()


def test_npz_with_one_fitting_array(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", images=floats(4, 3, 4, 5), labels=np.arange(4))
    feeds = load_feeds(tmp_path / "data.npz", [X])
    assert len(feeds) == 4
    assert "array 'labels' left out" in feeds.description


def test_npy(tmp_path: Path) -> None:
    data = floats(4, 3, 4, 5)
    np.save(tmp_path / "data.npy", data)
    assert np.array_equal(np.concatenate([feed["x"] for feed in load_feeds(tmp_path / "data.npy", [X])]), data)


def test_images_in_arrays_are_preprocessed() -> None:
    images = RNG.integers(0, 256, (3, 4, 5, 3), dtype=np.uint8)
    feeds = list(load_feeds(images, [X], Preprocess(mean=(128.0,), scale=(0.5,))))
    wanted = (images.astype(np.float32).transpose(0, 3, 1, 2) - 128) * 0.5
    assert np.array_equal(np.concatenate([feed["x"] for feed in feeds]), wanted)


def test_one_image_in_an_array() -> None:
    image = RNG.integers(0, 256, (4, 5, 3), dtype=np.uint8)
    [feed] = load_feeds(image, [X], Preprocess())
    assert np.array_equal(feed["x"][0], image.transpose(2, 0, 1))


def test_preprocessed_images_are_quantized_for_an_integer_input() -> None:
    port = Port("x", "int8", (1, 1, 2, 1), QuantParams.per_tensor(0.5, 3, DType.INT8))
    images = np.array([[[0, 200]]], dtype=np.uint8)
    [feed] = load_feeds(images, [port], Preprocess(color="GRAY", layout="NHWC", scale=(0.1,)))
    assert feed["x"].dtype == np.int8
    assert feed["x"].ravel().tolist() == [3, 43]  # 0 / 0.5 + 3, 20 / 0.5 + 3


def test_image_file_is_preprocessed_once_for_a_uint8_input(tmp_path: Path) -> None:
    """The quantized pixels look like an image again, and ``fit=crop`` would enlarge it twice."""
    port = Port("x", "uint8", (1, 16, 16, 3), QuantParams.per_tensor(1.0, 0, DType.UINT8))
    rule = Preprocess(fit="crop", layout="NHWC", mean=(1.0,))
    image = RNG.integers(1, 256, (16, 16, 3), dtype=np.uint8)
    Image.fromarray(image).save(tmp_path / "a.png")
    [feed] = load_feeds(tmp_path / "a.png", [port], rule)
    cropped = Image.fromarray(image).crop((1, 1, 15, 15)).resize((16, 16), Image.Resampling.BILINEAR)
    assert np.array_equal(feed["x"][0], np.maximum(np.asarray(cropped).astype(np.int64) - 1, 0))


def test_folder_of_images(tmp_path: Path) -> None:
    for name, level in (("b.png", 20), ("a.png", 10), ("c.JPG", 30)):
        Image.new("RGB", (8, 8), (level, level, level)).save(tmp_path / name)
    (tmp_path / "labels.json").write_text("{}")
    feeds = load_feeds(tmp_path, [X], Preprocess())
    assert [round(float(feed["x"].mean())) for feed in feeds] == [10, 20, 30]  # sorted by name
    assert feeds.description == f"3 images of {tmp_path.name} (1 other file left out)"


def test_one_image(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8), (1, 2, 3)).save(tmp_path / "a.png")
    [feed] = load_feeds(str(tmp_path / "a.png"), [X], Preprocess())
    assert feed["x"][0, :, 0, 0].tolist() == [1, 2, 3]


TWO = [Port("a", "float32", (1, 2)), Port("b", "float32", (1, 2))]


@pytest.mark.parametrize(
    ("source", "ports", "complaint"),
    [
        ("absent", [X], "absent: no such file or folder"),
        ([], [X], "no samples"),
        (5, [X], "cannot read samples from int"),
        (np.zeros((1, 4, 5, 3), np.float32), [X], "does not fit input 'x' float32[1, 3, 4, 5]"),
        (np.zeros((1, 2), np.float32), TWO, "the model has 2 inputs"),
        ({"a": np.zeros((1, 2))}, TWO, "no array for 'b'"),
        ([{"a": np.zeros((1, 2))}], TWO, "no array for 'b' float32[1, 2]"),
        ({"a": np.zeros((1, 2)), "b": np.zeros((2, 2))}, TWO, "different numbers of batches ('a': 1, 'b': 2)"),
        (np.zeros((1, 3), np.float32), [Port("x", "float32", (2, 3))], "less than one batch"),
        ({"p": np.zeros((1, 3, 4, 5)), "q": np.zeros((1, 3, 4, 5))}, [X], "no array named 'x'"),
    ],
)
def test_what_does_not_fit_is_said(source: Any, ports: list[Port], complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_feeds(source, ports)
    assert complaint in str(caught.value)


def test_the_file_that_does_not_fit_is_named(tmp_path: Path) -> None:
    path = tmp_path / "wrong.npz"
    np.savez(path, x=floats(2, 3, 4, 6))
    with pytest.raises(UsageError, match=r"wrong\.npz: an array float32\[1, 3, 4, 6\] does not fit"):
        load_feeds(path, [X])


@pytest.mark.parametrize("as_mapping", [False, True])
@pytest.mark.parametrize(("number", "text"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "-infinity")])
def test_samples_that_are_not_finite_are_refused(as_mapping: bool, number: float, text: str) -> None:
    data = [floats(1, 3, 4, 5) for _ in range(3)]
    data[1][0, 2, 1, 0] = number
    with pytest.raises(UsageError, match=rf"sample 1 of input 'x' holds {text}.* at \[0, 2, 1, 0\]"):
        load_feeds([{"x": item} for item in data] if as_mapping else data, [X])
    load_feeds([data[0], data[2]], [X])
    load_feeds(data, [X], limit=1)  # the others are not used


def test_the_sample_of_a_batch_is_named(tmp_path: Path) -> None:
    data = floats(6, 3, 4, 5)
    data[5, 0, 0, 0] = np.inf
    np.save(tmp_path / "data.npy", data)
    with pytest.raises(UsageError, match=r"data\.npy: sample 5 of input 'x' holds infinity"):
        load_feeds(tmp_path / "data.npy", [Port("x", "float32", (2, 3, 4, 5))])


def test_a_scalar_that_is_not_finite_is_refused() -> None:
    with pytest.raises(UsageError, match="sample 1 of input 't' holds infinity"):
        load_feeds({"t": np.array([0, np.inf], np.float32)}, [Port("t", "float32", ())])


@pytest.mark.parametrize("infinity", [np.inf, -np.inf])
def test_a_mask_of_zeros_and_infinities_is_accepted(infinity: float) -> None:
    mask = np.where(np.arange(8).reshape(1, 2, 4) % 3 == 0, np.float32(infinity), np.float32(0))
    assert len(load_feeds({"m": mask}, [Port("m", "float32", (1, 2, 4))])) == 1


@pytest.mark.parametrize(
    ("shape", "expected", "text", "axes"),
    [
        ((2, 4, 5, 3), (1, 3, 4, 5), "NHWC and the axes of the input NCHW", (0, 3, 1, 2)),
        ((2, 3, 4, 5), (1, 4, 5, 3), "NCHW and the axes of the input NHWC", (0, 2, 3, 1)),
        ((4, 5, 3), (1, 3, 4, 5), "order HWC and the axes of the input NCHW", (2, 0, 1)),
        ((2, 3, 5, 4), (1, 3, 4, 5), "its axes are transposed", (0, 1, 3, 2)),
        ((2, 16, 40), (1, 40, 16), "NLC and the axes of the input NCL", (0, 2, 1)),
        ((2, 4, 5, 3), ("n", 3, 4, "w"), "NHWC and the axes of the input NCHW", (0, 3, 1, 2)),
    ],
)
def test_transposed_samples_are_named(shape, expected, text, axes) -> None:
    with pytest.raises(UsageError, match=text) as raised:
        load_feeds({"x": floats(*shape)}, [Port("x", "float32", expected)])
    assert raised.value.hint == f"transpose it: numpy.transpose(array, {axes})"


def test_images_without_preprocessing(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    with pytest.raises(UsageError, match="--preprocess"):
        load_feeds(tmp_path, [X])


def test_folder_without_images(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no images in this folder"):
        load_feeds(tmp_path, [X], Preprocess())
    for name in "dacb":
        (tmp_path / f"{name}.npz").write_bytes(b"")
    with pytest.raises(UsageError) as raised:
        load_feeds(tmp_path, [X], Preprocess())
    assert raised.value.hint == "it has arrays: a.npz, b.npz, c.npz ...; give one of these files instead of the folder"


@pytest.mark.parametrize("target", ["absent.png", "b.png"], ids=["absent", "itself"])
def test_links_to_no_image_are_refused_by_name(tmp_path: Path, target: str) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "c.png").symlink_to("a.png")
    assert load_feeds(tmp_path, [X], Preprocess()).images == ["a.png", "c.png"]
    (tmp_path / "b.png").symlink_to(target)
    with pytest.raises(UsageError, match=r"b\.png: a link to a file that does not exist"):
        load_feeds(tmp_path, [X], Preprocess())


@pytest.mark.parametrize("name", ["data.npz", "data.npy"])
def test_damaged_arrays(tmp_path: Path, name: str) -> None:
    for content in (b"", b"<html>", b"PK\x03\x04" + bytes(20), b"\x93NUMPY\x01\x00"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(CorruptInputError, match="NumPy file"):
            load_feeds(tmp_path / name, [X])


class Payload:
    """An object whose pickle makes a folder when it is loaded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.folder),)


@pytest.mark.parametrize("name", ["data.npy", "data.npz"])
def test_a_pickle_is_not_executed(tmp_path: Path, name: str) -> None:
    array, made = np.array([Payload(tmp_path / "made")], dtype=object), tmp_path / "made"
    with (tmp_path / name).open("wb") as file:
        (np.save if name.endswith("npy") else np.savez)(file, array)
    with pytest.raises(CorruptInputError):
        load_feeds(tmp_path / name, [X])
    assert not made.exists()


def test_model_that_takes_more_samples_than_there_are(tmp_path: Path) -> None:
    port = Port("x", "float32", (2, 3, 4, 5))
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    for source in (tmp_path, tmp_path / "a.png", floats(1, 3, 4, 5), [floats(1, 3, 4, 5)]):
        with pytest.raises(UsageError) as caught:
            load_feeds(source, [port], Preprocess())
        assert "--input-shapes x=1,3,4,5" in caught.value.hint
