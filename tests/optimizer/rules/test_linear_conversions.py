"""Conversion of linear operators to the form with the fewest operators around them."""

import pytest

from tests.support.rules.graphs import RELU, TANH, Q, conv, graph_of, ops, optimize_checked, random_constant, reasons
from tpuconvert.optimizer import optimize
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Mul
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.reduce import Reduce
from tpuconvert.schema.ops.shape_change import Reshape

SIGMOID = Active(ActiveType.ACTIVE_SIGMOID)


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("lead", [(), (1,), (1, 1)], ids=str)
def test_converts_batch_matmul_with_one_matrix(is_transposed, lead):
    def build(g, x):
        w = random_constant(g, *lead, *((6, 5) if is_transposed else (5, 6)))
        return g.add(BatchMatmul(right_transpose=is_transposed), x, w)

    graph, _ = optimize_checked(build, (2, 3, 4, 5))
    assert ops(graph) == ["reshape", "matrix_mul", "reshape"]


@pytest.mark.parametrize(
    ("op", "shape", "reason"),
    [
        (BatchMatmul(), (2, 5, 6), "the constant is not one matrix for all batches"),
        (BatchMatmul(left_transpose=True), (4, 6), "its left operand is transposed"),
    ],
)
def test_declines_other_batches(op, shape, reason):
    graph, trace = optimize_checked(lambda g, x: g.add(op, x, random_constant(g, *shape)), (2, 4, 5))
    assert ops(graph) == ["batch_matmul"]
    assert reasons(trace, "convert_batch_matmul_to_matmul") == {reason}


def dense(g, x, outputs, bias=True):
    operands = [random_constant(g, x.shape[1], outputs)] + ([random_constant(g, 1, outputs)] if bias else [])
    return g.add(MatrixMul(), x, *operands)


@pytest.mark.parametrize("bias", [True, False])
def test_converts_matmul_between_1x1_images_to_conv(bias):
    def build(g, x):
        return g.add(Reshape((2, 6, 1, 1)), dense(g, g.add(Reshape((2, 4)), x), 6, bias))

    assert ops(optimize_checked(build, (2, 4, 1, 1))[0]) == ["conv"]


def test_declines_larger_images():
    def build(g, x):
        return g.add(Reshape((2, 6, 1, 1)), dense(g, g.add(Reshape((2, 16)), x), 6))

    graph, trace = optimize_checked(build, (2, 4, 2, 2))
    assert ops(graph) == ["reshape", "matrix_mul", "reshape"]
    assert reasons(trace, "convert_matmul_to_conv1x1") == {"it does not map [N, C, 1, 1] to [N, K, 1, 1]"}


@pytest.mark.parametrize("bias", [True, False])
def test_converts_conv_between_matrices_to_matmul(bias):
    def build(g, x):
        return g.add(Reshape((3, 6)), conv(g, g.add(Reshape((3, 4, 1, 1)), x), 6, kernel=1, bias=bias))

    assert ops(optimize_checked(build, (3, 4))[0]) == ["matrix_mul"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"kernel": 1, "groups": 2}, "it is not a plain conv"),
        ({"kernel": 3, "pad_h_t": 1, "pad_h_b": 1, "pad_w_l": 1, "pad_w_r": 1}, "it is not a plain conv"),
    ],
)
def test_declines_other_convs(options, reason):
    def build(g, x):
        return g.add(Reshape((3, 6)), conv(g, g.add(Reshape((3, 4, 1, 1)), x), 6, **options))

    graph, trace = optimize_checked(build, (3, 4))
    assert ops(graph) == ["reshape", "conv", "reshape"]
    assert reasons(trace, "convert_conv1x1_to_matmul") == {reason}


def test_declines_a_linear_operator_with_other_users():
    def build(g, x):
        y = dense(g, g.add(Reshape((2, 4)), x), 6)
        return g.add(Reshape((2, 6, 1, 1)), y), g.add(TANH, y)

    _, trace = optimize_checked(build, (2, 4, 1, 1))
    assert reasons(trace, "convert_matmul_to_conv1x1") == {"product has other users"}


def gate(g, x, begin=None, middle=RELU, end=SIGMOID, after=(2, 8, 1, 1)):
    """Squeeze and excitation as exported: pooling, two fully connected layers, and a reshape back."""
    y = g.add(Reshape((2, 8)), g.add(Reduce((2, 3)), x)) if begin is None else begin(g, x)
    return g.add(Mul(), x, g.add(Reshape(after), g.add(end, dense(g, g.add(middle, dense(g, y, 4)), 8))))


def without_axes(g, x):
    return g.add(Reduce((2, 3), keep_dims=False), x)


@pytest.mark.parametrize("begin", [None, without_axes])
def test_converts_a_gate_to_convs(begin):
    graph, _ = optimize_checked(lambda g, x: gate(g, x, begin), (2, 8, 3, 3))
    assert ops(graph) == ["reduce", "conv", "active", "conv", "active", "mul"]
    assert graph.nodes[1].inputs[1].shape == (4, 8, 1, 1) and graph.nodes[3].inputs[2].shape == (1, 8, 1, 1)


def test_declines_a_gate_that_starts_from_a_matrix():
    def build(g, x):
        return gate(g, x, lambda g, x: g.add(Reduce((1, 3), keep_dims=False), x))

    trace = optimize_checked(build, (2, 8, 8, 3))[1]
    assert reasons(trace, "convert_gate_matmuls_to_conv1x1") == {"its operand is not [N, C, 1, 1]"}


def test_declines_a_gate_with_another_final_shape():
    def build(g, x):
        y = dense(g, g.add(Reshape((2, 8)), g.add(Reduce((2, 3)), x)), 4)
        return g.add(Reshape((2, 1, 1, 8)), g.add(SIGMOID, dense(g, g.add(RELU, y), 8)))

    trace = optimize_checked(build, (2, 8, 3, 3))[1]
    assert reasons(trace, "convert_gate_matmuls_to_conv1x1") == {"its result is not [N, K, 1, 1]"}


def test_declines_a_gate_with_an_output_inside():
    def build(g, x):
        y = dense(g, g.add(Reshape((2, 8)), g.add(Reduce((2, 3)), x)), 4)
        return g.add(Reshape((2, 8, 1, 1)), g.add(SIGMOID, dense(g, g.add(RELU, y), 8))), y

    assert ops(optimize_checked(build, (2, 8, 3, 3))[0]).count("matrix_mul") == 2


def test_declines_a_quantized_gate():
    graph = graph_of(lambda g, x: gate(g, x, middle=RELU), (2, 8, 3, 3))
    for value in graph.values:
        if value.name.startswith("matrix_mul"):
            value.quant = Q
    trace = optimize(graph)
    assert "conv" not in ops(graph)
    assert reasons(trace, "convert_gate_matmuls_to_conv1x1") == {
        "the source file quantizes an inner value, or it is a graph output"
    }
