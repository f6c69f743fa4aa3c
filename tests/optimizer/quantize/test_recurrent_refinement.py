"""INT8 of networks that refine coordinates in a loop, as RAFT does: shared weights, gates, correlation, sums."""

import numpy as np
import pytest

from tests.support.quantize.onnx_builder import OnnxNet, compare
from tests.support.sampled import sampled


def network(seed: int) -> tuple[OnnxNet, str]:
    """Two images through one encoder, their correlation, and a gated recurrent unit that moves coordinates."""
    net = OnnxNet(seed)
    size = int(net.rng.choice([4, 8]))
    half = size // 2

    def weights(*shape: int) -> tuple[str, str]:
        return net.normal(*shape, scale=1.4 / np.prod(shape[1:]) ** 0.5), net.normal(shape[0], scale=0.2)

    stem, inner, last = weights(size, 3, 3, 3), weights(size, size, 3, 3), weights(size, size, 3, 3)

    def conv(x: str, shared: tuple[str, str], stride: int = 1) -> str:
        return net.add("Conv", x, *shared, pads=[1] * 4, strides=[stride] * 2)

    def encode(x: str) -> str:
        x = net.add("Relu", conv(x, stem, 2))
        x = net.add("Relu", net.add("Add", x, net.add("Relu", conv(x, inner))))
        return conv(x, last, 2)

    first, second = (encode(net.input(name, 1, 3, 16, 16)) for name in "ab")
    rows = net.permute(net.reshape(first, 1, size, 16), 0, 2, 1)
    product = net.add("MatMul", rows, net.reshape(second, 1, size, 16))
    correlation = net.reshape(net.add("Div", product, net.constant(np.float32(size**0.5))), 16, 1, 4, 4)
    pooled = net.add("AveragePool", correlation, kernel_shape=[2, 2], strides=[2, 2])
    levels = [net.reshape(correlation, 1, 4, 4, 16), net.reshape(pooled, 1, 4, 4, 4)]
    motion = net.add("Concat", *[net.permute(level, 0, 3, 1, 2) for level in levels], axis=1)
    state, context = net.add("Split", first, net.constant(np.array([half, half], np.int64)), outputs=2, axis=1)
    state, context = net.add("Tanh", state), net.add("Relu", context)
    gates = [weights(half, size + 6, 3, 3) for _ in range(3)]
    look, move = weights(4, 20, 3, 3), weights(2, half, 3, 3)
    start = net.constant(np.stack(np.meshgrid(np.arange(4), np.arange(4)))[None].astype(np.float32))
    coordinates = net.add("Add", net.conv(state, 2, gain=0.2), start)
    for _ in range(int(net.rng.integers(1, 4))):
        seen = net.add("Relu", conv(motion, look))
        x = net.add("Concat", context, seen, net.add("Sub", coordinates, start), axis=1)
        both = net.add("Concat", state, x, axis=1)
        update, reset = (net.add("Sigmoid", conv(both, gate)) for gate in gates[:2])
        candidate = net.add("Tanh", conv(net.add("Concat", net.add("Mul", reset, state), x, axis=1), gates[2]))
        kept = net.add("Mul", net.add("Sub", net.constant(np.float32(1)), update), state)
        state = net.add("Add", kept, net.add("Mul", update, candidate))
        coordinates = net.add("Add", coordinates, conv(state, move))
    return net, net.add("Sub", coordinates, start)


@pytest.mark.parametrize("seed", sampled([1, 0, 2], every=3))
def test_refinement_with_shared_convs_and_gates_converts_to_int8(seed, tmp_path):
    net, output = network(seed)
    # Coordinates are about 4, offsets about 0.5: one step of the sum is 1/20 of an offset.
    assert compare(net, [output], tmp_path).worst > 0.98


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_random_refinement_converts_to_int8(seed, tmp_path):
    test_refinement_with_shared_convs_and_gates_converts_to_int8(seed, tmp_path)


@pytest.mark.parametrize("op", ["Add", "Sub"])
def test_a_conv_that_a_sum_with_a_constant_of_its_shape_reads_converts_to_int8(op, tmp_path):
    net = OnnxNet(0)
    y = net.conv(net.input("x", 1, 3, 8, 8), 4)
    output = net.conv(net.add("Relu", net.add(op, y, net.normal(1, 4, 8, 8))), 4)
    # Two convs of 30 dB each.
    assert compare(net, [output], tmp_path).worst > 0.999
