"""Quantization for BM1684 in the forms of the vendor's compiler: right shifts and 7-bit multipliers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.native_cases.random_graphs import needs_extension
from tests.support.quantize.networks import Net, signal_to_noise, sqnr_of_roundings
from tpuconvert.optimizer.quantize import calibrate, legalize, quantize
from tpuconvert.optimizer.quantize.lowering.lower_bm1684_shifts import seven_bits
from tpuconvert.optimizer.quantize.weights.weights import shift_weights
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.arithmetic import Add, Mul, Sub
from tpuconvert.schema.ops.convolution.conv import Conv, QCalMode
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.shifts.shift_arithmetic import MulsShift
from tpuconvert.schema.types import F32, I8, I16, Chip, QuantParams, TensorType

AVERAGE = Pool(kernel_h=8, kernel_w=8, stride_h=1, stride_w=1, pooling_type=PoolType.AVE)


def layer(weights, bias, input_scale=0.5):
    """Return an annotated 1x1 convolution."""
    graph = Graph("net")
    quant = QuantParams.per_tensor(input_scale, 0, I8)
    x = graph.input("x", TensorType(F32, (1, weights.shape[1], 4, 4)), quant=quant)
    w = graph.constant(weights.astype(np.float32), "w")
    b = graph.constant(np.asarray(bias, np.float32).reshape(1, -1, 1, 1), "b")
    return graph.add(Conv(), x, w, b).producer


@pytest.mark.parametrize("seed", range(5))
def test_the_shift_has_the_smallest_error_of_the_weights(seed):
    rng = np.random.default_rng(seed)
    weights = rng.standard_t(3, (6, 8, 1, 1))
    result_scale = float(np.exp(rng.normal()))
    found = shift_weights(layer(weights, np.zeros(6)), result_scale)
    assert found is not None
    errors = []
    for shift in range(20):
        scale = result_scale * 2.0**-shift / 0.5
        stored = np.clip(np.rint(weights.astype(np.float32) / scale), -127, 127)
        errors.append(np.square(weights - stored * scale).sum())
    assert found[1] == int(np.argmin(errors))
    assert found[0].units[0] == pytest.approx(result_scale * 2.0 ** -found[1])


def test_a_large_bias_limits_the_shift():
    weights = np.random.default_rng(1).normal(size=(2, 30, 1, 1))
    small, large = (shift_weights(layer(weights, [bias, 0]), 1.0) for bias in (0.0, 2000.0))
    assert small is not None and large is not None
    assert large[1] < small[1]
    assert 2000 / large[0].units[0] <= 30000 < 2000 / large[0].units[0] * 2
    assert shift_weights(layer(weights, [40000.0, 0]), 1.0) is None


@given(st.floats(2.0**-24, 127.0))
def test_seven_bits_are_within_half_a_percent(factor):
    found = seven_bits(factor)
    assert found is not None
    multiplier, shift = found
    assert 64 <= multiplier <= 127 and 0 <= shift <= 31
    assert abs(multiplier * 2.0**-shift - factor) <= factor / 128


def test_factors_outside_the_range_have_no_multiplier():
    assert seven_bits(2.0**-26) is None and seven_bits(256.0) is None


def small_network():
    """Return a network with convolutions, a sum, a difference, a product, an average and a matmul."""
    net = Net((1, 4, 8, 8))
    a = net.conv(net.x, 6, "a")
    b = net.conv(net.x, 6, "b", relu=False)
    total = net.graph.add(Add(), a, b, name="sum")
    difference = net.graph.add(Sub(), total, net.conv(total, 6, "c", groups=2), name="difference")
    gate = net.conv(net.x, 6, "gate", kernel=1, relu=False)
    product = net.graph.add(Mul(), difference, gate, name="product")
    mean = net.graph.add(AVERAGE, product, name="mean")
    flat = net.graph.add(Reshape((1, 6)), mean)
    y = net.graph.add(MatrixMul(), flat, net.constant(6, 5, name="w"), net.constant(1, 5, name="b"), name="y")
    return net, net.done(y)


def quantized(net, graph):
    samples = net.samples()
    with Session(graph) as session:
        wanted = np.concatenate([session.run(feed)["y"] for feed in samples])
    reasons = quantize(graph, calibrate(graph, samples, "minmax"), Chip.BM1684, shifts_only=True)
    return samples, wanted, legalize(graph, Chip.BM1684, reasons, shifts_only=True)


def test_every_operator_has_the_form_of_the_compiler():
    _, _, legalized = quantized(*small_network())
    assert not legalized.float_nodes
    linear = [node for node in legalized.graph.nodes if isinstance(node.op, (Conv, MatrixMul))]
    assert len(linear) == 6  # four convolutions, the average and the matmul
    for node in linear:
        assert node.op.mode is QCalMode.LowPrecisionSymmetric
        assert np.log2(node.op.scale) == round(np.log2(node.op.scale)) <= 0
        assert node.inputs[2].dtype is I16 and node.output.dtype.bits == 8
    rescales = [node.op for node in legalized.graph.nodes if isinstance(node.op, MulsShift)]
    assert len(rescales) == 5  # two operands of both sums, and the product
    assert all(64 <= op.scalar.value <= 127 for op in rescales)


@needs_extension
def test_integers_are_close_to_float_and_equal_in_the_reference():
    samples, wanted, legalized = quantized(*small_network())
    results = {}
    for backend in ("native", "reference"):
        with Session(legalized.graph, backend=backend) as session:
            results[backend] = np.concatenate([session.run(feed)["y"] for feed in samples])
    assert np.array_equal(results["native"], results["reference"])
    # Six linear operators, three sums and products: 2 operands each; their multipliers have 7 bits, from 64 on.
    assert signal_to_noise(wanted, results["native"]) > sqnr_of_roundings(18, bits=7)
