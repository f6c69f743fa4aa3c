"""Images as inputs of a session: the stored preprocessing is applied, and ambiguous inputs are rejected."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import tpuconvert as tc
from tests.support.onnx.models import model, one, ramp, save_model
from tpuconvert.conversion.options.options import group_options

RULE = "color=RGB,mean=10,20,30,scale=0.5,layout=NCHW"


def pixels(count: int, height: int = 4, width: int = 6, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (count, height, width, 3), np.uint8)


def preprocess(images: Any) -> Any:
    """Preprocess with NumPy, as an independent reference."""
    x = (images.astype(np.float64) - [10, 20, 30]) * 0.5
    return x.transpose(0, 3, 1, 2).astype(np.float32)


def doubling(folder: Path, batch: int = 1, **options: Any) -> tc.Model:
    """Model of ``y = x + x`` on [batch, 3, 4, 6]."""
    proto = model([one("Add", "x", "x")], {"x": ramp(batch, 3, 4, 6)}, ["y"])
    return tc.convert(save_model(proto, folder), **group_options(**{"preprocess": RULE, **options}))


def test_raw_pixels_for_a_float_input_are_refused_with_the_way_to_give_them(tmp_path: Path) -> None:
    expected = pytest.raises(tc.UsageError, match="input 'x' has type uint8, the model takes float32")
    with tc.Session(doubling(tmp_path)) as session, expected as told:
        session.run({"x": pixels(1).transpose(0, 3, 1, 2)})
    assert "Session.run_images" in told.value.hint
    assert "array.astype('float32')" in told.value.hint


@pytest.mark.parametrize("batch", [1, 2])
def test_arrays_of_images_are_preprocessed_and_split_into_batches(tmp_path: Path, batch: int) -> None:
    images = pixels(4)
    with tc.Session(doubling(tmp_path, batch)) as session:
        found = session.run_images(images)
        assert list(found) == ["y"]
        np.testing.assert_allclose(found["y"], 2 * preprocess(images), rtol=1e-6)  # one float32 multiplication
        np.testing.assert_allclose(session.preprocess(images)["x"], preprocess(images), rtol=1e-6)


def test_the_file_itself_has_the_preprocessing(tmp_path: Path) -> None:
    doubling(tmp_path).save(tmp_path / "net.tpum")
    with tc.Session(tmp_path / "net.tpum") as session:
        np.testing.assert_allclose(session.run_images(pixels(1))["y"], 2 * preprocess(pixels(1)), rtol=1e-6)


def test_paths_folders_pil_images_and_lists_of_them(tmp_path: Path) -> None:
    images = pixels(3)
    folder = tmp_path / "images"
    folder.mkdir()
    for index, image in enumerate(images):
        Image.fromarray(image).save(folder / f"{index}.png")
    (folder / "notes.txt").write_text("no image")
    with tc.Session(doubling(tmp_path)) as session:
        expected = session.run_images(images)["y"]
        first = folder / "0.png"
        for given in (first, str(first), Image.open(first), images[0], [images[0]], [str(first)], iter([first])):
            np.testing.assert_array_equal(session.run_images(given)["y"], expected[:1])
        np.testing.assert_array_equal(session.run_images(folder)["y"], expected)
        mixed = [folder / "0.png", Image.fromarray(images[1]), images[2]]
        np.testing.assert_array_equal(session.run_images(mixed)["y"], expected)
        larger = Image.fromarray(images[0]).resize((60, 40), Image.Resampling.NEAREST)
        assert session.run_images([larger, images[0]])["y"].shape == (2, 3, 4, 6)


def test_a_quantized_input_gets_codes(tmp_path: Path) -> None:
    """Quantized with scale 2 and zero point 3. Ties round away from zero, as for every quantized input."""
    proto = model(
        [one("DequantizeLinear", "x", "s", "z", outputs=["r"]), one("Add", "r", "r")],
        {"x": np.zeros((1, 3, 4, 6), np.uint8)},
        ["y"],
        {"s": np.array(2, np.float32), "z": np.array(3, np.uint8)},
    )
    made = tc.convert(save_model(proto, tmp_path), preprocess="color=RGB,scale=1")
    image = pixels(1)
    with tc.Session(made) as session:
        codes = session.preprocess(image)["x"]
    assert codes.dtype == np.uint8
    np.testing.assert_array_equal(codes, np.clip(np.floor(image.transpose(0, 3, 1, 2) / 2 + 0.5) + 3, 0, 255))


def test_another_preprocessing_may_be_given(tmp_path: Path) -> None:
    with tc.Session(doubling(tmp_path, preprocess=None)) as session:
        with pytest.raises(tc.UsageError, match="the model stores no preprocessing") as told:
            session.run_images(pixels(1))
        assert "--preprocess" in told.value.hint
        for rule in (RULE, tc.Preprocess.parse(RULE), tc.Preprocess.parse(RULE).to_dict()):
            np.testing.assert_allclose(session.run_images(pixels(1), preprocess=rule)["y"], 2 * preprocess(pixels(1)))


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (pixels(1).astype(np.float32), r"not images: float32\[1, 4, 6, 3\]"),
        (pixels(1)[0].transpose(2, 0, 1), r"not images: uint8\[3, 4, 6\]\n.*channels come last"),
        (np.zeros((4, 6, 4), np.uint8), r"not images: uint8\[1, 4, 6, 4\]\n.*drop the alpha channel"),
        ([], "no images were given"),
        ([[1, 2, 3]], "not an image: list"),
        (7, "not an image: int"),
        ("absent.png", "absent.png: no such file"),
    ],
)
def test_what_is_no_image_is_refused(tmp_path: Path, images: Any, message: str) -> None:
    with tc.Session(doubling(tmp_path)) as session, pytest.raises(tc.UsageError, match=f"(?s){message}"):
        session.run_images(images)


def test_a_model_with_several_inputs_names_the_one_for_images(tmp_path: Path) -> None:
    proto = model([one("Add", "x", "z")], {"x": ramp(1, 3, 4, 6), "z": ramp(1, 3, 4, 6)}, ["y"])
    with tc.Session(tc.convert(save_model(proto, tmp_path), preprocess=RULE)) as session:
        with pytest.raises(tc.UsageError, match="the model has 2 inputs: x, z; expected one"):
            session.run_images(pixels(1))
        with pytest.raises(tc.UsageError, match=r"no input 'X'\n.*did you mean 'x'"):
            session.preprocess(pixels(1), input="X")
        z = np.ones((1, 3, 4, 6), np.float32)
        found = session.run({**session.preprocess(pixels(1), input="x"), "z": z})["y"]
        np.testing.assert_allclose(found, preprocess(pixels(1)) + 1)


def test_images_that_fill_no_batch_are_refused(tmp_path: Path) -> None:
    expected = pytest.raises(tc.UsageError, match="input 'x' has 3 samples, the model takes 2 at a time")
    with tc.Session(doubling(tmp_path, 2)) as session, expected:
        session.run_images(pixels(3))
