"""Models that accept only the shapes of ``--shapes``: conversion, file, session, inspection and export."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import tpuconvert as tc
from tests.support.onnx.graphs import FLOAT, info, node
from tests.support.onnx.models import save_model
from tests.support.onnx.symbolic_networks import network, samples
from tpuconvert.__main__ import main
from tpuconvert.runtime.native.builder import loader
from tpuconvert.runtime.native.plans import KEPT
from tpuconvert.schema.errors import CorruptInputError, UsageError
from tpuconvert.schema.graph.shape_buckets import KEY, buckets_of

BACKEND = "native" if loader.extension() is not None else "reference"
DIGITS = Path(__file__).parents[3] / "examples" / "digits"
TWO = "1x3x32x32,1x3x48x64"
SIZES = [(1, 3, 32, 32), (1, 3, 48, 64)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return save_model(network(), tmp_path)


@pytest.mark.parametrize("shapes", [TWO, [TWO], f"x={TWO.replace(',', ',x=')}", SIZES, [{"x": size} for size in SIZES]])
def test_forms_of_the_option_are_equal(path: Path, shapes: object) -> None:
    converted = tc.convert(path, source_options=tc.SourceOptions(shapes=shapes))  # type: ignore[arg-type]
    assert buckets_of(converted.metadata) == [{"x": size} for size in SIZES]
    assert converted.inputs[0].shape == (1, 3, "H", "W")


def test_every_bucket_equals_a_model_of_that_shape(path: Path, tmp_path: Path) -> None:
    ranges = tc.calibrate(path, calibration=samples(SIZES), source_options=tc.SourceOptions(shapes=TWO))
    tc.quantize(path, ranges=ranges, source_options=tc.SourceOptions(shapes=TWO)).save(tmp_path / "m.tpum")
    with tc.Session(tmp_path / "m.tpum", backend=BACKEND, threads=1) as session:
        for feed in samples(SIZES, 1):
            fixed = tc.quantize(
                path, ranges=ranges, source_options=tc.SourceOptions(input_shapes={"x": feed["x"].shape})
            )
            expected = tc.Session(fixed, backend=BACKEND, threads=1).run(feed)
            found = session.run(feed)
            assert {name: array.tobytes() for name, array in found.items()} == {
                name: array.tobytes() for name, array in expected.items()
            }


@pytest.mark.skipif(BACKEND == "reference", reason="needs the native engine")
def test_session_makes_and_keeps_a_plan_per_bucket(path: Path) -> None:
    shapes = [(1, 3, 32, 32 + 8 * index) for index in range(KEPT + 2)]
    session = tc.Session(tc.convert(path, source_options=tc.SourceOptions(shapes=shapes)), threads=1)
    assert session._native is not None
    plans = dict(session._native._plans)  # type: ignore[union-attr]
    assert len(plans) == KEPT + 2
    for shape in shapes:
        session.run({"x": np.zeros(shape, np.float32)})
    assert dict(session._native._plans) == plans  # type: ignore[union-attr]


@pytest.mark.parametrize("backend", ["reference", BACKEND])
def test_session_refuses_other_shapes_and_names_the_buckets(path: Path, backend: str) -> None:
    session = tc.Session(tc.convert(path, source_options=tc.SourceOptions(shapes=TWO)), backend=backend)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"x=1x3x32x64.*\n.*x=1x3x32x32,x=1x3x48x64"):
        session.run({"x": np.zeros((1, 3, 32, 64), np.float32)})
    assert session.run({"x": np.zeros((2, 3, 48, 64), np.float32)})["z"].shape == (2, 10), "batch by batch"


def test_several_inputs_share_the_extents_of_the_file(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [node("Add", "a b", "y")], "g", [info("a", FLOAT, ["N", "S"]), info("b", FLOAT, ["N", "S"])], [info("y")]
    )
    path = save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path)
    converted = tc.convert(path, source_options=tc.SourceOptions(shapes="a=1x4;b=1x4,a=1x8;b=1x8"))
    assert [item.shape for item in converted.inputs] == [(1, "S"), (1, "S")]
    ones = np.ones((1, 8), np.float32)
    assert tc.Session(converted).run({"a": ones, "b": ones})["y"].tolist() == [[2.0] * 8]
    with pytest.raises(UsageError, match="a shape without a name, but 2 inputs"):
        tc.convert(path, source_options=tc.SourceOptions(shapes="1x4,1x8"))
    with pytest.raises(UsageError, match=r"a=1x4 has no shape for input 'b'\n.*b="):
        tc.convert(path, source_options=tc.SourceOptions(shapes="a=1x4,a=1x8", input_shapes={"b": (1, "S")}))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ("1x3x32", r"x=\[1, 3, 32\] does not match"),
        ("1x4x32x32,1x4x48x64", r"does not match the model's \[N, 3, H, W\]"),
        ("1x3x32x32,1x3x32x32", "given twice"),
        ("1x3x0x32", "1x3x0x32 has an extent below 1"),
        ("1x3x32x32,1x3x48x48x1", "different ranks"),
        ("x=1x3x32x32,1x3x48x64", "shapes of the same inputs"),
        ("1,3,32", "different ranks|below 1|does not match"),
        ("320", r"does not match"),
        ("axb", r"'axb' is not a list of shapes\n.*--shapes 1x3x320x320"),
        ("q=1x3x32x32,q=1x3x48x64", "no input 'q'"),
    ],
)
def test_refuses_shapes(path: Path, shapes: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tc.convert(path, source_options=tc.SourceOptions(shapes=shapes))


def test_refuses_an_extent_that_the_file_fixes(path: Path, tmp_path: Path) -> None:
    proto = network()
    proto.graph.input[0].type.tensor_type.shape.dim[3].dim_value = 32
    with pytest.raises(UsageError, match=r"x=1x3x48x64 does not fit the input, which is x=1x3xHx32"):
        tc.convert(save_model(proto, tmp_path, "fixed.onnx"), source_options=tc.SourceOptions(shapes=TWO))
    with pytest.raises(UsageError, match="input 'x' is in input_shapes and in shapes"):
        tc.convert(
            path,
            source_options=tc.SourceOptions(shapes=f"x={TWO.replace(',', ',x=')}", input_shapes={"x": (1, 3, 32, 32)}),
        )


def test_other_formats_need_one_shape() -> None:
    with pytest.raises(UsageError, match=r"only ONNX models can keep extents open\n.*--input-shapes"):
        tc.convert(DIGITS / "digits.tflite", source_options=tc.SourceOptions(shapes="1x8x8x1,1x16x16x1"))


def test_damaged_buckets_are_reported() -> None:
    with pytest.raises(CorruptInputError, match="is not a list of shapes"):
        buckets_of({KEY: [3]})


def test_command_line_and_inspection(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "m.tpum"
    assert main(["convert", str(path), "-o", str(out), "--shapes", TWO]) == 0
    capsys.readouterr()
    assert main(["inspect", str(out)]) == 0
    assert "accepts only x=1x3x32x32,x=1x3x48x64" in capsys.readouterr().out
    assert main(["inspect", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metadata"][KEY] == [{"x": [1, 3, 32, 32]}, {"x": [1, 3, 48, 64]}]


@pytest.mark.parametrize("to", ["onnx", "tpu-mlir"])
def test_exports_one_program_per_bucket(path: Path, tmp_path: Path, to: str) -> None:
    exact = "bm1684x" if to == "tpu-mlir" else "none"
    calibration = samples(SIZES)
    converted = tc.convert(
        path,
        source_options=tc.SourceOptions(shapes=TWO),
        quantize=tc.Quantization(effort="low", exact_on=exact),
        calibration=calibration,
    )
    exported = tc.export(converted, tmp_path / "out", to=to)
    suffix = ".onnx" if to == "onnx" else ""
    assert exported.manifest["programs"] == [f"x_1x3x32x32{suffix}", f"x_1x3x48x64{suffix}"]
    assert all((tmp_path / "out" / name).exists() for name in exported.manifest["programs"])
    assert "then the same for the other programs" in str(exported)
    tc.export(converted, tmp_path / "out", to=to)  # replaces the folder
    if to == "onnx":
        runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime: install tpuconvert[oracles]")
        for feed, name in zip(samples(SIZES, 1), exported.manifest["programs"], strict=True):
            expected = tc.Session(converted, threads=1).run(feed)
            oracle = runtime.InferenceSession(str(tmp_path / "out" / name))
            for output, found in zip(oracle.get_outputs(), oracle.run(None, feed), strict=True):
                np.testing.assert_allclose(found, expected[output.name], atol=1e-5)
