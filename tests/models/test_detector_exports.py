"""Detectors in the form of PyTorch's exports: the number of candidates determines shapes, branches and padding."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import NodeProto, helper, numpy_helper

import tpuconvert as tc
from tests.support.onnx.graphs import BOOL, FLOAT, INT64, assert_as_onnxruntime, info, loop_body, node
from tests.support.sampled import sampled
from tpuconvert.conversion.options.options import group_options
from tpuconvert.schema.errors import RunError
from tpuconvert.schema.ops.host.expand import HostExpand
from tpuconvert.schema.ops.host.pad import HostPad, HostPadMode
from tpuconvert.schema.types import Array, Scalar

NUMBERS: dict[str, Any] = {
    "zero": 0, "one": 1, "zeros": [0], "ones": [1], "twos": [2], "minus": [-1], "limit": [5], "most": [4], "four": 4,
    "all": [2**31], "kept": [3], "six": [6], "pad_to": [4],
}  # fmt: skip
FLOATS = {"threshold": 0.5, "overlap": 0.45, "one_f": 1.0}
BOXES = 24


def images(count: int = 3) -> list[dict[str, Array]]:
    """Images from which many, few and no candidates result."""
    random = np.random.default_rng(0)
    return [
        {"image": (random.standard_normal((1, 3, 16, 24)) * scale).astype(np.float32)}
        for scale in (1.0, 0.4, 0.0)[:count]
    ]


def network(nodes: Sequence[NodeProto], classes: int, **outputs: tuple[int, list[int | str]]) -> onnx.ModelProto:
    """A convolution to ``boxes`` [24, 4] and ``scores`` [24, classes], and the nodes after them."""
    random = np.random.default_rng(1)
    grid = np.stack(np.meshgrid(np.arange(4) * 4, np.arange(6) * 4, indexing="ij"), -1).reshape(BOXES, 2)
    arrays: dict[str, Any] = {
        "w": random.standard_normal((4 + classes, 3, 4, 4)).astype(np.float32) / 5,
        "corners": np.concatenate([grid, grid + 6], 1).astype(np.float32),
        "to_rows": np.array([4 + classes, BOXES]),
        "parts": np.array([4, classes]),
    }
    arrays |= {name: np.array(value) for name, value in NUMBERS.items()}
    arrays |= {name: np.array(value, np.float32) for name, value in FLOATS.items()}
    first = [
        node("Conv", "image w", "features", kernel_shape=[4, 4], strides=[4, 4]),
        node("Reshape", "features to_rows", "columns"), node("Transpose", "columns", "rows", perm=[1, 0]),
        node("Split", "rows parts", "offsets logits", axis=1), node("Add", "offsets corners", "boxes"),
        node("Sigmoid", "logits", "scores"),
    ]  # fmt: skip
    graph = helper.make_graph(
        [*first, *nodes], "detector", [info("image", FLOAT, [1, 3, 16, 24])],
        [info(name, kind, shape) for name, (kind, shape) in outputs.items()],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def select(mask: str, data: str, result: str) -> list[NodeProto]:
    """``data[mask]`` as PyTorch exports it: each selection finds the indices again."""
    return [
        node("NonZero", mask, f"{result}_nz"), node("Transpose", f"{result}_nz", f"{result}_index", perm=[1, 0]),
        node("GatherND", f"{data} {result}_index", result),
    ]  # fmt: skip


def batched_nms(boxes: str, scores: str, labels: str, keep: str) -> list[NodeProto]:
    """``torchvision.ops.batched_nms``: an If on the number of elements, and boxes that are moved apart by class."""
    p = f"{keep}_"
    empty = helper.make_graph(
        [helper.make_node("Constant", [], [f"{p}none"], value=numpy_helper.from_array(np.empty(0, np.int64)))],
        "empty", [], [info(f"{p}none", INT64)])  # fmt: skip
    suppress = helper.make_graph(
        [node("ReduceMax", boxes, f"{p}max", keepdims=0), node("Cast", labels, f"{p}labels", to=FLOAT),
         node("Add", f"{p}max one_f", f"{p}step"), node("Mul", f"{p}labels {p}step", f"{p}offsets"),
         node("Unsqueeze", f"{p}offsets ones", f"{p}column"), node("Add", f"{boxes} {p}column", f"{p}moved"),
         node("Unsqueeze", f"{p}moved zeros", f"{p}batch"), node("Unsqueeze", f"{scores} zeros", f"{p}row"),
         node("Unsqueeze", f"{p}row zeros", f"{p}rows"), node("Constant", "", f"{p}most", value_ints=[2**31]),
         node("NonMaxSuppression", f"{p}batch {p}rows {p}most overlap", f"{p}nms"),
         node("Gather", f"{p}nms twos", f"{p}third", axis=1), node("Squeeze", f"{p}third ones", f"{p}kept")],
        "nms", [], [info(f"{p}kept", INT64)])  # fmt: skip
    return [
        node("Shape", boxes, f"{p}shape"), node("ReduceProd", f"{p}shape", f"{p}count", keepdims=0),
        node("Equal", f"{p}count zero", f"{p}is_empty"), node("Cast", f"{p}is_empty", f"{p}condition", to=BOOL),
        helper.make_node("If", [f"{p}condition"], [keep], then_branch=empty, else_branch=suppress),
    ]  # fmt: skip


def ssd() -> onnx.ModelProto:
    """Candidates of two classes above a threshold, at most five of each, then NMS and the three best."""
    nodes: list[NodeProto] = []
    for number, label in enumerate(("zero", "one")):
        p = f"c{number}_"
        nodes += [
            node("Gather", f"scores {label}", f"{p}column", axis=1),
            node("Greater", f"{p}column threshold", f"{p}mask"),
            *select(f"{p}mask", f"{p}column", f"{p}score"), *select(f"{p}mask", "boxes", f"{p}box"),
            node("Shape", f"{p}score", f"{p}n"), node("Concat", f"limit {p}n", f"{p}two", axis=0),
            node("ReduceMin", f"{p}two", f"{p}min", keepdims=0), node("Reshape", f"{p}min minus", f"{p}k"),
            node("TopK", f"{p}score {p}k", f"{p}best {p}order"),
            node("Gather", f"{p}box {p}order", f"{p}boxes", axis=0), node("Shape", f"{p}best", f"{p}shape"),
            helper.make_node("ConstantOfShape", [f"{p}shape"], [f"{p}label"],
                             value=numpy_helper.from_array(np.array([number + 1], np.int64))),
        ]  # fmt: skip
    for name in ("boxes", "best", "label"):
        nodes.append(node("Concat", f"c0_{name} c1_{name}", f"all_{name}", axis=0))
    nodes += batched_nms("all_boxes", "all_best", "all_label", "keep")
    nodes += [
        node("Slice", "keep zeros kept zeros ones", "first"),
        *(node("Gather", f"all_{name} first", f"{name}_out", axis=0) for name in ("boxes", "best", "label")),
    ]
    outputs = {"boxes_out": (FLOAT, ["n", 4]), "best_out": (FLOAT, ["n"]), "label_out": (INT64, ["n"])}
    return network(nodes, 2, **outputs)  # type: ignore[arg-type]


def two_stages() -> onnx.ModelProto:
    """Proposals by NMS; their features of two levels are pooled and written to one tensor by computed indices."""
    nodes = [
        node("Squeeze", "scores ones", "score"), node("Greater", "score threshold", "mask"),
        *select("mask", "score", "s"), *select("mask", "boxes", "b"), node("Shape", "s", "n"),
        helper.make_node("ConstantOfShape", ["n"], ["labels"],
                         value=numpy_helper.from_array(np.array([0], np.int64))),
        *batched_nms("b", "s", "labels", "keep"), node("Slice", "keep zeros kept zeros ones", "first"),
        node("Gather", "b first", "proposals", axis=0), node("Shape", "proposals", "ps"),
        node("Gather", "ps zeros", "pn", axis=0), node("Concat", "pn result_rest", "result_shape", axis=0),
        helper.make_node("ConstantOfShape", ["result_shape"], ["result0"]),
        node("ReduceMax", "proposals", "size", axes=[1], keepdims=0),
    ]  # fmt: skip
    result = "result0"
    for level, (relation, ratio) in enumerate((("Less", 0.25), ("GreaterOrEqual", 0.5))):
        p = f"l{level}_"
        nodes += [
            node(relation, "size middle", f"{p}mask"), node("NonZero", f"{p}mask", f"{p}nz"),
            node("Squeeze", f"{p}nz zeros", f"{p}rows"), node("Gather", f"proposals {p}rows", f"{p}boxes", axis=0),
            node("Shape", f"{p}rows", f"{p}n"),
            helper.make_node("ConstantOfShape", [f"{p}n"], [f"{p}batch"],
                             value=numpy_helper.from_array(np.array([0], np.int64))),
            node("RoiAlign", f"features {p}boxes {p}batch", f"{p}pooled", output_height=2, output_width=2,
                 sampling_ratio=2, spatial_scale=ratio, coordinate_transformation_mode="output_half_pixel"),
            node("Reshape", f"{p}rows columns4", f"{p}column"),
            node("Concat", f"{p}n result_rest", f"{p}wanted", axis=0),
            node("Shape", f"{p}wanted", f"{p}rank"),
            helper.make_node("ConstantOfShape", [f"{p}rank"], [f"{p}ones"],
                             value=numpy_helper.from_array(np.array([1], np.int64))),
            node("Mul", f"{p}ones minus", f"{p}minus"), node("Equal", f"{p}wanted {p}minus", f"{p}free"),
            node("Where", f"{p}free {p}ones {p}wanted", f"{p}target"),
            node("Expand", f"{p}column {p}target", f"{p}index"),
            node("ScatterElements", f"{result} {p}index {p}pooled", f"result{level + 1}", axis=0),
        ]  # fmt: skip
        result = f"result{level + 1}"
    proto = network(nodes, 1, proposals=(FLOAT, ["n", 4]), **{result: (FLOAT, ["n", 5, 2, 2])})
    further = {"middle": np.float32(20), "result_rest": np.array([5, 2, 2]), "columns4": np.array([-1, 1, 1, 1])}
    proto.graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in further.items())
    return proto


def yolo() -> onnx.ModelProto:
    """The export of YOLOv8 with ``nms=True``: the detections of an image are padded to a fixed number of rows."""
    nodes = [
        node("ReduceMax", "scores", "score", axes=[1], keepdims=0),
        node("ArgMax", "scores", "label", axis=1, keepdims=0),
        node("Greater", "score threshold", "mask"), *select("mask", "boxes", "b"), *select("mask", "score", "s"),
        *select("mask", "label", "l"), node("Reshape", "l as_column", "lc"), node("Shape", "b", "bs"),
        node("Expand", "lc bs", "le"), node("Cast", "le", "lf", to=FLOAT), node("Mul", "lf apart", "moves"),
        node("Add", "b moves", "moved"), node("Unsqueeze", "moved zeros", "nb"), node("Unsqueeze", "s zeros_two", "ns"),
        node("NonMaxSuppression", "nb ns all overlap", "nms"), node("Gather", "nms twos", "third", axis=1),
        node("Squeeze", "third ones", "keep0"), node("Slice", "keep0 zeros most zeros ones", "keep"),
        node("Gather", "b keep", "kb", axis=0), node("Gather", "s keep", "ks", axis=0),
        node("Reshape", "ks as_column", "kc"),
        node("Gather", "l keep", "kl", axis=0), node("Reshape", "kl as_column", "klc"),
        node("Cast", "klc", "klf", to=FLOAT),
        node("Concat", "kb kc klf", "dets", axis=1), node("Shape", "dets", "ds"),
        node("Gather", "ds zeros", "dn", axis=0),
        node("Sub", "pad_to dn", "missing"), node("Concat", "zeros zeros missing zeros", "pads", axis=0),
        node("Pad", "dets pads", "padded"), node("Expand", "padded final", "filled"),
        node("Unsqueeze", "filled zeros", "out"),
    ]  # fmt: skip
    proto = network(nodes, 3, out=(FLOAT, [1, 4, 6]))
    further = {"as_column": [-1, 1], "zeros_two": [0, 1], "final": [4, 6]}
    proto.graph.initializer.extend(numpy_helper.from_array(np.array(array), name) for name, array in further.items())
    proto.graph.initializer.append(numpy_helper.from_array(np.float32(50), "apart"))
    return proto


def pasted_masks() -> onnx.ModelProto:
    """Mask R-CNN: each mask is resized to its box and pasted into the image by a Loop, as torchvision exports it."""
    height, width = 16, 24
    corners = [f"{axis}{end}" for end in (0, 1) for axis in "xy"]
    body = [
        node("Gather", "masks i", "mask3", axis=0), node("Gather", "mask3 zero", "mask", axis=0),
        node("Unsqueeze", "mask zeros_one", "mask4"), node("Gather", "corners_int i", "box", axis=0),
        *(node("Gather", f"box number{k}", name, axis=0) for k, name in enumerate(corners)),
    ]  # fmt: skip
    for axis in "xy":
        body += [
            node("Sub", f"{axis}1 {axis}0", f"{axis}d"), node("Add", f"{axis}d ones", f"{axis}extent"),
            node("Concat", f"{axis}extent ones", f"{axis}two", axis=0),
            node("ReduceMax", f"{axis}two", f"{axis}max", keepdims=0),
            node("Unsqueeze", f"{axis}max zeros", f"{axis}size"),
            node("Unsqueeze", f"{axis}0 zeros", f"{axis}first"),
            node("Concat", f"{axis}first zeros", f"{axis}low", axis=0),
            node("ReduceMax", f"{axis}low", f"{axis}from", keepdims=0),
            node("Unsqueeze", f"{axis}1 zeros", f"{axis}last"), node("Add", f"{axis}last ones", f"{axis}end"),
            node("Concat", f"{axis}end image_{axis}", f"{axis}high", axis=0),
            node("ReduceMin", f"{axis}high", f"{axis}to", keepdims=0),
            node("Sub", f"{axis}from {axis}0", f"{axis}a"), node("Unsqueeze", f"{axis}a zeros", f"{axis}start"),
            node("Sub", f"{axis}to {axis}0", f"{axis}b"), node("Unsqueeze", f"{axis}b zeros", f"{axis}stop"),
            node("Unsqueeze", f"{axis}from zeros", f"{axis}before"),
            node("Sub", f"image_{axis} {axis}to", f"{axis}after"),
        ]  # fmt: skip
    body += [
        node("Concat", "ones ones ysize xsize", "sizes", axis=0),
        helper.make_node("Resize", ["mask4", "", "", "sizes"], ["large4"], mode="linear",
                         coordinate_transformation_mode="pytorch_half_pixel"),
        node("Squeeze", "large4 zeros_one", "large"), node("Slice", "large ystart ystop zeros", "kept_rows"),
        node("Slice", "kept_rows xstart xstop ones", "crop"),
        node("Shape", "crop", "crop_shape"), node("Gather", "crop_shape ones", "crop_width", axis=0),
        *(piece for side in ("before", "after") for piece in (
            node("Concat", f"y{side} crop_width", f"shape_y{side}", axis=0),
            node("ConstantOfShape", f"shape_y{side}", f"zeros_y{side}"))),
        node("Concat", "zeros_ybefore crop zeros_yafter", "tall", axis=0),
        node("Slice", "tall zeros image_y zeros", "tall_cut"),
        node("Shape", "tall_cut", "tall_shape"), node("Gather", "tall_shape zeros", "lines", axis=0),
        *(piece for side in ("before", "after") for piece in (
            node("Concat", f"lines x{side}", f"shape_x{side}", axis=0),
            node("ConstantOfShape", f"shape_x{side}", f"zeros_x{side}"))),
        node("Concat", "zeros_xbefore tall_cut zeros_xafter", "wide", axis=1),
        node("Slice", "wide zeros image_x ones", "pasted"), node("Unsqueeze", "pasted zeros", "item"),
        node("Concat", "done item", "more", axis=0), node("Identity", "going", "go"),
    ]  # fmt: skip
    nodes = [
        node("Squeeze", "scores ones", "score"), node("Greater", "score threshold", "positive"),
        *select("positive", "boxes", "b"), *select("positive", "score", "s"), node("Shape", "s", "n"),
        helper.make_node("ConstantOfShape", ["n"], ["labels"],
                         value=numpy_helper.from_array(np.array([0], np.int64))),
        *batched_nms("b", "s", "labels", "keep"), node("Slice", "keep zeros kept zeros ones", "first"),
        node("Gather", "b first", "kept_boxes", axis=0), node("Cast", "kept_boxes", "corners_int", to=INT64),
        node("Gather", "table first", "masks", axis=0), node("Shape", "masks", "masks_shape"),
        node("Gather", "masks_shape zero", "trips"), node("ConstantOfShape", "none", "nothing"),
        helper.make_node("Loop", ["trips", "always", "nothing"], ["pasted_masks"],
                         body=loop_body(body, ["done"], ["more"])),
    ]  # fmt: skip
    outputs = {"kept_boxes": (FLOAT, ["n", 4]), "pasted_masks": (FLOAT, ["n", height, width])}
    proto = network(nodes, 1, **outputs)  # type: ignore[arg-type]
    random = np.random.default_rng(2)
    further: dict[str, Any] = {
        "table": random.random((BOXES, 1, 6, 6)).astype(np.float32), "none": [0, height, width], "always": True,
        "image_x": [width], "image_y": [height], "zeros_one": [0, 1], **{f"number{k}": k for k in range(4)},
    }  # fmt: skip
    proto.graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in further.items())
    return proto


@pytest.mark.parametrize("build", sampled([ssd, two_stages, yolo, pasted_masks], every=2))
def test_boxes_are_those_of_onnxruntime(build: Any, tmp_path: Path) -> None:
    # ONNX Runtime's RoiAlign and TopK accept no empty operand in all cases: the last image is for the padded form.
    converted = assert_as_onnxruntime(build(), images(3 if build is yolo else 2), tmp_path)
    names = [each.op.name for each in converted.graph.nodes]
    assert "conv" in names and ("host_if" in names) != (build is yolo)


@pytest.mark.parametrize("build", sampled([ssd, two_stages, yolo, pasted_masks], every=2))
def test_int8_network_keeps_its_boxes_in_float(build: Any, tmp_path: Path) -> None:
    onnx.save(build(), tmp_path / "m.onnx")
    # The weights are random: rounding may change which pixels a box covers, and would keep the convolution in float.
    options = {"effort": "low", "without": ["decision-paths"]}
    converted = tc.convert(tmp_path / "m.onnx", calibration=images(2), **group_options(quantize="int8", **options))
    names = [each.op.name for each in converted.graph.nodes]
    assert "conv_v2" in names and "conv" not in names
    native, plain = tc.Session(converted, threads=1), tc.Session(converted, backend="reference")
    for feeds in images(2):
        found, expected = native.run(feeds), plain.run(feeds)
        assert {name: array.shape for name, array in found.items()} == {
            name: array.shape for name, array in expected.items()
        }


def test_host_pad_crops_and_pads() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    op = HostPad(axes=(0, 1), value=Scalar.f32(9))
    (y,) = op.evaluate(x, np.array([1, -1, 0, 2], np.int32))
    assert y.tolist() == [[9, 9, 9, 9], [1, 2, 9, 9], [4, 5, 9, 9]]
    (y,) = HostPad(axes=(1,), value=Scalar.f32(0), mode=HostPadMode.reflect).evaluate(x, np.array([2, 0], np.int32))
    assert y.tolist() == [[2, 1, 0, 1, 2], [5, 4, 3, 4, 5]]
    with pytest.raises(Exception, match="pads -2 and -2 of axis 1 with 3 elements"):
        op.evaluate(x, np.array([0, -2, 0, -2], np.int32))


def test_host_expand_checks_the_extents() -> None:
    (y,) = HostExpand((2, 3)).evaluate(np.array([[1], [2]], np.float32))
    assert y.tolist() == [[1, 1, 1], [2, 2, 2]]
    with pytest.raises(Exception, match=r"\[2, 2\] does not broadcast to \[2, 3\]"):
        HostExpand((2, 3)).reference(np.zeros((2, 2), np.float32))


def squeezing() -> onnx.ModelProto:
    """``x.squeeze(1)`` of PyTorch with a dynamic extent: an If whose branches have different ranks."""
    first = helper.make_graph(
        [node("Constant", "", "axes", value_ints=[1]), node("Squeeze", "x axes", "squeezed")], "then", [],
        [info("squeezed")])  # fmt: skip
    second = helper.make_graph([node("Identity", "x", "same")], "else", [], [info("same")])
    nodes = [
        node("Shape", "x", "s"), node("Gather", "s axis", "extent"), node("Equal", "extent unit", "is_one"),
        helper.make_node("If", ["is_one"], ["u"], then_branch=first, else_branch=second), node("Relu", "u", "y"),
    ]  # fmt: skip
    numbers = [numpy_helper.from_array(np.array(1), name) for name in ("axis", "unit")]
    graph = helper.make_graph(nodes, "g", [info("x", FLOAT, ["N", "T", 4])], [info("y", FLOAT, ["N", 4])], numbers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_squeeze_of_a_dynamic_extent_refuses_longer_ones(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((3, 1, 4)).astype(np.float32)
    converted = assert_as_onnxruntime(squeezing(), [{"x": x}, {"x": x[:1]}], tmp_path)
    assert any("squeezes axes of extent 1 only" in note.message for note in converted.notes)
    for backend in ("reference", "native"):
        with pytest.raises((tc.UsageError, RunError), match=r"extent 1|does not fit"):
            tc.Session(converted, backend=backend).run({"x": np.zeros((3, 2, 4), np.float32)})  # type: ignore[arg-type]
