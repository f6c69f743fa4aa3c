"""Branches and loops with constant conditions and trip counts: inlined and unrolled."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.support.onnx.models import graph_of, model, one, ops, ours, ramp, save_model
from tpuconvert.frontends.onnx import load
from tpuconvert.schema.errors import UnsupportedError

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def info(name: str, kind: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, None)


def branch(name: str, nodes: list[onnx.NodeProto], result: str) -> onnx.GraphProto:
    return helper.make_graph(nodes, name, [], [info(result)])


def choice(condition: str) -> onnx.NodeProto:
    """If condition: relu(x), else: -x; both read x from outside."""
    return one("If", condition,
               then_branch=branch("then", [helper.make_node("Relu", ["x"], ["a"])], "a"),
               else_branch=branch("else", [helper.make_node("Neg", ["x"], ["b"])], "b"))  # fmt: skip


@pytest.mark.parametrize(("condition", "expected"), [(True, ["active"]), (False, ["muls"])])
def test_known_branch_is_inlined(condition: bool, expected: list[str], tmp_path: Path) -> None:
    proto = model([choice("c")], {"x": ramp(3)}, ["y"], {"c": np.array(condition)})
    graph = graph_of(proto, tmp_path)
    assert ops(graph) == expected
    assert graph.nodes[0].name == "y"


def test_condition_computed_from_shapes(tmp_path: Path) -> None:
    nodes = [one("Size", "x", outputs=["n"]), one("Less", "n", "four", outputs=["c"]), choice("c")]
    assert ops(graph_of(model(nodes, {"x": ramp(3)}, ["y"], {"four": np.array(4)}), tmp_path)) == ["active"]
    assert ops(graph_of(model(nodes, {"x": ramp(5)}, ["y"], {"four": np.array(4)}), tmp_path)) == ["muls"]


def test_problems_inside_a_branch_are_told_with_its_nodes(tmp_path: Path) -> None:
    bad = branch("then", [helper.make_node("Foo", ["x"], ["a"], name="inner")], "a")
    good = branch("else", [helper.make_node("Neg", ["x"], ["b"])], "b")
    proto = model([one("If", "c", then_branch=bad, else_branch=good)], {"x": ramp(3)}, ["y"], {"c": np.array(True)})
    with pytest.raises(UnsupportedError) as caught:
        load(save_model(proto, tmp_path))
    assert [(problem.op, problem.node) for problem in caught.value.problems] == [("Foo", "the_If/then/inner")]


def doubling(limit: int | None = None) -> onnx.GraphProto:
    """s -> 2 s + trip, with the sum collected; goes on while trip < limit."""
    nodes = [
        helper.make_node("Cast", ["trip"], ["t"], to=FLOAT),
        helper.make_node("Add", ["s", "s"], ["d"]),
        helper.make_node("Add", ["d", "t"], ["s_out"]),
        helper.make_node("Identity", ["s_out"], ["seen"]),
        helper.make_node("Identity", ["going"], ["go"])
        if limit is None
        else helper.make_node("Less", ["trip", "limit"], ["go"]),
    ]
    constants = [] if limit is None else [helper.make_tensor("limit", INT64, [], [limit])]
    inputs = [info("trip", INT64), info("going", BOOL), info("s")]
    return helper.make_graph(nodes, "body", inputs, [info("go", BOOL), info("s_out"), info("seen")], constants)


@pytest.mark.parametrize(("limit", "trips", "rounds"), [(None, 3, 3), (1, 10, 2), (1, None, 2)])
def test_known_loop_is_unrolled(limit: int | None, trips: int | None, rounds: int, tmp_path: Path) -> None:
    node = one("Loop", "" if trips is None else "m", "c", "x", outputs=["last", "all"], body=doubling(limit))
    x = np.array([1.0, -2.0], np.float32)
    proto = model([node], {"x": x}, ["last", "all"], {"m": np.array(trips or 0), "c": np.array(True)})
    expected = [x]
    for trip in range(rounds):
        expected.append(2 * expected[-1] + trip)
    found = ours(proto, {"x": x}, tmp_path)
    assert np.array_equal(found["last"], expected[-1])
    assert np.array_equal(found["all"], np.stack(expected[1:]))


def test_loop_that_never_runs_returns_its_state(tmp_path: Path) -> None:
    node = one("Loop", "m", "c", "x", outputs=["last", ""], body=doubling())
    x = ramp(2)
    proto = model([node], {"x": x}, ["last"], {"m": np.array(5), "c": np.array(False)})
    np.testing.assert_array_equal(ours(proto, {"x": x}, tmp_path)["last"], x)


@pytest.mark.parametrize("axis", [0, 1])
def test_scan_of_an_empty_axis(axis: int, tmp_path: Path) -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "x"], ["s_out"]), helper.make_node("Identity", ["s_out"], ["y"])],
        "body", [info("s"), info("x")], [info("s_out"), info("y")],
    )  # fmt: skip
    node = one("Scan", "s0", "x", outputs=["last", "sums"], body=body, num_scan_inputs=1, scan_output_axes=[axis])
    feeds = {"s0": ramp(3), "x": np.zeros((0, 3), np.float32)}
    proto = model([node, one("Relu", "s0", outputs=["z"])], feeds, ["last", "sums", "z"])
    found = ours(proto, feeds, tmp_path)
    assert found["sums"].shape == ((0, 3), (3, 0))[axis]
    np.testing.assert_array_equal(found["last"], feeds["s0"])


@pytest.mark.parametrize(("backwards", "axis"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_scan(backwards: int, axis: int, tmp_path: Path) -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "x"], ["s_out"]), helper.make_node("Identity", ["s_out"], ["y"])],
        "body", [info("s"), info("x")], [info("s_out"), info("y")],
    )  # fmt: skip
    node = one("Scan", "s0", "x", outputs=["last", "sums"], body=body, num_scan_inputs=1, scan_input_axes=[axis],
               scan_input_directions=[backwards], scan_output_directions=[backwards],
               scan_output_axes=[-1])  # fmt: skip
    x, start = ramp(4, 3), ramp(3 if axis == 0 else 4, seed=1)
    found = ours(model([node], {"x": x, "s0": start}, ["last", "sums"]), {"x": x, "s0": start}, tmp_path)
    rows = x if axis == 0 else x.T
    ordered = rows[::-1] if backwards else rows
    sums = start + np.cumsum(ordered, 0)
    np.testing.assert_allclose(found["last"], sums[-1], rtol=1e-5)
    np.testing.assert_allclose(found["sums"], (sums[::-1] if backwards else sums).T, rtol=1e-5)
