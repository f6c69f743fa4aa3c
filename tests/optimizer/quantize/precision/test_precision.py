"""Precision rules on small networks: selection by names, operators and paths, and the effects on the integer graph."""

import numpy as np
import pytest

import tpuconvert as tc
from tests.optimizer.quantize.search.test_deciding import top_rows
from tests.support.quantize.onnx_builder import OnnxNet
from tpuconvert.conversion.options.options import group_options
from tpuconvert.optimizer.precision_rules import parse_rule, split_method
from tpuconvert.optimizer.quantize.precision.precision import apply_rules
from tpuconvert.optimizer.quantize.ranges.thresholds import percentile_threshold
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.types import F32, Chip, TensorType


def branches() -> Graph:
    """``x -> stem -> left, right -> sum -> head``, and ``side`` beside them."""
    graph = Graph("net", "net.onnx")
    weight = graph.constant(np.ones((2, 2, 1, 1), np.float32), "w")
    bias = graph.constant(np.zeros((1, 2, 1, 1), np.float32), "b")
    x = graph.input("x", TensorType(F32, (1, 2, 4, 4)))

    def conv(value, name):
        return graph.add(Conv(), value, weight, bias, name=name)

    stem = conv(x, "stem")
    both = graph.add(Add(), conv(stem, "left"), conv(stem, "right"), name="sum")
    graph.output(conv(both, "head"))
    graph.output(conv(x, "side"))
    return graph


def floats(*rules: str) -> list[str]:
    return list(apply_rules(branches(), [parse_rule(rule) for rule in rules], Chip.BM1686).floats)


@pytest.mark.parametrize(
    ("selector", "nodes"),
    [
        ("stem", ["stem"]),
        ("s*", ["stem", "sum", "side"]),
        ("[lr]*", ["left", "right"]),
        ("op:add", ["sum"]),
        ("op:CONV", ["stem", "left", "right", "head", "side"]),
        ("op:a*", ["sum"]),
        ("between stem and head", ["stem", "left", "right", "sum", "head"]),
        ("between left and head", ["left", "sum", "head"]),
        ("between stem and left", ["stem", "left"]),
        ("between [lr]* and sum", ["left", "right", "sum"]),
        ("between x and sum", ["stem", "left", "right", "sum"]),
        ("between op:add and op:conv", ["sum", "head"]),
        ("head:int32", ["head"]),
    ],
)
def test_selectors(selector, nodes):
    assert sorted(floats(f"{selector}=float32")) == sorted(nodes)


def test_the_last_rule_wins_per_setting():
    assert floats("*=float32", "s*=int8", "side=float32") == ["left", "right", "head", "side"]
    rules = ["*=per-tensor,minmax", "stem=per-channel", "head=threshold:3", "left=float32", "side=kl"]
    found = apply_rules(branches(), [parse_rule(rule) for rule in rules], Chip.BM1686)
    assert found.per_tensor == {"left", "right", "head", "side"}
    assert found.methods == {"x": "minmax", **dict.fromkeys(("stem", "left", "right", "sum"), "minmax"), "side": "kl"}
    assert found.thresholds == {"head": 3.0}
    assert found.integers == frozenset()


def test_a_name_that_equals_a_pattern_needs_no_wildcards():
    graph = branches()
    graph.rename(graph.find("left"), "layer[0]")
    found = apply_rules(graph, [parse_rule("layer[0]=float32")], Chip.BM1686)
    assert list(found.floats) == ["layer[0]"]


def test_settings_are_parsed_from_the_end():
    rule = parse_rule("a=b,c = per-tensor , percentile:99.5")
    assert (rule.selector, rule.weights, rule.method, rule.dtype) == ("a=b,c", "per-tensor", "percentile:99.5", "")
    assert parse_rule("x=threshold:0.5,int8").threshold == 0.5
    assert split_method("percentile") == ("percentile", 99.99)
    with pytest.raises(tc.UsageError, match="expected a percentage"):
        parse_rule("x=percentile:0")


def test_percentile_counts_bins():
    counts = np.array([5, 0, 3, 2], np.int64)
    assert [percentile_threshold(counts, share) for share in (50, 51, 80, 81, 100)] == [1, 3, 3, 4, 4]
    counts = np.array([99_900, 100])
    assert percentile_threshold(counts, 99.9) == 1  # 99.9 / 100 * 100_000 is 99,900.00000000001 in floating point


