"""Residual fusion: the conv step also computes the residual add, while its result is in the L1 cache."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from tpuconvert.runtime.native.builder.builder import Group
from tpuconvert.runtime.native.matchers.element_step import emit_elements
from tpuconvert.runtime.native.matchers.elements import Elements, Term, Unsupported
from tpuconvert.runtime.native.matchers.elementwise_int import Tree
from tpuconvert.runtime.native.matchers.epilogue import EPILOGUE_OPS, bias_of
from tpuconvert.runtime.native.matchers.linear_int import (
    LINEAR_OPS,
    LinearOp,
    Residual,
    emit_convolution,
    linear_op_ending_at,
)
from tpuconvert.runtime.native.matchers.matcher import Site, ends_with, remember_match
from tpuconvert.schema.arithmetic.fixed_point import RoundingMode
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.arithmetic import Add, Sub
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32

_LARGEST = 2**31 - 1
_FACTOR = 2**15 - 1


@ends_with(
    RequantInt32.name,
    kernels=("conv_int8", "conv_int8_winograd", "elementwise_int"),
    dtypes="INT8, UINT8",
    conditions=(
        "conv to bytes plus bytes of the same shape, requantized by one rounding shift; "
        "elementwise_int where conv_int8 declines"
    ),
    priority=20,
)
def residual(node: Node, site: Site) -> Group | None:
    """Match a conv with an 8-bit result, an add of bytes times integers, and one rounding shift, in this order."""
    conv = conv_with_residual(node, site)
    if conv is None:
        return None
    emit = partial(emit_convolution, layer=conv.conv, result=node.outputs[0], residual=conv.residual)
    return Group(conv.nodes, emit, conv.parts)


class FusedConv(NamedTuple):
    """A conv, an optional residual add, and the smaller groups of the same nodes."""

    nodes: tuple[Node, ...]
    conv: LinearOp
    residual: Residual | None
    parts: tuple[Group, ...]


@remember_match
def conv_with_residual(node: Node, site: Site) -> FusedConv | None:
    """Return the conv and the residual add that ends with a node."""
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
    for index in (elements.instructions[0].arguments["a"], elements.instructions[0].arguments["b"]):
        assert isinstance(index, int)
        operand = elements.operands[index]
        conv = conv_of(operand, site)
        fused = None if conv is None else _as_shift(elements, index, term, bias_of(y.dtype))
        if conv is not None and fused is not None:
            add = Group(tuple(tree.nodes), lambda builder: emit_elements(elements, builder, term, y))
            return FusedConv((*conv.nodes, *tree.nodes), conv.conv, fused, (*conv.parts, add))
    return None


def conv_of(value: Value, site: Site) -> FusedConv | None:
    """Return the conv that computes a value with a single use, without a residual add."""
    producer = site.absorbable(value, *EPILOGUE_OPS, *LINEAR_OPS)
    return None if producer is None else conv_ending_at(producer, site)


def conv_ending_at(node: Node, site: Site) -> FusedConv | None:
    """Return the conv whose epilogue ends with a node, without a residual add."""
    nodes_and_op = linear_op_ending_at(node, site)
    if nodes_and_op is None or nodes_and_op[1].is_matrix or nodes_and_op[1].is_transposed:
        return None
    nodes, conv = nodes_and_op
    return FusedConv(nodes, conv, None, (Group(nodes, partial(emit_convolution, layer=conv, result=node.outputs[0])),))


def _as_shift(elements: Elements, index: int, term: Term, bias: int) -> Residual | None:
    """Return the parameters if the term adds two operands times integers and shifts once with rounding, else None."""
    summed, rescale = (instruction.arguments for instruction in elements.instructions)
    multiplier, shift, offset = (np.asarray(rescale[name], np.int64) for name in ("multiplier", "shift", "offset"))
    is_two_step = rescale["rounds_twice"] or rescale["rounding"] != int(RoundingMode.HALF_UP)
    vectors = summed["parameters"]
    assert isinstance(vectors, list)
    factor, other_factor, constant = vectors
    if summed["a"] != index:
        factor, other_factor = other_factor, factor
    if is_two_step or multiplier.size > 1 or shift.size > 1:
        return None
    integer_factor = int(multiplier[0])
    power = integer_factor.bit_length() - 1
    amount = -int(shift[0]) - power
    if integer_factor < 1 or integer_factor != 1 << power or not 1 <= amount <= 24:
        return None
    if max(np.abs(factor).max(), np.abs(other_factor).max()) > _FACTOR:
        return None
    constant = constant + (1 << (amount - 1)) + ((offset + bias) << amount)
    if 255 * 2 * _FACTOR + np.abs(constant).max() > _LARGEST:
        return None
    limits = term.low + bias, term.high + bias
    return Residual(elements.operands[1 - index], factor, other_factor, constant, amount, limits)
