"""The flat plan that a session walks: steps with slots for values, made once when a model is loaded.

A slot holds one value while it is alive. The plan knows after which step each value is read for the last time, so that
a run holds no more memory than the values that are still needed.
"""

from __future__ import annotations

from dataclasses import dataclass

from tpuconvert.schema.errors import RunError
from tpuconvert.schema.graph import Graph, Node, Value
from tpuconvert.schema.types import Array


def failure(node: Node, file: str, error: Exception) -> RunError:
    """What a run ends with when an operator cannot take the values it met: the node is named."""
    source = f" (from {node.sources[0]})" if node.sources else ""
    return RunError(f"{node.op.name} failed{source}: {error}", file=file, node=node.name)


@dataclass(frozen=True)
class Step:
    """One node of the plan.

    Args:
        node: what it runs, for messages and observers.
        inputs: slot per operand, -1 for an absent one.
        outputs: slot per result.
        release: slots that nobody reads after this step.
    """

    node: Node
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    release: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """Steps in running order, with the slots of graph inputs, outputs and constants."""

    steps: tuple[Step, ...]
    slots: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    constants: tuple[tuple[int, Array], ...]


def make_plan(graph: Graph) -> Plan:
    """Number the values of a graph and find where each one is read last."""
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
