"""Refinement: reduce the error of an integer graph with respect to its float graph, on samples.

All samples run through the integer graph together, part by part. Two steps refine each linear operator before its
result is computed, so that later layers get the refined results:

1. Adaptive rounding of its weights: their errors cancel on the actual operand (``weight_rounding``).
2. Bias correction: the difference between the per-channel means of the float result and of the accumulator, on the
   same samples, or a share of it, is added to the INT32 bias. Rounding shifts means, and the shifts of all layers would
   add up. The mean is taken over all positions: where many of them are alike, such as a background or padding, it is
   nearly their error alone, and the full correction moves the few positions that respond by as much in turn.

Source of step 2: Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction (2019),
section 4.2, the empirical form.
"""

from __future__ import annotations

import contextvars
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np

from tpuconvert.optimizer.engine.node_properties import operand, operands
from tpuconvert.optimizer.quantize.calibration.first_samples import FirstSamples
from tpuconvert.optimizer.quantize.calibration.float_operands import affordable_samples
from tpuconvert.optimizer.quantize.calibration.recorded_floats import RecordedFloats
from tpuconvert.optimizer.quantize.legalize import Legalized
from tpuconvert.optimizer.quantize.lowering.lowering import Product, params_of
from tpuconvert.optimizer.quantize.ranges.ranges import ChannelMeans, samples_in
from tpuconvert.optimizer.quantize.refinement.operand_statistics import (
    FloatReference,
    OperandSamples,
    OperandStatistics,
)
from tpuconvert.optimizer.quantize.weights.operand_windows import positions_per_image
from tpuconvert.optimizer.quantize.weights.reconstruction import MOST_INPUTS as MOST_CORRECTED
from tpuconvert.optimizer.quantize.weights.reconstruction import correct_weights
from tpuconvert.optimizer.quantize.weights.two_term_weights import second_term
from tpuconvert.optimizer.quantize.weights.weight_rounding import MOST_INPUTS, round_with_compensation
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.arithmetic.fixed_point import saturate
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.convolution.conv_v2 import ExactConvolution
from tpuconvert.schema.ops.convolution.convolution_params import SpatialConvolution
from tpuconvert.schema.ops.convolution.deconv_v2 import DeconvV2
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.matmul.matrix_mul_v2 import MatrixMulV2
from tpuconvert.schema.system.gc_control import collect_dropped_graphs
from tpuconvert.schema.types import I16, I32, Array, Chip

StatisticsOf = Callable[[Graph, Sequence[Node], FloatReference | None], OperandStatistics]

SAMPLES = 64
"""Default of the maximum number of samples for refinement: means converge with fewer samples than thresholds."""


