"""Profile of one run: one record per plan step, and the profiler of the NumPy executor."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tpuconvert.runtime.reference.plan import Observer
from tpuconvert.schema.graph.graph import Value
from tpuconvert.schema.types import Array

REFERENCE = "reference"
"""``kind`` of a step that ran the NumPy reference of its operator."""


@dataclass(frozen=True)
class StepProfile:
    """Time of one step in one run.

    Args:
        name: name of the node that produces its result.
        kind: the kernel that ran, or ``reference``.
        nodes: names of all nodes that the step computes, in topological order; several for fused nodes.
        seconds: wall time of the step in this run.
        is_reference: True if the NumPy reference ran instead of a native kernel.
    """

    name: str
    kind: str
    nodes: tuple[str, ...]
    seconds: float
    is_reference: bool


Run = Callable[[Mapping[str, Array], Observer], object]
"""Function that runs a model once and passes every value to the observer."""


def profile_reference(run: Run, feeds: Mapping[str, Array]) -> list[StepProfile]:
    """Time each node of one run of the NumPy executor.

    The time of a node is that between the last observed value before it and its first result. The time of the observer
    is not counted.

    Args:
        run: runs the session with an observer.
        feeds: one array per input name.

    Returns:
        One record per node, in topological order.
    """
    steps: list[StepProfile] = []
    shown_at = time.perf_counter()

    def observe(value: Value, _array: Array) -> None:
        nonlocal shown_at
        now = time.perf_counter()
        node = value.producer
        if node is not None and value is node.outputs[0]:
            steps.append(StepProfile(node.name, REFERENCE, (node.name,), now - shown_at, is_reference=True))
        shown_at = time.perf_counter()

    run(feeds, observe)
    return steps
