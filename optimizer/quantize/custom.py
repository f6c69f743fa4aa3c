"""Integer forms of custom operators, given by their definitions.

The method ``quantized(self, operands, results)`` of a definition is called with the quantization parameters of the
operands (None for those without) and of the results. It returns an operator that computes the integers of the results
from those of the operands, or None if there is no such operator.
"""

from __future__ import annotations

from tpuconvert.optimizer.quantize.lowering import Declined, Lowered, Lowering
from tpuconvert.schema.graph import Node
from tpuconvert.schema.op import Op, OpKind


def has_integer_form(op: Op) -> bool:
    """Return True for a custom operator whose definition has a method ``quantized``."""
    return op.kind is OpKind.CUSTOM and callable(getattr(op, "quantized", None))


def custom_form(node: Node, lowering: Lowering) -> Lowered:
    """Replace the node by the operator that ``quantized`` returns."""
    operands = [None if value is None else lowering.quantized(value) for value in node.inputs]
    given = tuple(None if value is None else value.quant for value in operands)
    wanted = tuple(value.quant for value in node.outputs)
    op = node.op.quantized(given, wanted)  # type: ignore[attr-defined]  # checked by has_integer_form
    if op is None:
        return Declined(f"{node.op.name} declines these scales")
    types = op.infer(*[None if value is None else value.type for value in operands])
    for value, found in zip(node.outputs, types, strict=True):
        if value.quant is None or found.dtype is not value.quant.dtype:
            return Declined(f"{op.name} gives {found.dtype.value}, which is not what '{value.name}' is to be")
    return lowering.g.add_all(op, *operands, names=[value.name for value in node.outputs])
