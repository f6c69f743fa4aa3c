"""Softmax, normalizations and reductions of floats on the native engine.

They compute in binary64 as the references do and round once: a result is at most one unit in the last place away, where
sums in another order have fallen on the other side of a tie. Layer normalization subtracts what may be nearly equal, so
that its bound is a unit of the largest summand.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.native_cases.float_graphs import check_close, check_exact, graph_of, normal, references, run
from tpuconvert.runtime.native.builder.loader import extension
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.interpolate import Interpolate, InterpolateMode, PlatForm
from tpuconvert.schema.ops.normalization import GroupNorm, LayerNorm, RmsNorm
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.types import Array, DType

pytestmark = pytest.mark.skipif(extension() is None, reason="the native engine was not built")


def check_units(graph: Graph, feeds: list[Array], units: float = 1.0, **named: int) -> None:
    """The first result is at most that many units in the last place away."""
    wanted = references(graph, feeds)[0]
    check_close(graph, feeds, units * np.spacing(np.abs(wanted)).astype(np.float64), **named)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("shape", [(3, 7, 5), (2, 33, 100), (1, 1, 1), (4, 16, 2)])
def test_softmax(shape: tuple[int, ...], axis: int) -> None:
    x = normal(np.random.default_rng(1), *shape) * np.float32(5)
    graph = graph_of([shape])
    graph.output(graph.add(Softmax(axis), graph.inputs[0]))
    check_units(graph, [x], steps=1)


def test_softmax_of_infinities_and_nan() -> None:
    x = np.zeros((6, 20), np.float32)
    x[0, 3], x[1, 4], x[2, 5], x[3], x[4, 1:] = np.inf, -np.inf, np.nan, -np.inf, -500
    graph = graph_of([x.shape])
    graph.output(graph.add(Softmax(-1), graph.inputs[0]))
    np.testing.assert_allclose(run(graph, [x])[0], references(graph, [x])[0], rtol=1e-6, atol=1e-45)


def test_softmax_over_channels_needs_no_copy() -> None:
    x = normal(np.random.default_rng(2), 1, 6, 5, 9)
    graph = graph_of([x.shape])
    last = graph.add(Permute((0, 3, 1, 2)), graph.inputs[0])
    graph.output(graph.add(Softmax(1), last))
    check_units(graph, [x], steps=1)


@pytest.mark.parametrize("factors", [0, 1, 2])
@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("shape", [(3, 5, 77), (2, 16), (1, 3, 1, 4)])
def test_layer_norm(shape: tuple[int, ...], axis: int, factors: int) -> None:
    rng = np.random.default_rng(3)
    x = normal(rng, *shape) + np.float32(3)
    graph = graph_of([shape])
    constants = [graph.constant(normal(rng, *shape[axis % len(shape) :])) for _ in range(factors)]
    graph.output(graph.add(LayerNorm(axis), graph.inputs[0], *constants))
    check_close(graph, [x], 1e-6 if factors == 2 else np.spacing(np.abs(references(graph, [x])[0])), steps=1)


@pytest.mark.parametrize("has_scale", [False, True])
def test_rms_norm(has_scale: bool) -> None:
    rng = np.random.default_rng(4)
    x = normal(rng, 4, 3, 50)
    graph = graph_of([x.shape])
    graph.output(graph.add(RmsNorm(), graph.inputs[0], *([graph.constant(normal(rng, 50))] if has_scale else [])))
    check_units(graph, [x], steps=1)


@pytest.mark.parametrize("groups", [1, 3, 12])
@pytest.mark.parametrize("has_factors", [False, True])
def test_group_norm(groups: int, has_factors: bool) -> None:
    rng = np.random.default_rng(5)
    x = normal(rng, 2, 12, 5, 7)
    graph = graph_of([x.shape])
    factors = [graph.constant(normal(rng, 12)) for _ in range(2 * has_factors)]
    graph.output(graph.add(GroupNorm(groups), graph.inputs[0], *factors))
    check_close(graph, [x], 1e-6, steps=1)


@pytest.mark.parametrize("method", ReduceMethodType)
@pytest.mark.parametrize("keep_dims", [False, True])
@pytest.mark.parametrize("axes", [(0,), (1,), (3,), (2, 3), (0, 1), (0, 2), (1, 3), (0, 1, 2, 3), ()])
def test_reduce(axes: tuple[int, ...], keep_dims: bool, method: ReduceMethodType) -> None:
    rng = np.random.default_rng(6)
    x = (1 + normal(rng, 3, 5, 4, 21) / 8).astype(np.float32)
    graph = graph_of([x.shape])
    graph.output(graph.add(Reduce(axes, method, keep_dims=keep_dims), graph.inputs[0]))
    check_units(graph, [x], steps=1)


def test_reduce_of_nan_and_infinities() -> None:
    x = normal(np.random.default_rng(7), 4, 37)
    x[0, 5], x[1, 30], x[2, 0] = np.nan, np.inf, -np.inf
    for method in ReduceMethodType:
        for axis in (0, 1):
            graph = graph_of([x.shape])
            graph.output(graph.add(Reduce((axis,), method), graph.inputs[0]))
            np.testing.assert_allclose(run(graph, [x])[0], references(graph, [x])[0], rtol=1e-6)


POOLS = (
    {"kernel_h": 3, "kernel_w": 3, "stride_h": 2, "stride_w": 2, "pad_h": 1, "pad_w": 1},
    {"kernel_h": 2, "kernel_w": 4, "stride_h": 1, "stride_w": 3, "is_ceil_mode": True},
    {"kernel_h": 3, "kernel_w": 2, "stride_h": 3, "stride_w": 2, "pad_h": 1, "pad_h_offset": 1, "pad_w": 1},
    {"stride_h": 1, "stride_w": 1, "is_global_pooling": True},
    {"kernel_h": 5, "kernel_w": 5, "stride_h": 1, "stride_w": 1, "pad_h": 2, "pad_w": 2},
)


@pytest.mark.parametrize("parameters", POOLS, ids=str)
@pytest.mark.parametrize("with_padding", [False, True])
@pytest.mark.parametrize("kind", [PoolType.MAX, PoolType.AVE])
def test_pool(parameters: dict[str, int], kind: PoolType, with_padding: bool) -> None:
    x = normal(np.random.default_rng(8), 2, 21, 11, 13)
    x[0, 3, 4, 5], x[1, 0, 0, 0] = np.nan, np.inf
    graph = graph_of([x.shape])
    op = Pool(pooling_type=kind, is_ave_count_zero_pad=with_padding, **parameters)
    graph.output(graph.add(op, graph.inputs[0]))
    (found,), (wanted,) = run(graph, [x], steps=1), references(graph, [x])
    if kind is PoolType.MAX:
        np.testing.assert_array_equal(found, wanted)
    else:
        np.testing.assert_allclose(found, wanted, rtol=1.2e-7, atol=1e-9)  # one unit; sums near 0 lose digits


RESIZES: tuple[Op, ...] = (
    Interpolate(size=(9, 17), platform=PlatForm.TENSORFLOW, method=InterpolateMode.BILINEAR, half_pixel_centers=True),
    Interpolate(size=(12, 5), platform=PlatForm.TENSORFLOW, method=InterpolateMode.BILINEAR, align_corners=True),
    Interpolate(scale_factor=(2.0, 0.6), platform=PlatForm.TENSORFLOW, method=InterpolateMode.BILINEAR),
    Interpolate(size=(3, 3), platform=PlatForm.OPENCV, method=InterpolateMode.BILINEAR),
)


@pytest.mark.parametrize("op", RESIZES, ids=str)
def test_bilinear_resize(op: Op) -> None:
    x = normal(np.random.default_rng(9), 2, 19, 6, 8)
    graph = graph_of([x.shape])
    graph.output(graph.add(op, graph.inputs[0]))
    check_exact(graph, [x], steps=1)


@pytest.mark.parametrize("op", [Softmax(1), LayerNorm(), Reduce((1,)), Reduce((0,))], ids=str)
def test_rows_that_decide_integers(op: Op) -> None:
    x = normal(np.random.default_rng(10), 30, 50)
    graph = graph_of([x.shape])
    y = graph.add(op, graph.inputs[0])
    graph.output(y)
    graph.output(graph.add(Cast(DType.INT32), y))
    np.testing.assert_array_equal(run(graph, [x])[0], references(graph, [x])[0])
