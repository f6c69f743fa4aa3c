"""LSTM, GRU and RNN, unrolled over a static sequence.

One matmul multiplies the inputs of all steps by the weights; each step adds the matmul of its state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tpuconvert.frontends import emit, functions
from tpuconvert.frontends.onnx.matmul import matrix_product
from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.frontends.open_extents import is_open
from tpuconvert.schema.errors import TOO_LARGE, UNSUPPORTED_ATTRIBUTE
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.ops import formulas
from tpuconvert.schema.ops.compare import Gts
from tpuconvert.schema.ops.smooth_activation import HardSigmoid, Softplus
from tpuconvert.schema.types import Array, Scalar

Activation = Callable[[Graph, Value], Value]
_Factory = Callable[[float, float], Activation]

# Default alpha, default beta and factory by name; None for a parameter that the activation does not have.
_ACTIVATIONS: dict[str, tuple[float | None, float | None, _Factory]] = {
    "sigmoid": (None, None, lambda a, b: formulas.sigmoid),
    "tanh": (None, None, lambda a, b: formulas.tanh),
    "relu": (None, None, lambda a, b: formulas.relu),
    "affine": (1.0, 0.0, lambda a, b: lambda g, x: emit.adds(g, emit.muls(g, x, a), b)),
    "leakyrelu": (0.01, None, lambda a, b: lambda g, x: functions.leaky_relu(g, x, a)),
    "thresholdedrelu": (1.0, None, lambda a, b: lambda g, x: emit.mul(g, x, g.add(Gts(Scalar.f32(a)), x))),
    "scaledtanh": (1.0, 1.0, lambda a, b: lambda g, x: emit.muls(g, formulas.tanh(g, emit.muls(g, x, b)), a)),
    "hardsigmoid": (0.2, 0.5, lambda a, b: lambda g, x: g.add(HardSigmoid(a, b), x)),
    "elu": (1.0, None, lambda a, b: lambda g, x: functions.elu(g, x, a)),
    "softsign": (None, None, lambda a, b: functions.softsign),
    "softplus": (None, None, lambda a, b: lambda g, x: g.add(Softplus(), x)),
}


class _Layer(NamedTuple):
    """Inputs and attributes that LSTM, GRU and RNN have in common.

    ``x`` is [sequence, batch, input]; weights contain both directions. ``lengths`` has the number of steps of each
    sequence, or is None if all sequences have all steps.
    """

    x: Value
    hidden: int
    w: Array
    r: Array
    b: Array
    activations: tuple[Activation, ...]
    clip: float
    reverse: tuple[bool, ...]
    batch_first: bool
    lengths: Array | None

    @property
    def sequence(self) -> int:
        """Number of steps."""
        return emit.extents(self.x)[0]

    @property
    def batch(self) -> int:
        """Number of sequences."""
        return emit.extents(self.x)[1]


def _read(node: OnnxNode, gates: int, defaults: Sequence[str], ops_per_step: int) -> _Layer:
    x = emit.floats(node.input(0))
    direction = node.choice("direction", "forward", ("forward", "reverse", "bidirectional"))
    reverse = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[direction]
    batch_first = bool(node.attr("layout", 0)) if node.version >= 14 else False
    w, r = node.constant(1).astype(np.float32), node.constant(2).astype(np.float32)
    hidden = node.attr("hidden_size", int(r.shape[-1]))
    if node.rank(0) != 3:
        raise node.invalid(f"an input of rank {node.rank(0)}, not 3")
    size = node.shape(0)[2]
    if w.shape != (len(reverse), gates * hidden, size) or r.shape != (len(reverse), gates * hidden, hidden):
        raise node.invalid(f"weights {list(w.shape)} and {list(r.shape)} for hidden_size={hidden}")
    b = node.constant(3).astype(np.float32) if node.has_input(3) else np.zeros((len(reverse), 2 * gates * hidden), "f4")
    if b.shape != (len(reverse), 2 * gates * hidden):
        raise node.invalid(f"bias {list(b.shape)} for hidden_size={hidden}")
    if batch_first:
        x = emit.permute(node.graph, x, (1, 0, 2))
    sequence = emit.extents(x)[0]
    if sequence * ops_per_step * len(reverse) > node.limits.max_unrolled_nodes:
        raise node.fail(TOO_LARGE, f"{sequence} steps unrolled", f"at most {node.limits.max_unrolled_nodes} nodes")
    if node.version < 7:
        node.optional_attr("output_sequence")  # redundant: the node's outputs show if Y is used
    activations = _activations(node, list(defaults) * len(reverse))
    clip = node.attr("clip", 0.0)
    return _Layer(x, hidden, w, r, b, activations, clip, reverse, batch_first, _lengths(node, emit.extents(x)))


def _lengths(node: OnnxNode, shape: Sequence[int]) -> Array | None:
    """Number of steps of each sequence; None if all sequences have all steps."""
    if not node.has_input(4):
        return None
    sequence, batch, _ = shape
    lengths = node.constant(4)
    if lengths.shape != (batch,) or lengths.min() < 0 or lengths.max() > sequence:
        raise node.invalid(f"sequence_lens {lengths.tolist()} for {batch} sequences of {sequence} steps")
    return None if (lengths == sequence).all() else lengths


def _activations(node: OnnxNode, defaults: list[str]) -> tuple[Activation, ...]:
    names = [name.lower() for name in node.attr("activations", tuple(defaults))]
    alphas: list[float] = list(node.optional_attr("activation_alpha") or ())
    betas: list[float] = list(node.optional_attr("activation_beta") or ())
    if len(names) != len(defaults) or any(name not in _ACTIVATIONS for name in names):
        raise node.fail(UNSUPPORTED_ATTRIBUTE, f"activations={names}", f"supported: {', '.join(_ACTIVATIONS)}")
    found = []
    for name in names:
        alpha, beta, factory = _ACTIVATIONS[name]
        a = alphas.pop(0) if alpha is not None and alphas else alpha
        b = betas.pop(0) if beta is not None and betas else beta
        found.append(factory(a or 0.0, b or 0.0))
    return tuple(found)


def _initial(node: OnnxNode, layer: _Layer, index: int, direction: int) -> Value:
    """Initial state, [batch, hidden]."""
    g, shape = node.graph, (layer.batch, layer.hidden)
    if not node.has_input(index):
        rows = 1 if is_open(layer.batch) else layer.batch  # if symbolic, the first step broadcasts
        return g.constant(np.zeros((rows, layer.hidden), np.float32), name="initial_state")
    state = emit.floats(node.input(index))
    axis = 1 if layer.batch_first else 0
    return emit.reshape(g, _part(g, state, axis, direction, direction + 1), shape)


def _part(g: Graph, x: Value, axis: int, start: int, end: int) -> Value:
    if x.is_constant:
        return g.constant(np.take(x.array, range(start, end), axis), name=x.name)
    return emit.slice_axis(g, x, axis, start, end)


def _inputs(g: Graph, layer: _Layer, direction: int, bias: Array) -> Value:
    """Multiply the inputs of all steps by the weights and add the bias: [sequence * batch, gates * hidden]."""
    steps, batch, size = emit.extents(layer.x)
    flat = emit.reshape(g, layer.x, (steps * batch, size))
    weight = emit.float_constant(g, np.ascontiguousarray(layer.w[direction].T), "input_weight")
    return matrix_product(g, flat, weight, emit.float_constant(g, bias[None], "bias"))


def _step_inputs(g: Graph, layer: _Layer, inputs: Value, position: int) -> Value:
    """Return the rows of one step: [batch, gates * hidden]."""
    if not is_open(layer.batch):
        return emit.slice_axis(g, inputs, 0, position * layer.batch, (position + 1) * layer.batch)
    rows = (layer.batch, emit.extents(inputs)[1])
    steps = emit.reshape(g, inputs, (layer.sequence, *rows))
    return emit.reshape(g, emit.slice_axis(g, steps, 0, position, position + 1), rows)


def _columns(g: Graph, x: Value, index: int, hidden: int) -> Value:
    return emit.slice_axis(g, x, 1, index * hidden, (index + 1) * hidden)


def _clip(g: Graph, layer: _Layer, x: Value) -> Value:
    return emit.clamp(g, x, -layer.clip, layer.clip) if layer.clip > 0 else x


Step = Callable[[Value, list[Value]], list[Value]]


def _run(g: Graph, layer: _Layer, direction: int, inputs: Value, states: list[Value], step: Step) -> list[list[Value]]:
    """Return the output of each step and all states after it, in the order of computation.

    After the end of a sequence its states do not change and its outputs are zeros.
    """
    order = range(layer.sequence)
    found: list[list[Value]] = []
    for position in reversed(order) if layer.reverse[direction] else order:
        part = _step_inputs(g, layer, inputs, position)
        goes_on = None if layer.lengths is None else (position < layer.lengths).astype(np.float32)[:, None]
        if goes_on is None or goes_on.all():
            states = step(part, states)
            found.append([states[0], *states])
            continue
        new, kept = emit.float_constant(g, goes_on, "goes_on"), emit.float_constant(g, 1 - goes_on, "has_ended")
        pairs = zip(step(part, states), states, strict=True)
        states = [emit.add(g, emit.mul(g, after, new), emit.mul(g, before, kept)) for after, before in pairs]
        found.append([emit.mul(g, states[0], new), *states])
    return found


def _results(node: OnnxNode, g: Graph, layer: _Layer, runs: Sequence[list[list[Value]]], states: int) -> list[Result]:
    """Return Y (the outputs of all steps) and the last states, in the axis order of ONNX.

    If Y is unused, its steps are not concatenated, and a placeholder is returned for it.
    """
    batch, hidden = layer.batch, layer.hidden
    used = [*node.outputs_used, *(False,) * (1 + states)]
    results: list[Result] = []
    if used[0]:
        sides = []
        for direction, run in enumerate(runs):
            ordered = run[::-1] if layer.reverse[direction] else run
            rows = [emit.reshape(g, state[0], (1, 1, batch, hidden)) for state in ordered]
            sides.append(emit.concat(g, rows, 0))
        y = emit.concat(g, sides, 1)
        results.append(node.result(emit.permute(g, y, (2, 0, 1, 3)) if layer.batch_first else y))
    else:
        results.append(node.result(layer.x))  # placeholder for the unused output
    for index in range(states):
        last = [emit.reshape(g, run[-1][1 + index], (1, batch, hidden)) for run in runs]
        joined = emit.concat(g, last, 0)
        results.append(node.result(emit.permute(g, joined, (1, 0, 2)) if layer.batch_first else joined))
    return results


@onnx_op("LSTM", since=1, limits="constant weights and lengths; unrolled over the steps")
def lstm(node: OnnxNode, g: Graph) -> list[Result]:
    """Long short-term memory; gates in the order input, output, forget, cell."""
    layer = _read(node, 4, ("Sigmoid", "Tanh", "Tanh"), 20)
    hidden = layer.hidden
    couple = bool(node.attr("input_forget", 0))
    peephole = node.constant(7).astype(np.float32) if node.has_input(7) else None
    runs = []
    for direction in range(len(layer.reverse)):
        bias = layer.b[direction, : 4 * hidden] + layer.b[direction, 4 * hidden :]
        inputs = _inputs(g, layer, direction, bias)
        weight = emit.float_constant(g, np.ascontiguousarray(layer.r[direction].T), "state_weight")
        f, gate, h = layer.activations[3 * direction : 3 * direction + 3]
        peeps = [
            None if peephole is None else emit.float_constant(g, part[None], "peephole")
            for part in (np.zeros((3, hidden)) if peephole is None else peephole[direction].reshape(3, hidden))
        ]

        def step(part: Value, states: list[Value], weight: Value = weight, f: Activation = f, gate: Activation = gate,
                 h: Activation = h, peeps: list[Value | None] = peeps) -> list[Value]:  # fmt: skip
            before, cell = states
            sums = emit.add(g, part, matrix_product(g, before, weight))

            def add_peephole(index: int, peep: int, state: Value) -> Value:
                x, p = _columns(g, sums, index, hidden), peeps[peep]
                return _clip(g, layer, x if p is None else emit.add(g, x, emit.mul(g, state, p)))

            enter = f(g, add_peephole(0, 0, cell))
            forget = emit.rsubs(g, 1, enter) if couple else f(g, add_peephole(2, 2, cell))
            candidate = gate(g, _clip(g, layer, _columns(g, sums, 3, hidden)))
            cell = emit.add(g, emit.mul(g, forget, cell), emit.mul(g, enter, candidate))
            leave = f(g, add_peephole(1, 1, cell))
            return [emit.mul(g, leave, h(g, cell)), cell]

        states = [_initial(node, layer, 5, direction), _initial(node, layer, 6, direction)]
        runs.append(_run(g, layer, direction, inputs, states, step))
    return _results(node, g, layer, runs, 2)


@onnx_op("GRU", since=1, limits="constant weights and lengths; unrolled over the steps")
def gru(node: OnnxNode, g: Graph) -> list[Result]:
    """Gated recurrent unit; gates in the order update, reset, hidden."""
    layer = _read(node, 3, ("Sigmoid", "Tanh"), 20)
    hidden = layer.hidden
    reset_last = bool(node.attr("linear_before_reset", 0)) if node.version >= 3 else False
    runs = []
    for direction in range(len(layer.reverse)):
        wb, rb = layer.b[direction, : 3 * hidden].copy(), layer.b[direction, 3 * hidden :]
        wb[: 2 * hidden] += rb[: 2 * hidden]
        if not reset_last:
            wb[2 * hidden :] += rb[2 * hidden :]
        inputs = _inputs(g, layer, direction, wb)
        r = layer.r[direction].T
        gates = emit.float_constant(g, np.ascontiguousarray(r[:, : 2 * hidden]), "gate_weight")
        last = emit.float_constant(g, np.ascontiguousarray(r[:, 2 * hidden :]), "hidden_weight")
        last_bias = emit.float_constant(g, rb[None, 2 * hidden :], "hidden_bias")
        f, h = layer.activations[2 * direction : 2 * direction + 2]

        def step(part: Value, states: list[Value], gates: Value = gates, last: Value = last,
                 last_bias: Value = last_bias, f: Activation = f, h: Activation = h) -> list[Value]:  # fmt: skip
            (before,) = states
            sums = emit.add(g, emit.slice_axis(g, part, 1, 0, 2 * hidden), matrix_product(g, before, gates))
            update = f(g, _clip(g, layer, _columns(g, sums, 0, hidden)))
            reset = f(g, _clip(g, layer, _columns(g, sums, 1, hidden)))
            if reset_last:
                recurrent = emit.mul(g, reset, matrix_product(g, before, last, last_bias))
            else:
                recurrent = matrix_product(g, emit.mul(g, reset, before), last)
            candidate = h(g, _clip(g, layer, emit.add(g, _columns(g, part, 2, hidden), recurrent)))
            kept = emit.mul(g, update, before)
            return [emit.add(g, emit.mul(g, emit.rsubs(g, 1, update), candidate), kept)]

        runs.append(_run(g, layer, direction, inputs, [_initial(node, layer, 5, direction)], step))
    return _results(node, g, layer, runs, 1)


@onnx_op("RNN", since=1, limits="constant weights and lengths; unrolled over the steps")
def rnn(node: OnnxNode, g: Graph) -> list[Result]:
    """Elman RNN: per step, ``h = f(W x + R h + bias)`` with an activation ``f``."""
    layer = _read(node, 1, ("Tanh",), 4)
    hidden = layer.hidden
    runs = []
    for direction in range(len(layer.reverse)):
        inputs = _inputs(g, layer, direction, layer.b[direction, :hidden] + layer.b[direction, hidden:])
        weight = emit.float_constant(g, np.ascontiguousarray(layer.r[direction].T), "state_weight")
        f = layer.activations[direction]

        def step(part: Value, states: list[Value], weight: Value = weight, f: Activation = f) -> list[Value]:
            return [f(g, _clip(g, layer, emit.add(g, part, matrix_product(g, states[0], weight))))]

        runs.append(_run(g, layer, direction, inputs, [_initial(node, layer, 5, direction)], step))
    return _results(node, g, layer, runs, 1)
