"""The walk over a network: names, inputs and outputs, weights, and all problems at once."""

import numpy as np
import pytest

from tests.support.caffe.networks import layer, load_text, run, with_input, write_text, write_weights
from tpuconvert.frontends import caffe
from tpuconvert.frontends.caffe.node import caffe_op
from tpuconvert.frontends.registry import Registration
from tpuconvert.schema.errors import CorruptInputError, UnsupportedError, UsageError

X = np.array([[-1.0, 2.0, -3.0, 4.0]], np.float32)


def names(graph):
    return [value.name for node in graph.nodes for value in node.outputs]


def ports(ports):
    return [(port.name, port.shape) for port in ports]


def test_in_place_layers_share_one_name(tmp_path):
    """The last writer owns the name of a blob; what was there before is named after its layer too."""
    text = with_input(
        (1, 4),
        layer("Power", "power_param { scale: 2 }", "x", "a", "double")
        + layer("ReLU", "", "a", "a", "relu")
        + layer("Dropout", "", "a", "a", "drop")
        + layer("Power", "power_param { shift: 1 }", "a", "a", "more"),
    )
    graph = load_text(tmp_path, text)
    assert names(graph) == ["a@double", "a@relu", "a"]
    assert ports(graph.output_ports) == [("a", (1, 4))]
    assert run(graph, X)["a"].tolist() == [[1, 5, 1, 9]]


def test_in_place_on_an_input(tmp_path):
    graph = load_text(tmp_path, with_input((1, 4), layer("ReLU", "", "x", "x", "relu")))
    assert ports(graph.input_ports) == ports(graph.output_ports) == [("x", (1, 4))]
    assert (graph.inputs[0].name, names(graph)) == ("x", ["x@relu"])
    assert run(graph, X)["x"].tolist() == [[0, 2, 0, 4]]


def test_a_reader_before_an_in_place_layer_sees_the_old_value(tmp_path):
    text = with_input(
        (1, 4),
        layer("Power", "power_param { scale: 1 shift: 1 }", "x", "a", "one")
        + layer("AbsVal", "", "a", "b", "two")
        + layer("ReLU", "", "a", "a", "three"),
    )
    assert {k: v.tolist() for k, v in run(load_text(tmp_path, text), X).items()} == {
        "b": [[0, 3, 2, 5]],
        "a": [[0, 3, 0, 5]],
    }


def test_outputs_are_the_tops_that_nobody_reads_in_the_order_of_their_layers(tmp_path):
    text = with_input((1, 4), "") + "".join(
        [
            layer("Split", "", "x", "z a", "split"),
            layer("ReLU", "", "a", "m", "relu"),
            layer("AbsVal", "", "z", "b", "abs"),
            layer("Silence", "", "m", "", "quiet"),
            layer("Dropout", "", "z", "c", "drop"),
        ]
    )
    graph = load_text(tmp_path, text)
    assert ports(graph.output_ports) == [("b", (1, 4)), ("c", (1, 4))]
    assert run(graph, X)["c"].tolist() == X.tolist()


def test_sources_name_the_layer(tmp_path):
    graph = load_text(tmp_path, with_input((1, 4), layer("ReLU", name="relu/1")))
    (source,) = graph.nodes[0].sources
    assert (source.file, source.node, source.op) == ("net.prototxt", "relu/1", "ReLU")


def test_training_layers_are_left_out_and_labels_do_not_become_inputs(tmp_path):
    text = (
        'layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TRAIN } }'
        'layer { name: "data" type: "MemoryData" top: "data" top: "label" include { phase: TEST }'
        "  memory_data_param { batch_size: 2 channels: 3 height: 1 width: 1 }"
        " transform_param { mirror: true scale: 0.5 } }"
        + layer("Flatten", "", "data", "flat", "flat")
        + layer("Accuracy", "include { phase: TEST } accuracy_param { top_k: 2 }", "flat label", "accuracy", "accuracy")
        + layer("SoftmaxWithLoss", "loss_param { ignore_label: 1 }", "flat label", "loss", "loss")
    )
    graph = load_text(tmp_path, text)
    assert ports(graph.input_ports) == [("data", (2, 3, 1, 1))]
    assert ports(graph.output_ports) == [("loss", (2, 3))]
    assert run(graph, np.zeros((2, 3, 1, 1)))["loss"] == pytest.approx(1 / 3)
    assert graph.notes == [
        "left out, for training only: data",
        "layer 'data' prepares its images (scale): give the same with --preprocess",
    ]


def test_what_only_accuracy_reads_is_an_output(tmp_path):
    text = with_input((1, 4), layer("ReLU", "", "x", "y", "relu") + layer("Accuracy", "", "y", "accuracy", "acc"))
    assert ports(load_text(tmp_path, text).output_ports) == [("y", (1, 4))]


