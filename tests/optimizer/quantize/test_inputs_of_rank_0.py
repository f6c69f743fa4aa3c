"""INT8 of networks with inputs of rank 0, and with inputs whose first axis is not the batch."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tpuconvert as tc
from tests.support.paired import paired
from tpuconvert.optimizer.quantize.refinement.operand_statistics import _halves_of

pytestmark = pytest.mark.filterwarnings("ignore::tpuconvert.model.accuracy_notes.AccuracyWarning")  # of results near 0

RNG = np.random.default_rng(0)
WEIGHTS = {
    "w": RNG.normal(size=(8, 8)).astype(np.float32) / 3,
    "v": RNG.normal(size=(8, 4)).astype(np.float32) / 3,
    "table": RNG.normal(size=(5, 8)).astype(np.float32),
}
SHAPES = {"x": [2, 8], "t": [], "s": []}
EXTRA = {
    "time": ("Mul", [], TensorProto.FLOAT, lambda rng: np.asarray(rng.random() + 0.5, np.float32)),
    "index": ("Gather", [], TensorProto.INT64, lambda rng: np.asarray(rng.integers(0, 5), np.int64)),
    "vector": ("Mul", [8], TensorProto.FLOAT, lambda rng: rng.normal(size=8).astype(np.float32)),
    "rows": ("Gather", [3], TensorProto.INT64, lambda rng: rng.integers(0, 5, 3)),
    "both": ("Two", [], TensorProto.FLOAT, lambda rng: np.asarray(rng.random() + 0.5, np.float32)),
}


def network(extra: str, batch: int) -> tuple[onnx.ModelProto, list[dict[str, np.ndarray]]]:
    """A network of batch ``batch`` whose second input scales its first layer, or selects what is added to it."""
    kind, shape, dtype, sample = EXTRA[extra]
    nodes = [("MatMul", ["x", "w"], "first")]
    if kind == "Gather":
        nodes += [("Gather", ["table", "t"], "selected"), ("ReduceMean", ["selected"], "mean")]
        nodes += [("Add", ["first", "mean"], "second")]
    elif kind == "Two":
        nodes += [
            ("Mul", ["first", "t"], "scaled"),
            ("Gather", ["table", "i"], "row"),
            ("Add", ["scaled", "row"], "second"),
        ]
    else:
        nodes += [("Mul", ["first", "t"], "second")]
    nodes += [("LeakyRelu", ["second"], "active"), ("MatMul", ["active", "v"], "y")]
    inputs = [("x", TensorProto.FLOAT, [batch, 8]), ("t", dtype, shape)]
    inputs += [("i", TensorProto.INT64, [])] if kind == "Two" else []
    attributes = {"ReduceMean": {"keepdims": 0, "axes": [0]}}
    if extra == "index":
        attributes = {"ReduceMean": {"keepdims": 1, "axes": [0]}}
    graph = helper.make_graph(
        [helper.make_node(op, ins, [out], name=out, **attributes.get(op, {})) for op, ins, out in nodes],
        "net",
        [helper.make_tensor_value_info(*item) for item in inputs],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 4])],
        [numpy_helper.from_array(array, name) for name, array in WEIGHTS.items()],
    )
    rng = np.random.default_rng(1)
    samples = []
    for _ in range(24):
        feed = {"x": rng.normal(size=(batch, 8)).astype(np.float32), "t": sample(rng)}
        samples.append(feed | ({"i": np.asarray(rng.integers(0, 5), np.int64)} if kind == "Two" else {}))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), samples


@pytest.mark.parametrize(("chip", "batch", "extra"), paired(["bm1684", "bm1686"], [1, 2, 3], list(EXTRA)))
def test_networks_are_quantized_accurately(extra: str, batch: int, chip: str) -> None:
    proto, samples = network(extra, batch)
    model = tc.convert(proto, chip=chip, quantize="int8", calibration=samples)
    reference = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    with tc.Session(model) as session:
        found = np.stack([session.run(feed)["y"] for feed in samples])
    wanted = np.stack([reference.run(None, feed)[0] for feed in samples])
    assert np.vdot(wanted, found) / np.linalg.norm(wanted) / np.linalg.norm(found) > 0.999


def test_halves_of_a_batch_do_not_depend_on_its_order() -> None:
    feed = {"x": RNG.normal(size=(6, 3)).astype(np.float32), "t": np.asarray(0.5, np.float32)}
    halves = _halves_of(feed, 6)
    assert set(halves) == {0, 1}
    assert _halves_of({"t": feed["t"], "x": feed["x"][::-1]}, 6) == halves[::-1]
    assert [_halves_of({"x": row[np.newaxis], "t": feed["t"]}, 1)[0] for row in feed["x"]] == halves


def test_a_scalar_is_added_to_channels_with_scales_of_their_own() -> None:
    rng = np.random.default_rng(5)
    weight = (np.random.default_rng(1).normal(size=(8, 5)) / np.sqrt(8)).astype(np.float32)
    model = helper.make_model(
        helper.make_graph(
            [
                helper.make_node("Mul", ["x", "t"], ["scaled"]),
                helper.make_node("Add", ["scaled", "s"], ["shifted"]),
                helper.make_node("MatMul", ["shifted", "weight"], ["y"]),
            ],
            "net",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in SHAPES.items()],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 5])],
            [numpy_helper.from_array(weight, "weight")],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    samples: dict[str, list[np.ndarray]] = {"x": [], "t": [], "s": []}
    for _ in range(32):
        samples["x"].append(rng.normal(size=(2, 8)).astype(np.float32))
        samples["t"].append(np.float32(3 * rng.normal()))
        samples["s"].append(np.float32(rng.normal()))
    calibration = {"x": np.concatenate(samples["x"]), "t": np.array(samples["t"]), "s": np.array(samples["s"])}
    converted = tc.convert(model, chip="bm1686", quantize="int8", calibration=calibration)
    feed = {"x": samples["x"][0], "t": samples["t"][0], "s": samples["s"][0]}
    with tc.Session(converted) as session:
        (got,) = session.run(feed).values()
    expected = (feed["x"] * feed["t"] + feed["s"]) @ weight
    assert np.linalg.norm(got - expected) < 0.05 * np.linalg.norm(expected)


@pytest.mark.parametrize("chip", ["bm1684", "bm1686"])
def test_matmuls_that_depend_on_no_input(chip: str) -> None:
    """EyeLike reads only the shape of x: the operand of both matmuls is computed once, not once per sample."""
    nodes = [
        helper.make_node("EyeLike", ["x"], ["eye"], dtype=TensorProto.FLOAT, k=-1),
        helper.make_node("Hardmax", ["eye"], ["h"]),
        helper.make_node("Concat", ["eye", "h", "h", "eye"], ["row"], axis=1),
        helper.make_node("MatMul", ["row", "a"], ["first"]),
        helper.make_node("Gemm", ["first", "b", "bias"], ["y"], alpha=0.5, beta=0.0, transB=1),
    ]
    matrices = {"a": RNG.normal(size=(4, 5)).astype(np.float32), "b": RNG.normal(size=(4, 5)).astype(np.float32)}
    shapes = {"x": [1, 1], "bias": [1, 1], "h": None, "y": None}
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    constants = [numpy_helper.from_array(array, name) for name, array in matrices.items()]
    graph = helper.make_graph(nodes, "constant", ports[:2], ports[2:], constants)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)
    samples = [dict.fromkeys(("x", "bias"), np.ones((1, 1), np.float32))] * 8
    model = tc.convert(proto, chip=chip, quantize="int8", calibration=samples)
    with tc.Session(model) as session:
        y = session.run(samples[0])["y"]
    exact = 0.5 * (np.array([[0, 1, 1, 0]], np.float32) @ matrices["a"] @ matrices["b"].T)
    assert np.abs(y - exact).max() < 0.02 * np.abs(exact).max(), "two layers of INT8, each exact to about 1/127"
