"""The kernel of integer recurrent layers equals the reference on every instruction set, for every number of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.each import each
from tests.support.native_cases.random_graphs import evaluate, needs_extension
from tests.support.operators.recurrent_int_layers import DTYPES, KINDS, random_layer
from tests.support.paired import paired
from tpuconvert.runtime.native.builder.loader import available_isas
from tpuconvert.runtime.native.plan import NativePlan
from tpuconvert.schema.errors import RunError
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.recurrent.recurrent import Direction
from tpuconvert.schema.ops.recurrent.recurrent_int import GruInt, IntegerLayer
from tpuconvert.schema.types import Array, Chip, DType, TensorType

pytestmark = needs_extension

SHAPES = [(3, 1, 2, 1), (4, 5, 7, 20), (6, 9, 16, 33), (1, 3, 3, 16), (2, 4, 130, 70)]


def graph_of(op: IntegerLayer, operands: list[Array | None]) -> tuple[Graph, list[Array]]:
    g = Graph("layer")
    feeds: list[Array] = []
    values: list[Value | None] = []
    for index, array in enumerate(operands):
        if array is None or index in (1, 2, 3):
            values.append(None if array is None else g.constant(array))
        else:
            values.append(g.input(f"x{index}", TensorType(DType.of(array.dtype), array.shape)))
            feeds.append(array)
    for value in g.add_all(op, *values):
        g.output(value)
    return g, feeds


def results(g: Graph, feeds: list[Array], isa: str, threads: int) -> list[Array]:
    plan = NativePlan(g, Chip.BM1686.value, isa, threads)
    assert not plan.reference_nodes
    return list(plan.run(feeds, evaluate(Chip.BM1686)))


@each("shape", SHAPES)
@pytest.mark.parametrize(("kind", "parameters", "direction"), paired(KINDS, list(Direction)), ids=str)
def test_equals_the_reference(
    kind: type[IntegerLayer], parameters: dict[str, Any], direction: Direction, shape: tuple[int, int, int, int]
) -> None:
    for optional, dtype in zip((False, True), DTYPES, strict=True):
        op, operands = random_layer(kind, parameters, shape, sum(shape), direction, optional=optional, dtype=dtype)
        g, feeds = graph_of(op, operands)
        expected = op.evaluate(*operands)
        for isa in available_isas():
            for threads in (1, 2):
                for one, want in zip(results(g, feeds, isa, threads), expected, strict=True):
                    np.testing.assert_array_equal(one, want, err_msg=f"{isa}, {threads} threads")


@pytest.mark.parametrize("length", [-1, 5])
def test_rejects_lengths_beyond_the_steps(length: int) -> None:
    op, operands = random_layer(GruInt, {}, (4, 2, 3, 4), seed=1)
    operands[4] = np.array([2, length], np.int32)
    g, feeds = graph_of(op, operands)
    with pytest.raises(RunError, match=f"gru_int: a length is {length}, expected 0 to 4"):
        results(g, feeds, available_isas()[-1], 1)


def test_runs_the_reference_beyond_the_bounds_of_the_kernel() -> None:
    """A multiplier above 1 shifts left, and a sum may have 31 bits."""
    op, operands = random_layer(GruInt, {}, (2, 1, 3, 4), seed=2, optional=False)
    bias = operands[3]
    assert bias is not None
    bias[0, -1] = 1 << 30
    g, feeds = graph_of(op, operands)
    plan = NativePlan(g, Chip.BM1686.value, available_isas()[-1], 1)
    assert plan.reference_nodes
    for one, want in zip(plan.run(feeds, evaluate(Chip.BM1686)), op.evaluate(*operands), strict=True):
        np.testing.assert_array_equal(one, want)
