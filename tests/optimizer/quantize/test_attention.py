"""Matmuls of two computed operands, and the rounding in a transformer."""

import numpy as np
import pytest

from tests.support.quantize.networks import Net, calibrate_and_annotate, signal_to_noise, sqnr_of_roundings
from tpuconvert.optimizer.quantize import legalize
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.errors import ProblemList
from tpuconvert.schema.graph.graph import Graph, Port
from tpuconvert.schema.graph.legality import check_graph
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.arithmetic_with_scalar import Divs, Muls
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.normalization import LayerNorm
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.types import F32, I8, I16, U8, Chip, QuantParams, Scalar, TensorType

HEADS, ROWS, SIZE = 2, 10, 8
WIDTH = HEADS * SIZE
BY_SIZE = Muls(Scalar.f32(SIZE**-0.5))


def linear(net: Net, x, columns: int, name: str):
    w, b = net.constant(x.shape[1], columns, scale=0.2, name=f"{name}_w"), net.constant(1, columns, name=f"{name}_b")
    return net.graph.add(MatrixMul(), x, w, b, name=name)


def heads(net: Net, x, name: str):
    parts = net.graph.add(Reshape((1, ROWS, HEADS, SIZE)), x)
    return net.graph.add(Permute((0, 2, 1, 3)), parts, name=name)


def attention(net: Net, x, factor=BY_SIZE):
    """Attention of the rows of x, and what comes after it: x + linear(attention(layer_norm(x)))."""
    g = net.graph
    y = g.add(LayerNorm(), x, name="normal")
    q, k, v = (heads(net, linear(net, y, WIDTH, name), f"{name}_heads") for name in "qkv")
    scores = g.add(BatchMatmul(right_transpose=True), q, k, name="scores")
    weights = g.add(Softmax(3), g.add(factor, scores, name="scaled"), name="weights")
    mixed = g.add(Permute((0, 2, 1, 3)), g.add(BatchMatmul(), weights, v, name="mixed"))
    return g.add(Add(), x, linear(net, g.add(Reshape((ROWS, WIDTH)), mixed), WIDTH, "o"), name="sum")


def lower(net: Net, graph: Graph, chip=Chip.BM1686):
    samples, expected, reasons = calibrate_and_annotate(net, graph, chip)
    result = legalize(graph, chip, reasons)
    result.graph.validate()
    problems = ProblemList("net")
    check_graph(result.graph, chip, problems)
    problems.raise_if_any()
    name = graph.output_ports[0].name
    with Session(result.graph) as session:
        found = [session.run(feeds)[name] for feeds in samples]
    return result, signal_to_noise(np.stack([e[name] for e in expected]), np.stack(found))


def producer(graph: Graph, name: str) -> str:
    return graph.find(name).producer.op.name


@pytest.mark.parametrize("factor", [BY_SIZE, Divs(Scalar.f32(3))], ids=str)
def test_attention_is_two_integer_products_around_a_float_softmax(factor):
    net = Net((ROWS, WIDTH))
    result, noise = lower(net, net.done(attention(net, net.x, factor)))
    names = [node.op.name for node in result.graph.nodes]
    assert names.count("matrix_mul_v2") == 6
    assert "batch_matmul" not in names
    assert not {"muls", "divs", "lut"} & set(names), "the factor is in the scale of the scores"
    assert {item.op for item in result.float_nodes} == {"layer_norm", "softmax", "add"}
    assert noise > sqnr_of_roundings(10)  # five operands, four weights, and the probabilities


def test_scores_are_wide_and_probabilities_unsigned():
    net = Net((ROWS, WIDTH))
    result, _ = lower(net, net.done(attention(net, net.x)))
    scores = result.graph.find("scores:int32").producer
    assert (scores.op.is_left_trans, scores.op.is_right_trans) == (False, True)
    assert result.graph.find("scaled").dtype is I16
    assert result.graph.find("weights:uint8").dtype is U8
    assert producer(result.graph, "weights") == "softmax"


def test_the_scale_of_scores_is_divided_by_the_factor_after_them():
    net = Net((ROWS, WIDTH))
    graph = net.done(attention(net, net.x))
    calibrate_and_annotate(net, graph)
    (before,), (after,) = graph.find("scores").quant.scale, graph.find("scaled").quant.scale
    assert before * SIZE**-0.5 == pytest.approx(after, rel=2.0**-22)


def test_a_residual_stream_is_float_and_its_products_wide():
    net = Net((ROWS, WIDTH))
    first = linear(net, net.x, WIDTH, "first")
    second = attention(net, first)
    graph = net.done(net.graph.add(LayerNorm(), second, name="last"))
    result, _ = lower(net, graph)
    assert result.graph.find("sum").dtype is F32
    assert result.graph.find("first").dtype is I16
    assert result.graph.find("o").dtype is I16


def test_a_product_of_two_matrices_without_batches():
    net = Net((ROWS, WIDTH))
    a, b = linear(net, net.x, 6, "a"), net.graph.add(Permute((1, 0)), linear(net, net.x, 6, "b"))
    result, noise = lower(net, net.done(net.graph.add(MatrixMul(), a, b, name="y")))
    assert producer(result.graph, "y:int32") == "matrix_mul_v2"
    assert result.float_nodes == ()
    assert noise > sqnr_of_roundings(5)  # an operand, two weights, and two results


@pytest.mark.parametrize(
    ("chip", "shape", "reason"),
    [
        (Chip.BM1684, (1, HEADS, SIZE, ROWS), "its weights are computed while the model runs"),
        (Chip.BM1686, (1, 1, SIZE, HEADS * ROWS), "its operands do not have the same leading axes"),
    ],
)
def test_what_the_chip_has_no_product_for_stays_float_and_says_why(chip, shape, reason):
    net = Net((ROWS, WIDTH))
    a = heads(net, linear(net, net.x, WIDTH, "a"), "left")
    b = net.graph.add(Reshape(shape), linear(net, net.x, WIDTH, "b"), name="right")
    result, _ = lower(net, net.done(net.graph.add(BatchMatmul(), a, b, name="y")), chip)
    assert producer(result.graph, "y") == "batch_matmul"
    (found,) = [item.reason for item in result.float_nodes if item.node == "y"]
    assert reason in found


@pytest.mark.parametrize(("rescale", "floats"), [("tflite", []), ("onnx", [])])
def test_product_of_a_quantized_source(rescale, floats):
    """ONNX specifies the rounding of QLinearMatMul; BATCH_MATMUL rounds as the reference kernel of TFLite."""
    graph = Graph("q", "q.onnx")
    graph.rescale = rescale
    params = QuantParams.per_tensor(0.1, 0, I8)
    a, b = (
        graph.input(name, TensorType(F32, (1, 2, 3, 3)), Port(name, "int8", (1, 2, 3, 3), params), params)
        for name in "ab"
    )
    y = graph.add(BatchMatmul(), a, b, name="y")
    y.quant = params
    graph.output(y, Port("y", "int8", (1, 2, 3, 3), params))
    assert [item.op for item in legalize(graph, Chip.BM1686).float_nodes] == floats
