"""Float graphs on the native engine: equal bytes on every instruction set and for every number of threads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tpuconvert.runtime.native import plan as plans
from tpuconvert.runtime.native.builder.loader import available_isas
from tpuconvert.schema.graph.graph import Graph, Node
from tpuconvert.schema.types import F32, Array, Chip, TensorType

THREADS = (1, 2, 4)
ROUNDING = 2.0**-24
"""Relative error bound of one rounding to float32."""


def evaluate(node: Node, arrays: list[Array | None]) -> tuple[Array, ...]:
    """Result of a node from its reference."""
    return node.op.evaluate(*arrays, chip=Chip.BM1686)


def graph_of(shapes: Sequence[tuple[int, ...]]) -> Graph:
    """A graph with float inputs."""
    graph = Graph()
    for index, shape in enumerate(shapes):
        graph.input(f"x{index}", TensorType(F32, shape))
    return graph


def normal(rng: np.random.Generator, *shape: int) -> Array:
    """Normally distributed numbers."""
    return rng.normal(size=shape).astype(np.float32)


def references(graph: Graph, feeds: Sequence[Array]) -> list[Array]:
    """Results of the references."""
    arrays = dict(zip(graph.inputs, feeds, strict=True))
    arrays |= {value: value.array for value in graph.values if value.is_constant}
    for node in graph.sorted_nodes():
        given = [None if value is None else arrays[value] for value in node.inputs]
        arrays |= dict(zip(node.outputs, evaluate(node, given), strict=True))
    return [arrays[value] for value in graph.outputs]


def run(graph: Graph, feeds: Sequence[Array], *, steps: int | None = None) -> list[Array]:
    """The results of the native engine.

    Args:
        graph: with its outputs set.
        feeds: one array per input.
        steps: how many steps there should be that are not copies.
    """
    results: list[Array] | None = None
    for isa in available_isas():
        for threads in THREADS:
            plan = plans.NativePlan(graph, "BM1686", isa, threads)
            assert not plan.reference_nodes, [str(node.op) for node in plan.reference_nodes]
            found = plan.run([np.ascontiguousarray(feed) for feed in feeds], evaluate)
            if steps is not None:
                kinds = [step.kind for step in plan.profile(feeds, evaluate, lambda: 0.0)]
                made = [kind for kind in kinds if kind not in ("copy", "transpose")]
                assert len(made) == steps, kinds
            results = found if results is None else results
            for value, left, right in zip(graph.outputs, found, results, strict=True):
                assert left.tobytes() == right.tobytes(), (value, isa, threads)
    assert results is not None
    return results


def check_exact(graph: Graph, feeds: Sequence[Array], *, steps: int | None = None) -> None:
    """Results are bit-equal to the references; NaN equals NaN."""
    for found, wanted in zip(run(graph, feeds, steps=steps), references(graph, feeds), strict=True):
        assert found.shape == wanted.shape
        is_nan = np.isnan(wanted)
        np.testing.assert_array_equal(np.isnan(found), is_nan)
        np.testing.assert_array_equal(found.view(np.uint32)[~is_nan], wanted.view(np.uint32)[~is_nan])


def check_close(graph: Graph, feeds: Sequence[Array], bound: Array | float, *, steps: int | None = None) -> None:
    """The first result differs from the reference by at most ``bound``, element by element."""
    (found, *_), (wanted, *_) = run(graph, feeds, steps=steps), references(graph, feeds)
    assert found.shape == wanted.shape
    error = np.abs(found.astype(np.float64) - wanted)
    limit = np.broadcast_to(bound, error.shape)
    worst = np.unravel_index(np.argmax(error - limit), error.shape)
    assert (error <= limit).all(), (worst, found[worst], wanted[worst], limit[worst])
