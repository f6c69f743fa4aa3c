"""Legalization of annotated graphs to integer operators, and their results."""

import dataclasses
import sys

import numpy as np
import pytest

from tests.support.quantize.networks import RELU, Net, calibrate_and_annotate, signal_to_noise, sqnr_of_roundings
from tpuconvert.optimizer.quantize import legalize
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.errors import InternalError, ProblemList
from tpuconvert.schema.graph.graph import Graph, Port
from tpuconvert.schema.graph.legality import check_graph
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Max, Mul, Sub
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.convolution.deconv import Deconv
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.pad import Pad
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.shifts.shift_arithmetic import SubShift
from tpuconvert.schema.ops.upsample import Upsample
from tpuconvert.schema.types import F32, I8, U8, Chip, QuantParams, Scalar, TensorType

legalize_module = sys.modules[legalize.__module__]  # in the package, the name of the module refers to the function
CHIPS = (Chip.BM1684, Chip.BM1686)
TANH = Active(ActiveType.ACTIVE_TANH)
AVERAGE = Pool(stride_h=2, stride_w=2, kernel_h=2, kernel_w=2, pooling_type=PoolType.AVE)
GLOBAL = dataclasses.replace(AVERAGE, is_global_pooling=True)
EDGES = Pool(stride_h=2, stride_w=2, kernel_h=3, kernel_w=3, pad_h=1, pad_w=1, pooling_type=PoolType.AVE)


@dataclasses.dataclass(frozen=True)
class OnChip:
    graph: Graph
    chip: Chip


def lower(net: Net, graph: Graph, chip: Chip):
    """Quantize, legalize, check, run. Returns the new graph, its float nodes, and the signal-to-noise ratio in dB."""
    samples, expected, reasons = calibrate_and_annotate(net, graph, chip)
    result = legalize(graph, chip, reasons)
    result.graph.validate()
    problems = ProblemList("net")
    check_graph(result.graph, chip, problems)
    problems.raise_if_any()
    with Session(OnChip(result.graph, chip)) as session:
        found = [session.run(feeds) for feeds in samples]
    name = graph.output_ports[0].name
    noise = signal_to_noise(np.stack([e[name] for e in expected]), np.stack([f[name] for f in found]))
    return result.graph, result.float_nodes, noise


def ops(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


def test_a_convolution_becomes_a_product_and_a_rescale_and_its_relu_nothing():
    net = Net()
    graph = net.done(net.conv(net.conv(net.x, 4, "a"), 4, "b"))
    new, floats, noise = lower(net, graph, Chip.BM1686)
    assert ops(new) == [
        "requant_fp32_to_int", "conv_v2", "requant_int32", "conv_v2", "requant_int32", "clamp", "dequant_int_to_fp32",
    ]  # fmt: skip
    assert floats == ()
    assert noise > sqnr_of_roundings(4)  # the input, the weights of two, the result between them
    assert new.find("a").quant is not None, "values keep the names that verification compares by"


def test_a_convolution_on_bm1684_rescales_by_itself():
    net = Net()
    graph = net.done(net.conv(net.conv(net.x, 4, "a"), 4, "b"))
    new, floats, noise = lower(net, graph, Chip.BM1684)
    # An 8-bit result is computed with 16 bits and rounded; the result for float users keeps the 16 bits.
    assert ops(new) == ["muls", "cast", "conv", "adds_shift", "conv", "clamp", "cast", "muls"]
    assert floats == ()
    assert noise > 33  # 29 if the accumulator is rounded to units of one to two steps first


BODIES = {
    "depthwise": lambda net, y: net.conv(y, 4, "d", groups=4),
    "add": lambda net, y: net.graph.add(Add(), y, net.conv(y, 4, "d", relu=False), name="s"),
    "sub": lambda net, y: net.graph.add(Sub(), y, net.conv(y, 4, "d"), name="s"),
    "mul": lambda net, y: net.graph.add(Mul(), y, net.conv(y, 4, "d", relu=False), name="s"),
    "mul of unsigned": lambda net, y: net.graph.add(Mul(), y, net.conv(y, 4, "d"), name="s"),
    "max": lambda net, y: net.graph.add(Max(), y, net.conv(y, 4, "d", relu=False), name="s"),
    "concat": lambda net, y: net.graph.add(Concat(1), y, net.conv(y, 4, "d", relu=False), name="s"),
    "tanh": lambda net, y: net.graph.add(TANH, net.conv(y, 4, "d", relu=False), name="s"),
    "max pooling": lambda net, y: net.graph.add(Pool(stride_h=2, stride_w=2, kernel_h=2, kernel_w=2), y, name="s"),
    "average pooling": lambda net, y: net.graph.add(AVERAGE, y, name="s"),
    "global pooling": lambda net, y: net.graph.add(GLOBAL, y, name="s"),
    "pooling with padding": lambda net, y: net.graph.add(EDGES, y, name="s"),
    "upsample": lambda net, y: net.graph.add(Upsample(2), y, name="s"),
    "pad": lambda net, y: net.graph.add(Pad(Scalar.f32(0.5), (0, 0, 0, 0, 1, 1, 2, 0)), y, name="s"),
}


@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.value)
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_integer_forms_compute_what_the_float_graph_does(body, chip):
    """The bound is a few 8-bit roundings in a row; a wrong scale or zero point gives less than 10 dB."""
    net = Net()
    y = body(net, net.conv(net.x, 4, "a"))
    graph = net.done(net.conv(y, 5, "z", kernel=1))
    _, floats, noise = lower(net, graph, chip)
    assert floats == ()
    assert noise > sqnr_of_roundings(9, is_power_of_two=True)  # three layers, and two operands between them


