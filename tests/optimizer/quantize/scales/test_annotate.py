"""Selection of the nodes that become integer nodes, and of their scales."""

import numpy as np

from tests.support.quantize.networks import RELU, Net, calibrate_and_annotate
from tpuconvert.optimizer.quantize import legalize
from tpuconvert.optimizer.quantize.scales import channel_scales
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Mul
from tpuconvert.schema.ops.concat import Concat, Split
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.permute import Permute
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
    calibrate_and_annotate(net, graph)
    assert graph.find("a").quant.dtype is U8
    assert graph.find("b").quant.dtype is I8
    assert graph.find("x").quant.dtype is I8
    assert not any((*graph.find("a").quant.zero_point, *graph.find("b").quant.zero_point))


def test_scales_are_binary32_numbers():
    net = Net()
    graph = net.done(net.conv(net.conv(net.x, 4, "a"), 4, "b"))
    calibrate_and_annotate(net, graph)
    scales = [scale for value in graph.values if value.quant for scale in value.quant.scale]
    assert len(scales) >= 3  # at least the scales of the input and of both results
    assert scales == [float(np.float32(scale)) for scale in scales]


def test_the_operand_of_a_clamp_has_the_clamps_scale():
    net = Net()
    y = net.conv(net.x, 4, "a")
    graph = net.done(net.conv(y, 4, "b"))
    calibrate_and_annotate(net, graph)
    assert graph.find("a_pre").quant == graph.find("a").quant


def test_an_operand_with_other_readers_keeps_its_own():
    net = Net()
    y = net.conv(net.x, 4, "a", relu=False)
    r = net.graph.add(RELU, y, name="r")
    graph = net.done(net.conv(net.graph.add(Add(), net.conv(y, 4, "b"), net.conv(r, 4, "c"), name="s"), 4, "d"))
    calibrate_and_annotate(net, graph)
    assert graph.find("a").quant.dtype is I8
    assert graph.find("r").quant.dtype is U8


def test_operands_of_a_concatenation_share_its_scale_on_bm1684():
    net = Net()
    a, b = net.conv(net.x, 4, "a"), net.conv(net.x, 4, "b")
    pooled = net.graph.add(Pool(stride_h=1, stride_w=1, kernel_h=1, kernel_w=1), b, name="pooled")
    both = net.graph.add(Concat(1), a, pooled, name="both")
    graph = net.done(net.conv(both, 4, "c"))
    calibrate_and_annotate(net, graph, Chip.BM1684)
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
    _, _, reasons = calibrate_and_annotate(net, graph)
    assert graph.find("scores").quant.dtype is I16
    assert graph.find("flat").quant.dtype in (I8, U8)
    assert graph.find("probabilities").quant is None
    assert reasons == {"probabilities": "8-bit probabilities would be too coarse"}


def test_a_last_nonlinear_function_stays_float_and_says_why():
    net = Net()
    y = net.conv(net.x, 4, "a", relu=False)
    graph = net.done(net.graph.add(SIGMOID, y, name="s"))
    _, _, reasons = calibrate_and_annotate(net, graph)
    assert graph.find("a").quant.dtype is I16
    assert reasons == {"s": "nothing after it is quantized"}


def test_a_concatenation_is_wide_only_with_all_its_operands():
    net = Net()
    a, b = net.conv(net.x, 4, "a", relu=False), net.conv(net.x, 4, "b", relu=False)
    both = net.graph.add(Concat(1), a, b, name="both")
    graph = net.done(both, net.conv(b, 4, "c"))
    calibrate_and_annotate(net, graph)
    assert graph.find("both").quant.dtype is I8
    assert graph.find("a").quant.dtype is I8
    net = Net()
    both = net.graph.add(
        Concat(1), net.conv(net.x, 4, "a", relu=False), net.conv(net.x, 4, "b", relu=False), name="both"
    )
    graph = net.done(both)
    calibrate_and_annotate(net, graph)
    assert {graph.find(name).quant for name in ("a", "b", "both")} == {graph.find("both").quant}
    assert graph.find("both").quant.dtype is I16


