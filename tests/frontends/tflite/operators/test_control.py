"""Operators that call other subgraphs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from tests.support.tflite.models import O, S, T, graph_of, ops, run, single
from tpuconvert.schema.errors import UnsupportedError
from tpuconvert.schema.system.limits import DEFAULT_LIMITS

SQUARE = S([T("a", (2,)), T("b", (2,))], [O("MUL", [0, 0], [1], "MulOptions")], [0], [1], "square")
NEGATE = S([T("a", (2,)), T("b", (2,))], [O("NEG", [0], [1])], [0], [1], "negate")


def test_call_and_composite(tmp_path: Path) -> None:
    tensors = [T("x", (2,)), T("u", (2,)), T("y", (2,))]
    operators = [
        O("CALL", [0], [1], "CallOptions", {"subgraph": 2}),
        O(
            "STABLEHLO_COMPOSITE",
            [1],
            [2],
            "StableHLOCompositeOptions",
            {"name": "f", "decomposition_subgraph_index": 1},
        ),
    ]
    graph = graph_of(tmp_path, S(tensors, operators, [0], [2]), SQUARE, NEGATE)
    assert ops(graph) == ["muls", "mul"]
    assert run(graph, [3, -5])[0].tolist() == [9, 25]


@pytest.mark.parametrize(("condition", "expected"), [(True, [9, 25]), (False, [-3, 5])])
def test_if_with_a_known_condition(tmp_path: Path, condition: bool, expected: list[float]) -> None:
    subgraph = single(
        "IF", [T(data=np.asarray(condition)), T(shape=(2,))], [T(shape=(2,))], "IfOptions",
        then_subgraph_index=1, else_subgraph_index=2,
    )  # fmt: skip
    assert run(graph_of(tmp_path, subgraph, SQUARE, NEGATE), [3, -5])[0].tolist() == expected


def test_if_at_run_time(tmp_path: Path) -> None:
    subgraph = single(
        "IF", [T(shape=(), type="BOOL"), T(shape=(2,))], [T(shape=(2,))], "IfOptions", else_subgraph_index=2
    )
    with pytest.raises(UnsupportedError, match="condition depends on the model's inputs"):
        graph_of(tmp_path, subgraph, SQUARE, NEGATE)


def loop(passes: int, name: str = "WHILE") -> list[S]:
    """The number i counts up to ``passes``; x is doubled in every pass."""
    main = single(
        name, [T(data=np.asarray(0, np.int32)), T(shape=(2,))], [T(shape=(), type="INT32"), T(shape=(2,))],
        f"{'Stablehlo' * name.startswith('STABLEHLO')}WhileOptions", cond_subgraph_index=1, body_subgraph_index=2,
    )  # fmt: skip
    state = [T("i", (), "INT32"), T("x", (2,))]
    condition = S(
        [*state, T("n", data=np.asarray(passes, np.int32)), T("more", (), "BOOL")],
        [O("LESS", [0, 2], [3])],
        [0, 1],
        [3],
    )
    one = T("one", data=np.asarray(1, np.int32))
    body = S(
        [*state, one, T("next", (), "INT32"), T("twice", (2,))],
        [O("ADD", [0, 2], [3], "AddOptions"), O("ADD", [1, 1], [4], "AddOptions")],
        [0, 1],
        [3, 4],
    )
    return [main, condition, body]


@pytest.mark.parametrize("name", ["WHILE", "STABLEHLO_WHILE"])
def test_while_is_unrolled(tmp_path: Path, name: str) -> None:
    graph = graph_of(tmp_path, *loop(3, name))
    assert ops(graph) == ["add"] * 3
    count, x = run(graph, [1, -2])
    assert (int(count), x.tolist()) == (3, [8, -16])


def test_endless_loops_and_recursion_end(tmp_path: Path) -> None:
    limits = dataclasses.replace(DEFAULT_LIMITS, max_unrolled_nodes=300)
    with pytest.raises(UnsupportedError, match="the loop may have no end"):
        graph_of(tmp_path, *loop(1 << 30), limits=limits)
    itself = S([T("a", (2,)), T("b", (2,))], [O("CALL", [0], [1], "CallOptions", {"subgraph": 0})], [0], [1])
    with pytest.raises(UnsupportedError, match="nested 64 deep"):
        graph_of(tmp_path, itself)


def test_subgraphs_that_do_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="calls subgraph 7 of 1"):
        graph_of(tmp_path, single("CALL", [T(shape=(2,))], [T(shape=(2,))], "CallOptions", subgraph=7))
