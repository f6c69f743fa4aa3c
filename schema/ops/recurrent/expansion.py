"""Expansion of recurrent layers: one matmul for the inputs of all steps, and the operators of a cell per step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas as f
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.compare import Gts
from tpuconvert.schema.ops.concat import Split
from tpuconvert.schema.ops.recurrent.functions import FUNCTIONS
from tpuconvert.schema.ops.shape_change import ExpandDims, Squeeze
from tpuconvert.schema.types import F32, Scalar

MAX_EXPANSION_NODES = 50_000
"""Largest number of nodes of an expansion."""

_NODES_PER_STEP = 24

Function = tuple[str, float, float]
"""Name of an activation function with both parameters."""


class Weights(NamedTuple):
    """Weights of one direction, for matmuls from the right.

    Args:
        input: [I, G * H].
        recurrent: [H, G * H].
        input_bias: [1, G * H], or None.
        recurrent_bias: [1, G * H], or None.
        peepholes: three values [1, H] for the gates of an LSTM, or None.
        units: number of units, H.

    """

    input: Value
    recurrent: Value
    input_bias: Value | None
    recurrent_bias: Value | None
    peepholes: tuple[Value, ...] | None
    units: int


States = list[Value | None]
"""States of a cell, [N, H]; None means zeros."""

Step = Callable[[Graph, Weights, Value, States], list[Value]]
"""Adds one step: from ``x @ weight + bias`` and the states to the next states."""


class Cell(NamedTuple):
    """Expansion of one step of one direction.

    Args:
        step: adds the operators.
        merges_biases: True if both biases are added to the product of the input, else False.

    """

    step: Step
    merges_biases: bool = True

    @staticmethod
    def lstm(functions: Sequence[Function], clip: float, input_forget: bool, cell_clip: float) -> Cell:
        """Expansion of an LSTM step. The functions are applied to the gates, the candidate and the cell."""
        gate, inner, outer = functions

        def step(g: Graph, weights: Weights, part: Value, states: States) -> list[Value]:
            hidden, cell = states
            sums = _add_recurrent(g, part, hidden, weights.recurrent, None)
            enter, leave, forget, candidate = (_columns(g, sums, k, k + 1, weights.units) for k in range(4))

            def add_peephole(x: Value, index: int, state: Value | None) -> Value:
                if weights.peepholes is not None and state is not None:
                    x = f.add(g, x, f.mul(g, state, weights.peepholes[index]))
                return _apply(g, gate, _clip(g, x, clip))

            enter = add_peephole(enter, 0, cell)
            added = f.mul(g, enter, _apply(g, inner, _clip(g, candidate, clip)))
            if cell is not None:
                forget_factor = f.rsubs(g, 1, enter) if input_forget else add_peephole(forget, 2, cell)
                added = f.add(g, f.mul(g, forget_factor, cell), added)
            new = _clip(g, added, cell_clip)
            return [f.mul(g, add_peephole(leave, 1, new), _apply(g, outer, new)), new]

        return Cell(step)

    @staticmethod
    def gru(functions: Sequence[Function], clip: float, linear_before_reset: bool) -> Cell:
        """Expansion of a GRU step. The functions are applied to the gates and the candidate."""
        gate, inner = functions

        def step(g: Graph, weights: Weights, part: Value, states: States) -> list[Value]:
            (hidden,) = states
            units, bias = weights.units, weights.recurrent_bias
            gates, last = (_columns(g, weights.recurrent, *part, units) for part in ((0, 2), (2, 3)))
            gate_bias = None if bias is None else _columns(g, bias, 0, 2, units)
            last_bias = None if bias is None else _columns(g, bias, 2, 3, units)
            sums = _add_recurrent(g, _columns(g, part, 0, 2, units), hidden, gates, gate_bias)
            update = _apply(g, gate, _clip(g, _columns(g, sums, 0, 1, units), clip))
            candidate = _columns(g, part, 2, 3, units)
            if hidden is not None or last_bias is not None:
                reset = _apply(g, gate, _clip(g, _columns(g, sums, 1, 2, units), clip))
                if not linear_before_reset:
                    state = None if hidden is None else f.mul(g, reset, hidden)
                    candidate = _add_recurrent(g, candidate, state, last, last_bias)
                else:
                    inner_sum = last_bias if hidden is None else f.matmul(g, hidden, last, last_bias)
                    assert inner_sum is not None
                    candidate = f.add(g, candidate, f.mul(g, reset, inner_sum))
            candidate = f.mul(g, f.rsubs(g, 1, update), _apply(g, inner, _clip(g, candidate, clip)))
            return [candidate if hidden is None else f.add(g, candidate, f.mul(g, update, hidden))]

        return Cell(step, merges_biases=not linear_before_reset)

    @staticmethod
    def rnn(functions: Sequence[Function], clip: float) -> Cell:
        """Expansion of a step of an Elman network."""

        def step(g: Graph, weights: Weights, part: Value, states: States) -> list[Value]:
            sums = _add_recurrent(g, part, states[0], weights.recurrent, None)
            return [_apply(g, functions[0], _clip(g, sums, clip))]

        return Cell(step)


def expand_layer(
    name: str,
    g: Graph,
    operands: Mapping[str, Value | None],
    reverse: Sequence[bool],
    states: int,
    cell_of: Callable[[int], Cell],
    *,
    gives_cells: bool = False,
) -> tuple[Value, ...]:
    """Unroll a recurrent layer.

    Args:
        name: name of the operator, for messages.
        g: graph to which the operators are added.
        operands: operands of the layer by name; None for absent ones.
        reverse: for each direction, True if it begins with the last step.
        states: number of states.
        cell_of: expansion of one step of a direction.
        gives_cells: True if the last states of all steps are a result, too.

    Returns:
        The outputs of all steps, the last states, and the cells of all steps if they are a result.

    Raises:
        ShapeError: the number of steps is symbolic, or the expansion would have too many nodes.

    """
    x, weight, recurrent, bias = (operands[key] for key in ("tensor_i", "weight", "recurrent_weight", "bias"))
    lengths, peephole, continues = (operands.get(key) for key in ("lengths", "peephole", "continues"))
    initial = [operands.get(key) for key in ("hidden", "cell")]
    assert x is not None and weight is not None and recurrent is not None
    steps = x.shape[0]
    if not isinstance(steps, int) or not (weight.type.is_static and recurrent.type.is_static):
        raise ShapeError(f"{name} can only be expanded for a number of steps that is a number, got {x.type}")
    if steps < 1 or steps * len(reverse) * _NODES_PER_STEP > MAX_EXPANSION_NODES:
        raise ShapeError(f"{name} with {steps} steps expands to more than {MAX_EXPANSION_NODES} nodes, got {x.type}")
    factors = None if continues is None else _row_columns(g, continues, steps)
    masks = None if lengths is None else _masks(g, lengths, steps)
    outputs: list[list[Value]] = [[] for _ in range(steps)]
    recorded: list[list[Value]] = [[] for _ in range(steps)]
    last: list[list[Value]] = [[] for _ in range(states)]
    for direction, is_reverse in enumerate(reverse):
        cell = cell_of(direction)
        weights = _weights(g, weight, recurrent, bias, peephole, direction, cell.merges_biases)
        parts = _inputs(g, x, weights)
        current: States = [None if item is None else _matrix(g, item, direction) for item in initial[:states]]
        for step in reversed(range(steps)) if is_reverse else range(steps):
            if factors is not None:
                current = [None if state is None else f.mul(g, state, factors[step]) for state in current]
            new = cell.step(g, weights, parts[step], current)
            output = new[0]
            if masks is not None:
                inside, outside = masks[step]
                output = f.mul(g, new[0], inside)
                masked = [output, *(f.mul(g, state, inside) for state in new[1:])]
                new = [
                    item if old is None else f.add(g, item, f.mul(g, old, outside))
                    for item, old in zip(masked, current, strict=True)
                ]
            current = list(new)
            outputs[step].append(_with_unit_axes(g, output, 2))
            if gives_cells:
                recorded[step].append(_with_unit_axes(g, new[-1], 2))
        for state, last_states in zip(current, last, strict=True):
            assert state is not None
            last_states.append(_with_unit_axes(g, state, 1))
    sequences = [
        f.concat(g, [f.concat(g, step, 1) for step in last_states], 0)
        for last_states in (outputs, recorded)
        if last_states[0]
    ]
    return (sequences[0], *(f.concat(g, last_states, 0) for last_states in last), *sequences[1:])


def _row_columns(g: Graph, x: Value, steps: int) -> list[Value]:
    """Return the rows of a matrix [T, N] as columns [N, 1]."""
    rows = g.add_all(Split(0, steps), x) if steps > 1 else [x]
    return [g.add(ExpandDims(1), g.add(Squeeze((0,)), row)) for row in rows]


def _weights(
    g: Graph,
    weight: Value,
    recurrent: Value,
    bias: Value | None,
    peephole: Value | None,
    direction: int,
    merges_biases: bool,
) -> Weights:
    """Weights of one direction. If biases are merged, ``input_bias`` is the sum of both."""
    _, columns, units = recurrent.type.static_shape
    input_bias = recurrent_bias = None
    if bias is not None:
        row = f.slice_axis(g, bias, 0, direction, direction + 1)
        input_bias, recurrent_bias = (f.slice_axis(g, row, 1, k * columns, (k + 1) * columns) for k in range(2))
        if merges_biases:
            input_bias, recurrent_bias = _sum(g, input_bias, recurrent_bias), None
    peepholes = None
    if peephole is not None:
        row = f.slice_axis(g, peephole, 0, direction, direction + 1)
        peepholes = tuple(f.slice_axis(g, row, 1, k * units, (k + 1) * units) for k in range(3))
    matrices = [f.permute(g, _matrix(g, item, direction), (1, 0)) for item in (weight, recurrent)]
    return Weights(matrices[0], matrices[1], input_bias, recurrent_bias, peepholes, units)


def _sum(g: Graph, x: Value, y: Value) -> Value:
    if x.data is not None and y.data is not None:
        return g.constant(x.data + y.data, x.name)
    return f.add(g, x, y)


def _inputs(g: Graph, x: Value, weights: Weights) -> list[Value]:
    """Multiply the inputs of all steps by the weights; return the rows [N, G * H] of each step."""
    steps = x.shape[0]
    assert isinstance(steps, int)
    if x.type.is_static:
        _, batch, size = x.type.static_shape
        rows = f.reshape(g, x, (steps * batch, size))
        total = f.matmul(g, rows, weights.input, weights.input_bias)
        return [f.slice_axis(g, total, 0, step * batch, (step + 1) * batch) for step in range(steps)]
    parts = g.add_all(Split(0, steps), x) if steps > 1 else [x]
    return [f.matmul(g, g.add(Squeeze((0,)), part), weights.input, weights.input_bias) for part in parts]


def _matrix(g: Graph, x: Value, direction: int) -> Value:
    """Return the matrix of one direction of a tensor of rank 3."""
    if x.type.is_static:
        part = f.slice_axis(g, x, 0, direction, direction + 1)
        return f.reshape(g, part, part.type.static_shape[1:])
    count = x.shape[0]
    assert isinstance(count, int)
    parts = g.add_all(Split(0, count), x) if count > 1 else [x]
    return g.add(Squeeze((0,)), parts[direction])


def _masks(g: Graph, lengths: Value, steps: int) -> list[tuple[Value, Value]]:
    """For each step: 1 for the sequences that it belongs to, else 0; and 1 minus this. Both are [N, 1]."""
    if lengths.data is not None:
        column = lengths.data[:, None]
        inside = [(column > step).astype(np.float32) for step in range(steps)]
        return [(g.constant(mask, "inside"), g.constant(1 - mask, "outside")) for mask in inside]
    rows = g.add(ExpandDims(1), g.add(Cast(F32), lengths))
    masks = [g.add(Gts(Scalar.f32(step)), rows) for step in range(steps)]
    return [(mask, f.rsubs(g, 1, mask)) for mask in masks]


def _add_recurrent(g: Graph, part: Value, state: Value | None, w: Value, bias: Value | None) -> Value:
    """``part + state @ w + bias``, where a state of None is zero."""
    if state is None:
        return part if bias is None else f.add(g, part, bias)
    return f.add(g, part, f.matmul(g, state, w, bias))


def _columns(g: Graph, x: Value, first: int, last: int, units: int) -> Value:
    """Columns of the gates from ``first`` to ``last``, of a matrix whose number of rows may be symbolic."""
    if x.type.is_static:
        return f.slice_axis(g, x, 1, first * units, last * units)
    columns = x.shape[1]
    assert isinstance(columns, int)
    sizes = [first * units, (last - first) * units, columns - last * units]
    if sizes[1] == columns:
        return x
    parts = g.add_all(Split(1, sum(map(bool, sizes)), tuple(filter(None, sizes))), x)
    return parts[1 if first else 0]


def _apply(g: Graph, function: Function, x: Value) -> Value:
    name, alpha, beta = function
    return FUNCTIONS[name].expand(g, x, alpha, beta)


def _clip(g: Graph, x: Value, limit: float) -> Value:
    return f.clamp(g, x, -limit, limit) if limit else x


def _with_unit_axes(g: Graph, x: Value, count: int) -> Value:
    """Insert axes of extent 1 before the others."""
    if x.type.is_static:
        return f.reshape(g, x, (1,) * count + x.type.static_shape)
    for _ in range(count):
        x = g.add(ExpandDims(0), x)
    return x