def convert(net: OnnxNet, *outputs: str, **options):
    return tc.convert(net.model(*outputs), calibration=net.samples(12), **group_options(quantize="int8", **options))


def test_names_of_fused_tensors_and_nodes():
    """The conv, its bias add and its ReLU are one node. The tensor between them no longer exists."""
    net = OnnxNet(0)
    x = net.input("x", 1, 3, 8, 8)
    raw = net.add("Conv", x, net.normal(4, 3, 3, 3))
    shifted = net.add("Add", raw, net.normal(1, 4, 1, 1))
    output = net.conv(net.add("Relu", shifted), 4)
    for selector in (raw, shifted, "n0", "n1", "op:Add"):
        model = convert(net, output, keep_float=[selector])
        assert [node.op.name for node in model.graph.nodes].count("conv") == 1, selector
        assert [node.op.name for node in model.graph.nodes].count("conv_v2") == 1, selector


def test_nodes_that_the_optimizer_removed_are_named():
    net = OnnxNet(0)
    x = net.input("x", 1, 3, 8, 8)
    same = net.add("Mul", x, net.constant(np.float32(1)))
    output = net.conv(net.conv(same, 4), 4)
    with pytest.raises(tc.UsageError, match="the optimizer replaced 'n0' by a constant or removed it"):
        convert(net, output, keep_float=["n0"])


def test_a_float_node_gives_float_results():
    net = OnnxNet(0)
    x = net.input("x", 1, 3, 8, 8)
    middle = net.conv(net.conv(x, 4), 4)
    model = convert(net, net.conv(middle, 4), precision={middle: "float32"})
    node = next(node for node in model.graph.nodes if node.name == middle)
    assert (node.op.name, node.output.dtype) == ("conv", F32)
    assert f"'{middle}=float32' selects 1 node: 1 in float" in model.summary()


def test_rules_take_precedence_over_decisions():
    """TopK decides; the linear operator before it stays in float unless a rule or an option says otherwise."""
    net, outputs = top_rows(0)

    def decisions(**options) -> int:
        model = convert(net, *outputs, **options)
        return sum("would change the decision" in note.message for note in model.notes)

    assert decisions() > 0
    assert decisions(without=["decision-paths"]) == 0
    assert decisions(precision=["*=int8"]) == 0
    assert decisions(keep_float=["op:conv"]) == 0


def test_per_channel_weights_of_grouped_transposed_convolutions():
    net = OnnxNet(0)
    x = net.input("x", 1, 4, 4, 4)
    output = net.conv(net.add("ConvTranspose", net.conv(x, 4), net.normal(4, 2, 2, 2), group=2, strides=[2, 2]), 4)
    with pytest.raises(tc.UsageError, match="the groups of deconv spread its output channels over two axes"):
        convert(net, output, precision=["op:ConvTranspose=per-channel"])


def test_a_quantized_source_keeps_its_scales_but_may_compute_in_float():
    net = OnnxNet(0)
    x = net.input("x", 1, 3, 8, 8)
    scale, zero = net.constant(np.float32(0.05)), net.constant(np.int8(0))

    def rounded(value: str) -> str:
        return net.add("DequantizeLinear", net.add("QuantizeLinear", value, scale, zero), scale, zero)

    def conv(value: str) -> str:
        weights = net.constant(net.rng.integers(-127, 128, (3, 3, 1, 1)).astype(np.int8))
        return net.add("Conv", value, net.add("DequantizeLinear", weights, scale, zero))

    first = conv(rounded(x))
    source = net.model(rounded(conv(rounded(first))))

    def operators(**options) -> list[str]:
        return [node.op.name for node in tc.convert(source, **group_options(quantize="int8", **options)).graph.nodes]

    assert (operators().count("conv_v2"), operators().count("conv")) == (2, 0)
    mixed = operators(keep_float=[first])
    assert (mixed.count("conv_v2"), mixed.count("conv")) == (1, 1)
    with pytest.raises(tc.UsageError, match="the source is quantized already and keeps its own scales"):
        operators(precision=[f"{first}=minmax"])
