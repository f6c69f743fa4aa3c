"""Which nodes become integer nodes, and at which scales."""

import numpy as np
from optimizer.quantize.networks import RELU, Net, annotated

from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.matrix_mul import MatrixMul
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.types import I8, I16, U8, Chip

SIGMOID = Active(ActiveType.ACTIVE_SIGMOID)


def test_never_negative_is_unsigned_and_the_rest_symmetric():
    net = Net()
    y = net.conv(net.x, 4, "a")
    z = net.conv(y, 4, "b", relu=False)
    graph = net.done(net.conv(z, 4, "c"))
    annotated(net, graph)
    assert graph.find("a").quant.dtype is U8
    assert graph.find("b").quant.dtype is I8
    assert graph.find("x").quant.dtype is I8
    assert graph.find("a").quant.zero_point == graph.find("b").quant.zero_point == (0,)


def test_scales_are_binary32_numbers():
    net = Net()
    graph = net.done(net.conv(net.conv(net.x, 4, "a"), 4, "b"))
    annotated(net, graph)
    for value in graph.values:
        for scale in value.quant.scale if value.quant else ():
            assert float(np.float32(scale)) == scale


def test_the_operand_of_a_clamp_has_the_clamps_scale():
    net = Net()
    y = net.conv(net.x, 4, "a")
    graph = net.done(net.conv(y, 4, "b"))
    annotated(net, graph)
    assert graph.find("a_pre").quant == graph.find("a").quant


def test_an_operand_with_other_readers_keeps_its_own():
    net = Net()
    y = net.conv(net.x, 4, "a", relu=False)
    r = net.graph.add(RELU, y, name="r")
    graph = net.done(net.conv(net.graph.add(Add(), net.conv(y, 4, "b"), net.conv(r, 4, "c"), name="s"), 4, "d"))
    annotated(net, graph)
    assert graph.find("a").quant.dtype is I8
    assert graph.find("r").quant.dtype is U8


def test_operands_of_a_concatenation_share_its_scale():
    net = Net()
    a, b = net.conv(net.x, 4, "a"), net.conv(net.x, 4, "b")
    pooled = net.graph.add(Pool(stride_h=1, stride_w=1, kernel_h=1, kernel_w=1), b, name="pooled")
    both = net.graph.add(Concat(1), a, pooled, name="both")
    graph = net.done(net.conv(both, 4, "c"))
    annotated(net, graph)
    assert {graph.find(name).quant for name in ("a", "a_pre", "b", "b_pre", "pooled")} == {graph.find("both").quant}


def test_results_that_only_float_nodes_read_are_wide():
    net = Net()
    y = net.conv(net.conv(net.x, 4, "a"), 4, "b", relu=False)
    pooled = net.graph.add(
        Pool(stride_h=1, stride_w=1, kernel_h=1, kernel_w=1, pooling_type=PoolType.AVE, is_global_pooling=True), y
    )
    flat = net.graph.add(Reshape((1, 4)), pooled, name="flat")
    scores = net.graph.add(MatrixMul(), flat, net.constant(4, 5, name="w"), name="scores")
    graph = net.done(net.graph.add(Softmax(1), scores, name="probabilities"))
    _, _, reasons = annotated(net, graph)
    assert graph.find("scores").quant.dtype is I16
    assert graph.find("flat").quant.dtype in (I8, U8)
    assert graph.find("probabilities").quant is None
    assert reasons == {"probabilities": "8-bit probabilities would lose accuracy"}


def test_a_last_nonlinear_function_stays_float_and_says_why():
    net = Net()
    y = net.conv(net.x, 4, "a", relu=False)
    graph = net.done(net.graph.add(SIGMOID, y, name="s"))
    _, _, reasons = annotated(net, graph)
    assert graph.find("a").quant.dtype is I16
    assert reasons == {"s": "nothing after it is quantized"}


def test_a_concatenation_is_wide_only_with_all_its_operands():
    net = Net()
    a, b = net.conv(net.x, 4, "a", relu=False), net.conv(net.x, 4, "b", relu=False)
    both = net.graph.add(Concat(1), a, b, name="both")
    graph = net.done(both, net.conv(b, 4, "c"))
    annotated(net, graph)
    assert graph.find("both").quant.dtype is I8
    assert graph.find("a").quant.dtype is I8
    net = Net()
    both = net.graph.add(
        Concat(1), net.conv(net.x, 4, "a", relu=False), net.conv(net.x, 4, "b", relu=False), name="both"
    )
    graph = net.done(both)
    annotated(net, graph)
    assert {graph.find(name).quant for name in ("a", "b", "both")} == {graph.find("both").quant}
    assert graph.find("both").quant.dtype is I16


def test_weights_per_channel_or_per_layer_by_chip():
    for chip, count in ((Chip.BM1686, 4), (Chip.BM1684, 1)):
        net = Net()
        graph = net.done(net.conv(net.x, 4, "a"))
        annotated(net, graph, chip)
        weights = graph.find("a_w")
        assert len(weights.quant.scale) == count
        assert weights.stored.dtype == np.int8
        assert np.allclose(
            weights.quant.dequantize(weights.stored), weights.array, atol=0.51 * max(weights.quant.scale)
        )
