"""Batch normalization, local response normalization and attention of floats on the native engine."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.native_cases.float_graphs import check_close, evaluate, graph_of, normal, references, run
from tpuconvert.runtime.native.builder.loader import available_isas, extension
from tpuconvert.runtime.native.plan import NativePlan
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.attention import Attention
from tpuconvert.schema.ops.batch_norm import BatchNorm
from tpuconvert.schema.ops.normalization import Lrn
from tpuconvert.schema.types import Array

pytestmark = pytest.mark.skipif(extension() is None, reason="the native engine was not built")


def units(graph: Graph, feeds: list[Array], count: float) -> Array:
    """The given number of units in the last place of the reference's result."""
    return count * np.spacing(np.abs(references(graph, feeds)[0])).astype(np.float64)


@pytest.mark.parametrize("has_factors", [False, True])
@pytest.mark.parametrize("scale", [1.0, 4.0, 0.0])
def test_batch_norm(has_factors: bool, scale: float) -> None:
    """In binary64 as the reference, operation by operation: the same numbers."""
    rng = np.random.default_rng(1)
    x = normal(rng, 2, 19, 5, 6)
    graph = graph_of([x.shape])
    factors = [normal(rng, 19), normal(rng, 19) ** 2] + [normal(rng, 19) for _ in range(2 * has_factors)]
    y, *_ = graph.add_all(BatchNorm(scale=scale), graph.inputs[0], *(graph.constant(item) for item in factors))
    graph.output(y)
    np.testing.assert_array_equal(run(graph, [x], steps=1)[0], references(graph, [x])[0])


@pytest.mark.parametrize("op", [Lrn(5), Lrn(4, alpha=0.5, beta=0.6, bias=2.0), Lrn(30, alpha=2.0)], ids=str)
@pytest.mark.parametrize("shape", [(2, 11, 5, 6), (1, 7, 9), (3, 40)])
def test_lrn(op: Lrn, shape: tuple[int, ...]) -> None:
    """One unit: a sum or a power in binary64 may fall on the other side of a tie."""
    x = normal(np.random.default_rng(2), *shape) * np.float32(3)
    graph = graph_of([shape])
    graph.output(graph.add(op, graph.inputs[0]))
    check_close(graph, [x], units(graph, [x], 1), steps=1)


@pytest.mark.parametrize("op", [Lrn(3, bias=-np.inf), Lrn(3, bias=-9.0, beta=2), Lrn(3, alpha=-50, beta=2)], ids=str)
def test_lrn_of_negative_sums(op: Lrn) -> None:
    """The definition raises a negative sum to the power; the kernel, which takes its logarithm, is not used."""
    x = normal(np.random.default_rng(4), 2, 5, 6) * np.float32(3)
    graph = graph_of([x.shape])
    graph.output(graph.add(op, graph.inputs[0]))
    assert np.isfinite(references(graph, [x])[0]).all()
    plan = NativePlan(graph, "BM1686", available_isas()[-1], 1)
    assert [node.op for node in plan.reference_nodes] == [op]
    np.testing.assert_array_equal(plan.run([x], evaluate)[0], references(graph, [x])[0])


@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("mask", [None, (1, 1, 9, 13), (2, 3, 9, 13), (1, 1, 1, 13)])
def test_attention(mask: tuple[int, ...] | None, scale: float | None) -> None:
    """Weights have the relative error of 16 products at scores below 16: 2^-16 is far above that."""
    rng = np.random.default_rng(3)
    feeds = [normal(rng, 2, 3, 9, 16), normal(rng, 1, 3, 13, 16), normal(rng, 2, 1, 13, 20)]
    if mask is not None:
        feeds.append(normal(rng, *mask))
        feeds[3][..., 4] = -np.inf
        feeds[3][..., 0, :] = -np.inf
    graph = graph_of([feed.shape for feed in feeds])
    graph.output(graph.add(Attention(scale), *graph.inputs))
    check_close(graph, feeds, 2.0**-16 * np.abs(feeds[2]).max())
