"""When a rewrite may pass over a value that the source file quantizes.

An annotated value is rounded to the grid of its scale. A rule that joins nodes takes the values between them away, and
with them that rounding. It may do so only where the rounding does nothing: where the value is not annotated, or where
its node moves elements that are on the same grid already.
"""

from __future__ import annotations

from tpuconvert.optimizer.pattern import Match
from tpuconvert.schema.graph import Node, Value
from tpuconvert.schema.op import Trait


def is_interchangeable(x: Value, y: Value) -> bool:
    """Whether one value can stand for the other: a changed annotation is a rescale that the source asks for."""
    return x.quant == y.quant and x.type == y.type


def rounds_between(found: Match) -> str:
    """The name, in the pattern, of a matched node inside whose result is rounded to a grid of its own, or nothing."""
    for name, node in found.nodes.items():
        if node is not found.root and rounds(node):
            return name
    return ""


def rounds(node: Node) -> bool:
    """Whether the annotation of a node's result asks for a rounding that its operand has not had."""
    asked = [value.quant for value in node.outputs if value.quant is not None]
    if not asked:
        return False
    operand = node.inputs[0] if len(node.inputs) == 1 else None
    if operand is None or Trait.MOVES_INTEGERS not in node.op.traits:
        return True
    return any(quant != operand.quant for quant in asked)
