"""BM1684, whose linear operators have one multiplier: weights of two terms, and scales that equalize the weights."""

import numpy as np
import pytest

from tests.support.quantize.networks import RELU, Net, signal_to_noise
from tpuconvert.optimizer.prepare_quantization import prepare
from tpuconvert.optimizer.quantize import calibrate, legalize, quantize, refine
from tpuconvert.optimizer.quantize.scales.channel_scales import OneMultiplier, scale_channels
from tpuconvert.optimizer.quantize.weights.two_term_weights import FINE_STEPS, choose_two_term_nodes, second_term
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.file.file_model import FileModel
from tpuconvert.schema.graph.graph import Graph, Node
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.convolution.deconv import Deconv
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.types import Array, Chip, DType, QuantParams


def network(spread: float, seed: int = 0, outliers: int = 32) -> tuple[Net, Graph]:
    """Pointwise, depthwise and pointwise convolution.

    Output channels of the first one are divided by factors, and the depthwise one undoes this.

    Args:
        spread: largest factor.
        seed: of weights and samples.
        outliers: number of channels with a factor.
    """
    net = Net((1, 32, 8, 8), seed)
    x = net.conv(net.x, 32, "first", kernel=1)
    x = net.conv(x, 32, "depthwise", groups=32)
    graph = net.done(net.conv(x, 64, "last", kernel=1, relu=False))
    sizes = np.ones(32)
    sizes[:outliers] = spread ** -np.linspace(1 / outliers, 1, outliers)
    first, depthwise, _ = (node for node in graph.sorted_nodes() if isinstance(node.op, Conv))
    divide(first, depthwise, 1 / sizes)
    return net, graph


def divide(node: Node, following: Node, sizes: Array) -> None:
    """Divide the output channels of a convolution, and multiply the input channels of the next one."""
    columns = (-1, 1, 1, 1) if following.op.attributes()["groups"] > 1 else (1, -1, 1, 1)
    for value, shape in zip(node.inputs[1:], [(-1, 1, 1, 1), (1, -1, 1, 1)], strict=True):
        value.data = (value.array / sizes.reshape(shape)).astype(np.float32)
    w = following.inputs[1]
    w.data = (w.array * sizes.reshape(columns)).astype(np.float32)


def integer_model(
    net: Net,
    graph: Graph,
    *,
    two_terms: bool = False,
    equalized: bool = False,
    refined: bool = False,
    reconstruction: bool = False,
) -> tuple[Graph, float]:
    """Quantize for BM1684. Return the integer graph and the SQNR of the output on other samples."""
    samples = net.samples(16)
    prepare(graph, ())
    ranges = calibrate(graph, samples, "minmax")
    reasons = quantize(graph, ranges, Chip.BM1684)
    names = choose_two_term_nodes(graph, ranges, reasons) if two_terms else set()
    if equalized:
        scale_channels(graph, ranges, set(reasons), OneMultiplier(names))
    legalized = legalize(graph, Chip.BM1684, reasons, two_terms=names)
    if refined:
        refine(legalized, graph, samples, Chip.BM1684, reconstruction=reconstruction)
    unseen = net.samples(8)
    with Session(graph) as exact, Session(FileModel(legalized.graph, Chip.BM1684, "")) as found:
        pairs = [[session.run(feeds)["last"] for feeds in unseen] for session in (exact, found)]
    return legalized.graph, signal_to_noise(*map(np.stack, pairs))


