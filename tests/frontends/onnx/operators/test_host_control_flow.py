"""If, Loop and Scan that depend on inputs, against onnxruntime: in Python, and read from a file by both executors."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import tpuconvert as tc
from tests.support.onnx.graphs import (
    BACKENDS,
    BOOL,
    FLOAT,
    INT64,
    Feeds,
    assert_as_onnxruntime,
    branch,
    info,
    loop_body,
    node,
    with_outputs,
)
from tests.support.onnx.models import graph_of, model, one, ops, ramp, save_model
from tests.support.paired import paired
from tpuconvert.schema.errors import RunError, UnsupportedError
from tpuconvert.schema.graph.control_flow import nested_graphs

X = ramp(3, 4)
TRUE, FALSE = np.array(True), np.array(False)


def relu_or_matmul() -> onnx.ModelProto:
    then, otherwise = branch([node("Relu", "x", "a")], "a"), branch([node("MatMul", "x w", "b")], "b")
    proto = model([one("If", "c", then_branch=then, else_branch=otherwise)], {"x": X, "c": TRUE}, ["y"],
                  {"w": ramp(4, 4, seed=1)})  # fmt: skip
    return with_outputs(proto, y=(FLOAT, [3, 4]))


def test_if_runs_the_selected_branch(tmp_path: Path) -> None:
    samples = [{"x": X, "c": TRUE}, {"x": X, "c": FALSE}]
    converted = assert_as_onnxruntime(relu_or_matmul(), samples, tmp_path)
    assert ops(converted.graph) == ["host_if"]
    assert [ops(graph) for graph in nested_graphs(converted.graph)] == [["active"], ["matrix_mul"]]
    assert any("host_if runs on the host" in note.message for note in converted.notes)


def test_summary_and_description_list_subgraphs(tmp_path: Path) -> None:
    converted = tc.convert(save_model(relu_or_matmul(), tmp_path))
    described = converted.to_dict()
    assert [(item["node"], item["parameter"], item["macs"]) for item in described["subgraphs"]] == [
        ("y", "then_branch", 0),
        ("y", "else_branch", 48),
    ]
    assert "on the host: else_branch of 'y': 1 node, 48 MACs per run: matrix_mul" in str(converted)
    assert described["constant_bytes"] == 64


def test_branches_with_different_shapes(tmp_path: Path) -> None:
    then, otherwise = branch([node("Identity", "x", "a")], "a"), branch([node("Concat", "x x", "b", axis=0)], "b")
    proto = model([one("If", "c", outputs=["t"], then_branch=then, else_branch=otherwise), node("Neg", "t", "y")],
                  {"x": X, "c": TRUE}, ["y"])  # fmt: skip
    proto = with_outputs(proto, y=(FLOAT, ["n", 4]))
    assert_as_onnxruntime(proto, [{"x": X, "c": TRUE}, {"x": X, "c": FALSE}], tmp_path)


def test_constant_results_and_several_outputs(tmp_path: Path) -> None:
    constant = helper.make_tensor("k", INT64, [2], [5, 7])
    then = branch([node("Constant", "", "a", value=constant), node("Identity", "m", "b")], "a", "b", kind=INT64)
    otherwise = branch([node("Add", "m m", "a2"), node("Neg", "m", "b2")], "a2", "b2", kind=INT64)
    m = np.array([3, -4])
    proto = model([one("If", "c", outputs=["a", "b"], then_branch=then, else_branch=otherwise)],
                  {"m": m, "c": TRUE}, ["a", "b"])  # fmt: skip
    proto = with_outputs(proto, a=(INT64, [2]), b=(INT64, [2]))
    assert_as_onnxruntime(proto, [{"m": m, "c": TRUE}, {"m": m, "c": FALSE}], tmp_path)


def test_loop_with_computed_trip_count(tmp_path: Path) -> None:
    """The sum and its scalar norm are states; one item per iteration has rank 0, one rank 2."""
    nodes = [node("Add", "s x", "s2"), node("ReduceSum", "s2", "r", keepdims=0), node("Cast", "i", "f", to=FLOAT),
             node("Add", "s2 f", "item"), node("Identity", "going", "go")]  # fmt: skip
    body = loop_body(nodes, ["s"], ["s2", "r", "item"])
    proto = model([one("Loop", "n", "", "x", outputs=["last", "norms", "items"], body=body)],
                  {"n": np.array(1), "x": X}, ["last"])  # fmt: skip
    proto = with_outputs(proto, last=(FLOAT, [3, 4]), norms=(FLOAT, ["k"]), items=(FLOAT, ["k", 3, 4]))
    assert_as_onnxruntime(proto, [{"n": np.array(n), "x": X} for n in (1, 2, 7)], tmp_path)
    with tc.Session(tmp_path / "model.tpum") as session:
        empty = session.run({"n": np.array(0), "x": X})
    assert np.array_equal(empty["last"], X)
    assert empty["items"].shape == (0, 3, 4) and empty["norms"].shape == (0,)


def test_loop_with_computed_condition(tmp_path: Path) -> None:
    """Repeat x / 2 until the sum of absolute values is below a limit."""
    nodes = [node("Mul", "s half", "s2"), node("ReduceL1", "s2", "r", keepdims=0), node("Greater", "r limit", "go")]
    proto = model([one("Loop", "", "c", "x", outputs=["last"], body=loop_body(nodes, ["s"], ["s2"]))],
                  {"x": X, "c": TRUE, "limit": np.float32(1)}, ["last"], {"half": np.float32(0.5)})  # fmt: skip
    proto = with_outputs(proto, last=(FLOAT, [3, 4]))
    samples = [{"x": X, "c": c, "limit": np.array(limit, np.float32)} for c in (TRUE, FALSE) for limit in (1, 0.01)]
    assert_as_onnxruntime(proto, samples, tmp_path)


def test_constant_trip_count_with_computed_condition(tmp_path: Path) -> None:
    nodes = [node("Add", "s s", "s2"), node("ReduceMax", "s2", "r", keepdims=0), node("Less", "r limit", "go")]
    proto = model([one("Loop", "m", "", "x", outputs=["last"], body=loop_body(nodes, ["s"], ["s2"]))],
                  {"x": X, "limit": np.float32(1)}, ["last"], {"m": np.array(2**63 - 1)})  # fmt: skip
    proto = with_outputs(proto, last=(FLOAT, [3, 4]))
    assert_as_onnxruntime(proto, [{"x": X, "limit": np.array(k, np.float32)} for k in (1, 30, 1000)], tmp_path)


def test_state_that_grows(tmp_path: Path) -> None:
    nodes = [node("Concat", "s x", "s2", axis=0), node("Identity", "going", "go")]
    loop = one("Loop", "n", "", "x", outputs=["t"], body=loop_body(nodes, ["s"], ["s2"]))
    proto = model([loop, node("Relu", "t", "y")], {"n": np.array(1), "x": X}, ["y"])
    proto = with_outputs(proto, y=(FLOAT, ["n", 4]))
    assert_as_onnxruntime(proto, [{"n": np.array(n), "x": X} for n in (0, 1, 5)], tmp_path)


def test_nested_loop_and_if_use_values_of_all_graphs_around(tmp_path: Path) -> None:
    then, otherwise = branch([node("Add", "u x", "a")], "a"), branch([node("Sub", "u s", "b")], "b")
    inner = loop_body([one("If", "c", outputs=["v"], then_branch=then, else_branch=otherwise),
                       helper.make_node("Identity", ["going"], ["go"])], ["u"], ["v"])  # fmt: skip
    outer = loop_body([helper.make_node("Loop", ["n", "", "s"], ["s2"], body=inner), node("Identity", "going", "go")],
                      ["s"], ["s2"])  # fmt: skip
    proto = model([one("Loop", "n", "", "x", outputs=["y"], body=outer)], {"n": np.array(1), "x": X, "c": TRUE}, ["y"])
    proto = with_outputs(proto, y=(FLOAT, [3, 4]))
    samples = [{"n": np.array(n), "x": X, "c": c} for n in (0, 2, 3) for c in (TRUE, FALSE)]
    converted = assert_as_onnxruntime(proto, samples, tmp_path)
    assert [ops(graph) for graph in nested_graphs(converted.graph)][-2:] == [["host_if"], ["host_loop"]]


@pytest.mark.parametrize(("backwards", "axis"), [(0, 0), (1, 1)])
def test_scan_over_a_symbolic_extent(backwards: int, axis: int, tmp_path: Path) -> None:
    body = helper.make_graph([node("Add", "s part", "s2"), node("Identity", "s2", "item")], "body",
                             [info("s"), info("part")], [info("s2"), info("item")])  # fmt: skip
    scan = one("Scan", "s0", "x", outputs=["last", "sums"], body=body, num_scan_inputs=1, scan_input_axes=[axis],
               scan_input_directions=[backwards], scan_output_directions=[backwards],
               scan_output_axes=[-1])  # fmt: skip
    start = ramp(4, seed=1)
    proto = model([scan], {"s0": start, "x": X if axis == 0 else X.T}, ["last"])
    proto.graph.input[1].type.tensor_type.shape.dim[axis].dim_param = "N"
    proto = with_outputs(proto, last=(FLOAT, [4]), sums=(FLOAT, [4, "N"]))
    shape: list[int | str] = ["N", 4] if axis == 0 else [4, "N"]
    arrays = [ramp(n, 4, seed=n) if axis == 0 else ramp(4, n, seed=n) for n in (1, 3, 6)]
    converted = assert_as_onnxruntime(
        proto, [{"s0": start, "x": x} for x in arrays], tmp_path, input_shapes={"x": shape}
    )
    assert ops(converted.graph) == ["host_scan"]


def counting(tmp_path: Path) -> Path:
    nodes = [node("Add", "s s", "s2"), node("Identity", "going", "go")]
    loop = one("Loop", "n", "", "x", outputs=["y"], body=loop_body(nodes, ["s"], ["s2"]))
    return save_model(model([loop], {"n": np.array(1), "x": X}, ["y"]), tmp_path)


def test_too_many_iterations_are_an_error(tmp_path: Path) -> None:
    session = tc.Session(tc.convert(counting(tmp_path), source_options=tc.SourceOptions(max_iterations=5)))
    assert np.array_equal(session.run({"n": np.array(5), "x": X})["y"], 32 * X)
    with pytest.raises(RunError, match=r"more than 5 iterations; convert .* larger --max-iterations") as caught:
        session.run({"n": np.array(6), "x": X})
    assert caught.value.node == "y"
    with pytest.raises(tc.UsageError, match="max_iterations is 0"):
        tc.convert(counting(tmp_path), source_options=tc.SourceOptions(max_iterations=0))


def test_error_in_a_body_names_its_node(tmp_path: Path) -> None:
    nodes = [helper.make_node("Gather", ["x", "k"], ["s2"], name="pick"), node("Identity", "going", "go")]
    loop = one("Loop", "n", "", "s0", outputs=["y"], body=loop_body(nodes, ["s"], ["s2"]))
    proto = model([loop], {"n": np.array(1), "x": X, "s0": X[0], "k": np.array(0)}, ["y"])
    feeds = {"n": np.array(2), "x": X, "s0": X[0], "k": np.array(7)}
    for backend in BACKENDS:
        with tc.Session(tc.convert(save_model(proto, tmp_path)), backend=backend) as session:
            assert np.array_equal(session.run({**feeds, "k": np.array(1)})["y"], X[1])
            with pytest.raises(RunError, match=r"Gather 'the_Loop/body/pick'.*index 7 is outside of 0..2"):
                session.run(feeds)


def test_problems_in_bodies_are_reported_with_their_nodes(tmp_path: Path) -> None:
    nodes = [helper.make_node("Foo", ["s"], ["s2"], name="inner"), node("Identity", "going", "go")]
    loop = one("Loop", "n", "", "x", outputs=["y"], body=loop_body(nodes, ["s"], ["s2"]))
    with pytest.raises(UnsupportedError) as caught:
        graph_of(model([loop], {"n": np.array(1), "x": X}, ["y"]), tmp_path)
    assert [(problem.op, problem.node) for problem in caught.value.problems] == [("Foo", "the_Loop/body/inner")]


def test_branches_of_different_rank_are_refused(tmp_path: Path) -> None:
    then = branch([node("Identity", "x", "a")], "a")
    otherwise = branch([node("ReduceSum", "x", "b", keepdims=0)], "b")
    proto = model([one("If", "c", then_branch=then, else_branch=otherwise)], {"x": X, "c": TRUE}, ["y"])
    with pytest.raises(UnsupportedError, match=r"output 0 is FLOAT32\[3, 4\] or FLOAT32\[1\]; both branches") as caught:
        graph_of(proto, tmp_path)
    assert "--fix-input c=VALUE" in caught.value.problems[0].hint
    fixed = tc.convert(save_model(proto, tmp_path), source_options=tc.SourceOptions(fix_inputs={"c": False}))
    assert ops(fixed.graph) == ["reduce"]


def test_bodies_keep_no_view_of_the_source(tmp_path: Path) -> None:
    path = save_model(relu_or_matmul(), tmp_path)
    session = tc.Session(tc.convert(path))
    expected = session.run({"x": X, "c": FALSE})["y"]
    path.write_bytes(bytes(path.stat().st_size))
    assert np.array_equal(session.run({"x": X, "c": FALSE})["y"], expected)


def test_non_finite_constants_in_bodies_are_refused(tmp_path: Path) -> None:
    proto = relu_or_matmul()
    (weights,) = proto.graph.initializer
    array = onnx.numpy_helper.to_array(weights).copy()
    array[1, 2] = np.nan
    weights.CopyFrom(onnx.numpy_helper.from_array(array, "w"))
    with pytest.raises(UnsupportedError, match=r"has NaN at \[1, 2\]"):
        tc.convert(save_model(proto, tmp_path))


def test_models_with_bodies_convert_in_the_same_way_twice(tmp_path: Path) -> None:
    for name in ("a.tpum", "b.tpum"):
        tc.convert(save_model(relu_or_matmul(), tmp_path)).save(tmp_path / name)
    assert (tmp_path / "a.tpum").read_bytes() == (tmp_path / "b.tpum").read_bytes()


def counting_loop(
    head: list[int], scanned: str, trips: int, going: bool, computed: str
) -> tuple[onnx.ModelProto, Feeds]:
    """A loop with its iteration number or its state as scan output. ``computed`` lists what are inputs of the model."""
    body = helper.make_graph(
        [
            node("Identity", "going", "go"),
            node("Add", "s x", "s_out"),
            node("Identity", "i" if scanned == "number" else "s", "item"),
        ],
        "body",
        [info("i", INT64, head), info("going", BOOL, []), info("s", FLOAT, [2])],
        [
            info("go", BOOL, []),
            info("s_out", FLOAT, [2]),
            info("item", INT64 if scanned == "number" else FLOAT, head if scanned == "number" else [2]),
        ],
    )
    given = {"trips": np.array(trips), "condition": np.array(going)}
    feeds = {"x": np.array([1, 2], np.float32), **{name: given[name] for name in given if name in computed}}
    constants = {name: given[name] for name in given if name not in computed}
    loop = helper.make_node("Loop", ["trips", "condition", "x"], ["y", "items"], body=body)
    kind, extents = (INT64, head) if scanned == "number" else (FLOAT, [2])
    proto = with_outputs(model([loop], feeds, ["y", "items"], constants), y=(FLOAT, [2]), items=(kind, ["k", *extents]))
    return proto, feeds


@pytest.mark.parametrize(
    ("trips", "going", "head", "scanned", "computed"),
    paired(
        [(3, True), (0, True), (3, False)],
        [[], [1]],
        ["number", "state"],
        ["", "trips", "condition", "trips condition"],
    ),
)
def test_scan_outputs_of_any_number_of_iterations(
    head: list[int], scanned: str, trips: int, going: bool, computed: str, tmp_path: Path
) -> None:
    proto, feeds = counting_loop(head, scanned, trips, going, computed)
    assert_as_onnxruntime(proto, [feeds], tmp_path)
