"""The order and the names of the samples do not change the converted file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import tpuconvert as tc
from tests.support.networks.small_models import examples
from tests.support.sampled import sampled
from tpuconvert.conversion.options.options import group_options

PREPROCESS = "color=GRAY,scale=0.0625"


def images() -> np.ndarray:
    """100 samples, more than the refinement uses."""
    found: np.ndarray = np.load(examples() / "calibration.npz")["images"]
    return found


def converted_bytes(path: Path, calibration: object, method: str, **options: object) -> bytes:
    given = {"quantize": "int8", "calibration_method": method, "preprocess": PREPROCESS, **options}
    tc.convert(examples() / "digits.onnx", calibration=calibration, **group_options(**given)).save(path)
    return path.read_bytes()


@pytest.mark.parametrize("method", sampled(["minmax", "kl", "mse"], every=2))
def test_the_file_does_not_depend_on_the_order_of_samples(tmp_path: Path, method: str) -> None:
    given = images()
    first = converted_bytes(tmp_path / "first.tpum", given, method)
    shuffled = given[np.random.default_rng(0).permutation(len(given))]
    assert converted_bytes(tmp_path / "other.tpum", shuffled, method) == first


def test_the_file_does_not_depend_on_the_names_of_images(tmp_path: Path) -> None:
    """70 images: the refinement uses 64 of them, selected by content."""
    files = []
    for name, step in (("forward", 1), ("backward", -1)):
        folder = tmp_path / name
        folder.mkdir()
        for index, image in enumerate(images()[:70][::step]):
            Image.fromarray(image).save(folder / f"{index:03}.png")
        files.append(converted_bytes(tmp_path / f"{name}.tpum", folder, "mse"))
    assert files[0] == files[1]


def test_images_that_fill_no_batch_are_the_same_in_any_order(tmp_path: Path) -> None:
    """10 images in batches of 4: the two that are left over are selected by content."""
    folders = [tmp_path / "forward", tmp_path / "backward"]
    for folder, step in zip(folders, (1, -1), strict=True):
        folder.mkdir()
        for index, image in enumerate(images()[:10][::step]):
            Image.fromarray(image).save(folder / f"{index:03}.png")
    stored = [constants(folder, batch=4) for folder in folders]
    assert stored[0] == stored[1]


def test_weights_do_not_depend_on_the_batch_size() -> None:
    """A model with batch 1 has the weights, biases and scales of one with batch 4."""
    given = images()[:60]
    assert constants(given, batch=4) == constants(given, batch=1)


def constants(calibration: object, batch: int) -> list[tuple[bytes, object]]:
    model = tc.convert(
        examples() / "digits.prototxt",
        weights=examples() / "digits.caffemodel",
        source_options=tc.SourceOptions(input_shapes={"image": (batch, 1, 8, 8)}),
        quantize="int8",
        calibration=calibration,
        preprocess=PREPROCESS,
    )
    found = [value for node in model.graph.nodes for value in node.inputs if value is not None and value.is_constant]
    return [(value.array.tobytes(), value.quant) for value in found]
