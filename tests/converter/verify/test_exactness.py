"""Verdicts on the integers of quantized sources."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tpuconvert as tc
from tests.support.networks.small_models import examples
from tools.accuracy.datasets import entries, model_files
from tpuconvert.__main__ import main
from tpuconvert.conversion.options.options import Options
from tpuconvert.conversion.source import Source
from tpuconvert.schema.errors import ThresholdError, UsageError
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32
from tpuconvert.schema.types import DType, QuantParams
from tpuconvert.verify.difference import Difference
from tpuconvert.verify.exactness import Codes, Exactness, steps_between
from tpuconvert.verify.source_comparison import verify_source
from tpuconvert.verify.verification import Thresholds, Verification

Captured = pytest.CaptureFixture[str]
SMALL = ("kws_dscnn_int8_tflite", "micro_speech_int8_tflite", "mnist_conv_int8_tflite", "sine_int8_tflite")
LARGE = (
    "anomaly_autoencoder_int8_tflite",
    "cifar10_resnet8_int8_tflite",
    "imagenet_mobilenet_v1_0.25_128_uint8_tflite",
    "imagenet_mobilenet_v1_0.5_160_uint8_tflite",
    "imagenet_mobilenet_v2_keras_int8_tflite",
    "imagenet_mobilenet_v2_qlinear_onnx",
    "mnist_lstm_int8_tflite",
    "vww_mobilenet_int8_tflite",
)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in an empty folder, because commands write to the working folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def quantized_model(tmp_path: Path) -> Path:
    """Write an ONNX file with two convolutions of UINT8, with scales and zero points; input and output are UINT8."""
    rng = np.random.default_rng(0)
    constants: dict[str, np.ndarray] = {}
    nodes = []
    x = "x"
    for number, (taken, made) in enumerate(((3, 8), (8, 4))):
        constants |= {
            f"w{number}": rng.integers(-127, 128, (made, taken, 3, 3)).astype(np.int8),
            f"b{number}": rng.integers(-500, 500, made).astype(np.int32),
            f"sx{number}": np.float32(0.05),
            f"zx{number}": np.uint8(131),
            f"sw{number}": np.float32(0.01),
            f"zw{number}": np.int8(0),
            f"sy{number}": np.float32(0.05),
            f"zy{number}": np.uint8(131),
        }
        given = [x, *(f"{name}{number}" for name in ("sx", "zx", "w", "sw", "zw", "sy", "zy", "b"))]
        x = f"y{number}"
        nodes.append(helper.make_node("QLinearConv", given, [x], name=f"conv{number}"))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [1, 3, 12, 12])],
        [helper.make_tensor_value_info(x, TensorProto.UINT8, [1, 4, 8, 8])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    path = tmp_path / "quantized.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)
    return path


def codes(numbers: list[int], scale: float, zero_point: int, dtype: DType) -> Codes:
    return Codes(np.array(numbers, dtype.numpy), QuantParams.per_tensor(scale, zero_point, dtype))


def test_codes_are_mapped_by_their_zero_points() -> None:
    """UINT8 with a zero point larger by 128 represents the same values: 128 - 131 = 0 - 3."""
    signed = codes([-128, 0, 127, 5], 0.5, 3, DType.INT8)
    unsigned = codes([0, 128, 255, 135], 0.5, 131, DType.UINT8)
    assert steps_between(signed, unsigned).tolist() == [0, 0, 0, 2]


def test_other_scales_are_compared_by_value() -> None:
    """2 * 0.5 = 4 * 0.25. 1.25 differs from 1.0 by half a step, which counts as one step."""
    assert steps_between(codes([2, 2], 0.5, 0, DType.INT8), codes([4, 5], 0.25, 0, DType.INT8)).tolist() == [0, 1]


def test_inputs_and_floats_do_not_count() -> None:
    given, made, real = Difference("x", "input"), Difference("t", "conv"), Difference("f", "cast")
    given.add_steps(np.zeros(7, np.int64))
    made.add_steps(np.array([0, 3, 1]))
    found = Exactness.of("an oracle", [given, made, real], [])
    assert (found.tensors, found.integers, found.different, found.largest_steps, found.first) == (1, 3, 2, 3, "t")
    assert not found.is_exact
    assert "2 of 3 integers in 1 tensor differ from an oracle, largest difference 3 steps" in found.verdict
    assert not Exactness.of("an oracle", [given, real], []).is_exact, "nothing was compared"


def verify_model(path: Path, chip: str = "bm1686", model: tc.Model | None = None, **arguments: str) -> Verification:
    options = Options.of(chip=chip)
    model = model or tc.convert(path, chip=chip)
    return verify_source(model, Source(path), options, samples=2, **arguments)


def test_quantized_source_is_bit_exact(quantized_model: Path) -> None:
    result = verify_model(quantized_model)
    assert result.exactness is not None
    assert result.exactness.is_exact
    assert result.exactness.output_integers == 2 * 4 * 8 * 8
    assert result.exactness.integers >= 2 * (8 * 10 * 10 + 4 * 8 * 8)
    assert result.first is None
    assert all(item.sqnr == float("inf") for item in result.outputs)


def test_one_wrong_rescale_is_named(quantized_model: Path) -> None:
    """An offset that is too large by one: all later tensors differ, and the first one is reported."""
    model = tc.convert(quantized_model)
    node = next(node for node in model.graph.nodes if isinstance(node.op, RequantInt32))
    assert isinstance(node.op, RequantInt32)
    node.op = replace(node.op, offset_val=node.op.offset_val + 1)
    result = verify_model(quantized_model, model=model)
    assert result.exactness is not None
    assert result.exactness.first == node.name
    assert result.exactness.different > 0
    with pytest.raises(ThresholdError, match=r"not bit-exact: .* first at"):
        result.check_limits(Thresholds.default(model, result.exactness))
    result.check_limits(Thresholds(max_different=result.exactness.integers))


def test_chip_without_the_rounding_is_not_held_to_it(quantized_model: Path) -> None:
    model = tc.convert(quantized_model, chip="bm1684")
    result = verify_model(quantized_model, "bm1684", model)
    assert result.exactness is not None
    assert result.exactness.output_integers == 2 * 4 * 8 * 8
    assert "integers in outputs" in result.exactness.verdict
    result.check_limits(Thresholds.default(model, result.exactness))


def test_float_models_have_no_verdict(quantized_model: Path) -> None:
    result = verify_model(quantized_model, "bm1682")
    assert result.exactness is None
    with pytest.raises(UsageError, match="compute in float"):
        result.check_limits(Thresholds(max_different=0))


def test_commands_tell_the_verdict(quantized_model: Path, capsys: Captured) -> None:
    assert main(["convert", str(quantized_model), "-o", "net.tpum", "--verify", "--report", "net.html"]) == 0
    assert "bit-exact: " in Path("net.html").read_text(encoding="utf-8")
    shown = capsys.readouterr().out
    assert "  bit-exact: " in shown
    assert "SQNR exact" in shown
    call = ["verify", str(quantized_model), "net.tpum", "--oracle", "none", "--max-different", "0"]
    assert main(call) == 0
    assert "bit-exact: " in capsys.readouterr().out
    assert main([*call, "--json"]) == 0
    verdict = json.loads(capsys.readouterr().out)["exactness"]
    assert (verdict["is_exact"], verdict["different"], verdict["oracle"]) == (True, 0, "the source as it was read")


def test_ci_limits_integers_that_differ(quantized_model: Path, capsys: Captured) -> None:
    model = {"source": str(quantized_model), "limits": {"different_integers": 0}}
    Path("ci.yaml").write_text(json.dumps({"models": {"net": model}}))
    assert main(["ci", "ci.yaml"]) == 0
    assert "bit-exact: " in capsys.readouterr().out
    model["source"] = str(examples() / "digits.onnx")
    Path("ci.yaml").write_text(json.dumps({"models": {"net": model}}))
    assert main(["ci", "ci.yaml"]) == 2
    assert "compute in float" in capsys.readouterr().out


@pytest.mark.parametrize("name", [*SMALL, *(pytest.param(name, marks=pytest.mark.slow) for name in LARGE)])
def test_quantized_models_of_the_data_set_are_exact(name: str, data_root: Path) -> None:
    """The engine's integers come from kernels that are independent of this package."""
    source, _ = model_files(data_root, entries(data_root)[name])
    pytest.importorskip("onnxruntime" if source.suffix == ".onnx" else "ai_edge_litert")
    result = verify_model(source, oracle="auto")
    assert result.exactness is not None
    assert result.exactness.is_exact, result.exactness.verdict
    assert result.first is None
    assert result.opinion is not None
    assert result.opinion.exactness is not None, result.opinion.problem
    assert result.opinion.exactness.is_exact, result.opinion.exactness.verdict
