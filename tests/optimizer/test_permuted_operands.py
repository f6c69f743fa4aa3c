"""Transposed operands of batched products."""

import pytest
from optimizer.graphs import OTHER_Q, annotated, graph_of, ops, optimized, reasons

from tpuconvert.optimizer import optimize
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.permute import Permute

LEFT, RIGHT = (2, 3, 5, 4), (2, 3, 4, 6)
SWAP = Permute((0, 1, 3, 2))


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
def test_fires(left, right):
    def build(g, a, b):
        a = g.add(SWAP, a) if left else a
        b = g.add(SWAP, b) if right else b
        return g.add(BatchMatmul(), a, b)

    shapes = [(*s[:2], s[3], s[2]) if swapped else s for s, swapped in ((LEFT, left), (RIGHT, right))]
    graph, _ = optimized(build, *shapes)
    assert [node.op for node in graph.nodes] == [BatchMatmul(left, right)]


def test_twice_is_none():
    graph, _ = optimized(lambda g, a, b: g.add(BatchMatmul(right_transpose=True), a, g.add(SWAP, b)), LEFT, RIGHT)
    assert [node.op for node in graph.nodes] == [BatchMatmul()]


def test_a_permuted_operand_with_other_readers_is_read_before_it():
    def build(g, a, b):
        swapped = g.add(SWAP, b)
        return g.add(BatchMatmul(), a, swapped), swapped

    assert sorted(ops(optimized(build, LEFT, (2, 3, 6, 4))[0])) == ["batch_matmul", "permute"]


def test_other_permutations_stay():
    def build(g, a, b):
        return g.add(BatchMatmul(), a, g.add(Permute((0, 2, 1, 3)), b))

    assert ops(optimized(build, LEFT, (2, 4, 3, 6))[0]) == ["permute", "batch_matmul"]


def test_a_grid_between_stays():
    graph = graph_of(lambda g, a, b: g.add(BatchMatmul(), a, annotated(g.add(SWAP, b), OTHER_Q)), LEFT, (2, 3, 6, 4))
    trace = optimize(graph)
    assert reasons(trace, "fold_permute_into_right_operand") == {"the source file quantizes the result of swap"}