def test_all_problems_are_told_at_once(tmp_path):
    text = with_input(
        (1, 4, 6, 6),
        layer("Foo", "foo_param { a: 1 }", "x", "f1", "foo_1")
        + layer("Foo", "", "f1", "f2", "foo_2")
        + layer("ReLU", "", "f2", "f3", "after_foo")
        + layer("Pooling", "pooling_param { pool: STOCHASTIC kernel_size: 2 pad: 1 }", "x", "p", "pool")
        + layer("Convolution", "convolution_param { num_output: 2 kernel_size: 9 }", "x", "c", "too_big")
        + layer("ReLU", "relu_param { negative_slope: 0.1 curve: 3 }", "x", "r", "relu")
        + layer("ReLU", "", "nowhere", "n", "lost")
        + layer("EuclideanLoss", "", "x n", "l", "loss")
        + layer("AbsVal", "", "l", "m", "after_loss")
        + "debug: 1",
    )
    with pytest.raises(UnsupportedError) as error:
        load_text(tmp_path, text)
    found = {(p.kind.heading, p.node): p.message for p in error.value.problems}
    assert {key[1] for key in found} == {"", "foo_1", "foo_2", "pool", "too_big", "relu", "lost", "loss"}
    assert found["no TPU operator", "foo_1"] == ""
    assert found["invalid node", "pool"] == "pad [1, 1] with pool STOCHASTIC"
    assert found["unsupported attribute", "relu"] == "relu_param.curve: 3 (line 7)"
    assert found["unsupported attribute", ""] == "debug (line 11)"
    assert found["invalid node", "lost"] == "reads 'nowhere', which no layer before it makes"
    assert "loss" in found["no TPU operator", "loss"]
    assert ("invalid node", "too_big") in found
    text = str(error.value)
    assert text.startswith("net.prototxt: 8 problems in 3 kinds (Caffe, 10 layers)")
    assert "'foo_1', 'foo_2'" in text
    assert error.value.exit_code == 3


def test_parameters_without_effect_and_of_other_types(tmp_path):
    parameters = (
        "convolution_param { num_output: 1 kernel_size: 1 bias_term: false engine: CAFFE"
        " weight_filler { type: 'msra' } }"
        " param { lr_mult: 0 } relu_param { negative_slope: 3 }"
    )
    graph = load_text(
        tmp_path, with_input((1, 1, 1, 1), layer("Convolution", parameters)), {"layer": [np.ones((1, 1, 1, 1))]}
    )
    assert graph.notes == ["layer 'layer' (Convolution) ignores relu_param, as Caffe does"]


def test_weights_are_checked_against_the_network(tmp_path):
    text = with_input(
        (1, 4),
        layer("InnerProduct", "inner_product_param { num_output: 3 }", "x", "a", "shape")
        + layer("InnerProduct", "inner_product_param { num_output: 3 }", "x", "b", "few")
        + layer("InnerProduct", "inner_product_param { num_output: 3 }", "x", "c", "none"),
    )
    blobs = {"shape": [np.ones((4, 3)), np.ones(3)], "few": [np.ones((3, 4))], "other": [np.ones(1)]}
    with pytest.raises(UnsupportedError) as error:
        load_text(tmp_path, text, blobs)
    found = {problem.node: problem.message for problem in error.value.problems}
    assert found == {
        "shape": "its weight has shape [4, 3] in the weight file, the prototxt needs [3, 4]",
        "few": "the weight file has 1 blobs for it, the bias would be number 2",
        "none": "the weight file has 0 blobs for it, the weight would be number 1",
    }


def test_weights_that_nothing_reads(tmp_path):
    text = with_input((1, 4), layer("InnerProduct", "inner_product_param { num_output: 3 bias_term: false }"))
    with pytest.raises(UnsupportedError, match="has 2 blobs for it, 1 of them without a meaning here") as error:
        load_text(tmp_path, text, {"layer": [np.ones((3, 4)), np.ones(3)]})
    assert "[3]" in error.value.problems[0].message


def test_axes_of_extent_1_do_not_matter_in_weights(tmp_path):
    text = with_input((1, 4), layer("InnerProduct", "inner_product_param { num_output: 1 }"))
    graph = load_text(tmp_path, text, {"layer": [np.arange(4.0).reshape(1, 1, 1, 4), np.ones((1, 1, 1, 1))]})
    assert run(graph, X)["y"].tolist() == [[2 - 6 + 12 + 1]]


def test_weights_of_unknown_layers_are_noted(tmp_path):
    text = with_input((1, 4), layer("ReLU"))
    graph = load_text(tmp_path, text, {"gone": [np.ones(1)]})
    assert graph.notes == ["weights of layers that the prototxt does not have: gone"]


def test_missing_weight_file(tmp_path):
    path = write_text(tmp_path, with_input((1, 4), layer("InnerProduct", "inner_product_param { num_output: 1 }")))
    with pytest.raises(UsageError, match=r"1 layers need trained weights") as error:
        caffe.load(path)
    assert ".caffemodel" in error.value.hint
    assert len(caffe.load(path, require_weights=False)) == 1


def test_weights_inside_the_prototxt(tmp_path):
    blob = "blobs { shape { dim: 1 dim: 4 } data: [1, 2, 3, 4] }"
    text = with_input((1, 4), layer("InnerProduct", f"inner_product_param {{ num_output: 1 bias_term: false }} {blob}"))
    assert run(load_text(tmp_path, text), X)["y"].tolist() == [[-1 + 4 - 9 + 16]]


