"""Small graphs for the tests of rules: build a graph twice, optimize one, and compare the results."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tpuconvert.optimizer import optimize
from tpuconvert.optimizer.engine.trace import Trace
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.types import F32, I8, Array, QuantParams, TensorType

RELU = Active(ActiveType.ACTIVE_RELU)
TANH = Active(ActiveType.ACTIVE_TANH)
EXP = Active(ActiveType.ACTIVE_EXP)

Q = QuantParams.per_tensor(0.1, 0, I8)
OTHER_Q = QuantParams.per_tensor(0.2, 3, I8)

Build = Callable[..., Any]
"""Called with the graph and its inputs; returns the outputs."""


def graph_of(build: Build, *shapes: tuple[int, ...]) -> Graph:
    graph = Graph("test")
    inputs = [graph.input(f"x{index}", TensorType(F32, shape)) for index, shape in enumerate(shapes)]
    results = build(graph, *inputs)
    for value in results if isinstance(results, tuple) else (results,):
        graph.output(value)
    return graph


def run(graph: Graph, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    feeds = {port.name: rng.normal(size=port.shape).astype(port.dtype) for port in graph.input_ports}
    return Session(graph, backend="reference").run(feeds)


def assert_same(first: dict[str, Array], second: dict[str, Array], rtol: float) -> None:
    """Equal within ``rtol`` of the range of each output."""
    assert list(first) == list(second)
    for name, want in first.items():
        assert second[name].shape == want.shape, name
        span = float(np.abs(want).max(initial=0.0)) or 1.0
        np.testing.assert_allclose(second[name], want, rtol=0, atol=rtol * span, err_msg=name)


def optimize_checked(
    build: Build, *shapes: tuple[int, ...], rtol: float = 1e-6, disabled: tuple[str, ...] = ()
) -> tuple[Graph, Trace]:
    """The optimized graph, after checking that it computes the same, is valid, and that a second run changes nothing.

    ``rtol``: tolerance for another order of float32 rounding; 0 for data movement. ``disabled``: rules that would fire
    before the tested one.
    """
    before, after = graph_of(build, *shapes), graph_of(build, *shapes)
    trace = optimize(after, disabled=disabled)
    after.validate()
    assert_same(run(before), run(after), rtol)
    count = len(after)
    optimize(after, disabled=disabled)
    assert len(after) == count, "a second run found something to do"
    return after, trace


def ops(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


def reasons(trace: Trace, rule: str) -> set[str]:
    return {reason for name, reason in trace.skip_counts if name == rule}


def random_constant(graph: Graph, *shape: int, name: str = "w", seed: int = 1) -> Value:
    return graph.constant(np.random.default_rng(seed).normal(size=shape).astype(np.float32), name)


def conv(
    graph: Graph, x: Value, channels: int, name: str = "conv", kernel: int = 3, bias: bool = True, **op: int
) -> Value:
    """A convolution with seeded weights."""
    groups = op.get("groups", 1)
    assert isinstance(x.shape[1], int)
    w = random_constant(graph, channels, x.shape[1] // groups, kernel, kernel, name=f"{name}_w", seed=len(graph))
    inputs = [x, w, random_constant(graph, 1, channels, 1, 1, name=f"{name}_b", seed=7)] if bias else [x, w]
    return graph.add(Conv(**op), *inputs, name=name)


def annotate(value: Value, quant: QuantParams = Q) -> Value:
    value.quant = quant
    return value