def test_a_split_before_float_nodes_is_wide():
    """Boxes and scores in one tensor, as in detectors: 8 bits would round the scores by a 127th of the largest box."""
    net = Net()
    both = net.graph.add(
        Concat(1), net.conv(net.x, 4, "a", relu=False), net.conv(net.x, 4, "b", relu=False), name="both"
    )
    boxes, scores = net.graph.add_all(Split(1, 2), both, names=["boxes", "scores"])
    graph = net.done(boxes, net.graph.add(SIGMOID, scores, name="s"))
    calibrate_and_annotate(net, graph)
    assert {graph.find(name).quant.dtype for name in ("a", "b", "both", "boxes", "scores")} == {I16}


def test_a_split_is_wide_only_with_all_its_results():
    net = Net()
    boxes, scores = net.graph.add_all(Split(1, 2), net.conv(net.x, 8, "a", relu=False), names=["boxes", "scores"])
    joined = net.graph.add(Concat(1), boxes, net.conv(net.conv(net.x, 4, "b"), 4, "c", relu=False), name="joined")
    graph = net.done(joined, net.conv(net.graph.find("c"), 4, "d"), net.graph.add(SIGMOID, scores, name="s"))
    calibrate_and_annotate(net, graph)
    assert {graph.find(name).quant.dtype for name in ("a", "joined", "boxes", "scores")} == {I8}


def test_channels_have_scales_of_their_own_where_readers_undo_them():
    net = Net()
    a = net.conv(net.x, 4, "a")
    b = net.conv(a, 4, "b", groups=4)
    pooled = net.graph.add(Pool(stride_h=1, stride_w=1, kernel_h=1, kernel_w=1), b, name="pooled")
    total = net.graph.add(Add(), pooled, net.conv(pooled, 4, "c"), name="total")
    graph = net.done(net.conv(total, 4, "d"))
    calibrate_and_annotate(net, graph)
    for name in ("a", "b", "pooled", "c", "total"):
        assert graph.find(name).quant.axis == 1, name
        assert len(graph.find(name).quant.scale) == 4, name
    assert any(len(set(graph.find(name).quant.scale)) > 1 for name in ("a", "b", "c"))
    assert graph.find("b").quant == graph.find("pooled").quant
    assert graph.find("x").quant.axis is None, "the input is multiplied with one factor"


def test_a_concatenation_joins_the_scales_of_its_operands():
    net = Net()
    a, b = net.conv(net.x, 4, "a"), net.conv(net.x, 2, "b")
    graph = net.done(net.conv(net.graph.add(Concat(1), a, b, name="both"), 4, "c"))
    calibrate_and_annotate(net, graph)
    assert graph.find("both").quant.scale == graph.find("a").quant.scale + graph.find("b").quant.scale


def test_equal_scales_are_one_scale_for_operands_and_result(monkeypatch):
    """Otherwise a requantization through float would be inserted between the two forms."""
    monkeypatch.setattr(channel_scales, "SHARES", (0.0,))
    net = Net()
    joined = net.graph.add(Concat(1), *(net.conv(net.x, 4, name, relu=False) for name in "ab"), name="joined")
    graph = net.done(net.conv(net.graph.add(RELU, joined, name="y"), 4, "last"))
    _, _, reasons = calibrate_and_annotate(net, graph)
    assert {graph.find(name).quant.axis for name in ("a", "b", "joined", "y")} == {None}
    names = [node.op.name for node in legalize(graph, Chip.BM1686, reasons).graph.nodes]
    assert names.count("dequant_int_to_fp32") == names.count("requant_fp32_to_int") == 1, "at inputs and outputs only"


def test_a_reader_that_needs_one_scale_keeps_one():
    net = Net()
    a = net.conv(net.x, 4, "a")
    product = net.graph.add(Mul(), a, net.conv(a, 4, "b"), name="product")
    graph = net.done(net.conv(product, 4, "c"))
    calibrate_and_annotate(net, graph)
    assert graph.find("a").quant.axis is None
    assert graph.find("b").quant.axis is None