def test_a_top_that_exists_already(tmp_path):
    text = with_input((1, 4), layer("ReLU", name="a") + layer("AbsVal", name="b"))
    with pytest.raises(UnsupportedError, match="writes 'y', which layer 'a' has written"):
        load_text(tmp_path, text)


def test_tops_that_a_layer_does_not_make(tmp_path):
    with pytest.raises(UnsupportedError, match="has 2 tops, ReLU makes 1"):
        load_text(tmp_path, with_input((1, 4), layer("ReLU", tops="a b")))


def test_a_network_without_output(tmp_path):
    with pytest.raises(CorruptInputError, match="no output"):
        load_text(tmp_path, with_input((1, 4), layer("Silence", tops="")))


# Options


def test_input_shapes_replace_those_of_the_file(tmp_path):
    graph = load_text(tmp_path, with_input((1, 4), layer("ReLU")), input_shapes={"x": (2, 3)})
    assert ports(graph.output_ports) == [("y", (2, 3))]


def test_an_input_without_shape(tmp_path):
    text = 'input: "x" ' + layer("ReLU") + layer("AbsVal", "", "x", "z", "abs")
    with pytest.raises(UnsupportedError, match="--input-shapes x=") as error:
        load_text(tmp_path, text)
    assert [(problem.op, problem.node) for problem in error.value.problems] == [("input", "x")]
    assert ports(load_text(tmp_path, text, input_shapes={"x": (5,)}).output_ports) == [("y", (5,)), ("z", (5,))]


@pytest.mark.parametrize("shape", [(), (0, 3), (-1,), (1,) * 9])
def test_impossible_input_shapes(tmp_path, shape):
    with pytest.raises(UsageError, match="cannot have the shape"):
        load_text(tmp_path, with_input((1, 4), layer("ReLU")), input_shapes={"x": shape})


def test_names_that_the_network_does_not_have(tmp_path):
    text = with_input((1, 4), layer("ReLU"))
    with pytest.raises(UsageError, match="no input 'q'"):
        load_text(tmp_path, text, input_shapes={"q": (1,)})
    with pytest.raises(UsageError, match="no blob 'q'"):
        load_text(tmp_path, text, outputs=["q"])


def test_cutting_a_network(tmp_path):
    text = with_input(
        (1, 4),
        layer("AbsVal", "", "x", "a", "one")
        + layer("Power", "power_param { scale: 2 }", "a", "b", "two")
        + layer("ReLU", "", "b", "b", "three")
        + layer("Unknown", "", "b", "c", "four"),
    )
    assert run(load_text(tmp_path, text, outputs=["a"]), X)["a"].tolist() == [[1, 2, 3, 4]]
    both = load_text(tmp_path, text, outputs=["b", "a"])
    assert ports(both.output_ports) == [("b", (1, 4)), ("a", (1, 4))]
    graph = load_text(tmp_path, text, inputs=["a"], outputs=["b"], input_shapes={"a": (1, 4)})
    assert ports(graph.input_ports) == [("a", (1, 4))]
    assert run(graph, X)["b"].tolist() == [[0, 4, 0, 8]]


def test_a_plugin_reads_its_own_parameters(tmp_path, monkeypatch):
    """Also those that Caffe's schema does not know."""
    seen = {}

    def convert(node, g):
        p = node.params("mine_param")
        seen.update(whole=p.whole("k"), number=p.number("f"), text=p.text("t"), list=p.ints("many"), flag=p.flag("on"))
        seen["inner"] = p.group("inner").whole("z")
        return node.input(0)

    caffe_op.discover()
    monkeypatch.setitem(caffe_op._versions, ("", "TestOnlyMine"), {1: Registration("TestOnlyMine", "", 1, convert)})
    parameters = "mine_param { k: 3 f: 0.5 t: 'a' many: 1 many: 2 on: true inner { z: 7 } }"
    load_text(tmp_path, with_input((1, 4), layer("TestOnlyMine", parameters)))
    assert seen == {"whole": 3, "number": 0.5, "text": "a", "list": (1, 2), "flag": True, "inner": 7}
    with pytest.raises(UnsupportedError, match=r"mine_param\.other: 1"):
        load_text(tmp_path, with_input((1, 4), layer("TestOnlyMine", parameters[:-1] + "other: 1 }")))
    with pytest.raises(UnsupportedError, match="mine_param has no k"):
        load_text(tmp_path, with_input((1, 4), layer("TestOnlyMine", "mine_param { }")))


def test_two_loads_give_the_same_graph(tmp_path):
    text = with_input(
        (1, 4), layer("InnerProduct", "inner_product_param { num_output: 3 }") + layer("ReLU", "", "y", "y", "r")
    )
    blobs = {"layer": [np.ones((3, 4)), np.ones(3)]}
    path, weights = write_text(tmp_path, text), write_weights(tmp_path, blobs)
    first, second = caffe.load(path, weights), caffe.load(path, weights)
    assert [repr(node) for node in first.nodes] == [repr(node) for node in second.nodes]
