"""Runs of a graph with the states that a session keeps between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tpuconvert.runtime.reference.plan import Evaluate
from tpuconvert.runtime.session.border import from_value, to_value
from tpuconvert.runtime.session.session_state import SessionState
from tpuconvert.schema.graph.graph import Port, Value
from tpuconvert.schema.types import Array

if TYPE_CHECKING:
    from tpuconvert.runtime.native.plan import NativePlan
    from tpuconvert.runtime.native.plans import Plans

Run = Callable[[Mapping[str, Array]], dict[str, Array]]
"""Function that runs the graph with feeds for all of its inputs and returns all of its outputs."""


def run_with_state(state: SessionState, feeds: Mapping[str, Any], run: Run) -> dict[str, Array]:
    """Run the graph with the states of a session and append to them; return the other outputs."""
    with state.lock:
        complete, count = state.complete(feeds)
        results = run({**complete, **state.initial(complete)})
        state.advance(results, complete, count)
    return {name: array for name, array in results.items() if name not in state.results}


def run_in_place(state: SessionState, plans: Plans, feeds: Mapping[str, Any], evaluate: Evaluate) -> dict[str, Array]:
    """Run a native plan that appends to the caches of a session; return the outputs that are not states."""
    graph = state.graph
    assert plans.caches is not None
    with state.lock:
        complete, count = state.complete(feeds)
        arrays = state.reserve(complete, count)
        capacity = state.capacity
        extents = {plans.caches.past: capacity - count, plans.caches.total: capacity}
        values: dict[int, Array] = {}
        for index, (port, value) in enumerate(zip(graph.input_ports, graph.inputs, strict=True)):
            if port.name not in arrays:
                padded = _pad_tokens(complete[port.name], port, plans.caches.total, capacity)
                values[index] = to_value(padded, port, value, extents)
        values[len(graph.inputs)] = np.array([state.length], np.int32)
        plan = plans.plan_with_caches(extents)
        outputs = _run_plan(state, plan, values, extents, evaluate)
        state.note_tokens(complete, count)
    ports, kinds = graph.output_ports, graph.outputs
    return {ports[index].name: from_value(y, ports[index], kinds[index]) for index, y in outputs.items()}


def _run_plan(
    state: SessionState, plan: NativePlan, feeds: Mapping[int, Array], extents: Mapping[str, int], evaluate: Evaluate
) -> Mapping[int, Array]:
    """Run a plan with the caches of a session. Return the other outputs by index."""

    def size_of(value: Value) -> int:
        numbers: list[int] = [extents[extent] if isinstance(extent, str) else extent for extent in value.shape]
        return math.prod(numbers)

    bound = state.bound_plan(plan, size_of)
    if bound is not None:
        return bound.run(feeds)
    arrays = state.current
    values = dict(feeds)
    for name, item in state.ports.items():
        values[item.input] = arrays[name].reshape(-1)[: size_of(state.graph.inputs[item.input])]
    results = {item.output: arrays[name] for name, item in state.ports.items()}
    outputs = plan.run([values[index] for index in sorted(values)], evaluate, results=results)
    return {index: y for index, y in enumerate(outputs) if index not in results}


def _pad_tokens(array: Array, port: Port, total: str, capacity: int) -> Array:
    """Append zeros to an array with an entry for every token, up to the capacity of the caches."""
    widths = [
        (0, capacity - have) if want == total else (0, 0) for want, have in zip(port.shape, array.shape, strict=True)
    ]
    if not any(after for _, after in widths):
        return array
    wide = np.zeros([have + after for have, (_, after) in zip(array.shape, widths, strict=True)], array.dtype)
    wide[tuple(map(slice, array.shape))] = array  # ``np.pad`` takes ten times as long
    return wide
