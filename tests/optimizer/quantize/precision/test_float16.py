"""``float16`` rules: casts at the borders only, half the weights, equal bytes in both engines, and refused nodes."""

from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.quantize.networks import signal_to_noise, sqnr_of_roundings
from tests.support.quantize.onnx_builder import OnnxNet
from tpuconvert.__main__ import main
from tpuconvert.conversion.options.options import group_options
from tpuconvert.model.cost import describe_cost
from tpuconvert.schema.types import F16, F32, I8, U8, DType


def chain() -> tuple[OnnxNet, list[str]]:
    """``first -> ReLU -> second -> ReLU -> max pooling -> third -> ReLU6 -> last``; returns the convolutions."""
    net = OnnxNet(0)
    x = net.input("x", 1, 3, 16, 16)
    first = net.conv(x, 8)
    second = net.conv(net.add("Relu", first), 8)
    pooled = net.add("MaxPool", net.add("Relu", second), kernel_shape=[2, 2], strides=[2, 2])
    third = net.conv(pooled, 8)
    limits = net.constant(np.float32(0)), net.constant(np.float32(6))
    last = net.conv(net.add("Clip", third, *limits), 4)
    return net, [first, second, third, last]


def convert(net: OnnxNet, output: str, **options) -> tc.Model:
    return tc.convert(net.model(output), calibration=net.samples(12), **group_options(quantize="int8", **options))


def dtypes(model: tc.Model, *operators: str) -> list[DType]:
    return [node.output.dtype for node in model.graph.nodes if node.op.name in operators]


def test_adjacent_nodes_have_casts_at_the_borders_only(tmp_path: Path) -> None:
    """ReLU, the pooling and the clamp between and after the convolutions change no FLOAT16 number."""
    net, (_, second, third, last) = chain()
    model = convert(net, last, precision=[f"{second}=float16", f"{third}=float16"])
    operators = [node.op.name for node in model.graph.nodes if node.output.dtype is F16]
    assert operators == ["cast", "conv", "active", "pool", "conv", "maxs", "mins"]
    assert dtypes(model, "cast") == [F16, F32]
    assert [node.op.name for node in model.graph.nodes].count("conv_v2") == 2
    assert f"'{second}=float16' selects 1 node: 1 in float16" in model.summary()
    model.save(tmp_path / "net.tpum")
    loaded = tc.load(tmp_path / "net.tpum")
    with tc.Session(loaded) as native, tc.Session(model, backend="reference") as reference:
        for feeds in net.samples(3, seed=1):
            assert native.run(feeds)[last].tobytes() == reference.run(feeds)[last].tobytes()


def test_weights_take_half_the_memory_and_the_cost_is_that_of_float16() -> None:
    net, (_, _, _, last) = chain()
    sizes, seconds = {}, {}
    for setting in ("float16", "float32"):
        model = convert(net, last, precision={"op:conv": setting})
        sizes[setting] = sum(value.array.nbytes for value in model.graph.values if value.is_constant)
        cost = describe_cost(model)
        [layer] = [layer for layer in cost["layers"] if model.graph.nodes[layer["index"]].name == last]
        seconds[setting] = layer["macs"] / cost["peak"]["macs_per_second"][setting.upper()]
        assert layer["seconds"] >= seconds[setting]
    assert sizes["float16"] * 2 == sizes["float32"]
    assert seconds["float16"] * 8 == pytest.approx(seconds["float32"])


def test_less_noise_than_int8() -> None:
    """A FLOAT16 number has 11 significant bits: noise of one rounding is 2^-12 / sqrt(3) at most, below -75 dB."""
    net, (*_, last) = chain()
    with tc.Session(tc.convert(net.model(last))) as session:
        wanted = session.run(net.samples(1)[0])[last]

    def noise(**options) -> float:
        with tc.Session(convert(net, last, **options)) as session:
            return signal_to_noise(wanted, session.run(net.samples(1)[0])[last])

    assert noise() < sqnr_of_roundings(1) + 6  # 8 bits
    assert noise(precision=["op:conv=float16"]) > sqnr_of_roundings(8, bits=12)  # 11 bits and the sign


def test_operators_without_a_float16_form_are_named() -> None:
    net = OnnxNet(0)
    x = net.input("x", 1, 3, 8, 8)
    output = net.conv(net.silu(net.conv(x, 4)), 4)
    message = "no float16 form of silu: silu takes FLOAT32"
    with pytest.raises(tc.UsageError, match=message) as refused:
        convert(net, output, precision=["*=float16"])
    assert "'op:silu=float32'" in str(refused.value.hint)
    model = convert(net, output, precision=["*=float16", "op:silu=int8"])
    assert dtypes(model, "conv") == [F16, F16]
    with pytest.raises(tc.UsageError, match="BM1684 has no FLOAT16 arithmetic"):
        convert(net, output, precision=["op:conv=float16"], chip="bm1684")
    model = convert(net, output, precision=["op:conv=float16"], chip="bm1688")
    assert dtypes(model, "conv") == [F16, F16]


def test_overflow_is_found_in_ranges_and_constants() -> None:
    net = OnnxNet(0)
    x = net.input("x", 1, 3, 8, 8)
    large = net.add("Mul", net.conv(x, 4, gain=1e5), net.constant(np.full((1, 4, 1, 1), 1e-5, np.float32)))
    output = net.conv(large, 4)
    with pytest.raises(tc.UsageError, match=r"has values up to .*, the largest float16 number is 65504") as refused:
        convert(net, output, precision=["*=float16"], disable_rules=["fold_scale_into_previous_linear"])
    assert "--keep-float" in str(refused.value.hint)
    net = OnnxNet(0)
    output = net.conv(net.input("x", 1, 3, 8, 8), 4, gain=1e6)
    with pytest.raises(tc.UsageError, match="the largest float16 number is 65504"):
        convert(net, output, precision=["*=float16"])


def test_an_int8_node_after_a_float16_node_quantizes() -> None:
    net, (_, second, _, last) = chain()
    model = convert(net, last, precision=[f"{second}=float16"])
    assert set(dtypes(model, "requant_fp32_to_int")) <= {U8, I8}
    assert len(dtypes(model, "requant_fp32_to_int")) == 2


@pytest.mark.parametrize("form", ["tpu-mlir", "tpulang", "onnx"])
def test_exporters_name_what_they_do_not_export(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net, (*_, last) = chain()
    convert(net, last, precision=["op:conv=float16"]).save(tmp_path / "net.tpum")
    assert main(["export", str(tmp_path / "net.tpum"), str(tmp_path / "out"), "--to", form]) == 3
    assert "no exact form" in capsys.readouterr().err
