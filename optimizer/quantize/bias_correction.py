"""Taking the mean error of every product out of its bias.

Rounded weights and activations shift the mean of a product's result by channel, and the shifts of all layers add up.
The samples go through the integer graph together, node by node. At each product the mean of its accumulator is
compared with the mean of the float result on the same samples; the difference goes into the INT32 bias before the
samples go on, so that later layers see what the corrected ones give.

Source: Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction (2019), section 4.2, the
empirical form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tpuconvert.optimizer.quantize.legalize import Legalized
from tpuconvert.optimizer.quantize.lower_shared import geometry
from tpuconvert.runtime.border import to_value
from tpuconvert.runtime.plan import make_plan
from tpuconvert.runtime.session import Session
from tpuconvert.schema.graph import Graph, Node, Value
from tpuconvert.schema.ops.conv import Conv
from tpuconvert.schema.ops.conv_v2 import ConvV2
from tpuconvert.schema.ops.deconv_v2 import DeconvV2
from tpuconvert.schema.ops.matrix_mul import MatrixMul
from tpuconvert.schema.ops.matrix_mul_v2 import MatrixMulV2
from tpuconvert.schema.types import I32, Array, Chip

SAMPLES = 64
"""So many samples are used at most: means settle long before thresholds do."""


def correct_biases(legalized: Legalized, real: Graph, samples: Iterable[Mapping[str, Array]], chip: Chip) -> int:
    """Change the biases of a legalized graph in place.

    Args:
        legalized: what legalization made of ``real``; products without a bias are left alone.
        real: the float graph, whose values have the same names.
        samples: feeds; the first ``SAMPLES`` of them are used.
        chip: whose arithmetic counts.

    Returns:
        The number of products corrected.
    """
    feeds = [sample for sample, _ in zip(samples, range(SAMPLES), strict=False)]
    integer = legalized.graph
    names = {value.producer: name for value, name in legalized.products.items()}
    products = {node: names[node] for node in integer.nodes if node in names and _is_product(node)}
    means = _float_means(real, feeds, set(products.values()))
    plan = make_plan(integer)
    slots: list[list[Array]] = [[] for _ in range(plan.slots)]
    for index, constant in plan.constants:
        slots[index] = [constant] * len(feeds)
    for index, value, port in zip(plan.inputs, integer.inputs, integer.input_ports, strict=True):
        slots[index] = [to_value(sample[port.name], port, value, {}) for sample in feeds]
    corrected = 0
    with np.errstate(all="ignore"):
        for step in plan.steps:
            operands: list[Any] = [slots[index] if index >= 0 else [None] * len(feeds) for index in step.inputs]
            if products.get(step.node, "") in means:
                _correct(step.node, operands[0], means[products[step.node]])
                operands[2] = [_bias(step.node).array] * len(feeds)
                corrected += 1
            results = [step.node.op.evaluate(*arrays, chip=chip) for arrays in zip(*operands, strict=True)]
            for position, index in enumerate(step.outputs):
                slots[index] = [result[position] for result in results]
            for index in step.release:
                slots[index] = []
    return corrected


def _is_product(node: Node) -> bool:
    """Whether the node multiplies integers with constant weights and adds an INT32 bias."""
    if not isinstance(node.op, (ConvV2, DeconvV2, MatrixMulV2, Conv, MatrixMul)) or len(node.inputs) < 3:
        return False
    weight, bias = node.inputs[1], node.inputs[2]
    return weight is not None and weight.is_constant and bias is not None and bias.is_constant and bias.dtype is I32


def _bias(node: Node) -> Value:
    bias = node.inputs[2]
    assert bias is not None
    return bias


def _float_means(real: Graph, feeds: list[Mapping[str, Array]], names: set[str]) -> dict[str, Array]:
    """Mean per channel (axis 1) over all samples and positions."""
    sums: dict[str, Array] = {}

    def observe(value: Value, array: Array) -> None:
        if value.name in names:
            sums[value.name] = sums.get(value.name, 0.0) + _channel_mean(array)

    with Session(real) as session:
        for sample in feeds:
            session.run(sample, observe=observe)
    return {name: total / len(feeds) for name, total in sums.items()}


def _channel_mean(array: Array) -> Array:
    mean: Array = array.astype(np.float64).mean(axis=tuple(axis for axis in range(array.ndim) if axis != 1))
    return mean


def _correct(node: Node, x: list[Array], wanted: Array) -> None:
    """Move the bias so that the mean of the accumulator, in real units, is the wanted one."""
    operand, weight, bias = node.inputs[:3]
    assert operand is not None and operand.quant is not None
    assert weight is not None and weight.quant is not None and bias is not None
    result = node.outputs[0].quant
    if result is not None and result.dtype is I32:
        unit = np.asarray(result.scale)
    else:
        unit = operand.quant.scale[0] * np.asarray(weight.quant.scale)
    accumulate = _with_accumulator(node)
    flat = isinstance(accumulate, MatrixMulV2)
    now = bias.array.reshape(-1) if flat else bias.array
    found = np.mean([_channel_mean(accumulate.evaluate(array, weight.array, now)[0]) for array in x], axis=0)
    shifted = bias.array.astype(np.float64).reshape(-1) + (wanted / unit - found)
    bias.data = np.clip(np.rint(shifted), I32.min, I32.max).astype(np.int32).reshape(bias.array.shape)


def _with_accumulator(node: Node) -> ConvV2 | DeconvV2 | MatrixMulV2:
    """The operator whose result is the 32-bit accumulator; the fused forms of BM1684 do not give it."""
    op = node.op
    if isinstance(op, Conv):
        return ConvV2(**geometry(op), has_bias=True)
    if isinstance(op, MatrixMul):
        return MatrixMulV2(has_bias=True)
    assert isinstance(op, (ConvV2, DeconvV2, MatrixMulV2))
    return op
