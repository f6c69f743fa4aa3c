"""``asymmetric`` rules: zero points from calibrated ranges, less error of skewed tensors, padding, refused nodes."""

import json
from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.quantize.networks import signal_to_noise
from tests.support.quantize.onnx_builder import OnnxNet
from tests.support.sampled import sampled
from tpuconvert.__main__ import main
from tpuconvert.conversion.options.options import group_options
from tpuconvert.optimizer.quantize.ranges.ranges import Range
from tpuconvert.optimizer.quantize.refinement.operand_statistics import OperandSamples
from tpuconvert.optimizer.quantize.scales.annotate import activation_params
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.convolution.conv_v2 import ConvV2
from tpuconvert.schema.types import I8, U8, Chip, QuantParams, TensorType


def slopes(net: OnnxNet, largest: float) -> str:
    return net.constant(np.linspace(-0.1, largest, 12, dtype=np.float32)[:, None, None])


ACTIVATIONS = {
    "silu": lambda net, x: net.silu(x),
    "hard_swish": lambda net, x: net.add("HardSwish", x),
    "leaky_relu": lambda net, x: net.add("LeakyRelu", x, alpha=0.1),
    "prelu": lambda net, x: net.add("PRelu", x, slopes(net, 0.3)),
    "steep_prelu": lambda net, x: net.add("PRelu", x, slopes(net, 1.4)),
}


def network(activation: str) -> tuple[OnnxNet, str, str]:
    """Padded convolutions, a residual add, a concat and an average; returns the first activation and the output."""
    net, function = OnnxNet(1), ACTIVATIONS[activation]
    first = function(net, net.conv(net.input("x", 2, 3, 16, 16), 12))
    second = function(net, net.conv(first, 12))
    total = net.add("Add", first, function(net, net.conv(second, 12)))
    pooled = net.add("AveragePool", net.add("Concat", total, second, axis=1), kernel_shape=[2, 2], strides=[2, 2])
    return net, first, net.conv(function(net, net.conv(pooled, 12)), 8)


def convert(net: OnnxNet, output: str, **options) -> tc.Model:
    return tc.convert(net.model(output), calibration=net.samples(16), **group_options(quantize="int8", **options))


def quant_of(model: tc.Model, name: str) -> QuantParams:
    value = model.graph.find(name)
    assert value is not None and value.quant is not None
    return value.quant


@pytest.mark.parametrize("activation", sampled(ACTIVATIONS, every=5))
def test_skewed_tensors_have_less_error(activation: str) -> None:
    """The scale is (high - low) / 255 instead of 2 * max / 255; both engines compute the same bytes."""
    net, first, output = network(activation)
    noise = {}
    with tc.Session(tc.convert(net.model(output))) as session:
        wanted = [session.run(feeds)[output] for feeds in net.samples(4, seed=9)]
    for rule in ("symmetric", "asymmetric"):
        model = convert(net, output, precision={"*": rule}, without=["channel-scales", "method-search"])
        with tc.Session(model) as native, tc.Session(model, backend="reference") as reference:
            found = [native.run(feeds)[output] for feeds in net.samples(4, seed=9)]
            assert found[0].tobytes() == reference.run(net.samples(1, seed=9)[0])[output].tobytes()
        noise[rule] = np.mean([signal_to_noise(a, b) for a, b in zip(wanted, found, strict=True)])
    asymmetric = quant_of(model, first)
    rules = {"*": "symmetric"}
    symmetric = quant_of(convert(net, output, precision=rules, without=["channel-scales", "method-search"]), first)
    assert (symmetric.dtype, asymmetric.dtype, asymmetric.axis) == (I8, U8, None)
    assert 0 < asymmetric.zero_point[0] <= 128
    ratio, gain = (0.99, 0) if activation == "steep_prelu" else (1.4, 1.5)
    assert symmetric.scale[0] / asymmetric.scale[0] > ratio
    assert noise["asymmetric"] > noise["symmetric"] + gain


def test_parameters_from_a_range() -> None:
    """Positive and negative ends are limited by the threshold. Zero is an integer."""
    assert activation_params(Range(-1.0, 4.1, 4.1), True) == QuantParams.per_tensor(np.float32(0.02), 50, U8)
    assert activation_params(Range(-9.0, 4.1, 1.0), True) == QuantParams.per_tensor(np.float32(2 / 255), 127, U8)
    assert activation_params(Range(-2.55, -1.0, 2.55), True) == QuantParams.per_tensor(np.float32(0.01), 255, U8)
    assert activation_params(Range(1.0, 2.55, 2.55), True) == QuantParams.per_tensor(np.float32(0.01), 0, U8)
    assert activation_params(Range(0.0, 0.0, 0.0), True) == activation_params(Range(0.0, 0.0, 0.0))


def test_the_last_rule_decides_and_effects_are_counted() -> None:
    net, first, output = network("silu")
    model = convert(net, output, precision=["op:*=asymmetric", f"{first}=symmetric"])
    assert quant_of(model, first).zero_point == (0,) * len(quant_of(model, first).zero_point)
    assert f"'{first}=symmetric' selects 1 node: 1 of 1 tensors symmetric" in model.summary()
    model = convert(net, output, precision=["x=asymmetric", f"{first}=asymmetric,threshold:1"])
    assert f"'{first}=asymmetric,threshold:1' selects 1 node: 1 of 1 tensors with this range, 1 of" in model.summary()
    assert "'x=asymmetric' selects 1 input: 1 of 1 tensors asymmetric" in model.summary()
    assert quant_of(model, "x:uint8").zero_point[0] > 100
    assert quant_of(model, first).scale[0] * 255 == pytest.approx(1.2785, abs=1e-3)  # the minimum of SiLU is -0.2785


