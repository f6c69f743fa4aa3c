"""Constants with two contents are refused: in ONNX tensors wherever they stand, Caffe blobs and TFLite buffers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper

import tpuconvert as tc
from tests.support.caffe.networks import with_input, write_text
from tests.support.tflite.models import T, serialize, single
from tpuconvert.cli.entry import run as run_command
from tpuconvert.frontends.caffe.file.messages import new_message
from tpuconvert.frontends.onnx.file.raw_data import LEAST_BYTES

Edit = Callable[[TensorProto], None]


def plain(name: str = "w", count: int = 4) -> TensorProto:
    return numpy_helper.from_array(np.ones(count, np.float32), name)  # raw_data


def typed(tensor: TensorProto) -> None:
    tensor.ClearField("raw_data")
    tensor.float_data.extend([1.0] * tensor.dims[0])


def external(tensor: TensorProto, location: str = "w.bin") -> None:
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)


def raw_and(field: str, value: object) -> Edit:
    return lambda tensor: getattr(tensor, field).extend([value] * tensor.dims[0])


def typed_and(field: str) -> Edit:
    def edit(tensor: TensorProto) -> None:
        typed(tensor)
        getattr(tensor, field).extend([1])

    return edit


def external_and(other: Edit) -> Edit:
    def edit(tensor: TensorProto) -> None:
        external(tensor)
        other(tensor)

    return edit


def with_unused_location(tensor: TensorProto) -> None:
    tensor.external_data.add(key="location", value="w.bin")


def with_two_locations(tensor: TensorProto) -> None:
    external(tensor)
    tensor.external_data.add(key="location", value="v.bin")


EDITS: dict[str, Edit] = {
    **{f"raw and {field}": raw_and(field, value) for field, value in
       (("float_data", 2.0), ("int32_data", 2), ("int64_data", 2), ("double_data", 2.0), ("uint64_data", 2),
        ("string_data", b"2"))},
    "float and int64": typed_and("int64_data"),
    "float and double": typed_and("double_data"),
    "external and raw": external_and(lambda tensor: setattr(tensor, "raw_data", bytes(16))),
    "external and typed": external_and(lambda tensor: tensor.float_data.extend([2.0] * 4)),
    "raw and an unused location": with_unused_location,
    "two locations": with_two_locations,
}  # fmt: skip


def network(place: str, edit: Edit, count: int = 4) -> onnx.ModelProto:
    """A model ``y = x + w``, whose ``w`` is stored in a place and edited."""
    w = plain(count=count)
    edit(w)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [count])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [count])
    constant = helper.make_node("Constant", [], ["w"], value=w)
    add = helper.make_node("Add", ["x", "w"], ["y"])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    initializers, nodes, functions = [], [add], []
    if place == "initializer":
        initializers = [w]
    elif place == "constant":
        nodes = [constant, add]
    elif place == "function":
        functions = [helper.make_function("f", "Call", ["x"], ["y"], [constant, add], opsets[:1])]
        nodes = [helper.make_node("Call", ["x"], ["y"], domain="f")]
    elif place == "function attribute":
        body = helper.make_node("Constant", [], ["w"])
        body.attribute.append(AttributeProto(name="value", type=AttributeProto.TENSOR, ref_attr_name="w"))
        functions = [helper.make_function("f", "Call", ["x"], ["y"], [body, add], opsets[:1], ["w"])]
        nodes = [helper.make_node("Call", ["x"], ["y"], domain="f", w=w)]
    elif place in ("subgraph initializer", "subgraph constant"):
        info = helper.make_tensor_value_info("z", TensorProto.FLOAT, [count])
        inner = [helper.make_node("Add", ["x", "w"], ["z"])]
        if place == "subgraph constant":
            inner.insert(0, constant)
        then = helper.make_graph(inner, "then", [], [info], [w] if len(inner) == 1 else [])
        other = helper.make_graph([helper.make_node("Neg", ["x"], ["z"])], "other", [], [info])
        condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
        nodes = [helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)]
        graph = helper.make_graph(nodes, "g", [x, condition], [y])
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)
    elif place in ("sparse values", "sparse indices"):
        values, indices = plain(), numpy_helper.from_array(np.arange(4, dtype=np.int64))
        edited = values if place == "sparse values" else indices
        edited.name = "w"
        edit(edited)
        values.name = "w"
        sparse = helper.make_sparse_tensor(values, indices, [4])
        graph = helper.make_graph(nodes, "g", [x], [y], sparse_initializer=[sparse])
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)
    elif place == "attribute of another operator":
        shape = helper.make_tensor_value_info("s", TensorProto.INT64, [1])
        fill = TensorProto(data_type=TensorProto.FLOAT, dims=[1], raw_data=bytes(4), name="w")
        edit(fill)
        nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("ConstantOfShape", ["s"], ["w"], value=fill),
                 add]  # fmt: skip
        graph = helper.make_graph(nodes, "g", [x], [y], value_info=[shape])
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)
    graph = helper.make_graph(nodes, "g", [x], [y], initializers)
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=functions)


PLACES = (
    "initializer",
    "constant",
    "function",
    "function attribute",
    "subgraph initializer",
    "subgraph constant",
    "sparse values",
    "sparse indices",
    "attribute of another operator",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "w.bin").write_bytes(bytes(16))
    (tmp_path / "v.bin").write_bytes(bytes(16))
    return tmp_path


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", EDITS)
def test_onnx(place: str, kind: str, folder: Path) -> None:
    path = folder / "net.onnx"
    path.write_bytes(network(place, EDITS[kind]).SerializeToString())
    with pytest.raises(tc.AmbiguousInputError, match=r"constant 'w' has (two contents|external data with an entry)"):
        tc.convert(path)


@pytest.mark.parametrize("place", PLACES)
def test_one_content_is_accepted(place: str, folder: Path) -> None:
    path = folder / "net.onnx"
    path.write_bytes(network(place, lambda _: None).SerializeToString())
    tc.convert(path)
    if place not in ("sparse indices", "attribute of another operator"):
        path.write_bytes(network(place, typed).SerializeToString())
        tc.convert(path)


def test_large_raw_data_beside_a_typed_field(tmp_path: Path) -> None:
    """Large data are not parsed by protobuf but referred to."""
    path = tmp_path / "net.onnx"
    path.write_bytes(network("initializer", raw_and("float_data", 2.0), count=LEAST_BYTES).SerializeToString())
    with pytest.raises(tc.AmbiguousInputError, match="two contents: raw_data and float_data"):
        tc.convert(path)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(network("initializer", EDITS["raw and float_data"]).SerializeToString())
    assert run_command(["convert", str(path)]) == 4
    assert "error[TC4003]: net.onnx: constant 'w' has two contents" in capsys.readouterr().err
    assert [item.name for item in tmp_path.iterdir()] == ["net.onnx"]


INNER = "inner_product_param { num_output: 2 bias_term: false }"
NET = with_input((1, 3), f'layer {{ name: "fc" type: "InnerProduct" bottom: "x" top: "y" {INNER} BLOBS }}')


def blob(**fields: object) -> object:
    message = new_message("BlobProto")
    for name, value in fields.items():
        if name == "shape":
            message.shape.dim.extend(value)
        elif isinstance(value, list):
            getattr(message, name).extend(value)
        else:
            setattr(message, name, value)
    return message


SIX = [1.0] * 6
LEGACY = {"num": 1, "channels": 1, "height": 2, "width": 3}
BLOBS = {
    "data": (blob(shape=[2, 3], data=SIX), ""),
    "double": (blob(shape=[2, 3], double_data=SIX), ""),
    "legacy shape": (blob(**LEGACY, data=SIX), ""),
    "equal shapes": (blob(**LEGACY, shape=[2, 3], data=SIX), ""),
    "data and double": (blob(shape=[2, 3], data=SIX, double_data=[2.0] * 6), "two contents: data and double_data"),
    "data and raw": (blob(shape=[2, 3], data=SIX, raw_data=bytes(24)), "two contents: data and raw_data"),
    "double and raw": (blob(shape=[2, 3], double_data=SIX, raw_data=bytes(24)), "two contents: double_data and raw"),
    "two shapes": (blob(**{**LEGACY, "height": 3, "width": 2}, shape=[2, 3], data=SIX), r"two shapes, \[2, 3\] and"),
    "two shapes of ranks": (blob(**{**LEGACY, "num": 2}, shape=[2, 3], data=SIX), "two shapes"),
}


@pytest.mark.parametrize("kind", BLOBS)
@pytest.mark.parametrize("place", ["caffemodel", "prototxt"])
def test_caffe(kind: str, place: str, tmp_path: Path) -> None:
    message, complaint = BLOBS[kind]
    weights = None
    text = f"blobs {{ {message} }}" if place == "prototxt" else ""
    if place == "caffemodel":
        net = new_message("NetParameter")
        added = net.layer.add(name="fc", type="InnerProduct")
        added.blobs.append(message)
        weights = tmp_path / "net.caffemodel"
        weights.write_bytes(net.SerializeToString())
    path = write_text(tmp_path, NET.replace("BLOBS", text))
    if not complaint:
        tc.convert(path, weights)
        return
    with pytest.raises(tc.AmbiguousInputError, match=complaint):
        tc.convert(path, weights)


def test_caffe_shape_twice_on_the_wire(tmp_path: Path) -> None:
    """protobuf would merge both."""
    first, second = blob(shape=[2, 3], data=SIX), blob(shape=[3, 2])
    content = first.SerializeToString() + second.SerializeToString()
    layer = b"\n\x02fc:" + bytes([len(content)]) + content
    (tmp_path / "net.caffemodel").write_bytes(b"\xa2\x06" + bytes([len(layer)]) + layer)
    with pytest.raises(tc.AmbiguousInputError, match="two shapes"):
        tc.convert(write_text(tmp_path, NET.replace("BLOBS", "")), tmp_path / "net.caffemodel")


@pytest.mark.parametrize("inline", [False, True])
def test_tflite_buffer_with_data_and_an_offset(inline: bool, tmp_path: Path) -> None:
    tensors = [T("x", (4,), "FLOAT32"), T("w", data=np.ones(4, np.float32))], [T("y", (4,), "FLOAT32")]
    path = tmp_path / "net.tflite"
    path.write_bytes(serialize(single("ADD", *tensors, "AddOptions"), external=True, inline=inline))
    if not inline:
        tc.convert(path)
        return
    with pytest.raises(
        tc.AmbiguousInputError, match=r"buffer \d has two contents: 16 bytes in its table, and 16 bytes"
    ):
        tc.convert(path)