@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.value)
def test_fully_connected(chip):
    net = Net()
    flat = net.graph.add(Reshape((1, 144)), net.conv(net.x, 4, "a"))
    y = net.graph.add(MatrixMul(), flat, net.constant(144, 7, scale=0.1), net.constant(1, 7), name="y")
    new, floats, noise = lower(net, net.done(y), chip)
    assert floats == ()
    assert noise > sqnr_of_roundings(4, is_power_of_two=chip is Chip.BM1684)  # two operands, two weights
    assert new.find("y").dtype.bits == 16, "a last result is wide"


def test_transposed_convolution_is_exact_integers_on_bm1686_and_float_on_bm1684():
    for chip, reason in ((Chip.BM1686, None), (Chip.BM1684, "power of two")):
        net = Net()
        y = net.conv(net.x, 4, "a")
        up = net.graph.add(Deconv(stride_h=2, stride_w=2), y, net.constant(4, 3, 2, 2, name="u"), name="up")
        new, floats, noise = lower(net, net.done(net.conv(up, 3, "z")), chip)
        # Three operands and three weights.
        assert noise > sqnr_of_roundings(6, is_power_of_two=chip is Chip.BM1684)
        assert [reason in item.reason for item in floats] == ([] if reason is None else [True])
        assert ("deconv_v2" in ops(new)) == (reason is None)


def quantized_source(op_count=1):
    """The graph of a quantized source: int8 ports with zero points, and annotations."""
    graph = Graph("q", "q.tflite")
    graph.rescale = "tflite"
    x_quant = QuantParams.per_tensor(0.1, -3, I8)
    y_quant = QuantParams.per_tensor(0.05, 7, I8)
    w_quant = QuantParams((0.02, 0.01), (0, 0), I8, axis=0)
    x = graph.input("x", TensorType(F32, (1, 3, 4, 4)), Port("x", "int8", (1, 3, 4, 4), x_quant), x_quant)
    stored = np.random.default_rng(0).integers(-127, 128, (2, 3, 1, 1)).astype(np.int8)
    bias = np.array([500, -700], np.int32).reshape(1, 2, 1, 1)
    bias_quant = QuantParams((0.002, 0.001), (0, 0), I8, axis=1)
    from tpuconvert.schema.ops.convolution.conv import Conv
    from tpuconvert.schema.types import I32

    w = graph.constant(w_quant.dequantize(stored), "w", w_quant, stored)
    float_bias = (bias * np.array([0.002, 0.001]).reshape(1, 2, 1, 1)).astype(np.float32)
    b = graph.constant(float_bias, "b", dataclasses.replace(bias_quant, dtype=I32), bias)
    pre = graph.add(Conv(), x, w, b, name="y:pre")
    y = graph.add(RELU, pre, name="y")
    y.quant = y_quant
    graph.output(y, Port("y", "int8", (1, 2, 4, 4), y_quant))
    return graph, stored, bias


def gemmlowp(value: int, factor: float) -> int:
    """TFLite's rescale in Python integers: round half up by 31 bits, then half away from zero."""
    fraction, exponent = np.frexp(factor)
    multiplier = int(np.floor(fraction * 2**31 + 0.5))
    high = (value * multiplier + (1 << 30)) >> 31
    divisor = 1 << -int(exponent)
    quotient, rest = divmod(abs(high), divisor)
    rounded = quotient + (2 * rest >= divisor)
    return rounded if high >= 0 else -rounded


