"""hard_sigmoid after linear operators."""

import numpy as np

from tests.support.rules.graphs import ops, optimize_checked
from tpuconvert.schema.ops.arithmetic import Mul
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.smooth_activation import HardSigmoid, Softplus

SHAPE = (1, 3, 5, 5)
WEIGHT = np.random.default_rng(5).normal(size=(4, 3, 1, 1)).astype(np.float32)


def test_folds_into_a_convolution():
    graph, _ = optimize_checked(lambda g, x: g.add(HardSigmoid(), g.add(Conv(), x, g.constant(WEIGHT))), SHAPE)
    assert ops(graph) == ["conv", "clamp"]
    np.testing.assert_allclose(graph.nodes[0].inputs[1].array, WEIGHT * np.float32(0.2), rtol=1e-6)
    assert graph.nodes[0].inputs[2].array.ravel().tolist() == [0.5] * 4


def test_declines_other_operands():
    graph, _ = optimize_checked(lambda g, x: g.add(HardSigmoid(), g.add(Softplus(), x)), SHAPE)
    assert ops(graph) == ["softplus", "hard_sigmoid"]


def test_leaves_the_gate_of_hard_swish():
    """The convolution has a second user: both together are hard_swish."""

    def gate(g, x):
        y = g.add(Conv(), x, g.constant(WEIGHT))
        return g.add(Mul(), y, g.add(HardSigmoid(1 / 6, 0.5), y))

    graph, _ = optimize_checked(gate, SHAPE)
    assert ops(graph) == ["conv", "hard_swish"]
