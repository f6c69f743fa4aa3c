"""Models in which few nodes are quantized: the first line of the summary, and the condition ``min_int8_share``."""

import json

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.quantize.onnx_builder import OnnxNet
from tpuconvert.__main__ import main
from tpuconvert.conversion.options.options import group_options
from tpuconvert.schema.errors import ThresholdError, UsageError


def network(tmp_path, *, is_volume=True):
    """A conv with 1728 MACs per position. On BM1684 the 3-D conv has no integer form, the 2-D conv has one."""
    net = OnnxNet(0)
    x = net.input("x", 1, 8, *(4, 8, 8)[: 3 if is_volume else 2])
    output = net.conv(net.add("Relu", net.conv(x, 8)), 8)
    path = tmp_path / "net.onnx"
    path.write_bytes(net.model(output).SerializeToString())
    np.savez(tmp_path / "samples.npz", x=np.concatenate([feeds["x"] for feeds in net.samples(12)]))
    return path, net.samples(12)


def cli(*arguments):
    return main([str(argument) for argument in arguments])


def test_a_model_that_stays_float_says_so_first_with_reason_and_share(tmp_path, capsys):
    path, _ = network(tmp_path)
    given = ["convert", path, "-o", tmp_path / "net.tpum", "--chip", "bm1684", "--quantize", "int8"]
    assert cli(*given, "--calibration", tmp_path / "samples.npz") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "only 0.0% of the multiply-accumulates are in integers" in lines[1]
    assert "100.0%: conv3d x2 (" in lines[2] and "BM1684 has no integer form of conv3d" in lines[2]
    assert cli("inspect", tmp_path / "net.tpum", "--summary") == 0
    assert "only 0.0% of the multiply-accumulates" in capsys.readouterr().out.splitlines()[1]


def test_reasons_come_with_their_share_largest_first(tmp_path):
    net = OnnxNet(0)
    x = net.input("x", 1, 8, 8, 8)
    small = net.conv(x, 4)  # 64 * 4 * 72 = 18432
    left, right = net.reshape(net.conv(x, 8), 1, 8, 64), net.reshape(small, 1, 4, 64)  # 36864
    product = net.add("MatMul", net.permute(left, 0, 2, 1), net.add("Softmax", left, axis=-1))  # 64 * 64 * 8 = 32768
    output = net.add("MatMul", product, net.add("MatMul", net.permute(right, 0, 2, 1), right))  # 262144 and 16384
    path = tmp_path / "net.onnx"
    path.write_bytes(net.model(output).SerializeToString())
    model = tc.convert(path, chip="bm1684", quantize="int8", calibration=net.samples(12))
    first, second, *_ = model.summary().splitlines()[1:]
    integers = 18432 + 36864
    share = integers / (integers + 32768 + 262144 + 16384)
    assert f"only {share:.1%} of the multiply-accumulates" in first
    assert f"{1 - share:.1%}: matrix_mul x3" in second and "weights are computed while the model runs" in second


def test_a_model_in_integers_has_no_warning(tmp_path):
    path, samples = network(tmp_path, is_volume=False)
    model = tc.convert(path, chip="bm1684", quantize=tc.Quantization(min_int8_share=1.0), calibration=samples)
    assert "multiply-accumulates" not in model.summary()


def test_the_gate_fails_with_the_exit_code_of_thresholds(tmp_path, capsys):
    path, samples = network(tmp_path)
    given = {"chip": "bm1684", "quantize": "int8", "calibration": samples}
    with pytest.raises(ThresholdError, match=r"0.0000 of the multiply-accumulates .* at least 0.9; in float: conv3d"):
        tc.convert(path, **group_options(min_int8_share=0.9, **given))
    assert tc.convert(path, **group_options(min_int8_share=0, **given)).content.quantize == "none"
    options = ["--chip", "bm1684", "--calibration", tmp_path / "samples.npz", "--min-int8-share", "0.5"]
    for command in (["convert", path, "--quantize", "int8"], ["quantize", path]):
        assert cli(*command, "-o", tmp_path / "out.tpum", *options) == 5
        assert "of the multiply-accumulates are in integers" in capsys.readouterr().err
        assert not (tmp_path / "out.tpum").exists()


def test_the_gate_is_an_option_of_the_manifest(tmp_path, capsys):
    network(tmp_path)
    job = {"source": "net.onnx", "calibration": "samples.npz", "output": "net.tpum"}
    options = {"chip": "bm1684", "quantize": "int8", "min_int8_share": 0.5}
    (tmp_path / "models.yaml").write_text(json.dumps({"models": {"net": {**job, **options}}}))
    assert cli("ci", tmp_path / "models.yaml") == 5
    shown = capsys.readouterr()
    assert "of the multiply-accumulates are in integers" in shown.out + shown.err


@pytest.mark.parametrize("share", [-0.1, 1.5, 95])
def test_a_share_is_from_0_to_1(share, tmp_path):
    path, samples = network(tmp_path)
    with pytest.raises(UsageError, match="expected a number from 0 to 1"):
        tc.convert(path, quantize=tc.Quantization(min_int8_share=share), calibration=samples)


def test_a_float_model_has_no_share(tmp_path):
    path, _ = network(tmp_path)
    with pytest.raises(UsageError, match="this one is float"):
        tc.convert(path, quantize=tc.Quantization(min_int8_share=0.5))


def test_open_extents_have_a_share(tmp_path):
    net = OnnxNet(0)
    output = net.conv(net.input("x", 1, 3, 8, 8), 4)
    proto = net.model(output)
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    proto.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "N"
    path = tmp_path / "net.onnx"
    path.write_bytes(proto.SerializeToString())
    shapes = {"x": ("N", 3, 8, 8)}
    tc.convert(
        path,
        quantize=tc.Quantization(min_int8_share=1.0),
        calibration=net.samples(12),
        source_options=tc.SourceOptions(input_shapes=shapes),
    )
