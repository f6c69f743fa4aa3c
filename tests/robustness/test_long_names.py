"""Names of files that are too long for the system: one error that is documented, and no ``OSError``."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tpuconvert as tc
from tpuconvert.cli.entry import run

DIGITS = Path(tc.__file__).parents[1] / "examples" / "digits"
LONG = "a" * 5000
IMAGES = np.zeros((2, 1, 8, 8), np.float32)


@pytest.fixture(scope="module")
def model() -> tc.Model:
    return tc.convert(DIGITS / "digits.onnx", quantize="int8", calibration=IMAGES)


CALLS: dict[str, Callable[[tc.Model], Any]] = {
    "evaluate": lambda model: tc.evaluate(model, LONG),
    "evaluate with labels": lambda model: tc.evaluate(model, LONG, [0, 1]),
    "labels": lambda model: tc.evaluate(model, IMAGES, LONG),
    "labels in a folder": lambda model: tc.evaluate(model, LONG, LONG),
    "boxes": lambda model: tc.evaluate(model, LONG, metrics="map"),
    "boxes in a file": lambda model: tc.evaluate(model, LONG, LONG + ".json", metrics="map"),
    "boxes of an image": lambda model: tc.evaluate(model, [LONG + ".png"], metrics="map"),
    "classes of pixels": lambda model: tc.evaluate(model, LONG, LONG, metrics="miou"),
    "dumps": lambda model: tc.device_compare(model, LONG, data=IMAGES),
    "plan": lambda model: tc.device_compare(model, {}, plan=LONG),
    "tokenizer": lambda model: tc.generate(model, prompt="x", tokenizer=LONG),
    "export": lambda model: tc.export(model, LONG),
    "export onnx": lambda model: tc.export(model, LONG + ".onnx", to="onnx"),
    "diff": lambda model: tc.diff(model, LONG),
    "calibration": lambda model: tc.convert(DIGITS / "digits.onnx", quantize="int8", calibration=LONG),
    "ranges": lambda model: tc.quantize(DIGITS / "digits.onnx", ranges=LONG),
    "save": lambda model: model.save(LONG),
}


@pytest.mark.parametrize("name", list(CALLS))
def test_functions(name: str, model: tc.Model) -> None:
    with pytest.raises(tc.TpuConvertError) as error:
        CALLS[name](model)
    assert not isinstance(error.value, tc.InternalError)


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "net.tpum", f"image={LONG}"],
        ["run", "net.tpum", LONG],
        ["run", "net.tpum", "image.npy", "--draw", LONG],
        ["run", "net.tpum", "image.npy", "--draw", f"{LONG}/x.png"],
        ["doctor", "net.tpum", LONG],
        ["diff", "net.tpum", LONG],
        ["inspect", LONG],
    ],
    ids=lambda arguments: f"{arguments[0]} {len(arguments)}",
)
def test_commands(arguments: list[str], model: tc.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model.save("net.tpum")
    np.save("image.npy", IMAGES[:1])
    assert run(arguments) in (2, 3, 4, 6, 8)
