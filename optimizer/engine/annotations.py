"""Conditions under which a rewrite may bypass a value that the source file quantizes.

An annotated value is rounded to its scale. A rule that merges nodes removes the values between them, and with them the
rounding. This is allowed only if the rounding has no effect: the value is not annotated, or its node is data movement
whose operand has the same scale.
"""

from __future__ import annotations

from collections.abc import Iterable

from tpuconvert.optimizer.engine.pattern import Match
from tpuconvert.schema.definition.op import Trait
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.copy import Copy

_INTEGER_KERNELS = ("tflite", "tflite-single")
"""``Graph.rescale`` of sources in which an operator on quantized values is an integer kernel with its own roundings."""


def is_interchangeable(x: Value, y: Value) -> bool:
    """Return True if x can replace y. A different annotation is a requantization in the source."""
    return x.quant == y.quant and x.type == y.type


def rounds_between(m: Match) -> str:
    """Return the pattern name of a matched inner node whose result is rounded to another scale, or an empty string."""
    for name, node in m.nodes.items():
        if node is not m.root and rounds(node):
            return name
    return ""


def rounds(node: Node) -> bool:
    """Return True if the annotation of the result has a different scale from the operand.

    A dequantization counts too: without it, what the source computes in float would be computed in integers.
    """
    annotations = [value.quant for value in node.outputs if value.quant is not None]
    if not annotations:
        return is_dequantization(node)
    operand = node.inputs[0] if len(node.inputs) == 1 else None
    if operand is None or Trait.MOVES_INTEGERS not in node.op.traits:
        return True
    return any(quant != operand.quant for quant in annotations)


def is_dequantization(node: Node) -> bool:
    """Return True for a copy of integers to a value without an annotation: the source dequantizes them."""
    operand = node.inputs[0] if len(node.inputs) == 1 else None
    return isinstance(node.op, Copy) and operand is not None and operand.quant is not None and node.output.quant is None


def replaced_kernels(graph: Graph, m: Match, added: Iterable[Node]) -> str:
    """Name operators that a rewrite would replace although the source rounds within them; empty if there are none.

    ``x + x = 2 * x`` holds for real numbers. In a TFLite file both are kernels that rescale integers, each with its own
    roundings. A rule may therefore move, split or merge the data movement around the kernels of annotated values, but
    the kernels stay: the new nodes have the same operators. This includes linear operators: a fully connected layer
    rounds once, a convolution twice.
    """
    if graph.rescale not in _INTEGER_KERNELS:
        return ""
    if not any(map(_has_integers, m.nodes.values())):
        return ""
    kernels = [node for node in m.nodes.values() if _is_kernel(node)]
    new = [node for node in added if Trait.MOVES_DATA not in node.op.traits or isinstance(node.op, Copy)]
    if sorted(node.op.name for node in kernels) == sorted(node.op.name for node in new):
        return ""
    return ", ".join(dict.fromkeys(node.op.name for node in kernels))


def _is_kernel(node: Node) -> bool:
    """Return True for operators that compute, and for copies that requantize or dequantize."""
    return Trait.MOVES_DATA not in node.op.traits or (isinstance(node.op, Copy) and rounds(node))


def _has_integers(node: Node) -> bool:
    """Return True if a computed operand or a result is annotated. The result before a fused activation is not."""
    operands = [value for value in node.inputs if value is not None and not value.is_constant]
    return any(value.quant is not None for value in (*operands, *node.outputs))
