"""The walk over the graph: problems, cuts, shapes, names, sources, functions."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.support.onnx.models import graph_of, model, one, ours, ramp, save_model
from tpuconvert.frontends.onnx import load
from tpuconvert.schema.errors import UnsupportedError, UsageError


def chain() -> onnx.ModelProto:
    """relu -> sigmoid -> tanh, every tensor with a name."""
    nodes = [one("Relu", "x", outputs=["r"]), one("Sigmoid", "r", outputs=["s"]), one("Tanh", "s", outputs=["t"])]
    return model(nodes, {"x": ramp(2, 3)}, ["t"])


def test_names_and_sources_come_from_the_file(tmp_path: Path) -> None:
    graph = graph_of(chain(), tmp_path)
    assert [node.name for node in graph.nodes] == ["r", "s", "t"]
    assert str(graph.nodes[1].sources[0]) == "model.onnx: Sigmoid 'the_Sigmoid'"
    assert [(port.name, port.dtype, port.shape) for port in graph.output_ports] == [("t", "float32", (2, 3))]


def test_source_name_wins_over_a_made_up_one(tmp_path: Path) -> None:
    nodes = [one("Selu", "x", outputs=["h"]), one("Relu", "h", outputs=["muls"])]
    graph = graph_of(model(nodes, {"x": ramp(2)}, ["muls"]), tmp_path)
    assert graph.nodes[-1].op.name == "active"
    assert graph.nodes[-1].name == "muls"


def test_all_problems_at_once(tmp_path: Path) -> None:
    x = ramp(1, 3, 8, 8)
    nodes = [
        one("Foo", "x", outputs=["a"]),
        one("Foo", "x", outputs=["b"], domain="com.acme"),
        one("Conv", "x", "w", outputs=["c"], strange=3),
        one("Relu", "a", outputs=["d"]),
        one("Bar", "d", outputs=["e"]),
        one("Softmax", "x", outputs=["f"], axis=9),
        one("Relu", "nothing", outputs=["g"]),
        one("AveragePool", "x", outputs=["h", "where"], kernel_shape=[2, 2]),
    ]
    proto = model(nodes, {"x": x}, [*"bcefgh", "where"], {"w": ramp(2, 3, 1, 1)}, domains={"com.acme": 1})
    with pytest.raises(UnsupportedError) as caught:
        load(save_model(proto, tmp_path))
    assert caught.value.exit_code == 3
    assert [problem.op for problem in caught.value.problems] == [
        "Foo", "com.acme:Foo", "Conv", "Bar", "Softmax", "Relu", "AveragePool",
    ]  # fmt: skip
    text = str(caught.value)
    for words in ("7 problems", "opset 17", "strange=3", "axis 9 is outside rank 4", "input 'nothing' is not computed",
                  "output 1 ('where')",
                  "no part of the model before it", "--plugin", "nothing was written"):  # fmt: skip
        assert words in text, words
    assert "--outputs" not in text  # x is an input: a model that ends there is empty


def test_checks_nodes_after_an_unknown_one_if_the_file_states_its_type(tmp_path: Path) -> None:
    nodes = [one("Foo", "x", outputs=["a"]), one("Softmax", "a", outputs=["y"], axis=7)]
    proto = model(nodes, {"x": ramp(2, 3)}, ["y"])
    with pytest.raises(UnsupportedError, match="1 problem"):
        load(save_model(proto, tmp_path))
    proto.graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, [2, 3]))
    with pytest.raises(UnsupportedError, match=r"2 problems[\s\S]*axis 7"):
        load(save_model(proto, tmp_path))


def test_operator_that_came_later_than_the_models_opset(tmp_path: Path) -> None:
    proto = model([one("Gelu", "x")], {"x": ramp(3)}, ["y"], opset=19)
    with pytest.raises(UnsupportedError, match="supported from version 20 on; the model has 19"):
        load(save_model(proto, tmp_path))


def test_unread_attributes_and_inputs_are_told(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"alpha=0\.5"):
        load(save_model(model([one("Relu", "x", alpha=0.5)], {"x": ramp(3)}, ["y"]), tmp_path))
    proto = model([one("Relu", "x", "x2")], {"x": ramp(3), "x2": ramp(3)}, ["y"])
    with pytest.raises(UnsupportedError, match=r"input 1 \('x2'\)"):
        load(save_model(proto, tmp_path))


def test_attribute_of_the_wrong_type(tmp_path: Path) -> None:
    proto = model([one("Softmax", "x", axis="last")], {"x": ramp(3)}, ["y"])
    with pytest.raises(UnsupportedError, match="attribute axis is 'last', not int"):
        load(save_model(proto, tmp_path))


# Cutting


def test_cut_at_outputs(tmp_path: Path) -> None:
    graph = graph_of(chain(), tmp_path, outputs=["s", "r"])
    assert [port.name for port in graph.output_ports] == ["s", "r"]
    assert len(graph) == 2
    assert any("'the_Tanh'" in note for note in graph.notes)


def test_cut_at_inputs(tmp_path: Path) -> None:
    x = ramp(4, 5)
    found = ours(chain(), {"s": x}, tmp_path, inputs=["s"], input_shapes={"s": (4, 5)})
    np.testing.assert_allclose(found["t"], np.tanh(x), rtol=1e-6)
    with pytest.raises(UnsupportedError, match="the model states no shape"):
        load(save_model(chain(), tmp_path), inputs=["s"])


def test_cut_leaves_out_inputs_that_nobody_reads(tmp_path: Path) -> None:
    proto = model([one("Relu", "x", outputs=["y"]), one("Relu", "z", outputs=["w"])],
                  {"x": ramp(2), "z": ramp(2)}, ["y", "w"])  # fmt: skip
    assert [port.name for port in graph_of(proto, tmp_path, outputs=["y"]).input_ports] == ["x"]
    assert [port.name for port in graph_of(proto, tmp_path).input_ports] == ["x", "z"]


@pytest.mark.parametrize("argument", ["inputs", "outputs"])
def test_cut_at_unknown_names(argument: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"{argument}: the model has no tensor 'q'"):
        load(save_model(chain(), tmp_path), **{argument: ["q"]})
    with pytest.raises(UsageError, match="named more than once"):
        load(save_model(chain(), tmp_path), **{argument: ["s", "s"]})


# Shapes


def open_model(*shape: int | str | None) -> onnx.ModelProto:
    proto = model([one("Relu", "x")], {"x": ramp(1)}, ["y"])
    proto.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, shape))
    return proto


@pytest.mark.parametrize(
    ("batch", "symbol"), [("N", "N"), ("batch size", "batch_size"), ("2*n", "n2_n"), (None, "x_0"), (-1, "x_0")]
)
def test_open_extents_stay_open_with_a_note(batch: int | str | None, symbol: str, tmp_path: Path) -> None:
    graph = graph_of(open_model(batch, 3, "W"), tmp_path)
    assert graph.inputs[0].shape == graph.outputs[0].shape == (symbol, 3, "W")
    assert graph.notes == [f"extents of the inputs that stay symbolic: {symbol}, W; --input-shapes sets numbers"]
    pinned = graph_of(open_model(batch, 3, "W"), tmp_path, input_shapes={"x": (8, 3, 4)})
    assert pinned.outputs[0].shape == (8, 3, 4)
    assert pinned.notes == []
    named = graph_of(open_model(batch, 3, "W"), tmp_path, input_shapes={"x": ("samples", 3, 4)})
    assert named.outputs[0].shape == named.output_ports[0].shape == ("samples", 3, 4)


def test_one_name_means_one_extent(tmp_path: Path) -> None:
    proto = model([one("Add", "a", "b")], {"a": ramp(1), "b": ramp(1)}, ["y"])
    for index, name in enumerate("ab"):
        info = helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", "width"])
        proto.graph.input[index].CopyFrom(info)
    graph = graph_of(proto, tmp_path, input_shapes={"b": (2, 7)})
    assert [value.shape for value in graph.inputs] == [(2, 7), (2, 7)]
    with pytest.raises(UsageError, match="'width' is 7 in one input and 8 in b"):
        load(save_model(proto, tmp_path), input_shapes={"a": (2, 7), "b": (2, 8)})
    graph = graph_of(proto, tmp_path, input_shapes={"b": ("n", "W")})
    assert [value.shape for value in graph.inputs] == [("n", "W"), ("n", "W")]


@pytest.mark.parametrize(
    ("shapes", "complaint"),
    [
        ({"z": (1,)}, r"the graph has no input 'z'"),
        ({"x": (1, 3)}, r"x=\[1, 3\] does not match the model's \[2, 3, \?\]"),
        ({"x": (1, 3, 5)}, r"does not match"),
        ({"x": (2, 3, 0)}, r"an extent below 1"),
        ({"x": (2, "C", 5)}, r"x=\[2, C, 5\] does not match"),
        ({"x": (2, 3, "a+b")}, r"numbers, or names of letters and digits"),
    ],
)
def test_declines_shapes_that_do_not_match(
    shapes: dict[str, tuple[int | str, ...]], complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=complaint):
        load(save_model(open_model(2, 3, None), tmp_path), input_shapes=shapes)


def test_input_that_is_no_tensor(tmp_path: Path) -> None:
    proto = open_model(1)
    proto.graph.input[0].CopyFrom(helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, [1]))
    with pytest.raises(UnsupportedError, match="its type is sequence"):
        load(save_model(proto, tmp_path))


# Ranks and types of inputs and outputs


def test_keeps_rank_0_and_64_bit_types_of_inputs_and_outputs(tmp_path: Path) -> None:
    x = np.array(2.5)
    proto = model([one("Mul", "x", "x", outputs=["y"]), one("ArgMax", "v", outputs=["i"], keepdims=0)],
                  {"x": x, "v": ramp(4)}, ["y", "i"])  # fmt: skip
    graph = graph_of(proto, tmp_path)
    assert [(port.dtype, port.shape) for port in graph.output_ports] == [("float64", ()), ("int64", ())]
    assert [value.shape for value in graph.outputs] == [(1,), (1,)]
    found = ours(proto, {"x": x, "v": np.array([1, 5, 3, 5], np.float32)}, tmp_path)
    assert found["y"] == 6.25
    assert found["i"] == 1
    assert found["y"].shape == found["i"].shape == ()


def test_outputs_that_are_constants_or_inputs(tmp_path: Path) -> None:
    proto = model([one("Identity", "x", outputs=["same"]), one("Shape", "x", outputs=["shape"])],
                  {"x": ramp(2, 3)}, ["same", "shape", "x"])  # fmt: skip
    x = ramp(2, 3, seed=4)
    found = ours(proto, {"x": x}, tmp_path)
    assert np.array_equal(found["same"], x)
    assert np.array_equal(found["x"], x)
    assert found["shape"].tolist() == [2, 3]
    assert found["shape"].dtype == np.int64


def test_nodes_in_any_order(tmp_path: Path) -> None:
    proto = chain()
    reordered = list(reversed(list(proto.graph.node)))
    del proto.graph.node[:]
    proto.graph.node.extend(reordered)
    assert [node.name for node in graph_of(proto, tmp_path).nodes] == ["r", "s", "t"]


def test_initializers_that_are_also_inputs(tmp_path: Path) -> None:
    proto = model([one("Add", "x", "b")], {"x": ramp(3), "b": ramp(3)}, ["y"], {"b": ramp(3, seed=2)}, ir_version=3)
    assert [port.name for port in graph_of(proto, tmp_path).input_ports] == ["x"]


def test_local_functions_are_inlined(tmp_path: Path) -> None:
    body = [
        helper.make_node("LeakyRelu", ["a"], ["b"]),
        helper.make_node("Add", ["b", "b"], ["c"]),
    ]
    body[0].attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    function = helper.make_function(
        "local",
        "TwiceLeaky",
        ["a"],
        ["c"],
        body,
        [helper.make_opsetid("", 17)],
        ["slope"],
    )
    nodes = [helper.make_node("TwiceLeaky", ["x"], ["h"], name="one", domain="local", slope=0.5),
             helper.make_node("TwiceLeaky", ["h"], ["y"], name="two", domain="local", slope=0.25)]  # fmt: skip
    proto = model(nodes, {"x": ramp(4)}, ["y"], domains={"local": 1})
    proto.functions.append(function)
    graph = graph_of(proto, tmp_path)
    assert [node.name for node in graph.nodes] == ["one/b", "h", "two/b", "y"]
    found = ours(proto, {"x": np.array([-4, 0, 1, 2], np.float32)}, tmp_path)
    assert found["y"].tolist() == [-2.0, 0.0, 4.0, 8.0]  # -4 -> -2*2 -> -4; -4 * 0.25 * 2 = -2
