"""Residual fusion: the residual add is part of the conv step, while the result is in the first-level cache."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from tpuconvert.runtime.native.builder import Builder, Group
from tpuconvert.runtime.native.element_step import emit_elements
from tpuconvert.runtime.native.elements import Instruction, Unsupported
from tpuconvert.runtime.native.epilogue import EPILOGUE_OPS, bias_of
from tpuconvert.runtime.native.groups import Site, ends_with
from tpuconvert.runtime.native.plan_elementwise_int import Tree
from tpuconvert.runtime.native.plan_linear_int import (
    LINEAR_OPS,
    LinearOp,
    Residual,
    emit_convolution,
    linear_op_ending_at,
)
from tpuconvert.runtime.native.storage import channels_last
from tpuconvert.schema.fixed_point import RoundingMode
from tpuconvert.schema.graph import Node, Value
from tpuconvert.schema.ops.arithmetic import Add, Sub
from tpuconvert.schema.ops.requant_int32 import RequantInt32
from tpuconvert.schema.types import Array

_LARGEST = 2**31 - 1
_FACTOR = 2**15 - 1


@ends_with(
    RequantInt32.name,
    kernels=("conv_int8", "elementwise_int"),
    dtypes="INT8, UINT8",
    conditions=(
        "conv to bytes plus bytes of the same shape, requantized by one rounding shift; "
        "elementwise_int where conv_int8 declines"
    ),
    priority=20,
)
def residual(node: Node, site: Site) -> Group | None:
    """Match a conv with an 8-bit result, an add of bytes with integer multipliers, and one rounding shift."""
    y = node.outputs[0]
    if y.dtype.bits != 8 or y.rank != 4 or site.absorbable(node.inputs[0], Add, Sub) is None:
        return None
    tree = Tree(site)
    try:
        term = tree.term(node)
    except Unsupported:
        return None
    elements = tree.elements
    codes = [instruction.code for instruction in elements.instructions]
    if codes != ["linear_sum", "rescale"] or term.register != 1 or term.dtype is not y.dtype:
        return None
    if len(elements.operands) != 2 or any(value.shape != y.shape or value.is_constant for value in elements.operands):
        return None
    limits = term.low + bias_of(y.dtype), term.high + bias_of(y.dtype)
    summing, rescaling = elements.instructions
    parameters = _as_shift(summing, rescaling, bias_of(y.dtype))
    if parameters is None:
        return None
    for operand in (summing.arguments["a"], summing.arguments["b"]):
        assert isinstance(operand, int)
        found = _convolution(elements.operands[operand], site)
        if found is not None:
            is_first = operand == summing.arguments["a"]
            other = elements.operands[1 - operand]
            nodes = (*found[0], *tree.nodes)
            add = partial(_residual, other=other, parameters=parameters, limits=limits, is_first=is_first)
            convolution = partial(emit_convolution, found=found[1], result=elements.operands[operand])
            parts = (
                Group(found[0], convolution),
                Group(tuple(tree.nodes), lambda builder: emit_elements(elements, builder, term, y)),
            )
            return Group(nodes, partial(emit_convolution, found=found[1], result=y, residual=add), parts)
    return None


def _convolution(value: Value, site: Site) -> tuple[tuple[Node, ...], LinearOp] | None:
    producer = site.absorbable(value, *EPILOGUE_OPS, *LINEAR_OPS)
    found = None if producer is None else linear_op_ending_at(producer, site)
    if found is None or found[1].is_matrix or found[1].is_transposed:
        return None
    return found


Parameters = tuple[Array, Array, Array, int]
"""Multiplier of the conv, multiplier of the other operand, offset and shift."""


def _as_shift(summed: Instruction, rescale: Instruction, bias: int) -> Parameters | None:
    """Return the parameters of an add and its requantization as one rounding shift, or None if they are not one."""
    given = rescale.arguments
    multiplier, shift, offset = (np.asarray(given[name], np.int64) for name in ("multiplier", "shift", "offset"))
    factor, other, constant = _vectors(summed)
    if given["rounds_twice"] or given["rounding"] != int(RoundingMode.HALF_UP) or multiplier.size > 1 or shift.size > 1:
        return None
    whole = int(multiplier[0])
    power = whole.bit_length() - 1
    amount = -int(shift[0]) - power
    if whole < 1 or whole != 1 << power or not 1 <= amount <= 24:
        return None
    if max(np.abs(factor).max(), np.abs(other).max()) > _FACTOR:
        return None
    constant = constant + (1 << (amount - 1)) + ((offset + bias) << amount)
    if 255 * 2 * _FACTOR + np.abs(constant).max() > _LARGEST:
        return None
    return factor, other, constant, amount


def _vectors(summed: Instruction) -> Sequence[Array]:
    vectors = summed.arguments["parameters"]
    assert isinstance(vectors, list)
    return vectors


def _residual(
    builder: Builder, *, other: Value, parameters: Parameters, limits: tuple[int, int], is_first: bool
) -> Residual:
    factor, other_factor, offset, shift = parameters
    if not is_first:
        factor, other_factor = other_factor, factor
    stored = builder.read(other, channels_last(4), dense=False)
    return Residual(stored, factor, other_factor, offset, shift, limits)