def ops(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


def test_two_terms_have_about_16_bits():
    rng = np.random.default_rng(0)
    exact = rng.uniform(-127, 127, 1000)
    first = np.rint(exact)
    second = second_term(exact, first)
    # The second term has an error of at most half of its step.
    assert np.abs(first + second / FINE_STEPS - exact).max() <= 0.5 / FINE_STEPS + 1e-12


def test_chooses_depthwise_weights_of_different_size_for_two_terms():
    net, graph = network(20.0, outliers=1)
    graph_of_two, found = integer_model(net, graph, two_terms=True)
    names = {node.name for node in graph_of_two.nodes}
    assert {"depthwise_pre:int16", "depthwise_pre:int16:fine"} <= names
    assert "first_pre:int16:fine" not in names
    assert found > integer_model(*network(20.0, outliers=1))[1] + 5


def test_keeps_one_term_for_weights_of_one_size():
    net, graph = network(1.0)
    assert "add_shift" not in ops(integer_model(net, graph, two_terms=True)[0])


@pytest.mark.parametrize("seed", range(3))
def test_refines_two_terms(seed):
    one, two = (integer_model(*network(20.0, seed, 1), two_terms=each, refined=True)[1] for each in (False, True))
    assert two > one + 3


@pytest.mark.parametrize("seed", range(3))
def test_scales_of_channels_equalize_weights(seed):
    """Small weights give small activations, whose scale can be smaller, so that the weights have more steps."""
    plain, scaled = (integer_model(*network(60.0, seed), equalized=each, refined=True) for each in (False, True))
    assert ops(plain[0]) == ops(scaled[0])  # no cost
    assert scaled[1] > plain[1] + 3


def test_scales_of_channels_keep_the_scale_of_a_graph_output():
    net = Net((1, 8, 12, 12))
    hidden = net.conv(net.x, 16, "first", kernel=1)
    graph = net.done(hidden, net.conv(hidden, 8, "last", kernel=1, relu=False))
    ranges = calibrate(graph, net.samples(), "minmax")
    reasons = quantize(graph, ranges, Chip.BM1684)
    scale_channels(graph, ranges, set(reasons), OneMultiplier())
    assert hidden.quant is not None and hidden.quant.axis is None  # a dequantization has one multiplier on BM1684


def test_transposed_convolutions_get_and_give_one_scale_per_tensor():
    """They stay in float on BM1684."""
    net = Net((1, 8, 12, 12))
    hidden = net.conv(net.x, 16, "first", kernel=1)
    wider = net.graph.add(
        Deconv(stride_h=2, stride_w=2),
        hidden,
        net.constant(16, 16, 2, 2, scale=0.2, name="wider_w"),
        net.constant(1, 16, 1, 1, name="wider_b"),
        name="wider",
    )
    graph = net.done(net.conv(wider, 8, "last", kernel=1, relu=False), net.conv(hidden, 8, "other", kernel=1))
    made, found = integer_model(net, graph, equalized=True)
    assert "deconv" in ops(made)
    assert found > 20
    assert all(value.quant is None or value.quant.axis is None for value in (hidden, wider))


def test_averages_of_channels_with_scales_are_integers():
    """They are a depthwise convolution with one multiplier: the ratio of the scales is the same for every channel."""
    net = Net((1, 32, 8, 8))
    hidden = net.conv(net.x, 32, "first", kernel=1)
    average = Pool(stride_h=1, stride_w=1, kernel_h=8, kernel_w=8, pooling_type=PoolType.AVE)
    pooled = net.graph.add(average, hidden, name="pooled")
    graph = net.done(net.conv(pooled, 8, "last", kernel=1, relu=False))
    first, last = (node for node in graph.sorted_nodes() if isinstance(node.op, Conv))
    divide(first, last, 60.0 ** np.linspace(0, 1, 32))
    made, found = integer_model(net, graph, equalized=True)
    assert hidden.quant is not None and hidden.quant.axis == 1
    assert "pool" not in ops(made)
    assert found > 25


@pytest.mark.parametrize("zero_point", [0, 3])
def test_float_nodes_have_operands_and_results_with_scales_per_channel(zero_point):
    """BM1684 quantizes and dequantizes channels by products with their scales."""
    net = Net((1, 4, 2, 2))
    hidden = net.graph.add(RELU, net.x, name="hidden")
    pooled = net.graph.add(Pool(stride_h=1, stride_w=1, kernel_h=2, kernel_w=2), hidden, name="pooled")
    graph = net.done(pooled)
    scales = (0.02, 0.03, 0.05, 0.07)
    hidden.quant = pooled.quant = QuantParams(scales, (zero_point,) * 4, DType.UINT8, axis=1)
    made = legalize(graph, Chip.BM1684, {"hidden": "asked for"}).graph
    assert next(node for node in made.nodes if node.name == "pooled").inputs[0].dtype is DType.UINT8
    feeds = net.samples(1)[0]
    with Session(graph) as exact, Session(FileModel(made, Chip.BM1684, "")) as session:
        error = np.abs(exact.run(feeds)["pooled"] - session.run(feeds)["pooled"])
    assert (error <= np.reshape(scales, (1, 4, 1, 1)) * 0.501).all()


@pytest.mark.parametrize("seed", range(3))
def test_later_weights_compensate_for_coarse_ones(seed):
    """16 channels are linear functions of 8: their errors are too, and the next weights can compensate for them."""
    found = []
    for reconstruction in (False, True):
        net = Net((1, 8, 12, 12), seed)
        hidden = net.conv(net.x, 16, "first", kernel=1, relu=False)
        graph = net.done(net.conv(hidden, 8, "last", kernel=1, relu=False))
        divide(*graph.nodes, 60.0 ** np.linspace(0, 1, 16))
        found.append(integer_model(net, graph, refined=True, reconstruction=reconstruction)[1])
    assert found[1] > found[0] + 0.2
