"""Key-value caches of a decoder: pairs of an input and an output of a graph that a session keeps between runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tpuconvert.schema.definition.extents import minus
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.types import Dim

FIXED = -1
"""Axis of a state whose shape does not change."""


@dataclass(frozen=True)
class State:
    """A tensor that a session keeps between runs.

    Args:
        input: index of the graph input that reads it.
        output: index of the graph output that is its next value.
        axis: the axis along which every run appends to it; ``FIXED`` if the shape does not change.
    """

    input: int
    output: int
    axis: int = FIXED

    def check(self, graph: Graph) -> None:
        """Check that the state belongs to a graph.

        Raises:
            ValueError: the graph has no such input or output, or their shapes do not fit.
        """
        if not (0 <= self.input < len(graph.inputs) and 0 <= self.output < len(graph.outputs)):
            raise ValueError(f"a state is input {self.input} and output {self.output}, which do not exist")
        axis = growth_axis(graph, self.input, self.output)
        if axis != self.axis:
            name = graph.input_ports[self.input].name
            raise ValueError(f"the state '{name}' grows along axis {self.axis}, its shapes say {axis}")


def present_names(past: str) -> tuple[str, ...]:
    """Names that the output of a cache may have, by the name of its input; empty for another input.

    Example: ``past_key_values.0.key`` and ``present.0.key``; ``past_key_0`` and ``present_key_0``.
    """
    if "past" not in past:
        return ()
    names = (past.replace("past_key_values", "present"), past.replace("past", "present", 1))
    return tuple(dict.fromkeys(names))


def growth_axis(graph: Graph, source: int, result: int) -> int | None:
    """Axis on which an output is longer than an input by a symbolic extent; ``FIXED`` for equal shapes, or None.

    None means that the output cannot be the next value of the input.
    """
    first, second = graph.input_ports[source], graph.output_ports[result]
    if first.dtype != second.dtype or len(first.shape) != len(second.shape):
        return None
    axes = [axis for axis, (a, b) in enumerate(zip(first.shape, second.shape, strict=True)) if a != b]
    if not axes:
        return FIXED
    (axis, *others) = axes
    before, after = first.shape[axis], second.shape[axis]
    return axis if isinstance(before, str) and growth(before, after) is not None and not others else None


def growth(before: Dim, after: Dim) -> Dim | None:
    """Extent by which a run appends to a cache: the difference of the extents; None if it is not a positive extent."""
    added = minus(after, before)
    return None if added is None or (isinstance(added, int) and added < 1) else added


def find_states(graph: Graph) -> tuple[State, ...]:
    """Find the states of a graph, in the order of its inputs.

    An output belongs to an input if it is a concat of the input and other values along an axis of symbolic extent, or
    if it has the name of the input with ``present`` in place of ``past`` and the shape of a state.
    """
    names = {port.name: index for index, port in enumerate(graph.output_ports)}
    appended = {value: index for index, output in enumerate(graph.outputs) for value in _concat_base(output)}
    states = []
    for index, (port, value) in enumerate(zip(graph.input_ports, graph.inputs, strict=True)):
        by_name = next((names[name] for name in present_names(port.name) if name in names), None)
        for output in (by_name, appended.get(value)):
            axis = None if output is None else growth_axis(graph, index, output)
            if output is not None and axis is not None and (axis != FIXED or output == by_name):
                states.append(State(index, output, axis))
                break
    return tuple(states)


def _concat_base(output: Value) -> Iterator[Value]:
    """Yield the graph input to which a concat appends other values to compute an output."""
    value: Value | None = _before_conversions(output)
    if value is not None and value.producer is not None and value.producer.op.name == "concat":
        first = value.producer.inputs[0]
        base = None if first is None else _before_conversions(first)
        if base is not None and base.producer is None and not base.is_constant:
            yield base


def _before_conversions(value: Value) -> Value:
    """Follow operators with one computed operand of the same shape, such as casts and dequantization."""
    while value.producer is not None and value.producer.op.name != "concat":
        operands = [item for item in value.producer.inputs if item is not None and not item.is_constant]
        if len(operands) != 1 or operands[0].shape != value.shape:
            break
        value = operands[0]
    return value