def refine(
    legalized: Legalized,
    reference: Graph,
    samples: Iterable[Mapping[str, Array]],
    chip: Chip,
    progress: Callable[[int], None] | None = None,
    means: Mapping[str, Array] | None = None,
    *,
    max_samples: int = SAMPLES,
    weight_rounding: bool = True,
    bias_correction: float = 1.0,
    reconstruction: bool = True,
    uncorrected: Collection[str] = (),
    recorded: RecordedFloats | None = None,
    statistics_of: StatisticsOf | None = None,
) -> int:
    """Change weights and biases of a legalized graph in place.

    Args:
        legalized: legalization of ``reference``. Linear operators without a bias are not changed.
        reference: the float graph, whose values have the same names.
        samples: feeds, in an order that depends on their content only; the first ``max_samples`` samples are used.
        chip: the target, whose arithmetic is used.
        progress: called with the number of nodes done.
        means: means per channel of the float graph on these samples (``FirstMeans``), if they are known.
        max_samples: maximum number of samples, in whole feeds. Eight feeds are used even if they have more samples.
        weight_rounding: choose the rounding of the weights.
        bias_correction: share of the difference of the means by which biases are corrected; 0 for none.
        reconstruction: correct weights for the errors of their operand before they are rounded.
        uncorrected: names of the float results of operators whose weights are not corrected.
        recorded: tensors of the float graph on these samples, if there are any.
        statistics_of: from the integer graph, its linear operators and the float graph, returns the statistics on the
            first ``max_samples`` samples. By default the samples run in this process.

    Returns:
        The number of refined linear operators.
    """
    collect_dropped_graphs(reference.constant_bytes)
    integer = legalized.graph
    product_of = {value.producer: product for value, product in legalized.products.items()}
    nodes = integer.sorted_nodes()
    products = {node: product_of[node] for node in nodes if node in product_of and _is_product(node)}
    names = {product.name for product in products.values()}
    feeds: list[Mapping[str, Array]] = []
    if statistics_of is None or (bias_correction and not names <= (means or {}).keys()):
        feeds = list(itertools.takewhile(FirstSamples(max_samples).accepts, samples))
    float_means = _float_means(reference, feeds, names, means or {}) if bias_correction else {}
    fine = {products[node].fine: node for node in products}
    order = [node for node in nodes if node in products or node.outputs[0] in fine]
    index = {node: number for number, node in enumerate(order)}
    position = {node: number for number, node in enumerate(nodes, start=1)}
    compared = None
    if reconstruction and weight_rounding:
        approximated = [products[fine.get(node.outputs[0], node)].name for node in order]
        compared = FloatReference(reference, approximated, affordable_samples(reference), recorded)
    if statistics_of is None:
        if compared is not None:
            compared = compared._replace(feeds=min(compared.feeds, len(feeds)))
        statistics: OperandStatistics = OperandSamples(integer, chip, feeds, order, compared)
    else:
        statistics = statistics_of(integer, order, compared)
    with np.errstate(all="ignore"), ExitStack() as stack:
        # With one worker both results would be in memory at the same time, 40 MiB for ResNet50, for the same speed.
        background = None if statistics_of is None else stack.enter_context(ThreadPoolExecutor(1))
        for node, product in products.items():
            second = product.fine.producer if product.fine is not None else None
            if weight_rounding:
                corrects = compared is not None and product.name not in uncorrected
                _choose_weights(node, product, second, statistics, index[second or node], corrects, background)
            if product.name in float_means:
                shift = 0.0 if second is None else _mean_result(statistics, index[second]) / product.fine_steps
                means_of_node = statistics.accumulators(index[node])
                _correct_bias(node, means_of_node, float_means[product.name], shift, bias_correction)
            if progress is not None:
                progress(position[node])
    if progress is not None:
        progress(len(nodes))
    return len(products)


def _is_product(node: Node) -> bool:
    """Return True for an integer linear operator with constant weights and bias."""
    op = node.op
    if not isinstance(op, (ExactConvolution, MatrixMulV2)) and not isinstance(op, (Conv, MatrixMul)):
        return False
    if len(node.inputs) < 3:
        return False
    weight, bias = node.inputs[1], node.inputs[2]
    return (
        weight is not None and weight.is_constant and bias is not None and bias.is_constant and bias.dtype in (I16, I32)
    )


def _float_means(
    reference: Graph, feeds: list[Mapping[str, Array]], names: set[str], measured: Mapping[str, Array]
) -> dict[str, Array]:
    """Mean per channel (axis 1) over all samples and positions. Values that are not all finite have no entry."""
    if names <= measured.keys():
        return {name: measured[name] for name in names}
    means = {name: ChannelMeans() for name in names}
    with Session(reference, observed=True) as session:
        for feed in feeds:
            count = samples_in(feed)

            def observe(value: Value, array: Array, count: int = count) -> None:
                if value.name in names:
                    means[value.name].add(array, count)

            session.run(feed, observe=observe, borrow=True)
    results = {name: item.result() for name, item in means.items()}
    return {name: mean for name, mean in results.items() if mean is not None}


