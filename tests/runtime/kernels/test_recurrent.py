"""The kernel of recurrent layers: equal bytes on every instruction set, and close to the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.each import each
from tests.support.native_cases.random_graphs import evaluate, needs_extension
from tests.support.paired import paired
from tpuconvert.runtime.native.builder.loader import available_isas
from tpuconvert.runtime.native.plan import NativePlan
from tpuconvert.schema.errors import RunError
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.ordering import Arg
from tpuconvert.schema.ops.recurrent.functions import FUNCTIONS
from tpuconvert.schema.ops.recurrent.recurrent import Direction, Gru, Lstm, RecurrentLayer, Rnn
from tpuconvert.schema.types import F32, I32, Array, Chip, TensorType

pytestmark = needs_extension

OPS = [
    *((kind, {}) for kind in (Lstm, Gru, Rnn)),
    (Lstm, {"clip": 0.7, "cell_clip": 0.5, "input_forget": True}),
    (Lstm, {"cell_steps": True}),
    (Gru, {"linear_before_reset": True, "clip": 0.4}),
    *((Rnn, {"activations": (name,), "alphas": (0.5,), "betas": (0.25,)}) for name in FUNCTIONS),
]  # fmt: skip


def layer(
    op: RecurrentLayer, shape: tuple[int, int, int, int], seed: int, *, optional: bool = True
) -> tuple[Graph, list[Array]]:
    """A layer with random weights; ``optional`` adds the other operands. Extents: steps, batch, size, units."""
    rng = np.random.default_rng(seed)
    steps, batch, size, units = shape
    count, rows = op.directions, op.gates * units

    def draw(*extents: int, scale: float = 1.0) -> Array:
        return (rng.normal(size=extents) * scale).astype(np.float32)

    g = Graph(f"seed {seed}")
    feeds = [draw(steps, batch, size)]
    operands: list[Value | None] = [g.input("x", TensorType(F32, (steps, batch, size)))]
    operands += [g.constant(draw(count, rows, size)), g.constant(draw(count, rows, units, scale=units**-0.5))]
    if optional:
        operands += [g.constant(draw(count, 2 * rows)), g.input("lengths", TensorType(I32, (batch,)))]
        feeds.append(rng.integers(0, steps, batch, np.int32, endpoint=True))
        for name in ("hidden", "cell")[: op.states]:
            operands.append(g.input(name, TensorType(F32, (count, batch, units))))
            feeds.append(draw(count, batch, units))
        if isinstance(op, Lstm):
            operands.append(g.constant(draw(count, 3 * units)))
        operands.append(g.input("continues", TensorType(F32, (steps, batch))))
        feeds.append(rng.integers(0, 1, (steps, batch), endpoint=True).astype(np.float32))
    for value in g.add_all(op, *operands):
        g.output(value)
    return g, feeds


def results(g: Graph, feeds: list[Array], isa: str, threads: int) -> list[Array]:
    plan = NativePlan(g, Chip.BM1686.value, isa, threads)
    assert not plan.reference_nodes
    return list(plan.run(feeds, evaluate(Chip.BM1686)))


@each("shape", [(3, 1, 2, 1), (4, 5, 7, 20), (6, 3, 16, 33), (1, 9, 3, 16)])
@pytest.mark.parametrize(("kind", "parameters", "direction"), paired(OPS, list(Direction)), ids=str)
def test_equals_the_reference(
    kind: type[RecurrentLayer], parameters: dict[str, Any], direction: Direction, shape: tuple[int, int, int, int]
) -> None:
    if "activations" in parameters:
        parameters = {name: item * len(direction.reverse) for name, item in parameters.items()}
    op = kind(direction=direction, **parameters)
    for optional in (False, True):
        g, feeds = layer(op, shape, seed=sum(shape), optional=optional)
        operands = [value if value is None or not value.is_constant else value.array for value in g.nodes[0].inputs]
        given = iter(feeds)
        expected = op.evaluate(*[next(given) if isinstance(item, Value) else item for item in operands])
        found = {(isa, threads): results(g, feeds, isa, threads) for isa in available_isas() for threads in (1, 2)}
        first = next(iter(found.values()))
        for key, arrays in found.items():
            for one, other in zip(arrays, first, strict=True):
                assert one.tobytes() == other.tobytes(), key
        for one, want in zip(first, expected, strict=True):
            # Float32 sums of 40 elements, and functions within 2 ULP, carried over the steps.
            np.testing.assert_allclose(one, want, rtol=1e-5, atol=4e-6)


@pytest.mark.parametrize("kind", [Lstm, Gru, Rnn])
def test_sums_in_float64_before_a_decision(kind: type[RecurrentLayer]) -> None:
    """States before an argmax differ from the reference by at most one rounding of float32."""
    g, feeds = layer(kind(), (5, 3, 8, 24), seed=3)
    g.output(g.add(Arg(3), g.outputs[0]))
    plan = NativePlan(g, Chip.BM1686.value, available_isas()[-1], 1)
    found = plan.run(feeds, evaluate(Chip.BM1686))
    operands = iter(feeds)
    arrays = [next(operands) if not value.is_constant else value.array for value in g.nodes[0].inputs if value]
    for one, want in zip(found, kind().evaluate(*arrays), strict=False):
        np.testing.assert_allclose(one, want, rtol=1.2e-7, atol=1e-9)


@pytest.mark.parametrize("length", [-1, 5])
def test_rejects_lengths_beyond_the_steps(length: int) -> None:
    g, feeds = layer(Gru(), (4, 2, 3, 4), seed=1)
    feeds[1] = np.array([2, length], np.int32)
    with pytest.raises(RunError, match=f"gru: a length is {length}, expected 0 to 4"):
        results(g, feeds, available_isas()[-1], 1)


def test_infinite_and_nan_sums() -> None:
    """Gates saturate, and NaN stays in its sequence."""
    g, feeds = layer(Lstm(), (2, 3, 1, 2), seed=2, optional=False)
    feeds[0][:, 0], feeds[0][:, 1] = 1e30, np.nan
    expected = Lstm().evaluate(feeds[0], *[value.array for value in g.nodes[0].inputs[1:] if value is not None])
    for isa in available_isas():
        for one, want in zip(results(g, feeds, isa, 1), expected, strict=True):
            np.testing.assert_allclose(one, want, rtol=1e-5, atol=1e-6)
