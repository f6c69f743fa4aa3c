"""Extents and indices that depend on data, against onnxruntime: read from a file by both executors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import NodeProto, helper, numpy_helper

import tpuconvert as tc
from tests.support.onnx.graphs import FLOAT, INT64, assert_as_onnxruntime, node, with_outputs
from tests.support.onnx.models import model, ramp, save_model
from tpuconvert.runtime.native.builder import loader
from tpuconvert.schema.errors import RunError, UnsupportedError
from tpuconvert.schema.types import Array

RANDOM = np.random.default_rng(1)
X = ramp(6, 4)
W = ramp(4, 5, seed=1)
MASK = np.array([True, False, True, True, False, True])
NONE = np.zeros(6, bool)
ROWS = [{"x": X}, {"x": -np.abs(X)}, {"x": np.abs(X)}]
"""Some, no and all elements are positive."""


@dataclass
class Case:
    """A model, its feeds, and the types of its outputs."""

    nodes: Sequence[NodeProto]
    samples: Sequence[Mapping[str, Array]]
    outputs: Mapping[str, tuple[int, list[int | str]]]
    constants: Mapping[str, Array] = field(default_factory=dict)


def ints(*numbers: int) -> Array:
    return np.array(numbers)


def to_sizes(**attributes: str) -> NodeProto:
    return helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], **attributes)


POSITIVE = [node("Greater", "x zero", "mask"), node("NonZero", "mask", "found")]
ZERO = {"zero": np.float32(0)}
MASKED = [*POSITIVE, node("Transpose", "found", "places", perm=[1, 0]), node("GatherND", "x places", "chosen")]
ROW = [node("ReduceSum", "x one", "sums", keepdims=0), node("Greater", "sums zero", "mask"),
       node("NonZero", "mask", "found"), node("Squeeze", "found first", "rows")]  # fmt: skip
ROW_CONSTANTS = {**ZERO, "one": ints(1), "first": ints(0), "w": W, "two": ints(2)}

BOXES = np.sort(RANDOM.random((1, 12, 2, 2)).astype(np.float32), axis=2).reshape(1, 12, 4)
SCORES = RANDOM.random((1, 3, 12)).astype(np.float32)
NMS = node("NonMaxSuppression", "boxes scores most overlap least", "found")
NMS_SAMPLES = [{"boxes": BOXES, "scores": SCORES * np.float32(factor)} for factor in (1, 0.6, 0)]
NMS_CONSTANTS = {"most": ints(5), "overlap": np.float32([0.4]), "least": np.float32([0.3]), "two": ints(2),
                 "one": ints(1), "zero": ints(0), "end": ints(2**62)}  # fmt: skip
IMAGE = ramp(1, 1, 5, 4)
SCATTERED = {"x": X, "i": np.array([[1, 2], [0, 3], [-1, 1]]), "u": ramp(3, 2, seed=2)}

CASES = {
    "coordinates": Case(POSITIVE, ROWS, {"found": (INT64, [2, "n"])}, ZERO),
    "elements by a mask": Case([*MASKED, node("Exp", "chosen", "y")], ROWS, {"y": (FLOAT, ["n"])}, ZERO),
    "elements written back": Case(
        [*MASKED, node("Exp", "chosen", "e"), node("ScatterND", "x places e", "y")], ROWS, {"y": (FLOAT, [6, 4])}, ZERO
    ),
    "rows by a mask, then matmul": Case(
        [*ROW, node("Gather", "x rows", "r"), node("MatMul", "r w", "h"), node("Softmax", "h", "y", axis=1)],
        ROWS,
        {"y": (FLOAT, ["n", 5])},
        ROW_CONSTANTS,
    ),
    "top 2 of the chosen rows": Case(
        [*ROW, node("Gather", "sums rows", "g"), node("TopK", "g two", "values order"),
         node("Gather", "rows order", "y")],
        [{"x": np.abs(X)}],
        {"y": (INT64, [2])},
        ROW_CONSTANTS,
    ),
    "Compress, then matmul": Case(
        [node("Compress", "x m", "r", axis=0), node("MatMul", "r w", "h"), node("ReduceMax", "h", "k", axes=[1]),
         node("Sub", "h k", "y")],
        [{"x": X, "m": MASK}, {"x": X, "m": NONE}],
        {"y": (FLOAT, ["n", 5])},
        {"w": W},
    ),
    "data-dependent extent as a number": Case(
        [node("Compress", "x m", "a", axis=0), node("Shape", "a", "y"), node("Gather", "y zero", "count"),
         node("Cast", "count", "n", to=FLOAT), node("Div", "a n", "z")],
        [{"x": X, "m": MASK}],
        {"y": (INT64, [2]), "count": (INT64, []), "z": (FLOAT, ["n", 4])},
        {"zero": np.array(0)},
    ),
    "two masks have different extents": Case(
        [node("Compress", "x m", "a", axis=0), node("Compress", "x k", "b", axis=0),
         node("Concat", "a b", "y", axis=0)],
        [{"x": X, "m": MASK, "k": ~MASK}, {"x": X, "m": MASK, "k": NONE}],
        {"y": (FLOAT, ["n", 4])},
    ),
    "reshape": Case(
        [node("Compress", "x m", "a", axis=0), node("Unsqueeze", "a axis", "b"), node("Tile", "b repeats", "t"),
         node("Reshape", "t shape", "y")],
        [{"x": X, "m": MASK}],
        {"y": (FLOAT, ["n", 8])},
        {"axis": ints(1), "repeats": ints(1, 2, 1), "shape": ints(-1, 8)},
    ),
    "suppressed boxes": Case(
        [NMS, node("Gather", "found two", "box", axis=1), node("Squeeze", "box one", "b"),
         node("Squeeze", "boxes zero", "all"), node("Gather", "all b", "chosen"),
         node("Gather", "found one", "label", axis=1), node("Concat", "label box", "place", axis=1),
         node("Squeeze", "scores zero", "s"), node("GatherND", "s place", "score"), node("Unsqueeze", "score one", "u"),
         node("Cast", "label", "l", to=FLOAT), node("Concat", "chosen u l", "y", axis=1)],
        NMS_SAMPLES,
        {"y": (FLOAT, ["n", 6])},
        NMS_CONSTANTS,
    ),
    "suppressed boxes by a slice": Case(
        [NMS, node("Slice", "found two end one", "box"), node("Squeeze", "box one", "b"),
         node("Gather", "boxes b", "y", axis=1)],
        NMS_SAMPLES,
        {"y": (FLOAT, [1, "n", 4])},
        NMS_CONSTANTS,
    ),
    "computed k": Case(
        [node("TopK", "x k", "values i", axis=1), node("Relu", "values", "y")],
        [{"x": X, "k": ints(n)} for n in (1, 2, 4)],
        {"y": (FLOAT, [6, "k"]), "i": (INT64, [6, "k"])},
    ),
    "computed bounds": Case(
        [node("Slice", "x a b", "y")],
        [{"x": X, "a": ints(a), "b": ints(b)} for a, b in ((0, 3), (1, 6), (-3, -1), (2, 100), (4, 2))],
        {"y": (FLOAT, ["n", 4])},
    ),
    "computed bounds, two axes, backwards": Case(
        [node("Slice", "x a b axes steps", "y")],
        [{"x": X, "a": ints(5, 0), "b": ints(*b)} for b in ((0, 3), (-7, 2), (2, -1))],
        {"y": (FLOAT, ["n", "m"])},
        {"axes": ints(0, 1), "steps": ints(-1, 2)},
    ),
    "slice of a slice has an extent of its own": Case(
        [node("Slice", "x a b", "first"), node("Slice", "first c d", "second"),
         node("Concat", "first x", "joined", axis=0), node("Slice", "joined a b", "third"),
         *(node("Shape", name, f"{name}_n") for name in ("second", "third")),
         node("Concat", "second_n third_n", "y", axis=0)],
        [{"x": X, "a": ints(0), "b": ints(5), "c": ints(1), "d": ints(3)},
         {"x": X, "a": ints(2), "b": ints(9), "c": ints(0), "d": ints(1)}],
        {"y": (INT64, [4])},
    ),
    "computed shape": Case(
        [node("Concat", "n m", "shape", axis=0), node("ConstantOfShape", "shape", "zeros"),
         node("Concat", "zeros row", "y", axis=0)],
        [{"n": ints(n), "m": ints(4), "row": X[:1]} for n in (0, 1, 3)],
        {"y": (FLOAT, ["k", 4])},
    ),
    "computed shape, integers": Case(
        [node("ConstantOfShape", "n", "y", value=numpy_helper.from_array(np.array([7])))],
        [{"n": ints(n, m)} for n, m in ((2, 3), (0, 2), (1, 1))],
        {"y": (INT64, ["n", "m"])},
    ),
    **{
        f"Resize to computed sizes, {mode}": Case(
            [node("Concat", "one one n m", "sizes", axis=0), to_sizes(mode=mode, **given)],
            [{"x": IMAGE, "n": ints(n), "m": ints(m)} for n, m in ((5, 4), (11, 3), (1, 9), (2, 1))],
            {"y": (FLOAT, [1, 1, "n", "m"])},
            {"one": ints(1)},
        )
        for mode, given in (("nearest", {"nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}),
                            ("linear", {"coordinate_transformation_mode": "pytorch_half_pixel"}),
                            ("cubic", {"coordinate_transformation_mode": "half_pixel"}))
    },
    "Resize of one axis to a computed size": Case(
        [node("Concat", "one one n four", "sizes", axis=0), to_sizes(mode="linear")],
        [{"x": IMAGE, "n": ints(n)} for n in (2, 7)],
        {"y": (FLOAT, [1, 1, "n", 4])},
        {"one": ints(1), "four": ints(4)},
    ),
    "ScatterND": Case(
        [node("ScatterND", "x i u", "y")],
        [{"x": X, "i": np.array([[1, 2], [5, 0], [-1, 3]]), "u": ramp(3, seed=2)}],
        {"y": (FLOAT, [6, 4])},
    ),
    "ScatterND of rows": Case(
        [node("ScatterND", "x i u", "y")],
        [{"x": X, "i": np.array([[1], [-1]]), "u": ramp(2, 4, seed=2)}],
        {"y": (FLOAT, [6, 4])},
    ),
    "ScatterElements": Case(
        [node("ScatterElements", "x i u", "y", axis=1)], [SCATTERED], {"y": (FLOAT, [6, 4])}
    ),
    "ScatterElements, sum": Case(
        [node("ScatterElements", "x i u", "y", axis=0, reduction="add")], [SCATTERED], {"y": (FLOAT, [6, 4])}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_as_onnxruntime(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    proto = with_outputs(model(case.nodes, case.samples[0], [], case.constants), **case.outputs)
    assert_as_onnxruntime(proto, case.samples, tmp_path)


def test_native_parts_before_and_after_data_dependent_extents(tmp_path: Path) -> None:
    if loader.extension() is None:
        pytest.skip("the native engine is not built")
    nodes = [node("MatMul", "x w", "h"), node("Relu", "h", "r"), node("Compress", "r m", "c", axis=0),
             node("MatMul", "c v", "y")]  # fmt: skip
    proto = model(nodes, {"x": X, "m": MASK}, ["y"], {"w": W, "v": W.T.copy()})
    with tc.Session(tc.convert(save_model(proto, tmp_path)), threads=1) as session:
        session.run({"x": X, "m": MASK})
        assert session.reference_nodes == ["where"]
        assert session.memory["packed"] > 0


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({"i": np.array([[0, 9], [0, 0], [0, 0]])}, "index 9 is outside of -4..3, axis 1"),
        ({"i": np.array([[-5, 0], [0, 0], [0, 0]])}, "index -5 is outside"),
    ],
)
def test_scatter_outside_is_an_error(feeds: Mapping[str, Array], message: str, tmp_path: Path) -> None:
    proto = model([node("ScatterElements", "x i u", "y", axis=1)], SCATTERED, ["y"])
    with tc.Session(tc.convert(save_model(proto, tmp_path))) as session, pytest.raises(RunError, match=message):
        session.run({**SCATTERED, **feeds})


def test_k_that_is_too_large_is_an_error(tmp_path: Path) -> None:
    proto = model([node("TopK", "x k", "values y", axis=1)], {"x": X, "k": ints(2)}, ["y"])
    with (
        tc.Session(tc.convert(save_model(proto, tmp_path))) as session,
        pytest.raises(RunError, match="elements 0 to 5 of axis 1 with 4 elements"),
    ):
        session.run({"x": X, "k": ints(5)})


@pytest.mark.parametrize(("sizes", "message"), [("n one one one", "computed size of axis 0"), ("one one n", "3 sizes")])
def test_computed_sizes_that_cannot_be_resized(sizes: str, message: str, tmp_path: Path) -> None:
    nodes = [node("Concat", sizes, "sizes", axis=0), to_sizes(mode="linear")]
    proto = model(nodes, {"x": IMAGE, "n": ints(3)}, ["y"], {"one": ints(1)})
    with pytest.raises(UnsupportedError, match=message):
        tc.convert(save_model(proto, tmp_path))


def test_a_negative_computed_extent_is_an_error(tmp_path: Path) -> None:
    proto = model([node("ConstantOfShape", "n", "y")], {"n": ints(2)}, ["y"])
    with tc.Session(tc.convert(save_model(proto, tmp_path))) as session:
        assert session.run({"n": ints(2)})["y"].tolist() == [0, 0]
        with pytest.raises(RunError, match="pads 0 and -3 of axis 0 with 1 elements"):
            session.run({"n": ints(-2)})


def test_problem_names_the_data_dependent_extent(tmp_path: Path) -> None:
    nodes = [node("Compress", "x m", "c", axis=0), node("Reshape", "c shape", "y")]
    with pytest.raises(UnsupportedError, match=r"extent '4\*\?where' depends on data and has to be a number here"):
        tc.convert(save_model(model(nodes, {"x": X, "m": MASK}, ["y"], {"shape": ints(3, -1)}), tmp_path))


@pytest.mark.parametrize("chip", ["bm1684", "bm1686"])
@pytest.mark.parametrize("seed", range(8))
def test_computed_indices_outside_of_their_axis_are_errors(seed: int, chip: str) -> None:
    """As in ONNX Runtime. In the flattened data such an index selects another element."""
    onnxruntime = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(seed)
    shape, op = tuple(map(int, rng.integers(1, 4, 3))), "GatherND" if seed % 2 else "GatherElements"
    axis, batch = int(rng.integers(3)), int(rng.integers(3))
    depth = int(rng.integers(1, 4 - batch))
    attributes = {"batch_dims": batch} if seed % 2 else {"axis": axis}
    index_shape = (*shape[:batch], 2, depth) if seed % 2 else shape
    extents = np.array(shape[batch : batch + depth] if seed % 2 else shape[axis])
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "i"], ["y"], **attributes)],
        op,
        [info("x", 1, shape), info("i", 7, index_shape)],
        [onnx.ValueInfoProto(name="y")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    oracle = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    with tc.Session(tc.convert(proto, chip=chip)) as session:
        for excess in (0, 1):
            for _ in range(6):
                index = rng.integers(-extents - excess, extents + excess, index_shape)
                feed = {"x": rng.normal(size=shape).astype(np.float32), "i": index}
                if (index < -extents).any() or (index >= extents).any():
                    with pytest.raises(tc.RunError, match="outside"):
                        session.run(feed)
                else:
                    assert np.array_equal(session.run(feed)["y"], oracle.run(None, feed)[0])


def test_broadcasts_with_empty_and_data_dependent_extents() -> None:
    """Expand of a counted extent to another one, and results without elements, as in ONNX Runtime."""
    onnxruntime = pytest.importorskip("onnxruntime")
    info = helper.make_tensor_value_info
    constants = {"m": [False, False, True], "wide": [2, 3, 1], "zero": [0], "nothing": [4, 0, 3, 3]}
    graph = helper.make_graph(
        [
            helper.make_node("Compress", ["x", "m"], ["part"], axis=1),
            helper.make_node("Expand", ["part", "wide"], ["wider"]),
            helper.make_node("Slice", ["x", "zero", "zero", "zero"], ["none"]),
            helper.make_node("Where", ["choice", "none", "none"], ["chosen"]),
            helper.make_node("Expand", ["none", "nothing"], ["expanded"]),
        ],
        "net",
        [info("x", 1, [2, 3, 3]), info("choice", 9, [3])],
        [onnx.ValueInfoProto(name=name) for name in ("wider", "chosen", "expanded")],
        [numpy_helper.from_array(np.array(array), name) for name, array in constants.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)
    feed = {"x": np.arange(18, dtype=np.float32).reshape(2, 3, 3), "choice": np.array([True, False, True])}
    expected = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, feed)
    with tc.Session(tc.convert(proto)) as session:
        for found, wanted in zip(session.run(feed).values(), expected, strict=True):
            assert found.shape == wanted.shape and np.array_equal(found, wanted)
