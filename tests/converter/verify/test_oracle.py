"""Other inference engines run the source in a separate process; their results are compared with the source graph."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tpuconvert as tc
from tests.support.networks.small_models import examples
from tpuconvert.conversion.options.options import Options
from tpuconvert.conversion.source import Source
from tpuconvert.frontends.onnx.node import onnx_op
from tpuconvert.schema.errors import OutputError
from tpuconvert.schema.graph.graph import Port
from tpuconvert.verify import oracle as oracles
from tpuconvert.verify.oracle import ENGINES, Oracle, OracleError, Statement, find_oracles, run_first
from tpuconvert.verify.source_comparison import verify_source

PORT = Port("image", "float32", (1, 1, 8, 8))


@pytest.mark.parametrize("engine", ENGINES)
def test_the_example_in_another_engine(engine: str) -> None:
    """The expected probabilities come from the trained network."""
    pytest.importorskip(ENGINES[engine].module)
    source = examples() / f"digits.{ENGINES[engine].reads}"
    result = verify_source(tc.convert(source), Source(source), Options(), samples=2, oracle=engine)
    opinion = result.opinion
    assert opinion is not None
    assert opinion.engine.startswith(f"{engine} ")
    assert opinion.problem == ""
    assert opinion.is_exact
    assert len(opinion.tensors) > 10
    assert max(item.relative for item in opinion.tensors) < 1e-5  # float32 sums in a different order
    assert [item.name for item in opinion.outputs] == ["probability"]
    assert {item.stage for item in opinion.tensors} <= {"import"}
    count = 1 if engine == "onnx" else 2  # the evaluator of the onnx package is slow
    oracle = result.to_dict()["oracle"]
    assert (oracle["name"], oracle["is_independent"], oracle["samples"]) == (engine, True, count)
    assert f"oracle: {engine} {oracle['version']}, {count} sample" in str(result)


@pytest.mark.parametrize(
    ("name", "suffix"), [("onnxruntime", ".onnx"), ("litert", ".tflite"), ("onnx", ".onnx")], ids=lambda text: text
)
def test_a_file_that_an_engine_cannot_run(name: str, suffix: str, tmp_path: Path) -> None:
    pytest.importorskip(ENGINES[name].module)
    path = tmp_path / f"bad{suffix}"
    path.write_bytes(b"\x08\x07\x12\x07pytorch" + bytes(40))
    with pytest.raises(OracleError, match=r"\w"):
        next(Oracle(name, str(path)).run([PORT], [{"image": np.zeros((1, 1, 8, 8), np.float32)}]))


def test_which_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {"ai_edge_litert"}
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name in missing else object())
    assert [item.name for item in find_oracles("auto", "onnx", "a.onnx")] == ["onnxruntime", "onnx"]
    assert find_oracles("auto", "tflite", "a.tflite") == []
    assert find_oracles("auto", "caffe", "a.prototxt") == []
    assert find_oracles("none", "onnx", "a.onnx") == []
    with pytest.raises(tc.UsageError, match="litert does not read onnx files"):
        find_oracles("litert", "onnx", "a.onnx")
    with pytest.raises(tc.MissingExtraError) as error:
        find_oracles("litert", "tflite", "a.tflite")
    assert error.value.hint == "pip install ai-edge-litert"
    missing.add("onnxruntime")
    assert [item.name for item in find_oracles("auto", "onnx", "a.onnx")] == ["onnx"]


def test_the_next_engine_runs_what_the_first_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(self: Oracle, *arguments: object) -> Iterator[Statement]:
        if self.name == "onnxruntime":
            raise OracleError("no such operator")
        yield Statement({}, ())

    monkeypatch.setattr(Oracle, "run", run)
    monkeypatch.setattr(Oracle, "version", "1")
    both = [Oracle("onnxruntime", "a.onnx"), Oracle("onnx", "a.onnx")]
    assert run_first(both, [PORT], []).oracle == both[1]
    assert run_first(both[:1], [PORT], []).problem == "onnxruntime 1: no such operator"


def test_a_crash_is_repeated_without_intermediate_tensors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The model is not compared, and is not at fault."""
    attempts = []

    def start(self: Oracle, folder: str, *, outputs_only: bool) -> tuple[int, str]:
        attempts.append(outputs_only)
        return -11, ""

    monkeypatch.setattr(Oracle, "_start", start)
    monkeypatch.setattr(oracles, "metadata", _Versions)
    source = examples() / "digits.onnx"
    result = verify_source(tc.convert(source), Source(source), Options(), samples=1, oracle="onnx")
    assert attempts == [False, True]
    result.check()
    found = result.to_dict()["oracle"]
    assert (found["is_independent"], found["problem"]) == (False, "onnx 1: its process crashed (SIGSEGV)")
    assert "not compared with another engine: onnx 1: its process crashed (SIGSEGV)" in str(result)


