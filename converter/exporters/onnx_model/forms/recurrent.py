"""Lowerings of recurrent layers."""

from __future__ import annotations

from tpuconvert.exporters.onnx_model.lowering import Lowering, NoOperator
from tpuconvert.exporters.onnx_model.registry import lowers
from tpuconvert.schema.graph.graph import Node
from tpuconvert.schema.ops.recurrent.functions import FUNCTIONS
from tpuconvert.schema.ops.recurrent.recurrent import Gru, Lstm, RecurrentLayer, Rnn

_NAMES = {
    name.lower(): name
    for name in (
        "Sigmoid", "Tanh", "Relu", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu",
        "Softsign", "Softplus",
    )
}  # fmt: skip
_DIRECTIONS = ("forward", "reverse", "bidirectional")


def _add(d: Lowering, operator: str, op: RecurrentLayer, node: Node, **attributes: object) -> None:
    """Add the ONNX operator, which cannot reset states between steps.

    Its lists of parameters have entries only for functions that have the parameter.
    """
    operands = op.operands_by_name(node.inputs)
    if operands.pop("continues") is not None:
        raise NoOperator
    functions = [function for direction in range(op.directions) for function in op.functions_of(direction)]
    alphas = [alpha for name, alpha, _ in functions if FUNCTIONS[name].alpha is not None]
    betas = [beta for name, _, beta in functions if FUNCTIONS[name].beta is not None]
    recurrent_weight = node.inputs[2]
    assert recurrent_weight is not None
    results = d.add_all(
        operator,
        *operands.values(),
        count=len(node.outputs),
        direction=_DIRECTIONS[op.direction],
        hidden_size=recurrent_weight.type.static_shape[2],
        activations=tuple(_NAMES[name] for name, _, _ in functions),
        activation_alpha=tuple(alphas) or None,
        activation_beta=tuple(betas) or None,
        clip=op.clip or None,
        **attributes,
    )
    for value, result in zip(node.outputs, results, strict=True):
        d.define(value, d.mark_rounded(result))


@lowers(Lstm)
def lstm(op: Lstm, node: Node, d: Lowering) -> None:
    """Lower an LSTM layer without a limit of the cell, which ONNX does not have."""
    if op.cell_clip:
        raise NoOperator
    _add(d, "LSTM", op, node, input_forget=int(op.input_forget))


@lowers(Gru)
def gru(op: Gru, node: Node, d: Lowering) -> None:
    """Lower a GRU layer."""
    _add(d, "GRU", op, node, linear_before_reset=int(op.linear_before_reset))


@lowers(Rnn)
def rnn(op: Rnn, node: Node, d: Lowering) -> None:
    """Lower an Elman layer."""
    _add(d, "RNN", op, node)
