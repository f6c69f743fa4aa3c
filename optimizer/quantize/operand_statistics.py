"""Sums over samples at the linear operators of an integer graph, from which refinement computes weights and biases.

All of them are exact, so that several processes can compute those of a part of the samples each: merged, they give the
same bits for every split.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from tpuconvert.optimizer.node_properties import operand, operands
from tpuconvert.optimizer.quantize.lower_shared import geometry
from tpuconvert.optimizer.quantize.operand_sums import accumulator_means
from tpuconvert.optimizer.quantize.ranges import ChannelMeans, samples_in
from tpuconvert.optimizer.quantize.sample_run import SampleRun
from tpuconvert.optimizer.quantize.weight_rounding import InputSums, patches
from tpuconvert.schema.convolution_params import SpatialConvolution
from tpuconvert.schema.graph import Graph, Node
from tpuconvert.schema.ops.conv import Conv
from tpuconvert.schema.ops.conv3d_v2 import Conv3dV2
from tpuconvert.schema.ops.conv_v2 import ConvV2
from tpuconvert.schema.ops.deconv_v2 import DeconvV2
from tpuconvert.schema.ops.matrix_mul import MatrixMul
from tpuconvert.schema.ops.matrix_mul_v2 import MatrixMulV2
from tpuconvert.schema.types import Array, Chip

_Linear = ConvV2 | Conv3dV2 | DeconvV2 | MatrixMulV2


class OperandStatistics(Protocol):
    """Statistics at the linear operators of a graph, with the weights and biases that it has when they are requested.

    ``index`` is that of the operator, in topological order. It never decreases from one request to the next.
    """

    def images(self, index: int) -> int:
        """Extent of axis 0 of the operand, added over all feeds."""

    def inputs(self, index: int, most: int) -> InputSums:
        """Sums of the inputs of the operator, at up to ``most`` positions of each image of a convolution."""

    def accumulators(self, index: int) -> ChannelMeans:
        """Means of the accumulator per output channel."""


class OperandSamples:
    """``OperandStatistics`` of samples that run in this process.

    Args:
        graph: integer graph. Weights and biases of an operator may change until the next operator is requested.
        chip: the target, whose arithmetic is used.
        feeds: the samples.
        products: linear operators of the graph, in topological order.
    """

    def __init__(
        self, graph: Graph, chip: Chip, feeds: Sequence[Mapping[str, Array]], products: Sequence[Node]
    ) -> None:
        self._counts = [samples_in(feed) for feed in feeds]
        self._products = products
        self._run = SampleRun(graph, chip, feeds, products)
        self._parts = iter(self._run)
        self.index = -1
        """Index of the operator whose operand was computed last."""

    def images(self, index: int) -> int:
        """Extent of axis 0 of the operand, added over all feeds."""
        return sum(map(len, self._operand(index)))

    def inputs(self, index: int, most: int) -> InputSums:
        """Sums of the inputs of the operator, at up to ``most`` positions of each image of a convolution."""
        node, x = self._products[index], self._operand(index)
        if not isinstance(node.op, SpatialConvolution):
            return InputSums.of(np.concatenate(x)[np.newaxis])
        kernel = operand(node, 1).shape[2:]
        # The copy accepts any batch size.
        images = [array[position : position + 1] for array in x for position in range(len(array))]
        rows = [patches(image, node.op, tuple(map(int, kernel)), most) for image in images]
        return InputSums.of(np.concatenate(rows, axis=1))

    def accumulators(self, index: int) -> ChannelMeans:
        """Means of the accumulator per output channel."""
        node, x = self._products[index], self._operand(index)
        _, weight, bias = operands(node)
        op = _with_accumulator(node)
        means = ChannelMeans()
        for array, count in zip(x, self._counts, strict=True):
            _add_accumulators(means, op, array, weight.array, bias.array, count)
        return means

    def _operand(self, index: int) -> list[Array]:
        """Run the graph up to an operator and return its operand, one array per feed."""
        while self.index < index:
            part = next(self._parts)
            if part.nodes[0] is self._products[self.index + 1]:
                self.index += 1
        return self._run.arrays(operand(self._products[index]))


def _add_accumulators(means: ChannelMeans, op: _Linear, x: Array, w: Array, bias: Array, samples: int) -> None:
    """Add the accumulators of one feed."""
    is_matrix = isinstance(op, MatrixMulV2)
    now = bias.reshape(-1) if is_matrix else bias
    if isinstance(op, DeconvV2) or (is_matrix and x.ndim > 2):
        found = None
    else:
        found = accumulator_means(op, x, w, now, samples if len(x) % samples == 0 else 1)
    if found is None:
        means.add(op.evaluate(x, w, now)[0], samples)
    else:
        means.add_means(found)


def _with_accumulator(node: Node) -> _Linear:
    """Return the operator with the accumulator as result. The fused operators of BM1684 do not return it."""
    op = node.op
    if isinstance(op, Conv):
        return ConvV2(**geometry(op), has_bias=True)
    if isinstance(op, MatrixMul):
        return MatrixMulV2(has_bias=True)
    assert isinstance(op, (ConvV2, Conv3dV2, DeconvV2, MatrixMulV2))
    return op
