"""INT8 of residual blocks with SiLU, as YOLOv8 has them (C2f): random networks, and the scales of split results."""

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.paired import paired
from tests.support.quantize.onnx_builder import OnnxNet, compare


def c2f(net: OnnxNet, x: str, channels: int, blocks: int, residual: bool) -> str:
    """A pointwise conv, a split, bottlenecks on one half, and a concatenation of all parts."""
    half = channels // 2
    y = net.silu(net.conv(x, channels, 1))
    parts = net.add("Split", y, net.constant(np.array([half, half], np.int64)), outputs=2, axis=1)
    for _ in range(blocks):
        z = net.silu(net.conv(net.silu(net.conv(parts[-1], half)), half))
        parts.append(net.add("Add", parts[-1], z) if residual else z)
    return net.silu(net.conv(net.add("Concat", *parts, axis=1), channels, 1))


def network(seed: int) -> tuple[OnnxNet, str]:
    net = OnnxNet(seed)
    y = net.silu(net.conv(net.input("x", 1, 3, 16, 16), int(net.rng.choice([4, 8])), stride=2))
    for _ in range(int(net.rng.integers(1, 4))):
        blocks, residual = int(net.rng.integers(1, 4)), bool(net.rng.random() < 0.8)
        y = c2f(net, y, int(net.rng.choice([4, 8, 12])), blocks, residual)
    return net, net.conv(y, 4, 1)


# Up to 25 convolutions of 2 to 12 channels in a row, each of which adds noise about 30 dB below its values: 15 dB are
# left, a cosine of 0.98. One of 80 networks has 10 dB. Wrong scales give less than 0.9.
WORST = 0.94


def check(seed, folder, chip):
    net, output = network(seed)
    found = compare(net, [output], folder, chip)
    assert found.worst > WORST, f"seed {seed}: cosine {found.worst}"


@pytest.mark.parametrize(
    ("chip", "seed"),
    [
        *paired(["bm1684", "bm1686"], [3, 4]),
        *(pytest.param(c, 15, marks=pytest.mark.slow) for c in ("bm1684", "bm1686")),
    ],
)
def test_networks_with_split_and_residual_sums_convert_to_int8(seed, chip, tmp_path):
    check(seed, tmp_path, chip)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(80))
def test_random_networks_with_split_and_residual_sums_convert_to_int8(seed, tmp_path):
    check(seed, tmp_path, "bm1686")


def test_results_of_a_split_keep_the_scale_of_its_operand(tmp_path):
    """One half is used by a concatenation only, the other by a conv, with the scale of the split."""
    net = OnnxNet(0)
    y = net.conv(net.input("x", 1, 3, 8, 8), 8)
    a, b = net.add("Split", y, net.constant(np.array([4, 4], np.int64)), outputs=2, axis=1)
    large = net.add("Mul", net.conv(b, 4), net.constant(np.float32(30)))
    output = net.conv(net.add("Concat", a, large, axis=1), 4)
    # Each conv sums 3 x 3 x 4 products; 30 dB is a cosine of 0.9995.
    assert compare(net, [output], tmp_path).worst > 0.998


@pytest.mark.parametrize("chip", ["bm1684", "bm1686"])
def test_a_source_may_state_another_scale_for_each_result_of_a_split(chip, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    net = OnnxNet(0)
    zero = net.constant(np.int8(0))

    def quantize(x: str, scale: float) -> str:
        step = net.constant(np.float32(scale))
        return net.add("DequantizeLinear", net.add("QuantizeLinear", x, step, zero), step, zero)

    x = quantize(net.input("x", 1, 4, 3, 3), 0.02)
    parts = net.add("Split", x, net.constant(np.array([2, 2], np.int64)), outputs=2, axis=1)
    outputs = [quantize(part, scale) for part, scale in zip(parts, (0.05, 0.125), strict=True)]
    path = tmp_path / "net.onnx"
    path.write_bytes(net.model(*outputs).SerializeToString())
    model, feeds = tc.convert(path, chip=chip), net.samples(1)[0]
    wanted = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(outputs, feeds)
    with tc.Session(model) as session:
        found = session.run(feeds)
    for name, expected in zip(outputs, wanted, strict=True):
        np.testing.assert_allclose(found[name], expected, rtol=0, atol=1e-6)  # multiples of 0.05 and 0.125