def test_bm1684_has_one_scale_per_tensor():
    net = Net()
    graph = net.done(net.conv(net.conv(net.x, 4, "a"), 4, "b"))
    calibrate_and_annotate(net, graph, Chip.BM1684)
    assert graph.find("a").quant.axis is None


def test_a_sum_at_the_end_is_float_and_its_operands_wide():
    net = Net()
    a, b = net.conv(net.x, 4, "a", relu=False), net.conv(net.x, 4, "b", relu=False)
    graph = net.done(net.graph.add(Add(), a, b, name="s"))
    _, _, reasons = calibrate_and_annotate(net, graph)
    assert {graph.find(name).quant.dtype for name in "ab"} == {I16}
    assert graph.find("s").quant is None
    assert reasons == {"s": "nothing after it is quantized"}


def test_what_moves_a_float_result_to_the_end_is_float():
    net = Net()
    y = net.graph.add(SIGMOID, net.conv(net.x, 4, "a", relu=False), name="s")
    moved = net.graph.add(Reshape((4, 36)), net.graph.add(Reshape((1, 144)), y, name="m1"), name="m2")
    graph = net.done(moved)
    _, _, reasons = calibrate_and_annotate(net, graph)
    assert graph.find("a").quant.dtype is I16
    assert {name: graph.find(name).quant for name in ("s", "m1", "m2")} == {"s": None, "m1": None, "m2": None}
    assert reasons["m1"] == reasons["m2"] == "nothing before or after it is quantized"


def test_a_moved_value_keeps_the_scale_that_other_readers_of_its_source_have():
    net = Net()
    a = net.graph.add(SIGMOID, net.conv(net.x, 4, "a", relu=False), name="s")
    pooled = net.graph.add(Pool(stride_h=1, stride_w=1, kernel_h=3, kernel_w=3, pad_h=1, pad_w=1), a, name="pooled")
    both = net.graph.add(Concat(1), a, pooled, net.conv(net.x, 4, "b"), name="both")
    graph = net.done(net.conv(both, 4, "c"))
    calibrate_and_annotate(net, graph, Chip.BM1686)
    assert graph.find("pooled").quant == graph.find("s").quant


def test_what_moves_an_input_to_a_float_node_is_float():
    net = Net((2, 1, 8))
    rows = net.graph.add(Reshape((2, 8)), net.graph.add(Permute((1, 0, 2)), net.x, name="turned"), name="rows")
    product = net.graph.add(MatrixMul(), rows, net.constant(8, 8, name="w"), net.constant(1, 8), name="y")
    graph = net.done(net.graph.add(Add(), rows, product, name="sum"))
    _, _, reasons = calibrate_and_annotate(net, graph)
    assert graph.find("x").quant is None and graph.find("turned").quant is None
    assert graph.find("rows").quant.dtype is I8, "the product quantizes it"
    assert reasons["turned"] == reasons["rows"] == "a float node reads it, and nothing before it is quantized"


def test_what_moves_an_input_to_products_is_quantized_before():
    net = Net((1, 16))
    rows = net.graph.add(Reshape((2, 8)), net.x, name="rows")
    product = net.graph.add(MatrixMul(), rows, net.constant(8, 8, name="w"), net.constant(1, 8), name="y")
    graph = net.done(product)
    calibrate_and_annotate(net, graph)
    assert graph.find("x").quant == graph.find("rows").quant and graph.find("x").quant.dtype is I8


def test_products_quantize_what_float_nodes_give_them():
    net = Net((1, 8))
    y = net.graph.add(Softmax(1), net.x, name="probabilities")
    product = net.graph.add(MatrixMul(), y, net.constant(8, 5, name="w"), net.constant(1, 5), name="y")
    graph = net.done(product)
    _, _, reasons = calibrate_and_annotate(net, graph)
    assert graph.find("probabilities").quant.dtype is U8
    assert set(reasons) == {"probabilities"}