class _Versions:
    @staticmethod
    def version(name: str) -> str:
        return "1"


def test_the_evaluator_has_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    source = examples() / "digits.onnx"
    feed, original = {"image": np.zeros((1, 1, 8, 8), np.float32)}, ENGINES["onnx"]
    for change, message in (
        ({"memory": 1 << 24}, r"\w"),
        ({"file_bytes": 100}, "more than 100"),
        ({"seconds": 0}, "0 s"),
    ):
        monkeypatch.setitem(oracles.ENGINES, "onnx", original._replace(**change))  # type: ignore[arg-type]  # by name
        with pytest.raises(OracleError, match=message):
            next(Oracle("onnx", str(source)).run([PORT], [feed]))


def test_without_an_engine_the_reading_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    tflite, caffe = examples() / "digits.tflite", examples() / "digits.prototxt"
    result = verify_source(tc.convert(tflite), Source(tflite), Options(), samples=1, oracle="auto")
    assert "another engine: ai-edge-litert is not installed" in str(result)
    weights = caffe.with_suffix(".caffemodel")
    result = verify_source(
        tc.convert(caffe, weights=weights), Source(caffe, weights), Options(), samples=1, oracle="auto"
    )
    assert "another engine: no other engine reads caffe files" in str(result)


def test_a_cut_source_has_no_other_opinion() -> None:
    """Engines run the complete file, whose inputs differ from the inputs of a partial model."""
    source = examples() / "digits.onnx"
    options = Options.of(inputs=["conv1/relu"], input_shapes={"conv1/relu": (1, 16, 8, 8)})
    model = tc.convert(
        source, source_options=tc.SourceOptions(inputs=["conv1/relu"], input_shapes={"conv1/relu": (1, 16, 8, 8)})
    )
    found = verify_source(model, Source(source), options, samples=1, oracle="auto")
    assert found.opinion is None
    assert "other engines run the complete source" in found.oracle.problem


def write_node(path: Path, op: str) -> None:
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["y"], name="node")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def test_nan_of_the_conversion_is_not_blamed_on_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The square root of a negative number in place of the absolute value."""
    find = onnx_op.find
    monkeypatch.setattr(onnx_op, "find", lambda name, **rest: find("Sqrt" if name == "Abs" else name, **rest))
    path = tmp_path / "abs.onnx"
    write_node(path, "Abs")
    found = verify_source(tc.convert(path), Source(path), Options(), oracle="onnx")
    assert found.output_problems == ()
    with pytest.raises(
        tc.ThresholdError, match=r"'y' has NaN in [0-9]+ of 6 elements of the converted model, none in onnx"
    ):
        found.check()


def test_nan_of_the_source_stays_one_of_the_source(tmp_path: Path) -> None:
    path = tmp_path / "sqrt.onnx"
    write_node(path, "Sqrt")
    found = verify_source(tc.convert(path), Source(path), Options(), oracle="onnx")
    with pytest.raises(OutputError, match=r"in the source as onnx [0-9.]+ computes it"):
        found.check()


def test_another_shape_is_a_fault_of_the_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = onnx_op.find
    monkeypatch.setattr(onnx_op, "find", lambda name, **rest: find("Abs" if name == "Transpose" else name, **rest))
    path = tmp_path / "transpose.onnx"
    write_node(path, "Transpose")
    found = verify_source(tc.convert(path), Source(path), Options(), oracle="onnx")
    with pytest.raises(tc.ThresholdError, match=r"import: output 'y' has the shape \[2, 3\] .* \[3, 2\] in onnx"):
        found.check()
