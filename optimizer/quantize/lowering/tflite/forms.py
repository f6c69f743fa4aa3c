"""Bit-exact lowerings of TFLite operators for BM1686: looked up by operator, before the general lowerings.

The operator of a node and the annotations of its operands and result determine the kernel, whichever source operator
the node was converted from. A kernel of several nodes, such as PRELU, is recognized at its last node: the values
between the nodes have no annotation. Where two kernels compute different integers with equal operators and scales, the
annotation of the result says which (``QuantParams.arithmetic``).

If a lowering does not support a node, it returns None, and the general lowering is used.
"""

from __future__ import annotations

from collections.abc import Callable

from tpuconvert.optimizer.quantize.lowering.lowering import Lowered, Lowering
from tpuconvert.optimizer.quantize.lowering.tflite.steps import TFLITE, TFLITE_ONCE
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Node
from tpuconvert.schema.types import Arithmetic, Chip

ExactForm = Callable[[Node, Lowering], Lowered | None]

_FORMS: dict[tuple[type[Op], Arithmetic], ExactForm] = {}


def form_of(*operators: type[Op], arithmetic: Arithmetic = Arithmetic.OPERATOR) -> Callable[[ExactForm], ExactForm]:
    """Register the bit-exact lowering of operators with an arithmetic. A second one for the same key is an error."""

    def register(function: ExactForm) -> ExactForm:
        for op in operators:
            if (op, arithmetic) in _FORMS:
                raise ValueError(f"two exact forms of {op.name}")
            _FORMS[op, arithmetic] = function
        return function

    return register


def exact_form(node: Node, lowering: Lowering) -> Lowered | None:
    """Lower a node to the integers of the reference kernel; None selects the general lowering."""
    if lowering.rescale not in (TFLITE, TFLITE_ONCE) or lowering.chip is not Chip.BM1686:
        return None
    if len(node.outputs) != 1 or node.outputs[0].quant is None:
        return None
    form = _FORMS.get((type(node.op), node.outputs[0].quant.arithmetic))
    if form is None:
        return None
    lowering.form = form.__name__
    return form(node, lowering)
