"""Integer recurrent layers: one matmul for the inputs of all steps, then the steps of each direction."""

from __future__ import annotations

import numpy as np

from tpuconvert.runtime.native.builder.builder import Builder
from tpuconvert.runtime.native.builder.storage import row_major
from tpuconvert.runtime.native.matchers.convolution import Geometry, Image
from tpuconvert.runtime.native.matchers.epilogue import STORED_BIAS, TWO_ROUNDINGS, Epilogue
from tpuconvert.runtime.native.matchers.linear_int import LinearOp, convolve
from tpuconvert.runtime.native.matchers.matcher import Site, computes
from tpuconvert.runtime.native.matchers.recurrent import cell_fields, part_of, sequence_of
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.recurrent.recurrent_int import GruInt, LstmInt, RnnInt
from tpuconvert.schema.types import I8, I16, I32, U8, Array

_LARGEST_SUM = 1 << 30
_LARGEST_SHIFT = 30


def _has_kernel(op: LstmInt | GruInt | RnnInt, node: Node, site: Site) -> bool:
    weight, recurrent, bias = node.inputs[1:4]
    assert weight is not None and recurrent is not None and bias is not None
    if not (weight.is_constant and recurrent.is_constant and bias.is_constant) or len(node.outputs) > 1 + op.states:
        return False
    shifts = np.asarray(op.recurrent_shifts)
    finer = 15 if isinstance(op, GruInt) and not op.linear_before_reset else 0
    if shifts.max() > 0 or shifts.min() < -_LARGEST_SHIFT or not 0 <= finer - op.y_shift <= _LARGEST_SHIFT:
        return False
    if op.y_shift > 0 or -int(I8.min) + op.y_zero < 0:
        return False
    rows = recurrent.array.shape[1]
    largest = 255 * np.abs(recurrent.array.astype(np.int64)).sum(axis=2) + np.abs(bias.array[:, rows:].astype(np.int64))
    return bool((largest < _LARGEST_SUM).all())


@cell_fields.register
def _(op: LstmInt) -> dict[str, object]:
    return {
        "kind": "lstm",
        "input_forget": op.input_forget,
        "is_forget_given": op.is_forget_given,
        "product_shift": 15 + op.cell_bits,
        "cell_limit": op.cell_limit,
    }


@computes(
    "conv_int8",
    "recurrent_int8",
    dtypes=(I8, U8, I16, I32),
    conditions=(
        "constant weights and bias; recurrent sums below 2^30; multipliers of the states that do not shift left; no "
        "result with the cells of all steps"
    ),
    when=_has_kernel,
)
def recurrent_int(builder: Builder, node: Node, op: LstmInt | GruInt | RnnInt) -> None:
    """Integer recurrent layer with constant weights."""
    operands = [*node.inputs, *[None] * (7 - len(node.inputs))]
    x, weight, recurrent_weight, bias, lengths, hidden, cell = operands
    assert x is not None and weight is not None and recurrent_weight is not None and bias is not None
    steps, batch, size = builder.shape(x)
    directions, rows, units = builder.shape(recurrent_weight)
    source = builder.read(x, row_major(3))
    y, *last = [builder.write(value) for value in node.outputs]
    states = [None if value is None else builder.read(value, row_major(3)) for value in (hidden, cell)]
    count = None if lengths is None else builder.read(lengths)
    tables = np.concatenate(op.tables())
    for direction, is_reverse in enumerate(op.direction.reverse):
        factors = op.rescaling(direction, rows)
        inputs = builder.temporary(I16, (steps * batch, rows))
        linear = _input_matmul(x, op.x_zero, weight.array[direction], bias.array[direction, :rows], factors.input)
        convolve(
            builder, linear, Image.of_matrix(source, size), Image.of_matrix(inputs, rows), linear.weights, Geometry()
        )
        builder.kernel_step(
            "recurrent_int8",
            "RecurrentInt8Spec",
            {
                "inputs": inputs,
                "hidden": part_of(states[0], direction),
                "cell": part_of(states[1], direction),
                "lengths": count,
            },
            {
                "y": sequence_of(y, direction),
                "last_hidden": part_of(last[0], direction),
                "last_cell": part_of(last[1], direction) if len(last) > 1 else None,
            },
            steps=steps,
            batch=batch,
            units=units,
            y_step=directions * batch * units,
            weights=np.ascontiguousarray(recurrent_weight.array[direction]).reshape(-1),
            bias=np.ascontiguousarray(bias.array[direction, rows:]),
            multipliers=factors.recurrent[0].astype(np.int32),
            shifts=factors.recurrent[1].astype(np.int32),
            tables=tables,
            y_multiplier=op.y_multiplier,
            y_shift=op.y_shift,
            y_zero=op.y_zero + STORED_BIAS,
            is_reverse=is_reverse,
            operator_name=op.name,
            **cell_fields(op),
        )


def _input_matmul(x: Value, zero: int, weight: Array, bias: Array, factors: tuple[Array, Array]) -> LinearOp:
    """Matmul of the inputs of all steps, rescaled to sums of 16 bits."""
    multipliers, shifts = (item.astype(np.int32) for item in factors)
    epilogue = Epilogue.of(I16, rescale=TWO_ROUNDINGS, multiplier=multipliers, shift=shifts)
    weights = np.ascontiguousarray(weight)[:, :, None, None]
    return LinearOp(x, zero, weights, (0,), np.ascontiguousarray(bias), Geometry(), epilogue, is_matrix=True)
