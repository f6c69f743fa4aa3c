"""Where the time of one run goes: one record per plan step, and how the NumPy executor makes them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuconvert.schema.graph import Value
from tpuconvert.schema.types import Array

if TYPE_CHECKING:
    from tpuconvert.runtime.session import Observer

REFERENCE = "reference"
"""The kind of a step that ran the NumPy definition of its operator."""


@dataclass(frozen=True)
class StepProfile:
    """What one step of a plan did in one run.

    Args:
        name: of the step: the name of the node that its result comes from.
        kind: the kernel that ran, or ``reference``.
        nodes: names of all nodes that the step computes, in running order; several where the plan fused them.
        seconds: wall time of the step in this run.
        is_reference: whether the NumPy definition of the operator ran instead of a native kernel.
    """

    name: str
    kind: str
    nodes: tuple[str, ...]
    seconds: float
    is_reference: bool


Run = Callable[["Mapping[str, Array]", "Observer"], object]
"""Runs a model once and calls the observer with every value, in the order in which they are made."""


def profile_reference(run: Run, feeds: Mapping[str, Array]) -> list[StepProfile]:
    """Time each node of one run of the NumPy executor.

    A node's time ends when its first result is shown to the observer and began when the last value before it was
    shown; what the observer does itself is not counted.

    Args:
        run: the session's own run, with an observer as its second argument.
        feeds: one array per input name.

    Returns:
        One record per node, in running order; graph inputs have none.
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