def _choose_weights(
    node: Node,
    product: Product,
    second: Node | None,
    statistics: OperandStatistics,
    index: int,
    corrects: bool,
    background: Executor | None,
) -> None:
    """Choose the integer weights for the operand. Transposed convolutions keep the nearest integers.

    Args:
        node: the linear operator.
        product: its float counterpart.
        second: the operator with the second term of the weights.
        statistics: sums of the operand.
        index: number of the operator in the statistics.
        corrects: whether the weights are corrected for the errors of the operand.
        background: computes the covariance for the rounding, which does not depend on the correction, at the same time;
            None to compute it afterwards.
    """
    op, weight = node.op, operand(node, 1)
    matrix = isinstance(op, (MatrixMul, MatrixMulV2))
    if isinstance(op, DeconvV2):
        return
    exact = product.unrounded()
    grouped = exact.T[np.newaxis] if matrix else exact.reshape(op.attributes()["groups"], -1, exact[0].size)
    inputs = grouped.shape[2]
    positions = 0
    if isinstance(op, SpatialConvolution):
        positions = positions_per_image(inputs, statistics.images(index))
    drift = statistics.drift(index, positions) if corrects and inputs <= MOST_CORRECTED else {}
    is_compensated = second is None and inputs <= MOST_INPUTS
    covariance = None
    if is_compensated and background is not None:
        covariance = background.submit(contextvars.copy_context().run, _covariance, statistics, index, positions)
    grouped = correct_weights(grouped, drift)
    del drift
    if second is not None:
        rounded = np.clip(np.rint(grouped), -127, 127)
        fine = second_term(grouped, rounded)
        operand(second, 1).data = np.ascontiguousarray(fine.reshape(exact.shape))
    elif is_compensated:
        covariances = _covariance(statistics, index, positions) if covariance is None else covariance.result()
        rounded = round_with_compensation(grouped, covariances)
    else:
        return
    stored = rounded[0].T if matrix else rounded.reshape(exact.shape)
    weight.data = np.ascontiguousarray(stored.astype(np.int8))


def _covariance(statistics: OperandStatistics, index: int, limit: int) -> Array:
    return statistics.inputs(index, limit).covariance(np.float32)


def _mean_result(statistics: OperandStatistics, index: int) -> Array:
    """Mean accumulator of an operator with the second term of weights."""
    means = statistics.accumulators(index).result()
    assert means is not None
    return means


def add_to_biases(legalized: Legalized, shifts: Mapping[str, float]) -> dict[Value, Array]:
    """Add numbers to the biases of linear operators, and return the former biases.

    Args:
        legalized: the integer graph, which is changed in place.
        shifts: number for all channels of a result by the name of the float tensor. Others, and results of operators
            without a bias, are skipped.
    """
    former: dict[Value, Array] = {}
    for value, product in legalized.products.items():
        shift, node = shifts.get(product.name), value.producer
        if shift and node is not None and _is_product(node):
            bias = operand(node, 2)
            former[bias] = bias.array
            shifted = bias.array.astype(np.int64).reshape(-1) + np.rint(shift / _unit_of_bias(node)).reshape(-1)
            bias.data = saturate(shifted, bias.dtype).reshape(bias.array.shape)
    return former


def _unit_of_bias(node: Node) -> Array:
    """Value of a step of the bias, per channel or for all channels."""
    source, weight = operands(node)[:2]
    result = node.outputs[0].quant
    if result is not None and result.dtype is I32:
        return np.asarray(result.scale)
    return np.asarray(max(params_of(source).scale) * np.asarray(params_of(weight).scale))


def _correct_bias(node: Node, means: ChannelMeans, expected: Array, shift: Array | float, share: float) -> None:
    """Change the bias so that the mean of the dequantized accumulator plus ``shift`` comes closer to ``expected``.

    ``share`` is the part of the difference by which it does.
    """
    bias, unit = operand(node, 2), _unit_of_bias(node)
    mean = means.result()
    assert mean is not None
    shifted = bias.array.astype(np.float64).reshape(-1) + share * (expected / unit - mean - shift)
    bias.data = saturate(np.rint(shifted), bias.dtype).reshape(bias.array.shape)
