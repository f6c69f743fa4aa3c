"""Sums over samples at the linear operators of an integer graph, from which refinement computes weights and biases.

All of them are exact, so that several processes can each compute the statistics of a part of the samples: merged, they
give the same bits for every split.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from tpuconvert.optimizer.engine.node_properties import operand, operands
from tpuconvert.optimizer.quantize.calibration.float_operands import FloatOperands
from tpuconvert.optimizer.quantize.calibration.recorded_floats import RecordedFloats, Windows
from tpuconvert.optimizer.quantize.calibration.sample_run import SampleRun
from tpuconvert.optimizer.quantize.lowering.lower_shared import geometry
from tpuconvert.optimizer.quantize.ranges.ranges import ChannelMeans, samples_in
from tpuconvert.optimizer.quantize.refinement.operand_sums import accumulator_means, without_zero
from tpuconvert.optimizer.quantize.weights.operand_windows import windows_of
from tpuconvert.optimizer.quantize.weights.reconstruction import DriftSums, drift_of
from tpuconvert.optimizer.quantize.weights.weight_rounding import InputSums
from tpuconvert.schema.graph.graph import Graph, Node
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.convolution.conv3d_v2 import Conv3dV2
from tpuconvert.schema.ops.convolution.conv_v2 import ConvV2, ExactConvolution
from tpuconvert.schema.ops.convolution.convolution_params import SpatialConvolution
from tpuconvert.schema.ops.convolution.deconv_v2 import DeconvV2
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.matmul.matrix_mul_v2 import MatrixMulV2
from tpuconvert.schema.ops.matmul.zero_points import zero_point
from tpuconvert.schema.types import Array, Chip


class OperandStatistics(Protocol):
    """Statistics at the linear operators of a graph, with the weights and biases that it has when they are requested.

    ``index`` is the position of the operator in topological order. It never decreases from one request to the next.
    """

    def images(self, index: int) -> int:
        """Extent of axis 0 of the operand, added over all feeds."""

    def inputs(self, index: int, limit: int) -> InputSums:
        """Sums of the inputs of the operator, at up to ``limit`` positions of each image of a convolution."""

    def accumulators(self, index: int) -> ChannelMeans:
        """Means of the accumulator per output channel."""

    def drift(self, index: int, limit: int) -> dict[int, DriftSums]:
        """Sums of the inputs and of their drift, over two halves of the samples.

        They are empty if the float operand is unknown. ``limit`` is the maximum number of positions of each image.
        """


class FloatReference(NamedTuple):
    """The float graph that an integer graph approximates.

    Args:
        graph: float graph, whose inputs have the same names as the inputs of the integer graph.
        names: names of its nodes, one per linear operator of the integer graph.
        feeds: number of feeds, the first ones, on which both graphs are compared.
        recorded: tensors of the float graph on these feeds, if there are any.
        first: number of the first feed in ``recorded``.
        step: difference between the numbers of consecutive feeds.
    """

    graph: Graph
    names: Sequence[str]
    feeds: int
    recorded: RecordedFloats | None = None
    first: int = 0
    step: int = 1


class OperandSamples:
    """``OperandStatistics`` of samples that run in this process.

    Args:
        graph: integer graph. Weights and biases of an operator may change until the next operator is requested.
        chip: the target, whose arithmetic is used.
        feeds: the samples.
        products: linear operators of the graph, in topological order.
        reference: float graph for ``drift``.
    """

    def __init__(
        self,
        graph: Graph,
        chip: Chip,
        feeds: Sequence[Mapping[str, Array]],
        products: Sequence[Node],
        reference: FloatReference | None = None,
    ) -> None:
        self._counts = [samples_in(feed) for feed in feeds]
        self._products = products
        self._run = SampleRun(graph, chip, feeds, products)
        self._parts = iter(self._run)
        self._floats: FloatOperands | None = None
        if reference is not None:
            compared = feeds[: reference.feeds]
            self._floats = FloatOperands(reference.graph, chip, compared, reference.names)
            self._reference = reference
            self._halves = [_halves_of(feed, count) for feed, count in zip(compared, self._counts, strict=False)]
        self.index = -1
        """Index of the operator whose operand was computed last."""

    def images(self, index: int) -> int:
        """Extent of axis 0 of the operand, added over all feeds."""
        return sum(map(len, self._operand(index)))

    def inputs(self, index: int, limit: int) -> InputSums:
        """Sums of the inputs of the operator, at up to ``limit`` positions of each image of a convolution."""
        node, x = self._products[index], self._operand(index)
        if not isinstance(node.op, SpatialConvolution):
            return InputSums.of(np.concatenate(x)[np.newaxis])
        return InputSums.of(self._windows(node, x, limit))

    @staticmethod
    def _windows(node: Node, x: list[Array], limit: int) -> Array:
        """Windows of a convolution without the zero points of its operand. Of all feeds these take much memory."""
        op, kernel = node.op, tuple(map(int, operand(node, 1).shape[2:]))
        assert isinstance(op, SpatialConvolution)
        if not isinstance(op, (ConvV2, Conv3dV2)) or not zero_point(op, "izp").any():
            return windows_of([image for array in x for image in array], op, kernel, limit)
        # Padding is 0 after the zero point is subtracted. In the memory order of ``windows_of``.
        shape = (-1, *(1,) * len(kernel))
        rows = [windows_of(list(without_zero(array, op, "izp", shape)), op, kernel, limit) for array in x]
        return np.concatenate([part.swapaxes(1, 2) for part in rows], axis=2).swapaxes(1, 2)

    def accumulators(self, index: int) -> ChannelMeans:
        """Means of the accumulator per output channel."""
        node, x = self._products[index], self._operand(index)
        _, weight, bias = operands(node)
        op = _with_accumulator(node)
        is_matrix = isinstance(op, MatrixMulV2)
        now = bias.array.reshape(-1) if is_matrix else bias.array
        accumulator_sums: Sequence[Array | None] = [None] * len(x)
        if not isinstance(op, DeconvV2) and not (is_matrix and any(array.ndim > 2 for array in x)):
            samples = [count if len(array) % count == 0 else 1 for array, count in zip(x, self._counts, strict=True)]
            accumulator_sums = accumulator_means(op, x, weight.array, now, samples)
        means = ChannelMeans()
        for array, count, mean in zip(x, self._counts, accumulator_sums, strict=True):
            if mean is None:
                means.add(op.evaluate(array, weight.array, now)[0], count)
            else:
                means.add_means(mean)
        return means

    def drift(self, index: int, limit: int) -> dict[int, DriftSums]:
        """Sums of the inputs and of their drift, over two halves of the samples."""
        node, integers = self._products[index], self._operand(index)
        quant = operand(node).quant
        if self._floats is None or quant is None or any(quant.zero_point) or quant.dtype.bits != 8:
            return {}
        recorded = self._recorded_rows(index, limit)
        if recorded is not None:
            return self._recorded_drift(node, quant.scale, recorded, limit)
        float_operand = self._floats.operand(index)
        if float_operand is None:
            return {}
        floats = float_operand[1]
        if len(floats) != len(self._halves):
            return {}  # the operand depends on no input, so that it is computed once for all feeds
        if any(a.shape != b.shape for a, b in zip(floats, integers, strict=False)):
            return {}
        halves: dict[int, DriftSums] = {}
        for half in range(2):
            exact, stored = (self._samples_of(half, arrays) for arrays in (floats, integers[: len(floats)]))
            if exact:
                rows = self._rows(node, stored, limit)
                halves[half] = DriftSums.of(rows, self._drift_rows(node, quant.scale, exact, stored, rows, limit))
        return halves

    def _recorded_rows(self, index: int, limit: int) -> list[Array] | None:
        """Recorded windows of the float operand, one array per compared feed of one sample; None if there are none."""
        node, reference = self._products[index], self._reference
        if (
            reference.recorded is None
            or not isinstance(node.op, (ConvV2, Conv))
            or any(len(parts) > 1 for parts in self._halves)
        ):
            return None
        kernel = tuple(map(int, operand(node, 1).shape[2:]))
        numbers = itertools.count(reference.first, reference.step)
        arrays = self._operand(index)[: len(self._halves)]
        shapes = {number: array.shape for number, array in zip(numbers, arrays, strict=False)}
        return reference.recorded.take(reference.names[index], Windows(node.op.geometry, kernel, limit), shapes)

    def _recorded_drift(
        self, node: Node, scales: Sequence[float], recorded: list[Array], limit: int
    ) -> dict[int, DriftSums]:
        halves: dict[int, DriftSums] = {}
        integers = self._run.arrays(operand(node))
        for half in range(2):
            chosen = [number for number, parts in enumerate(self._halves) if parts == [half]]
            if chosen:
                rows = self._rows(node, [integers[number] for number in chosen], limit)
                # In the memory order of ``rows``: positions are contiguous.
                floats = np.concatenate([recorded[number].swapaxes(1, 2) for number in chosen], axis=2).swapaxes(1, 2)
                halves[half] = DriftSums.of(rows, drift_of(floats / _row_scales(scales, floats), rows))
        return halves

    def _drift_rows(
        self, node: Node, scales: Sequence[float], exact: list[Array], stored: list[Array], rows: Array, limit: int
    ) -> Array:
        """Drift of the inputs ``rows``: computed for whole operands if they have fewer elements than the windows."""
        if isinstance(node.op, SpatialConvolution) and rows.size > sum(x.size for x in exact):
            along = np.reshape(scales, (-1, *(1,) * (exact[0].ndim - 2)))
            return self._rows(node, [drift_of(x / along, q) for x, q in zip(exact, stored, strict=True)], limit)
        floats = self._rows(node, exact, limit)
        return drift_of(floats / _row_scales(scales, floats), rows)

    def _samples_of(self, half: int, arrays: Sequence[Array]) -> list[Array]:
        """Samples of one half, from arrays of all compared feeds."""
        half_samples = []
        for array, parts in zip(arrays, self._halves, strict=True):
            split = array.reshape(len(parts), -1, *array.shape[1:]) if len(array) % len(parts) == 0 else [array]
            half_samples += [sample for sample, part in zip(split, parts, strict=False) if part == half]
        return half_samples

    def _rows(self, node: Node, arrays: Sequence[Array], limit: int) -> Array:
        """Inputs of a linear operator at evenly spread positions, [groups, positions, inputs]."""
        if not isinstance(node.op, SpatialConvolution):
            return np.concatenate([x.reshape(-1, x.shape[-1]) for x in arrays])[np.newaxis]
        kernel = tuple(map(int, operand(node, 1).shape[2:]))
        return windows_of([image for x in arrays for image in x], node.op, kernel, limit)

    def _operand(self, index: int) -> list[Array]:
        """Run the graph up to an operator and return its operand, one array per feed."""
        while self.index < index:
            part = next(self._parts)
            if part.nodes[0] is self._products[self.index + 1]:
                self.index += 1
        return self._run.arrays(operand(self._products[index]))


def _halves_of(feed: Mapping[str, Array], samples: int) -> list[int]:
    """Assign every sample of a feed to one of two halves, by its content: neither order nor batches matter.

    Inputs of rank 0 are part of every sample.
    """
    contents = [b""] * samples
    for _, array in sorted(feed.items()):
        is_split = samples > 1 and np.ndim(array) > 0
        parts = np.asarray(array) if is_split else [array] * samples
        contents = [before + np.ascontiguousarray(part).tobytes() for before, part in zip(contents, parts, strict=True)]
    return [zlib.crc32(content) % 2 for content in contents]


def _row_scales(scales: Sequence[float], rows: Array) -> Array:
    """Scales of the inputs of a linear operator, in a shape that broadcasts with ``rows`` of its operand."""
    if len(scales) == 1:
        return np.asarray(scales[0])
    groups, _, inputs = rows.shape
    by_group = np.reshape(scales, (groups, -1))
    return np.repeat(by_group, inputs // by_group.shape[1], axis=1)[:, np.newaxis]


def _with_accumulator(node: Node) -> ExactConvolution | MatrixMulV2:
    """Return the operator with the accumulator as result. The fused operators of BM1684 do not return it."""
    op = node.op
    if isinstance(op, Conv):
        return ConvV2(**geometry(op), has_bias=True)
    if isinstance(op, MatrixMul):
        return MatrixMulV2(has_bias=True)
    assert isinstance(op, (ExactConvolution, MatrixMulV2))
    return op
