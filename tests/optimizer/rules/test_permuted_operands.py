"""Transposed operands of batch matmuls."""

import pytest

from tests.support.rules.graphs import OTHER_Q, annotate, graph_of, ops, optimize_checked, reasons
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
    graph, _ = optimize_checked(build, *shapes)
    assert [node.op for node in graph.nodes] == [BatchMatmul(left, right)]


def test_two_swaps_cancel():
    graph, _ = optimize_checked(
        lambda g, a, b: g.add(BatchMatmul(right_transpose=True), a, g.add(SWAP, b)), LEFT, RIGHT
    )
    assert [node.op for node in graph.nodes] == [BatchMatmul()]


def test_folds_a_permute_that_has_other_users():
    def build(g, a, b):
        swapped = g.add(SWAP, b)
        return g.add(BatchMatmul(), a, swapped), swapped

    assert sorted(ops(optimize_checked(build, LEFT, (2, 3, 6, 4))[0])) == ["batch_matmul", "permute"]


def test_declines_other_permutations():
    def build(g, a, b):
        return g.add(BatchMatmul(), a, g.add(Permute((0, 2, 1, 3)), b))

    assert ops(optimize_checked(build, LEFT, (2, 4, 3, 6))[0]) == ["permute", "batch_matmul"]


def test_declines_a_quantized_inner_value():
    graph = graph_of(lambda g, a, b: g.add(BatchMatmul(), a, annotate(g.add(SWAP, b), OTHER_Q)), LEFT, (2, 3, 6, 4))
    trace = optimize(graph)
    assert reasons(trace, "fold_permute_into_right_operand") == {"the source file quantizes the result of swap"}
