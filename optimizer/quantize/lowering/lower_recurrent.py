"""Lowerings of recurrent layers for BM1686: lstm_int, gru_int, rnn_int."""

from __future__ import annotations

import math
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np

from tpuconvert.optimizer.quantize.lowering.lower_shared import result_params
from tpuconvert.optimizer.quantize.lowering.lowering import Declined, Lowered, Lowering, lowers, params_of
from tpuconvert.optimizer.recurrent_layers import why_no_integer_layer
from tpuconvert.schema.arithmetic.fixed_point import multiplier_shift, saturate
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.recurrent.recurrent import Gru, Lstm, RecurrentLayer, Rnn
from tpuconvert.schema.ops.recurrent.recurrent_int import SUM_BITS, GruInt, IntegerLayer, LstmInt, RnnInt
from tpuconvert.schema.types import I8, I32, Array, Chip, QuantParams

_SUM_UNIT = 2.0**-SUM_BITS
_LARGEST_BIAS = 2.0**29
"""Bound of a bias in units of the accumulator, which leaves room for the sum."""


class _Rows(NamedTuple):
    """INT8 weights of a matmul, and the scale of each row."""

    stored: Array
    scales: Array


def _quantize_rows(weight: Array, bias: Array, x_scale: float) -> _Rows:
    """Quantize weights [D, G * H, K] per row. Scales are large enough for the bias of the accumulator."""
    largest = np.abs(weight).max(axis=2, initial=0.0).astype(np.float64)
    scales = np.maximum(np.where(largest > 0, largest, 1.0) / 127, np.abs(bias) / (x_scale * _LARGEST_BIAS))
    return _Rows(saturate(np.rint(weight / scales[:, :, None]), I8), scales)


def _factors(scales: Array, x_scale: float) -> dict[str, tuple[int, ...]]:
    """Multipliers and shifts from the accumulator to a sum."""
    pairs = [multiplier_shift(float(scale) * x_scale / _SUM_UNIT) for scale in scales.reshape(-1)]
    return {"multipliers": tuple(pair[0] for pair in pairs), "shifts": tuple(pair[1] for pair in pairs)}


@lowers("lstm", "gru", "rnn", chips=(Chip.BM1686,))
def recurrent_layer(node: Node, lowering: Lowering) -> Lowered:
    """Lower to one operator: per-row INT8 weights, sums with 12 fraction bits."""
    op = node.op
    assert isinstance(op, RecurrentLayer)
    if reason := why_no_integer_layer(node, lowering.chip):
        return Declined(reason)
    given_operands = op.operands_by_name(node.inputs)
    x, weight, recurrent_weight, bias, lengths = list(given_operands.values())[:5]
    initial = [given_operands.get(name) for name in ("hidden", "cell")]
    assert x is not None and weight is not None and recurrent_weight is not None
    own, params = params_of(x), result_params(node)
    if own.dtype.bits != 8 or own.axis is not None:
        return Declined("its operand does not have 8 bits and one scale")
    w, r = (value.array.astype(np.float64) for value in (weight, recurrent_weight))
    rows = w.shape[1]
    biases = np.zeros((len(w), 2 * rows)) if bias is None else bias.array.astype(np.float64)
    input_bias, recurrent_bias = biases[:, :rows].copy(), biases[:, rows:].copy()
    first = 2 * rows // 3 if isinstance(op, Gru) and op.linear_before_reset else rows
    input_bias[:, :first] += recurrent_bias[:, :first]
    recurrent_bias[:, :first] = 0
    inputs, states = _quantize_rows(w, input_bias, own.scale[0]), _quantize_rows(r, recurrent_bias, params.scale[0])
    accumulators = [inputs.scales * own.scale[0], states.scales * params.scale[0]]
    stored = [np.rint(part / unit) for part, unit in zip((input_bias, recurrent_bias), accumulators, strict=True)]
    integer_bias = saturate(np.concatenate(stored, axis=1), I32)
    factors = {
        f"{name}_{field}": entries
        for name, rows_of, scale in (("input", inputs, own.scale[0]), ("recurrent", states, params.scale[0]))
        for field, entries in _factors(rows_of.scales, scale).items()
    }
    result = _integer_op(op, node, {"direction": op.direction, "x_zero": own.zero_point[0], **factors})
    g = lowering.g
    state_values = [
        None if value is None else lowering.quantized_value(value, params_of(node.outputs[1 + index]))
        for index, value in enumerate(initial[: op.states])
    ]
    constants = [
        g.constant(inputs.stored, weight.name),
        g.constant(states.stored, recurrent_weight.name),
        g.constant(integer_bias, f"{node.name}:bias" if bias is None else bias.name),
    ]
    layer_operands = [
        lowering.quantized_value(x),
        *constants,
        None if lengths is None else _integers(lowering, lengths),
        *state_values,
    ]
    while layer_operands[-1] is None:
        layer_operands.pop()
    return g.add_all(result, *layer_operands, names=[value.name for value in node.outputs])


def _integers(lowering: Lowering, value: Value) -> Value:
    """Return the lengths of the sequences, which stay INT32."""
    return lowering.float_value(value)


def _output_factor(params: QuantParams, unit: float) -> dict[str, Any]:
    """Multiplier and shift from ``unit`` to the scale of y."""
    multiplier, shift = multiplier_shift(unit / params.scale[0])
    return {"y_multiplier": multiplier, "y_shift": shift, "y_zero": params.zero_point[0]}


def _integer_bits(params: QuantParams) -> int:
    """Integer bits of a 16-bit fixed-point number."""
    return 15 + round(math.log2(params.scale[0]))


@singledispatch
def _integer_op(op: Op, node: Node, fields: dict[str, Any]) -> IntegerLayer:
    """Return the integer operator of a layer."""
    raise AssertionError(f"{op.name} is not recurrent")


@_integer_op.register
def _(op: Lstm, node: Node, fields: dict[str, Any]) -> IntegerLayer:
    y, _, cell = (params_of(value) for value in node.outputs[:3])
    limit = min(round(op.cell_clip / cell.scale[0]), 2**15 - 1) if op.cell_clip else 0
    return LstmInt(
        **fields,
        **_output_factor(y, 2.0**-30),
        cell_bits=_integer_bits(cell),
        cell_limit=limit,
        input_forget=op.input_forget,
        cell_steps=op.cell_steps,
    )


@_integer_op.register
def _(op: Gru, node: Node, fields: dict[str, Any]) -> IntegerLayer:
    y, hidden = (params_of(value) for value in node.outputs)
    return GruInt(
        **fields,
        **_output_factor(y, hidden.scale[0]),
        hidden_bits=_integer_bits(hidden),
        linear_before_reset=op.linear_before_reset,
    )


@_integer_op.register
def _(op: Rnn, node: Node, fields: dict[str, Any]) -> IntegerLayer:
    y = params_of(node.outputs[0])
    return RnnInt(**fields, **_output_factor(y, 2.0**-15), activation=op.activations[0])
