"""Calibration method ``auto`` in conversions: note, ranges file, order of samples, workers."""

import json
from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc
from tpuconvert.__main__ import main
from tpuconvert.conversion.options.options import group_options

DIGITS = Path(__file__).parents[4] / "examples" / "digits"
SOURCE, SAMPLES, PREPROCESS = DIGITS / "digits.onnx", DIGITS / "calibration.npz", "color=GRAY,scale=0.0625"


def convert(samples: np.ndarray, **options) -> tc.Model:
    return tc.convert(SOURCE, calibration=samples, preprocess=PREPROCESS, **group_options(quantize="int8", **options))


def notes_of(model: tc.Model) -> list[str]:
    return [note.message for note in model.notes if note.kind == "calibration"]


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return np.load(SAMPLES)["images"]


@pytest.fixture(scope="module")
def found(images: np.ndarray) -> tc.Model:
    """The network with the methods that the search chooses."""
    return convert(images)


def test_a_note_states_the_methods(found):
    (note,) = notes_of(found)
    assert "tensors mse" in note and "error of the activations at the outputs" in note


@pytest.mark.parametrize(
    "options", [{"without": ["method-search"]}, {"effort": "low"}, {"calibration_method": "mse"}], ids=str
)
def test_no_search_without_the_algorithm(images, options):
    assert notes_of(convert(images, **options)) == []


def test_asymmetric_tensors_and_nodes_in_int16(images, found):
    """The search leaves out the former. Rules about data types do not change its result."""
    (note,) = notes_of(found)
    assert notes_of(convert(images, precision=["*=asymmetric"])) == []
    assert notes_of(convert(images, precision=["between conv2 and fc=int16"])) == [note]


def test_the_choice_does_not_depend_on_order_and_workers(images, found, tmp_path):
    contents = []
    for number, model in enumerate([found, convert(images[::-1], workers=2)]):
        path = tmp_path / f"{number}.tpum"
        model.save(path)
        contents.append(path.read_bytes())
    assert contents[0] == contents[1]


def test_the_ranges_file_has_the_method_of_every_tensor(tmp_path, images):
    file = tmp_path / "ranges.json"
    arguments = ["--calibration", str(SAMPLES), "--preprocess", PREPROCESS]
    assert main(["calibrate", str(SOURCE), *arguments, "-o", str(file)]) == 0
    ranges = json.loads(file.read_text("utf-8"))["ranges"]
    chosen = {name: found["method"] for name, found in ranges.items() if "method" in found}
    (note,) = notes_of(convert(images))
    counts = [int(part.split()[0]) for part in note.split(";")[0].split(", ")]
    assert sum(counts) == len(chosen) > 0
    model = tmp_path / "model.tpum"
    assert main(["quantize", str(SOURCE), "--ranges", str(file), "-o", str(model), "--preprocess", PREPROCESS]) == 0
