"""Execution plan of the NumPy executor: steps with slots for values, created once per model.

A slot holds one value during its lifetime. Each step lists the values that it uses last, so that a run frees them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from tpuconvert.runtime.run_memory import check_run_memory
from tpuconvert.schema.errors import ResourceLimitError, RunError
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.system.memory_errors import too_large_run
from tpuconvert.schema.types import Array
from tpuconvert.schema.user_code import with_place

Evaluate = Callable[[Node, list[Array | None]], tuple[Array, ...]]
"""Function that runs the NumPy reference of a node."""

Observer = Callable[[Value, Array], None]
"""Callback that is called with every graph input and every result of a run, in execution order."""


def failure(node: Node, file: str, error: Exception) -> RunError | ResourceLimitError:
    """Return the error for an operator whose evaluation failed; it names the node."""
    if isinstance(error, MemoryError):
        return too_large_run(error, file=file, node=node.name)
    source = f" (from {node.sources[0]})" if node.sources else ""
    return RunError(f"{node.op.name} failed{source}: {with_place(error)}", file=file, node=node.name)


@dataclass(frozen=True)
class Step:
    """One node of the plan.

    Args:
        node: the node to evaluate.
        inputs: slot per operand, -1 for an absent one.
        outputs: slot per result.
        release: slots without users after this step.
    """

    node: Node
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    release: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """Steps in topological order, with the slots of graph inputs, outputs and constants."""

    steps: tuple[Step, ...]
    slots: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    constants: tuple[tuple[int, Array], ...]


def run_plan(
    plan: Plan,
    arrays: Sequence[Array],
    evaluate: Evaluate,
    observe: Observer | None = None,
) -> list[Array]:
    """Run a plan. The results may be constants, inputs, or views of observed arrays."""
    slots: list[Array | None] = [None] * plan.slots
    for index, constant in plan.constants:
        slots[index] = constant
    for index, array in zip(plan.inputs, arrays, strict=True):
        slots[index] = array
    for step in plan.steps:
        results = evaluate(step.node, [None if index < 0 else slots[index] for index in step.inputs])
        for index, value, array in zip(step.outputs, step.node.outputs, results, strict=True):
            slots[index] = array
            if observe is not None:
                observe(value, array)
        for index in step.release:
            slots[index] = None
    return [cast(Array, slots[index]) for index in plan.outputs]


def make_plan(graph: Graph) -> Plan:
    """Number the values of a graph and find the last use of each one.

    Raises:
        ResourceLimitError: a run would take too much memory.
    """
    check_run_memory(graph)
    slot: dict[Value, int] = {value: index for index, value in enumerate(graph.values)}
    nodes = graph.sorted_nodes()
    last: dict[int, int] = {}
    for position, node in enumerate(nodes):
        for value in (*node.inputs, *node.outputs):
            if value is not None and not value.is_constant:
                last[slot[value]] = position
    for value in graph.outputs:
        last.pop(slot[value], None)
    release: dict[int, list[int]] = {}
    for index, position in last.items():
        release.setdefault(position, []).append(index)
    steps = tuple(
        Step(
            node,
            tuple(-1 if value is None else slot[value] for value in node.inputs),
            tuple(slot[value] for value in node.outputs),
            tuple(release.get(position, ())),
        )
        for position, node in enumerate(nodes)
    )
    constants = tuple((slot[value], value.array) for value in graph.values if value.is_constant)
    return Plan(
        steps,
        len(slot),
        tuple(slot[value] for value in graph.inputs),
        tuple(slot[value] for value in graph.outputs),
        constants,
    )
