"""Memory over time: live bytes at each node, and the arena of all tensors."""

import numpy as np
import pytest

from tpuconvert.model.memory import describe_memory
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.types import F32, TensorType

RELU = Active(ActiveType.ACTIVE_RELU)


def test_tensors_are_live_from_their_node_to_their_last_use() -> None:
    g = Graph("g")
    x = g.input("x", TensorType(F32, (1, 64)))  # 256 bytes
    a = g.add(RELU, x, name="a")
    b = g.add(RELU, a, name="b")
    c = g.add(Add(), a, b, name="c")
    g.output(g.add(RELU, c, name="y"))
    found = describe_memory(g)
    assert found is not None
    # x and a; a and b; a, b and c; c and y
    assert found == {"live_bytes": [512, 512, 768, 512], "peak_bytes": 768, "arena_bytes": 768}


def test_outputs_are_live_to_the_end_and_unused_results_at_their_node() -> None:
    g = Graph("g")
    x = g.input("x", TensorType(F32, (1, 64)))
    a = g.add(RELU, x, name="a")
    g.add(RELU, x, name="unused")
    b = g.add(RELU, x, name="b")
    g.output(a)
    g.output(b)
    found = describe_memory(g)
    assert found is not None and found["live_bytes"] == [512, 768, 768]


def test_reshapes_share_memory_and_constants_do_not_count() -> None:
    g = Graph("g")
    x = g.input("x", TensorType(F32, (1, 64)))
    a = g.add(Add(), x, g.constant(np.ones((1, 64), np.float32)), name="a")
    flat = g.add(Reshape((8, 8)), a, name="flat")
    g.output(g.add(RELU, flat, name="y"))
    found = describe_memory(g)
    assert found is not None and found["live_bytes"] == [512, 256, 512]


@pytest.mark.parametrize("extent", ["n", "?1"])
def test_open_extents_have_no_sizes(extent: str) -> None:
    g = Graph("g")
    g.output(g.add(RELU, g.input("x", TensorType(F32, (extent, 4)))))
    assert describe_memory(g) is None


def test_empty_graph() -> None:
    g = Graph("g")
    g.output(g.input("x", TensorType(F32, (1, 64))))
    assert describe_memory(g) == {"live_bytes": [], "peak_bytes": 256, "arena_bytes": 256}


def test_many_tensors_have_no_arena() -> None:
    g = Graph("g")
    x = g.input("x", TensorType(F32, (1, 64)))
    for _ in range(3000):
        x = g.add(RELU, x)
    g.output(x)
    found = describe_memory(g)
    assert found is not None and found["arena_bytes"] is None and found["peak_bytes"] == 512
