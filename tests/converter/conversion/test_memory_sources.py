"""Sources that are bytes: the same models as from files, and errors for other bytes."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

import tpuconvert as tc
from tests.support.onnx.models import model, one, ramp
from tpuconvert.conversion.source import open_source


@pytest.fixture
def digits(repository: Path) -> Path:
    return repository / "examples" / "digits"


@pytest.mark.parametrize("name", ["digits.onnx", "digits.tflite"])
def test_bytes_give_the_model_of_the_file(digits: Path, tmp_path: Path, name: str) -> None:
    content = (digits / name).read_bytes()
    made, wanted = tc.convert(content), tc.convert(digits / name)
    assert made.metadata["recipe"] == wanted.metadata["recipe"]
    assert made.sources == ()  # its file was temporary
    made.save(tmp_path / "a.tpum")
    assert tc.reproduce(tmp_path / "a.tpum", digits / name).wanted
    assert tc.reproduce(tmp_path / "a.tpum", content).is_same


def test_prototxt_and_weights_as_bytes(digits: Path) -> None:
    files = digits / "digits.prototxt", digits / "digits.caffemodel"
    recipe = tc.convert(*files).metadata["recipe"]
    assert tc.convert(*(file.read_bytes() for file in files)).metadata["recipe"] == recipe
    assert tc.convert(files[0], files[1].read_bytes()).metadata["recipe"] == recipe


def test_large_constants_survive_the_temporary_file() -> None:
    """Files of this size are memory-mapped."""
    message = model([one("MatMul", "x", "w")], {"x": ramp(1, 600)}, ["y"], {"w": ramp(600, 512)})
    content = message.SerializeToString()
    made, wanted = tc.convert(content), tc.convert(message)
    assert made.metadata["recipe"]["source"] == wanted.metadata["recipe"]["source"]
    x = {"x": ramp(1, 600)}
    with tc.Session(made) as first, tc.Session(wanted) as second:
        assert first.run(x)["y"].tobytes() == second.run(x)["y"].tobytes()


@pytest.mark.parametrize("read", [onnx.load, pytest.param(Path.read_bytes, marks=pytest.mark.slow)])
def test_every_function_of_sources_takes_bytes_and_messages(read: Callable[[Path], Any], digits: Path) -> None:
    source, samples = read(digits / "digits.onnx"), digits / "calibration.npz"
    assert tc.check(source).nodes == 13
    assert not tc.inspect(source).is_converted
    ranges = tc.calibrate(
        source,
        calibration=samples,
        preprocess="color=GRAY",
        quantization=tc.Quantization(calibration_method="minmax"),
    )
    made = tc.quantize(source, ranges=ranges, preprocess="color=GRAY")
    assert tc.verify(made, source, data=samples, samples=1).exactness is None
    assert tc.attribute(made, source, data=samples, samples=1, nodes=1).nodes
    assert tc.doctor(source, samples, preprocess="color=GRAY").samples == 100


@pytest.mark.parametrize(
    ("content", "kind", "found"),
    [
        (b"TPUM" + bytes(100), tc.UsageError, "bytes of a converted model"),
        (b"", tc.CorruptInputError, "an empty file"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), tc.CorruptInputError, "a picture"),
        (bytes(range(7, 250, 3)), tc.CorruptInputError, "not an ONNX model"),
    ],
)
def test_bytes_that_are_no_source(content: bytes, kind: type[tc.TpuConvertError], found: str) -> None:
    with pytest.raises(kind, match=found) as caught:
        tc.convert(content)
    assert caught.value.hint
    assert os.sep not in caught.value.file


EXPECTED = r"expected a path, bytes or an onnx\.ModelProto"


@pytest.mark.parametrize("source", [3, None, ["net.onnx"]])
def test_sources_of_other_types(source: object) -> None:
    with pytest.raises(tc.UsageError, match=EXPECTED):
        tc.convert(source)  # type: ignore[arg-type]  # that is the test
    with pytest.raises(tc.UsageError, match=EXPECTED), open_source(source, as_file=True):  # type: ignore[arg-type]  # as above
        pass
