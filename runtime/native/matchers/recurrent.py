"""Recurrent layers: one matmul for the inputs of all steps, then the steps of each direction."""

from __future__ import annotations

from functools import singledispatch

import numpy as np

from tpuconvert.runtime.native.builder.builder import Builder
from tpuconvert.runtime.native.builder.storage import Stored, row_major
from tpuconvert.runtime.native.matchers.convolution import Geometry, Image, geometry_of
from tpuconvert.runtime.native.matchers.matcher import Site, computes
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Node
from tpuconvert.schema.ops.recurrent.recurrent import Gru, Lstm, Rnn
from tpuconvert.schema.ops.recurrent.recurrent_int import GruInt, RnnInt
from tpuconvert.schema.types import F32, I32, Array

_CONSTANT = ("weight", "recurrent_weight", "bias", "peephole")


def _has_constant_weights(op: Lstm | Gru | Rnn, node: Node, site: Site) -> bool:
    operands = op.operands_by_name(node.inputs)
    weights = [operands.get(name) for name in _CONSTANT]
    return all(value is None or value.is_constant for value in weights)


@singledispatch
def cell_fields(op: Op) -> dict[str, object]:
    """Fields of the spec that depend on the operator; in integers too."""
    raise AssertionError(f"{op.name} is not recurrent")


@cell_fields.register
def _(op: Lstm) -> dict[str, object]:
    return {"kind": "lstm", "input_forget": op.input_forget, "cell_clip": op.cell_clip}


@cell_fields.register
def _(op: Gru | GruInt) -> dict[str, object]:
    return {"kind": "gru_linear" if op.linear_before_reset else "gru"}


@cell_fields.register
def _(op: Rnn | RnnInt) -> dict[str, object]:
    return {"kind": "rnn"}


@computes(
    "conv_float32",
    "recurrent_float32",
    dtypes=(F32, I32),
    conditions="constant weights, biases and peepholes",
    when=_has_constant_weights,
)
def recurrent(builder: Builder, node: Node, op: Lstm | Gru | Rnn) -> None:
    """Recurrent layer with constant weights."""
    operands = op.operands_by_name(node.inputs)
    x, weight, recurrent_weight, bias, lengths, hidden = list(operands.values())[:6]
    cell, peephole, continues = (operands.get(name) for name in ("cell", "peephole", "continues"))
    assert x is not None and weight is not None and recurrent_weight is not None
    steps, batch, _ = builder.shape(x)
    directions, rows, units = builder.shape(recurrent_weight)
    source = builder.read(x, row_major(3))
    y, *last = [builder.write(value) for value in node.outputs]
    states = [None if value is None else builder.read(value, row_major(3)) for value in (hidden, cell)]
    count = None if lengths is None else builder.read(lengths)
    factors = None if continues is None else builder.read(continues, row_major(2))
    is_precise = node in builder.precise
    for direction, is_reverse in enumerate(op.direction.reverse):
        inputs = builder.temporary(F32, (steps * batch, rows))
        _project(builder, source, inputs, weight.array[direction], is_precise=is_precise)
        wide = None if bias is None else np.ascontiguousarray(bias.array[direction])
        builder.kernel_step(
            "recurrent_float32",
            "RecurrentFloatSpec",
            {
                "inputs": inputs,
                "hidden": part_of(states[0], direction),
                "cell": part_of(states[1], direction),
                "lengths": count,
                "continues": factors,
            },
            {
                "y": sequence_of(y, direction),
                "last_hidden": part_of(last[0], direction),
                "last_cell": part_of(last[1], direction) if len(last) > 1 else None,
                "cells": sequence_of(last[2], direction) if len(last) > 2 else None,
            },
            steps=steps,
            batch=batch,
            units=units,
            y_step=directions * batch * units,
            weights=np.ascontiguousarray(recurrent_weight.array[direction]).reshape(-1),
            input_bias=None if wide is None else wide[:rows],
            recurrent_bias=None if wide is None else wide[rows:],
            peepholes=None if peephole is None else np.ascontiguousarray(peephole.array[direction]),
            functions=op.functions_of(direction),
            is_reverse=is_reverse,
            clip=op.clip,
            is_precise=is_precise,
            operator_name=op.name,
            **cell_fields(op),
        )


def _project(builder: Builder, x: Stored, y: Stored, weight: Array, *, is_precise: bool) -> None:
    """Multiply the inputs of all steps by the weights [rows, I]."""
    source, target = Image.of_matrix(x, weight.shape[1]), Image.of_matrix(y, weight.shape[0])
    builder.kernel_step(
        "conv_float32",
        "ConvFloatSpec",
        {"input": x},
        {"output": y},
        geometry=geometry_of(builder, source, target, (1, 1), Geometry()),
        weights=weight[:, :, None, None],
        bias=None,
        limits=None,
        tail=[],
        is_precise=is_precise,
    )


def sequence_of(stored: Stored, direction: int) -> Stored:
    """Return the part of one direction of a tensor [T, D, N, H]; its steps are not contiguous."""
    _, _, batch, units = stored.shape
    return stored._replace(offset=stored.offset + direction * batch * units * stored.itemsize)


def part_of(stored: Stored | None, direction: int) -> Stored | None:
    """Return the state of one direction of a tensor [D, N, H]."""
    if stored is None:
        return None
    size = stored.shape[1] * stored.shape[2] * stored.itemsize
    return stored._replace(shape=stored.shape[1:], offset=stored.offset + direction * size, order=row_major(2))
