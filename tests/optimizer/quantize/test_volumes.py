"""INT8 of three-dimensional networks: convolutions of every geometry, and small U-Nets."""

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.quantize.onnx_builder import OnnxNet, compare
from tests.support.sampled import sampled
from tpuconvert.schema.graph.cost import total_macs

GEOMETRIES = {
    "plain": {"kernel_shape": [3, 3, 3], "pads": [1] * 6},
    "pointwise": {"kernel_shape": [1, 1, 1]},
    "strides": {"kernel_shape": [3, 1, 2], "strides": [2, 1, 3]},
    "dilations": {"kernel_shape": [2, 3, 2], "dilations": [2, 1, 3], "pads": [0, 1, 2, 1, 1, 0]},
    "groups": {"kernel_shape": [3, 3, 3], "pads": [1] * 6, "group": 2},
    "depthwise": {"kernel_shape": [3, 3, 3], "pads": [1] * 6, "group": 4},
}


def integer_share(model) -> float:
    """Return the share of the MACs with integer results."""
    nodes = model.graph.nodes
    integers = [node for node in nodes if all(value.dtype.is_integer for value in node.outputs)]
    return total_macs(integers) / total_macs(nodes)


def sqnr(expected, found) -> float:
    """In decibels."""
    noise = np.square(expected.astype(np.float64) - found).mean()
    return 10 * np.log10(np.square(expected.astype(np.float64)).mean() / noise)


@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("geometry", sampled(GEOMETRIES.values(), every=2), ids=GEOMETRIES.keys())
def test_a_volume_convolution_computes_in_int8(geometry, bias, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    net = OnnxNet(0)
    x = net.input("x", 1, 4, 6, 7, 8)
    w = net.normal(8, 4 // geometry.get("group", 1), *geometry["kernel_shape"], scale=0.2)
    output = net.add("Conv", x, w, *[net.normal(8, scale=0.2)] * bias, **geometry)
    path = tmp_path / "net.onnx"
    path.write_bytes(net.model(output).SerializeToString())
    samples = net.samples(16)
    model = tc.convert(path, quantize="int8", calibration=samples)
    assert integer_share(model) == 1
    oracle = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    with tc.Session(model) as session:
        for feeds in samples[:4]:
            (expected,) = oracle.run([output], feeds)
            # Normal samples reach 4 standard deviations: 8 bits leave 127^2 * 12 / 4^2 = 41 dB for the operand, about
            # as much for the weights. The result has 16 bits.
            assert sqnr(expected, session.run(feeds)[output]) > 35


def u_net(seed: int) -> tuple[OnnxNet, str]:
    """Levels of conv, batch norm and ReLU, with residual sums; resized or deconvolved, joined with the level above."""
    net = OnnxNet(seed)

    def normalize(x: str) -> str:
        count = net.channels(x)
        gamma, variance = (net.constant(net.rng.uniform(0.5, 1.5, count).astype(np.float32)) for _ in range(2))
        return net.add("BatchNormalization", x, gamma, net.normal(count), net.normal(count), variance)

    def block(x: str, channels: int) -> str:
        y = net.add("Relu", normalize(net.conv(x, channels)))
        z = net.add("Relu", normalize(net.conv(y, channels)))
        return net.add("Add", y, z) if net.rng.random() < 0.5 else z

    def half(x: str) -> str:
        kind = str(net.rng.choice(["MaxPool", "AveragePool"]))
        return net.add(kind, x, kernel_shape=[2] * 3, strides=[2] * 3)

    def twice(x: str) -> str:
        if seed % 2:
            w = net.normal(net.channels(x), 4, 2, 2, 2, scale=1 / net.channels(x) ** 0.5)
            return net.add("ConvTranspose", x, w, net.normal(4), kernel_shape=[2] * 3, strides=[2] * 3)
        factors = net.constant(np.array([1, 1, 2, 2, 2], np.float32))
        modes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return net.add("Resize", x, "", factors, **modes)

    upper = block(net.input("x", 1, 2, 8, 8, 8), 4)
    middle = block(half(upper), 8)
    lower = block(half(middle), 8)
    middle = block(net.add("Concat", middle, twice(lower), axis=1), 8)
    return net, net.conv(block(net.add("Concat", upper, twice(middle), axis=1), 4), 3, 1)


@pytest.mark.parametrize("seed", sampled(range(4)))
def test_a_u_net_of_volumes_computes_in_int8_and_keeps_its_accuracy(seed, tmp_path):
    net, output = u_net(seed)
    found = compare(net, [output], tmp_path)
    assert integer_share(found.model) == 1
    assert not [note for note in found.model.notes if note.kind == "float"]
    # Eleven layers of about 35 dB each: 25 dB, a cosine of 0.998.
    assert found.worst > 0.998, f"seed {seed}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 30))
def test_random_u_nets_of_volumes_compute_in_int8(seed, tmp_path):
    test_a_u_net_of_volumes_computes_in_int8_and_keeps_its_accuracy(seed, tmp_path)


def test_batch_norm_becomes_part_of_a_volume_convolution(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    net, output = u_net(1)
    path = tmp_path / "net.onnx"
    path.write_bytes(net.model(output).SerializeToString())
    model, feeds = tc.convert(path), net.samples(1)[0]
    assert "batch_norm" not in {node.op.name for node in model.graph.nodes}
    (expected,) = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run([output], feeds)
    with tc.Session(model) as session:
        np.testing.assert_allclose(session.run(feeds)[output], expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def test_a_chip_without_volume_integers_keeps_the_convolution_in_float_and_gives_the_reason(tmp_path):
    net, output = u_net(0)
    found = compare(net, [output], tmp_path, "bm1684", 2)
    notes = [note.message for note in found.model.notes if note.kind == "float"]
    assert "conv3d: BM1684 has no integer form of conv3d" in notes
    assert found.worst > 0.999