def test_padding_is_the_zero_point_in_the_statistics_of_refinement() -> None:
    """The covariance of the inputs of a convolution counts padding as 0, which is the integer 100 here."""
    graph = Graph("net")
    x = graph.input("x", TensorType(U8, (1, 1, 2, 2)))
    weight = graph.constant(np.ones((1, 1, 3, 3), np.int8), "w")
    bias = graph.constant(np.zeros((1, 1, 1, 1), np.int32), "b")
    op = ConvV2(pad_h_t=1, pad_h_b=1, pad_w_l=1, pad_w_r=1, izp_val=100, has_bias=True)
    graph.output(graph.add(op, x, weight, bias, name="y"))
    samples = [{"x": np.full((1, 1, 2, 2), 100, np.uint8)}]
    sums = OperandSamples(graph, Chip.BM1686, samples, [graph.nodes[0]]).inputs(0, 4)
    assert not sums.covariance().any()


def test_refused_nodes_are_named() -> None:
    net = OnnxNet(0)
    logits = net.conv(net.silu(net.conv(net.input("x", 1, 3, 8, 8), 4)), 4)
    output = net.add("Softmax", logits, axis=1)
    cases = {
        f"{output}=asymmetric": "stays in float: 8-bit probabilities",
        f"{logits}=asymmetric": "its result has 16 bits, which are symmetric",
        "*=asymmetric,int16": "'int16' and 'asymmetric' exclude each other",
        "*=asymmetric,symmetric": "'asymmetric' and 'symmetric' exclude each other",
        "*=asymmetric,float16": "'float16' and 'asymmetric' exclude each other",
    }
    for rule, message in cases.items():
        with pytest.raises(tc.UsageError, match=message):
            convert(net, output, precision=[rule])
    with pytest.raises(tc.UsageError, match=r"node 'n0_conv': .* integer operators for BM1684 have no zero points"):
        convert(net, output, precision=["*=asymmetric"], chip="bm1684")


def test_an_edited_range_determines_scale_and_zero_point(tmp_path: Path) -> None:
    net, first, output = network("silu")
    source, ranges, target = (str(tmp_path / name) for name in ("net.onnx", "ranges.json", "net.tpum"))
    Path(source).write_bytes(net.model(output).SerializeToString())
    np.savez(tmp_path / "x.npz", x=np.stack([feeds["x"] for feeds in net.samples(16)]))
    rule = ["--precision", f"{first}=asymmetric"]
    assert main(["calibrate", source, "--calibration", str(tmp_path / "x.npz"), "-o", ranges, *rule]) == 0
    content = json.loads(Path(ranges).read_text("utf-8"))
    content["ranges"][first] |= {"low": -0.5, "high": 4.6, "threshold": 4.6}
    Path(ranges).write_text(json.dumps(content), "utf-8")
    assert main(["quantize", source, "--ranges", ranges, "-o", target, *rule]) == 0
    quant = quant_of(tc.load(target), first)
    assert (quant.dtype, quant.zero_point) == (U8, (25,))
    assert quant.scale[0] == pytest.approx(0.02)


@pytest.mark.parametrize("form", sampled(["tpu-mlir", "tpulang", "onnx"], every=3))
def test_exporters_export_or_name_the_node(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net, _, output = network("silu")
    convert(net, output, precision=["*=asymmetric"]).save(tmp_path / "net.tpum")
    code = main(["export", str(tmp_path / "net.tpum"), str(tmp_path / "out"), "--to", form])
    assert code == 0 or (code == 3 and "no exact form" in capsys.readouterr().err)


@pytest.mark.slow
def test_the_search_gives_zero_points_and_ranges_keep_them(tmp_path: Path) -> None:
    net, first, output = network("silu")
    options = {"without": ["channel-scales"]}
    model = convert(net, output, **options)
    assert quant_of(model, first).dtype is U8 and quant_of(model, first).zero_point[0] > 0
    assert "with a zero point" in model.summary()
    assert quant_of(convert(net, output, chip="bm1684", **options), first).zero_point == (0,)
    source, ranges, target = (str(tmp_path / name) for name in ("net.onnx", "ranges.json", "net.tpum"))
    Path(source).write_bytes(net.model(output).SerializeToString())
    np.savez(tmp_path / "x.npz", x=np.stack([feeds["x"] for feeds in net.samples(16)]))
    plain = ["--without", "channel-scales"]
    assert main(["calibrate", source, "--calibration", str(tmp_path / "x.npz"), "-o", ranges]) == 0
    assert json.loads(Path(ranges).read_text("utf-8"))["ranges"][first]["has_zero_point"] is True
    assert main(["quantize", source, "--ranges", ranges, "-o", target, *plain]) == 0
    assert quant_of(tc.load(target), first) == quant_of(model, first)
