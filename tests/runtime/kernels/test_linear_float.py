"""Float products on the native engine against the references in binary64.

A sum of k products and a bias is rounded at most k + 1 times, each time by at most 2^-24 of a partial sum, which is no
larger than the sum of magnitudes: that is the bound, and no more is allowed. What follows a product adds one rounding.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.native_cases.float_graphs import ROUNDING, check_close, graph_of, normal, references, run
from tpuconvert.runtime.native.builder.loader import extension
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.activation import Active, ActiveParam, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Mul
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.convolution.deconv import Deconv
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.smooth_activation import Silu
from tpuconvert.schema.types import F32, Array, DType, Scalar

pytestmark = pytest.mark.skipif(extension() is None, reason="the native engine was not built")

# x, output channels, kernel, and the parameters of the operator
CONVOLUTIONS = {
    "one tap": ((1, 37, 9, 7), 33, (1, 1), {}),
    "one pixel": ((3, 70, 1, 1), 5, (1, 1), {}),
    "first layer": (
        (1, 3, 23, 19),
        40,
        (7, 7),
        {"stride_h": 2, "stride_w": 2, "pad_h_t": 3, "pad_h_b": 3, "pad_w_l": 3, "pad_w_r": 3},
    ),
    "uneven pads": (
        (2, 8, 10, 11),
        17,
        (3, 3),
        {"pad_h_t": 2, "pad_h_b": 0, "pad_w_l": 0, "pad_w_r": 1, "stride_w": 2},
    ),
    "far taps": ((1, 20, 15, 14), 16, (3, 2), {"dh": 3, "dw": 2, "pad_h_t": 3, "pad_w_l": 1, "pad_w_r": 1}),
    "groups": ((1, 24, 8, 8), 36, (3, 3), {"groups": 4, "pad_h_t": 1, "pad_h_b": 1, "pad_w_l": 1, "pad_w_r": 1}),
    "rows that share sets of the cache": ((1, 1024, 5, 5), 70, (1, 1), {}),
    "kernel larger than the image": ((1, 5, 3, 2), 6, (5, 5), {"pad_h_t": 2, "pad_h_b": 2, "pad_w_l": 2, "pad_w_r": 2}),
    "columns of one register and a bit": ((1, 13, 6, 6), 49, (2, 2), {}),
    "depthwise": ((2, 35, 9, 10), 35, (3, 3), {"groups": 35, "pad_h_t": 1, "pad_h_b": 1, "pad_w_l": 1, "pad_w_r": 1}),
    "depthwise, every second": (
        (1, 16, 9, 9),
        16,
        (3, 3),
        {"groups": 16, "stride_h": 2, "stride_w": 2, "pad_h_t": 1, "pad_w_l": 1},
    ),
    "depthwise 5x5": (
        (1, 18, 7, 9),
        18,
        (5, 5),
        {"groups": 18, "pad_h_t": 2, "pad_h_b": 2, "pad_w_l": 2, "pad_w_r": 2},
    ),
    "depthwise 5x5, every second": (
        (1, 4, 11, 13),
        4,
        (5, 5),
        {"groups": 4, "stride_h": 2, "stride_w": 2, "pad_w_l": 4},
    ),
    "depthwise, any": ((1, 20, 12, 9), 20, (2, 4), {"groups": 20, "dh": 2, "stride_w": 3, "pad_h_t": 1, "pad_w_r": 2}),
    "depthwise, narrow": (
        (1, 6, 5, 2),
        6,
        (3, 3),
        {"groups": 6, "pad_h_t": 1, "pad_h_b": 1, "pad_w_l": 1, "pad_w_r": 1},
    ),
}


def magnitudes(graph: Graph, feeds: list[Array]) -> Array:
    """The first result where every product counts with its magnitude."""
    for value in graph.values:
        if value.is_constant:
            value.data = np.abs(value.array)
    return references(graph, [np.abs(feed) for feed in feeds])[0].astype(np.float64)


def convolution(
    case: str, *, has_bias: bool, kind: type[Conv] | type[Deconv] = Conv
) -> tuple[Graph, list[Array], Value, int]:
    shape, channels, kernel, parameters = CONVOLUTIONS[case]
    rng = np.random.default_rng(len(case))
    graph = graph_of([shape])
    groups = parameters.get("groups", 1)
    first = (channels, shape[1] // groups) if kind is Conv else (shape[1], channels // groups)
    w = graph.constant(normal(rng, *first, *kernel))
    bias = [graph.constant(normal(rng, 1, channels, 1, 1))] if has_bias else []
    y = graph.add(kind(**parameters), graph.inputs[0], w, *bias)
    return (
        graph,
        [normal(rng, *shape)],
        y,
        int(np.prod(first[1:] if kind is Conv else first[:1])) * int(np.prod(kernel)),
    )


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolution(case: str, has_bias: bool) -> None:
    graph, feeds, y, products = convolution(case, has_bias=has_bias)
    graph.output(y)
    copy, _, other, _ = convolution(case, has_bias=has_bias)
    copy.output(other)
    check_close(graph, feeds, (products + 1) * ROUNDING * magnitudes(copy, feeds), steps=1)


DECONVOLUTIONS = {
    "plain": ((1, 10, 5, 6), (10, 7, 3, 3), {}),
    "every second": (
        (2, 6, 5, 4),
        (6, 20, 4, 4),
        {"stride_h": 2, "stride_w": 2, "pad_h_t": 1, "pad_h_b": 1, "pad_w_l": 1, "pad_w_r": 1},
    ),
    "appended": ((1, 3, 4, 4), (3, 5, 3, 3), {"stride_h": 2, "stride_w": 3, "pad_h_b": -1, "pad_w_r": -2}),
    "gaps": ((1, 4, 3, 3), (4, 4, 2, 2), {"stride_h": 3, "stride_w": 4}),
    "groups and dilation": ((1, 8, 5, 5), (8, 3, 3, 2), {"groups": 2, "dh": 2, "dw": 3, "stride_w": 2, "pad_h_t": 2}),
}


@pytest.mark.parametrize("case", DECONVOLUTIONS)
def test_transposed_convolution(case: str) -> None:
    shape, weights, parameters = DECONVOLUTIONS[case]
    rng = np.random.default_rng(len(case))
    x, w = normal(rng, *shape), normal(rng, *weights)
    b = normal(rng, 1, weights[1] * parameters.get("groups", 1), 1, 1)
    graphs = []
    for make in (np.asarray, np.abs):
        graph = graph_of([shape])
        graph.output(graph.add(Deconv(**parameters), graph.inputs[0], graph.constant(make(w)), graph.constant(make(b))))
        graphs.append(graph)
    bound = references(graphs[1], [np.abs(x)])[0].astype(np.float64)
    check_close(graphs[0], [x], (np.prod(weights[2:]) * weights[0] + 1) * ROUNDING * bound)


@pytest.mark.parametrize("rows", [1, 2, 13, 29])
@pytest.mark.parametrize("columns", [1, 16, 31, 80])
def test_matrix_product(rows: int, columns: int) -> None:
    rng = np.random.default_rng(rows * 100 + columns)
    x, w, b = normal(rng, rows, 45), normal(rng, 45, columns), normal(rng, 1, columns)
    graph = graph_of([x.shape])
    graph.output(graph.add(MatrixMul(), graph.inputs[0], graph.constant(w), graph.constant(b)))
    check_close(graph, [x], 46 * ROUNDING * (np.abs(x).astype(np.float64) @ np.abs(w) + np.abs(b)), steps=1)


@pytest.mark.parametrize("has_bias", [False, True])
def test_matrix_product_of_two_operands(has_bias: bool) -> None:
    rng = np.random.default_rng(3)
    x, w, b = normal(rng, 19, 45), normal(rng, 45, 37), normal(rng, 1, 37)
    graph = graph_of([x.shape, w.shape])
    graph.output(graph.add(MatrixMul(), *graph.inputs, *([graph.constant(b)] if has_bias else [])))
    bound = np.abs(x).astype(np.float64) @ np.abs(w) + np.abs(b) * has_bias
    check_close(graph, [x, w], 46 * ROUNDING * bound, steps=1)


@pytest.mark.parametrize("left_transpose", [False, True])
@pytest.mark.parametrize("right_transpose", [False, True])
@pytest.mark.parametrize("batch", [((), ()), ((3,), (3,)), ((2, 1, 3), (4, 1)), ((1,), (5,))])
def test_batched_product(left_transpose: bool, right_transpose: bool, batch: tuple[tuple[int, ...], ...]) -> None:
    rng = np.random.default_rng(5)
    a, b = normal(rng, *batch[0], 17, 21), normal(rng, *batch[1], 21, 35)
    bound = np.abs(a).astype(np.float64) @ np.abs(b)
    feeds = [a.swapaxes(-1, -2) if left_transpose else a, b.swapaxes(-1, -2) if right_transpose else b]
    graph = graph_of([feed.shape for feed in feeds])
    graph.output(graph.add(BatchMatmul(left_transpose, right_transpose), *graph.inputs))
    check_close(graph, feeds, 21 * ROUNDING * bound, steps=1)


def test_heads_of_attention_need_no_copies() -> None:
    """Permutes before and after batched matmuls become strides."""
    rng = np.random.default_rng(6)
    x = normal(rng, 1, 11, 2 * 3 * 8)
    graph = graph_of([x.shape])
    split = graph.add(Reshape((1, 11, 2, 3, 8)), graph.inputs[0])
    heads = graph.add(Permute((2, 0, 3, 1, 4)), split)
    scores = graph.add(BatchMatmul(right_transpose=True), heads, heads)
    mixed = graph.add(BatchMatmul(), scores, heads)
    graph.output(graph.add(Permute((1, 3, 0, 2, 4)), mixed))
    bound = references(graph, [np.abs(x)])[0].astype(np.float64)
    check_close(graph, [x], 40 * ROUNDING * bound, steps=2)


FOLLOWERS = {
    "relu": (Active(ActiveType.ACTIVE_RELU),),
    "leaky relu without slope": (ActiveParam(ActiveType.ACTIVE_LEAKY_RELU),),
    "relu6": (Clamp(Scalar(F32, 0.0), Scalar(F32, 6.0)),),
    "clamp": (Clamp(Scalar(F32, -1.5), Scalar(F32, -0.25)),),
    "two": (Active(ActiveType.ACTIVE_RELU), Clamp(Scalar(F32, -3.0), Scalar(F32, 2.0))),
}


@pytest.mark.parametrize("has_sum", [False, True])
@pytest.mark.parametrize("follower", FOLLOWERS)
@pytest.mark.parametrize("case", ["groups", "depthwise", "one tap"])
def test_what_follows_is_part_of_the_step(case: str, follower: str, has_sum: bool) -> None:
    graph, feeds, y, products = convolution(case, has_bias=True)
    plain, _, z, _ = convolution(case, has_bias=True)
    plain.output(z)
    bound = (products + 2) * ROUNDING * magnitudes(plain, feeds)
    if has_sum:
        other = normal(np.random.default_rng(1), *y.type.static_shape)
        feeds.append(other)
        y = graph.add(Add(), graph.input("other", y.type), y)
        bound = bound + 2 * ROUNDING * np.abs(other)
    for op in FOLLOWERS[follower]:
        y = graph.add(op, y)
    graph.output(y)
    check_close(graph, feeds, bound, steps=1)


@pytest.mark.parametrize("case", ["groups", "depthwise", "one tap", "rows that share sets of the cache"])
def test_fuses_activations_and_adds(case: str) -> None:
    """Silu has a slope below 1.1, and its own rounding; then one operand of the same shape, and a number."""
    graph, feeds, y, products = convolution(case, has_bias=True)
    plain, _, z, _ = convolution(case, has_bias=True)
    plain.output(z)
    other = normal(np.random.default_rng(1), *y.type.static_shape)
    magnitude = magnitudes(plain, feeds)
    feeds.append(other)
    value = graph.add(Mul(), graph.add(Silu(), y), graph.input("other", y.type))
    graph.output(graph.add(Add(), graph.constant(np.full((1, 1, 1, 1), 0.5, np.float32)), value))
    bound = (1.1 * (products + 4) * magnitude * np.abs(other) + 1) * ROUNDING
    check_close(graph, feeds, bound, steps=1)


def test_matrix_product_that_is_split_into_heads() -> None:
    """A reshape after the matmul splits its rows."""
    rng = np.random.default_rng(18)
    x, w, other = normal(rng, 22, 30), normal(rng, 30, 20), normal(rng, 22, 4, 5)
    graph = graph_of([x.shape, other.shape])
    y = graph.add(Reshape((22, 4, 5)), graph.add(MatrixMul(), graph.inputs[0], graph.constant(w)))
    graph.output(graph.add(Active(ActiveType.ACTIVE_TANH), graph.add(Add(), y, graph.inputs[1])))
    bound = (np.abs(x).astype(np.float64) @ np.abs(w)).reshape(22, 4, 5) + np.abs(other)
    check_close(graph, [x, other], (33 * bound + 1) * ROUNDING, steps=1)


def test_fuses_the_epilogue_of_a_matmul_through_a_reshape() -> None:
    rng = np.random.default_rng(8)
    x, w, other = normal(rng, 22, 30), normal(rng, 30, 20), normal(rng, 2, 11, 20)
    graph = graph_of([x.shape, other.shape])
    y = graph.add(Reshape((2, 11, 20)), graph.add(MatrixMul(), graph.inputs[0], graph.constant(w)))
    graph.output(graph.add(Active(ActiveType.ACTIVE_RELU), graph.add(Add(), y, graph.inputs[1])))
    bound = (np.abs(x).astype(np.float64) @ np.abs(w)).reshape(2, 11, 20) + np.abs(other)
    check_close(graph, [x, other], 32 * ROUNDING * bound, steps=1)


def test_zeros_and_nan_behave_as_in_the_references() -> None:
    """Limits keep NaN, and relu has no negative zeros."""
    x = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, -1.0], np.float32).reshape(1, 1, 1, 7)
    w = np.ones((1, 1, 1, 1), np.float32)
    b = np.full((1, 1, 1, 1), -0.0, np.float32)
    for op in (Active(ActiveType.ACTIVE_RELU), Clamp(Scalar(F32, -0.5), Scalar(F32, 0.5))):
        graph = graph_of([x.shape])
        product = graph.add(Conv(), graph.inputs[0], graph.constant(w), graph.constant(b))
        graph.output(graph.add(op, product))
        (found,), (wanted,) = run(graph, [x]), references(graph, [x])
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(np.signbit(found[~np.isnan(found)]), np.signbit(wanted[~np.isnan(wanted)]))


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_products_that_decide_integers_round_once(case: str) -> None:
    """Sums in binary64, in whatever order, round to the same binary32 number but for one in millions."""
    graph, feeds, y, _ = convolution(case, has_bias=True)
    graph.output(y)
    graph.output(graph.add(Cast(DType.INT32), y))
    found, wanted = run(graph, feeds), references(graph, feeds)
    np.testing.assert_array_equal(found[0], wanted[0])
    np.testing.assert_array_equal(found[1], wanted[1])


def test_batched_products_that_decide_integers_round_once() -> None:
    rng = np.random.default_rng(9)
    a, b = normal(rng, 3, 17, 64), normal(rng, 3, 64, 35)
    graph = graph_of([a.shape, b.shape])
    y = graph.add(BatchMatmul(), *graph.inputs)
    graph.output(y)
    graph.output(graph.add(Cast(DType.INT32), y))
    np.testing.assert_array_equal(run(graph, [a, b])[0], references(graph, [a, b])[0])
