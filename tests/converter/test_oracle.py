"""Other inference engines run the source in a separate process; their results are compared with the source graph."""

from pathlib import Path

import numpy as np
import pytest
from converter.small_models import examples

import tpuconvert as tc
from tpuconvert.options import Options
from tpuconvert.schema.graph import Port
from tpuconvert.verify.oracle import ENGINES, Oracle, OracleError, find_oracle
from tpuconvert.verify.source_comparison import verify_source

PORT = Port("image", "float32", (1, 1, 8, 8))


@pytest.mark.parametrize(("engine", "module", "file"), [(n, m, f"digits.{f}") for n, (f, m, _) in ENGINES.items()])
def test_the_example_in_another_engine(engine: str, module: str, file: str) -> None:
    """The expected probabilities are those of the trained network."""
    pytest.importorskip(module)
    source = examples() / file
    result = verify_source(tc.convert(source), source, None, Options(), samples=2, oracle="auto")
    opinion = result.opinion
    assert opinion is not None
    assert opinion.engine.startswith(f"{engine} ")
    assert opinion.problem == ""
    assert opinion.is_exact
    assert len(opinion.tensors) > 10
    assert max(item.relative for item in opinion.tensors) < 1e-5  # float32 sums in a different order
    assert [item.name for item in opinion.outputs] == ["probability"]
    assert {item.stage for item in opinion.tensors} <= {"import"}


@pytest.mark.parametrize(("name", "suffix"), [("onnxruntime", ".onnx"), ("litert", ".tflite")])
def test_a_file_that_an_engine_cannot_run(name: str, suffix: str, tmp_path: Path) -> None:
    pytest.importorskip(ENGINES[name][1])
    path = tmp_path / f"bad{suffix}"
    path.write_bytes(b"\x08\x07\x12\x07pytorch" + bytes(40))
    with pytest.raises(OracleError, match=r"\w"):
        next(Oracle(name, str(path)).run([PORT], [{"image": np.zeros((1, 1, 8, 8), np.float32)}]))


def test_which_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "ai_edge_litert" else object())
    assert find_oracle("auto", "onnx", "a.onnx") == Oracle("onnxruntime", "a.onnx")
    assert find_oracle("auto", "tflite", "a.tflite") is None
    assert find_oracle("auto", "caffe", "a.prototxt") is None
    assert find_oracle("none", "onnx", "a.onnx") is None
    with pytest.raises(tc.UsageError, match="litert does not read onnx files"):
        find_oracle("litert", "onnx", "a.onnx")
    with pytest.raises(tc.MissingExtraError) as error:
        find_oracle("litert", "tflite", "a.tflite")
    assert error.value.hint == "pip install ai-edge-litert"


def test_a_cut_source_has_no_other_opinion() -> None:
    """Engines run the complete file, whose inputs differ from those of a partial model."""
    source = examples() / "digits.onnx"
    options = Options.of(inputs=["conv1/relu"], input_shapes={"conv1/relu": (1, 16, 8, 8)})
    model = tc.convert(source, inputs=["conv1/relu"], input_shapes={"conv1/relu": (1, 16, 8, 8)})
    assert verify_source(model, source, None, options, samples=1, oracle="auto").opinion is None