def test_a_quantized_source_runs_on_its_own_integers_to_the_bit():
    graph, stored, bias = quantized_source()
    result = legalize(graph, Chip.BM1686)
    assert ops(result.graph) == ["conv_v2", "requant_int32", "clamp"]
    x = np.random.default_rng(1).integers(-128, 128, (1, 3, 4, 4)).astype(np.int8)
    with Session(result.graph) as session:
        found = session.run({"x": x})["y"]
    assert found.dtype == np.int8
    for c, i, j in np.ndindex(2, 4, 4):
        acc = sum((int(x[0, k, i, j]) + 3) * int(stored[c, k, 0, 0]) for k in range(3)) + int(bias[0, c, 0, 0])
        want = gemmlowp(acc, 0.1 * (0.02, 0.01)[c] / 0.05) + 7
        assert found[0, c, i, j] == min(max(want, 7), 127)


def test_a_quantized_source_on_a_chip_without_integers_keeps_its_ports():
    graph, _, _ = quantized_source()
    expected = legalize(quantized_source()[0], Chip.BM1686).graph
    x = np.random.default_rng(1).integers(-128, 128, (1, 3, 4, 4)).astype(np.int8)
    result = legalize(graph, Chip.BM1682)
    assert ops(result.graph) == ["conv", "clamp", "active", "clamp"], "integers saturate, so do the floats"
    with Session(result.graph) as session, Session(expected) as integer:
        found, want = session.run({"x": x})["y"], integer.run({"x": x})["y"]
    assert found.dtype == np.int8
    assert np.abs(found.astype(int) - want).max() <= 1


def test_an_unsigned_tflite_result_goes_through_16_bits():
    graph, _, _ = quantized_source()
    unsigned = QuantParams.per_tensor(0.05, 0, U8)
    graph.outputs[0].quant = unsigned
    graph.output_ports[0] = Port("y", "uint8", (1, 2, 4, 4), unsigned)
    assert ops(legalize(graph, Chip.BM1686).graph) == ["conv_v2", "requant_int32", "cast"]


def test_a_copy_that_changes_the_scale_is_a_table():
    graph = Graph("q", "q.tflite")
    graph.rescale = "tflite"
    first, second = QuantParams.per_tensor(0.1, 0, I8), QuantParams.per_tensor(0.2, 5, I8)
    x = graph.input("x", TensorType(F32, (5,)), Port("x", "int8", (5,), first), first)
    y = graph.add(Copy(), x, name="y")
    y.quant = second
    graph.output(y, Port("y", "int8", (5,), second))
    result = legalize(graph, Chip.BM1686)
    assert ops(result.graph) == ["lut"]
    with Session(result.graph) as session:
        assert session.run({"x": np.array([-128, -1, 0, 3, 127], np.int8)})["y"].tolist() == [-59, 5, 5, 7, 69], (
            "ties round up"
        )


def test_a_graph_without_annotations_is_left_alone():
    net = Net()
    graph = net.done(net.conv(net.x, 4, "a"))
    assert legalize(graph, Chip.BM1686).graph is graph


def test_a_form_that_the_chip_does_not_have_is_found_where_it_is_chosen(monkeypatch):
    """BM1684 has no subtraction of shifted integers with an unsigned result."""

    def unsigned_difference(node, lowering):
        a, b = (lowering.quantized_value(value) for value in node.inputs)
        return (lowering.g.add(SubShift(shift=0, out_dtype=U8), a, b, name=node.name),)

    monkeypatch.setattr(legalize_module, "find_lowering", lambda *_, **__: unsigned_difference)
    graph = Graph("net")
    x = graph.input("x", TensorType(F32, (1, 4)))
    y = graph.add(Sub(), x, x, name="difference")
    graph.output(y)
    x.quant = QuantParams.per_tensor(0.5, 0, I8)
    y.quant = QuantParams.per_tensor(0.5, 0, U8)
    with pytest.raises(InternalError, match="integer form of sub has an operator that BM1684 lacks") as raised:
        legalize(graph, Chip.BM1684)
    assert raised.value.node == "difference"
    graph.rescale = "tflite"  # the forms of a quantized source are refused with the other problems of the model
    legalize(graph, Chip.BM1684)


@pytest.mark.parametrize("chip", CHIPS)
def test_scales_beyond_binary32_stay_float(chip):
    graph = Graph("net")
    x = graph.input("x", TensorType(F32, (1, 4)))
    weights = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32) * np.float32(1e30)
    y = graph.add(MatrixMul(), x, graph.constant(weights, "w"), name="y")
    graph.output(y)
    x.quant, y.quant = QuantParams.per_tensor(1e30, 0, I8), QuantParams.per_tensor(1e-38, 0, I8)
    with np.errstate(over="ignore"):
        assert [item.node for item in legalize(graph, chip).float_nodes] == ["y"]
