"""Outputs that are NaN or dead (constant), and outputs that are constant for a valid reason."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.support.networks.compared_graphs import verify
from tests.support.networks.data_models import names
from tests.support.networks.small_models import model_of, scaled_and_shifted
from tools.accuracy.datasets import entries, input_shapes, model_files, reference_samples
from tpuconvert.__main__ import main
from tpuconvert.conversion.options.options import Options
from tpuconvert.conversion.source import Source
from tpuconvert.conversion.source_loading import load_source
from tpuconvert.optimizer.quantize import legalize
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.errors import OutputError
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Muls
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.types import F32, I32, Chip, Scalar, TensorType
from tpuconvert.verify.output_checks import output_problems, output_statistics
from tpuconvert.verify.verification import Thresholds

Captured = pytest.CaptureFixture[str]
FEEDS = [{"x": np.array([[-1, 0, 1, 2]], np.float32)}, {"x": np.array([[5, 6, 7, 8]], np.float32)}]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in an empty folder, because commands write to the working folder."""
    monkeypatch.chdir(tmp_path)


def test_dead_output_fails() -> None:
    """A scale of 0 and a bias: source and model agree, but their output does not depend on the input."""
    graph = scaled_and_shifted(0.0, 3.0)
    result = verify(graph, graph, model_of(scaled_and_shifted(0.0, 3.0)), FEEDS)
    with pytest.raises(OutputError, match="output 'y' is dead: all of 8 elements in 2 samples are 3, in the model and"):
        result.check_limits(Thresholds(max_difference=1.0))


def test_output_that_died_in_the_model_fails() -> None:
    graph = scaled_and_shifted()
    result = verify(graph, graph, model_of(scaled_and_shifted(0.0, 0.0)), FEEDS)
    assert result.output_problems == ("output 'y' is dead: all of 8 elements in 2 samples are 0, in the model alone",)


def test_output_that_changes_between_samples_is_alive() -> None:
    feeds = [{"x": np.full((1, 4), number, np.float32)} for number in (1, 2)]
    graph = scaled_and_shifted()
    assert verify(graph, graph, model_of(scaled_and_shifted()), feeds).output_problems == ()


def test_nan_output_fails_and_is_not_exact() -> None:
    graph = scaled_and_shifted(float("nan"))
    result = verify(graph, graph, model_of(scaled_and_shifted(float("nan"))), FEEDS)
    assert result.outputs[0].to_dict()["not_finite"] == 8
    with pytest.raises(OutputError, match="output 'y' has NaN: 8 of 8 elements in the model, 8 in the source"):
        result.check_limits(Thresholds())
    accepted = verify(graph, graph, model_of(scaled_and_shifted(float("nan"))), FEEDS, allow_nan=True)
    accepted.check_limits(Thresholds())
    only_here = verify(scaled_and_shifted(), graph, model_of(scaled_and_shifted(float("nan"))), FEEDS, allow_nan=True)
    assert only_here.output_problems


def constant_outputs(shape: tuple[int, ...] = (1, 4)) -> Graph:
    """Outputs that are always 7: computed from the float input, from integers, or from no input."""
    g = Graph("g")
    x = g.input("x", TensorType(F32, shape))
    zeros = g.add(Muls(Scalar.f32(0.0)), x)
    g.output(g.add(Adds(Scalar.f32(7.0)), zeros, name="floats"))
    integers = g.add(Cast(out_dtype=I32), g.add(Adds(Scalar.f32(7.0)), zeros), name="integers")
    g.output(integers)
    g.output(g.add(Cast(out_dtype=F32), integers, name="labels"))
    g.output(g.constant(np.full(shape, 7, np.float32), "constant"))
    return g


@pytest.mark.parametrize(("shape", "dead"), [((1, 4), ["floats"]), ((1, 1), [])])
def test_constant_outputs_with_a_reason_are_not_dead(shape: tuple[int, ...], dead: list[str]) -> None:
    found = output_statistics(constant_outputs(shape))
    for item in found:
        for _ in range(3):
            item.add(np.full(shape, 7, np.float32))
    assert [item.name for item in found if item.is_dead] == dead
    assert len(output_problems(found, found, allow_nan=False)) == len(dead)


def test_ci_fails_on_a_dead_output(capsys: Captured) -> None:
    scale = numpy_helper.from_array(np.zeros(4, np.float32), "scale")
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Mul", ["x", "scale"], ["y"])], "g", ports[:1], ports[1:], [scale])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), "dead.onnx")
    Path("ci.yaml").write_text(json.dumps({"models": {"net": {"source": "dead.onnx"}}}))
    assert main(["ci", "ci.yaml"]) == 5
    assert "output 'y' is dead" in capsys.readouterr().out
    assert main(["convert", "dead.onnx", "--verify"]) == 5
    assert "error[TC5002]" in capsys.readouterr().err
    assert not Path("dead.tpum").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_no_false_alarm_on_trained_models(name: str, data_root: Path) -> None:
    """Run with all reference inputs, and with only the first one."""
    entry = entries(data_root)[name]
    source, weights = model_files(data_root, entry)
    graph = load_source(Source(source, weights), Options(input_shapes=dict(input_shapes(entry) or {})))
    ports = [port.name for port in graph.input_ports]
    feeds = [dict(zip(ports, sample.values(), strict=True)) for sample, _ in reference_samples(data_root, entry)]
    assert feeds
    graph = legalize(graph, Chip.BM1686).graph  # integers for a quantized source, other types unchanged
    with Session(graph) as session:
        results = [session.run(feed) for feed in feeds]
    for count in (1, len(results)):
        found = output_statistics(graph)
        for result in results[:count]:
            for item in found:
                item.add(result[item.name])
        assert output_problems(found, found, allow_nan=False) == []
