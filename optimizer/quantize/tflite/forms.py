"""Bit-exact lowerings of TFLite operators for BM1686: looked up by source operator, before the general lowerings.

A lowering is called for the last node of a source operator. If it does not support the node, it returns None, and the
general lowering is used.
"""

from __future__ import annotations

from collections.abc import Callable

from tpuconvert.optimizer.quantize.lowering import Lowered, Lowering
from tpuconvert.optimizer.quantize.tflite.steps import TFLITE, TFLITE_ONCE, operands_of, source_of
from tpuconvert.optimizer.quantize.traits import changes_shape_or_axes
from tpuconvert.schema.graph import Node
from tpuconvert.schema.types import Chip

SourceForm = Callable[[Node, Lowering], Lowered | None]

_FORMS: dict[str, SourceForm] = {}


def form_of(*names: str) -> Callable[[SourceForm], SourceForm]:
    """Register the bit-exact lowering of source operators. A second one for the same name is an error."""

    def register(function: SourceForm) -> SourceForm:
        for name in names:
            if name in _FORMS:
                raise ValueError(f"two exact forms of {name}")
            _FORMS[name] = function
        return function

    return register


def exact_form(node: Node, lowering: Lowering) -> Lowered | None:
    """Lower a node to the integers of its source operator's reference kernel; None selects the general lowering."""
    if lowering.rescale not in (TFLITE, TFLITE_ONCE) or lowering.chip is not Chip.BM1686:
        return None
    form = _FORMS.get(source_of(node))
    if form is None or changes_shape_or_axes(node.op) or len(node.outputs) != 1 or node.outputs[0].quant is None:
        return None
    if any(value.quant is None and not value.is_constant for value in operands_of(node)):
        return None
    return form(node, lowering)
