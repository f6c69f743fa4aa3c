"""LSTM, GRU and RNN as one operator each.

The axis order of ``layout=1`` is converted by transposes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tpuconvert.frontends import emit, open_extents
from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.frontends.open_extents import is_open
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import TOO_LARGE, UNSUPPORTED_ATTRIBUTE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.recurrent.functions import FUNCTIONS
from tpuconvert.schema.ops.recurrent.recurrent import Direction, Gru, Lstm, RecurrentLayer, Rnn
from tpuconvert.schema.types import Array

_DIRECTIONS = {
    "forward": Direction.FORWARD,
    "reverse": Direction.REVERSE,
    "bidirectional": Direction.BIDIRECTIONAL,
}


def _attributes(node: OnnxNode, kind: type[RecurrentLayer]) -> dict[str, Any]:
    """Attributes that the three operators have in common."""
    direction = _DIRECTIONS[node.choice("direction", "forward", tuple(_DIRECTIONS))]
    if node.version < 7:
        node.optional_attr("output_sequence")  # redundant: the node's outputs show if Y is used
    names, alphas, betas = _activations(node, kind.default_activations * len(direction.reverse))
    clip = node.attr("clip", 0.0)
    return {"direction": direction, "activations": names, "alphas": alphas, "betas": betas, "clip": max(clip, 0.0)}


def _activations(node: OnnxNode, defaults: tuple[str, ...]) -> tuple[tuple[str, ...], list[float], list[float]]:
    """Names and both parameters of all functions. The lists of the node have no entries for absent parameters."""
    names = tuple(name.lower() for name in node.attr("activations", defaults))
    if len(names) != len(defaults) or any(name not in FUNCTIONS for name in names):
        message = f"activations={list(names)}"
        raise node.fail(UNSUPPORTED_ATTRIBUTE, message, f"expected {len(defaults)} of {', '.join(FUNCTIONS)}")
    alphas: list[float] = list(node.attr("activation_alpha", ()) or ())
    betas: list[float] = list(node.attr("activation_beta", ()) or ())
    a, b = [], []
    for name in names:
        alpha, beta = FUNCTIONS[name].alpha, FUNCTIONS[name].beta
        a.append(float(alphas.pop(0)) if alpha is not None and alphas else alpha or 0.0)
        b.append(float(betas.pop(0)) if beta is not None and betas else beta or 0.0)
    return names, a, b


def _layer(node: OnnxNode, g: Graph, op: RecurrentLayer) -> list[Result]:
    """Add a recurrent layer. Return Y and the last states in the axis order of the node."""
    if node.rank(0) != 3:
        raise node.invalid(f"an input of rank {node.rank(0)}, not 3")
    batch_first = bool(node.attr("layout", 0)) if node.version >= 14 else False
    x = emit.floats(node.input(0))
    if batch_first:
        x = emit.permute(g, x, (1, 0, 2))
    steps, batch, size = emit.extents(x)
    if not is_open(steps) and x.is_constant and steps > node.limits.max_unrolled_nodes:
        raise node.fail(TOO_LARGE, f"{steps} steps of a constant sequence", f"at most {node.limits.max_unrolled_nodes}")
    w, r = emit.floats(node.input(1)), emit.floats(node.input(2))
    shapes = emit.extents(w), emit.extents(r)
    hidden = node.attr("hidden_size", shapes[1][-1])
    rows = (op.directions, op.gates * hidden)
    if shapes != ((*rows, size), (*rows, hidden)):
        raise node.invalid(f"weights {list(shapes[0])} and {list(shapes[1])} for hidden_size={hidden}")
    bias = _optional_floats(node, 3)
    if bias is not None and emit.extents(bias) != (op.directions, 2 * op.gates * hidden):
        raise node.invalid(f"bias {list(emit.extents(bias))} for hidden_size={hidden}")
    states = [_initial(node, g, 5 + index, batch_first) for index in range(op.states)]
    state_shape = open_extents.to_shape((op.directions, batch, hidden))
    if all(state is None or (state.shape == state_shape and emit.is_zeros(state)) for state in states):
        states = [None] * op.states
    operands = [x, w, r, bias, _lengths(node, steps, batch), *states]
    if isinstance(op, Lstm):
        operands.append(_optional_floats(node, 7))
    names = ("y", "last_hidden", "last_cell")[: 1 + op.states]
    y, *last = g.add_all(op, *operands, names=names)
    results = [y, *last]
    if batch_first:
        orders = ((2, 0, 1, 3), *[(1, 0, 2)] * op.states)
        results = [
            emit.permute(g, value, order) if used else value
            for value, order, used in zip(results, orders, _used(node, len(results)), strict=True)
        ]
    return [node.result(value) for value in results]


def _used(node: OnnxNode, count: int) -> Sequence[bool]:
    return [*node.outputs_used, *(False,) * count][:count]


def _optional_floats(node: OnnxNode, index: int) -> Value | None:
    return emit.floats(node.input(index)) if node.has_input(index) else None


def _initial(node: OnnxNode, g: Graph, index: int, batch_first: bool) -> Value | None:
    """Initial state, [directions, batch, units], or None for zeros."""
    state = _optional_floats(node, index)
    return emit.permute(g, state, (1, 0, 2)) if state is not None and batch_first else state


def _lengths(node: OnnxNode, steps: int, batch: int) -> Value | None:
    """Number of steps of each sequence; None if all sequences have all steps."""
    if not node.has_input(4):
        return None
    if not node.is_constant(4):
        return node.input(4)
    lengths: Array = node.constant(4)
    if is_open(steps):
        return node.input(4)
    if lengths.ndim != 1 or len(lengths) != batch or lengths.min() < 0 or lengths.max() > steps:
        raise node.invalid(f"sequence_lens {lengths.tolist()} for {batch} sequences of {steps} steps")
    return None if (lengths == steps).all() else node.input(4)


@onnx_op("LSTM", since=1, kind=Kind.DIRECT)
def lstm(node: OnnxNode, g: Graph) -> list[Result]:
    """Long short-term memory; gates in the order input, output, forget, cell."""
    attributes = _attributes(node, Lstm)
    return _layer(node, g, Lstm(**attributes, input_forget=bool(node.attr("input_forget", 0))))


@onnx_op("GRU", since=1, kind=Kind.DIRECT)
def gru(node: OnnxNode, g: Graph) -> list[Result]:
    """Gated recurrent unit; gates in the order update, reset, hidden."""
    attributes = _attributes(node, Gru)
    resets_last = bool(node.attr("linear_before_reset", 0)) if node.version >= 3 else False
    return _layer(node, g, Gru(**attributes, linear_before_reset=resets_last))


@onnx_op("RNN", since=1, kind=Kind.DIRECT)
def rnn(node: OnnxNode, g: Graph) -> list[Result]:
    """Elman network: one activation of the sum of both matmuls."""
    return _layer(node, g, Rnn(**_attributes(node, Rnn)))
