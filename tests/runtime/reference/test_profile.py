"""One record per node of a run on the NumPy executor."""

import numpy as np

from tpuconvert.runtime.reference.profile import REFERENCE, StepProfile, profile_reference
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.types import F32, TensorType


def two_nodes() -> Graph:
    graph = Graph()
    x = graph.input("x", TensorType(F32, (2, 3)))
    y = graph.add(Active(ActiveType.ACTIVE_RELU), x, name="first")
    graph.output(graph.add(Active(ActiveType.ACTIVE_RELU), y, name="second"))
    return graph


def profile_steps() -> list[StepProfile]:
    session = Session(two_nodes(), backend="reference")
    return profile_reference(
        lambda feeds, observe: session.run(feeds, observe=observe), {"x": np.ones((2, 3), np.float32)}
    )


def test_every_node_once_in_running_order() -> None:
    steps = profile_steps()
    assert [(step.name, step.nodes) for step in steps] == [("first", ("first",)), ("second", ("second",))]


def test_they_are_reference_steps_with_a_time() -> None:
    assert all(step.is_reference and step.kind == REFERENCE and step.seconds > 0 for step in profile_steps())
