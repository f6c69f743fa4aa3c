"""Element types that an input accepts: one policy for sessions, the command line, calibration and fixed inputs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.onnx.models import model, one, ramp, save_model
from tpuconvert.samples.calibration_data import load_feeds
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph.graph import Port
from tpuconvert.schema.graph.input_types import convert_input

ACCEPTED = [
    ("float32", np.float64([0.1, -1e30])),
    ("float32", np.float16([0.5, 2])),
    ("float32", np.array([1, -(2**24)])),
    ("float32", np.int8([-128, 127])),
    ("float32", np.uint16([65535, 0])),
    ("float32", np.array([True, False])),
    ("float64", np.float32([0.1, 1])),
    ("float16", np.float32([0.1, 65504])),
    ("int64", np.int32([1, -1])),
    ("int32", np.array([2**31 - 1, -(2**31)])),
    ("int8", np.array([127, -128])),
    ("uint8", np.array([255, 0])),
    ("int32", np.uint8([255, 0])),
    ("int32", np.array([True, False])),
    ("bool", np.array([True, False])),
]
REFUSED = [
    ("float32", np.uint8([0, 255]), "type uint8, the model takes float32"),
    ("float16", np.uint8([0, 255]), "type uint8, the model takes float16"),
    ("float32", np.array([2**24 + 1]), "int64 values that float32 does not represent"),
    ("float16", np.array([70000]), "int64 values that float16 does not represent"),
    ("float32", np.float64([1e39]), r"values up to 1e\+39, more than float32 holds"),
    ("float32", np.array([1j]), "type complex128"),
    ("float32", np.array(["a"]), "type <U1"),
    ("float32", np.array([None]), "type object"),
    ("int32", np.float32([1.0]), "type float32, the model takes int32"),
    ("int32", np.array([2**31]), "values outside int32: from 2147483648 to 2147483648"),
    ("int8", np.uint8([200]), "values outside int8"),
    ("uint8", np.array([-1]), "values outside uint8"),
    ("bool", np.array([1, 0]), "type int64, the model takes bool"),
    ("bool", np.float32([1, 0]), "type float32, the model takes bool"),
]


@pytest.mark.parametrize(("wanted", "given"), ACCEPTED, ids=str)
def test_conversions_that_keep_every_value(wanted: str, given: Any) -> None:
    found = convert_input(given, np.dtype(wanted), "x")
    assert found.dtype == wanted
    np.testing.assert_array_equal(found, given.astype(wanted))


@pytest.mark.parametrize(("wanted", "given", "message"), REFUSED, ids=str)
def test_conversions_that_would_change_the_meaning(wanted: str, given: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        convert_input(given, np.dtype(wanted), "x")


def test_infinity_and_nan_are_values() -> None:
    given = np.float64([np.inf, -np.inf, np.nan])
    np.testing.assert_array_equal(convert_input(given, np.dtype(np.float32), "x"), given)


def test_rejects_other_8_bit_type_for_quantized_input() -> None:
    """uint8 codes 0 to 127 fit int8, but represent other values."""
    with pytest.raises(UsageError, match="type uint8, the model takes int8"):
        convert_input(np.uint8([1, 2]), np.dtype(np.int8), "x", is_quantized=True)
    assert convert_input(np.array([1, -2]), np.dtype(np.int8), "x", is_quantized=True).dtype == np.int8


def test_sessions_calibration_and_the_command_line_share_the_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = save_model(model([one("Relu", "x")], {"x": ramp(1, 4)}, ["y"]), tmp_path)
    made = tc.convert(path)
    with tc.Session(made) as session:
        np.testing.assert_array_equal(session.run({"x": [[-1, 2, 3, 4]]})["y"], [[0, 2, 3, 4]])  # type: ignore[dict-item]
    np.save("x.npy", np.full((1, 4), 7, np.uint8))
    made.save("net.tpum")
    calls = (
        ["run", "net.tpum", "x.npy"],
        ["verify", str(path), "net.tpum", "--data", "x.npy"],
        ["convert", str(path), "-o", "int8.tpum", "--quantize", "int8", "--calibration", "x.npy"],
    )
    for call in calls:
        capsys.readouterr()
        assert tc_main(call) == 2, call
        assert "input 'x' has type uint8, the model takes float32" in capsys.readouterr().err
    with pytest.raises(UsageError, match=r"x.npy: input 'x' has type uint8"):
        load_feeds("x.npy", [Port("x", "float32", (1, 4))])


def tc_main(call: list[str]) -> int:
    """The command line."""
    from tpuconvert.__main__ import main

    return main(call)


@pytest.mark.parametrize("name", ["int4", "uint4", "int2", "uint2"])
def test_integers_of_2_and_4_bits_are_integers(name: str) -> None:
    types = pytest.importorskip("ml_dtypes")
    given = np.array([1, 0], getattr(types, name))
    wanted = np.dtype(np.uint8 if name.startswith("u") else np.int8)
    found = convert_input(given, wanted, "x")
    assert found.dtype == wanted
    assert found.tolist() == [1, 0]
