"""Advice of error messages is followed by these tests: every printed cut leads to a model that computes something."""

import re
import shlex
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import tpuconvert as tc
from tests.support.onnx.models import model, one, ramp, save_model
from tests.support.tflite.models import O, S, T, serialize
from tpuconvert.conversion.options.options import group_options

CUT = re.compile(r"--(outputs|inputs) (.+)")


def follow(path: Path, message: str) -> int:
    """Convert again with every cut of a message; returns how many there were."""
    cuts = {match.groups() for match in CUT.finditer(message)}
    for option, names in cuts:
        arguments = {option: shlex.split(names)[0].split(",")}
        try:
            made = tc.convert(path, **group_options(**arguments))  # type: ignore[arg-type]  # by name
        except tc.UnsupportedError as error:  # a model that begins inside needs shapes that the file does not state
            shapes = {problem.node: (2, 3) for problem in error.problems}
            if not all(f"--input-shapes {name}=" in str(error) for name in shapes):
                raise
            made = tc.convert(path, **group_options(input_shapes=shapes, **arguments))  # type: ignore[arg-type]  # by name
        assert made.graph.nodes, f"{message}\n{arguments} gives an empty model"
    return len(cuts)


def refusal_of(path: Path) -> str:
    """The message about a model that cannot be converted."""
    with pytest.raises(tc.UnsupportedError) as told:
        tc.convert(path)
    return str(told.value)


def random_network(seed: int) -> onnx.ModelProto:
    """Operators that read earlier tensors; some of them do not exist."""
    draw = np.random.default_rng(seed)
    tensors, nodes = ["x", "z"], list[onnx.NodeProto]()
    for index in range(int(draw.integers(1, 12))):
        name = f"t{index}"
        kind = draw.choice(["Relu", "Neg", "Add", "Mul", "Identity", "Reshape", "NoSuchOperator", "Dropout"])
        reads = [str(draw.choice(tensors))]
        if kind in ("Add", "Mul"):
            reads.append(str(draw.choice(tensors)))
        elif kind == "Reshape":
            reads.append("shape")
        nodes.append(helper.make_node(kind, reads, [name], name=f"n{index}"))
        tensors.append(name)
    used = {name for node in nodes for name in node.input}
    ends = [name for name in tensors[2:] if name not in used]
    return model(nodes, {"x": ramp(2, 3), "z": ramp(2, 3)}, ends, {"shape": np.array([2, 3])})


def test_cuts_of_random_networks_lead_to_models(tmp_path: Path) -> None:
    followed = unsupported = 0
    for seed in range(120):
        proto = random_network(seed)
        if all(node.op_type != "NoSuchOperator" for node in proto.graph.node):
            continue
        path = save_model(proto, tmp_path)
        unsupported += 1
        followed += follow(path, refusal_of(path)) > 0
    assert unsupported >= 50
    assert followed > 30  # the others have nothing before the first unknown operator


def test_an_input_is_never_a_place_to_end(tmp_path: Path) -> None:
    path = save_model(model([one("NoSuchOperator", "x")], {"x": ramp(2, 3)}, ["y"]), tmp_path)
    message = refusal_of(path)
    assert "--outputs" not in message
    assert "no part of the model before it computes anything" in message


def test_a_model_may_begin_after_the_operator(tmp_path: Path) -> None:
    proto = model([one("NoSuchOperator", "x", outputs=["h"]), one("Relu", "h")], {"x": ramp(2, 3)}, ["y"])
    proto.graph.value_info.append(helper.make_tensor_value_info("h", onnx.TensorProto.FLOAT, [2, 3]))
    path = save_model(proto, tmp_path)
    message = refusal_of(path)
    assert "begin the model after it:  --inputs h" in message
    assert follow(path, message) == 1


def test_both_branches_are_kept(tmp_path: Path) -> None:
    nodes = [
        one("Relu", "x", outputs=["h"]),
        helper.make_node("NoSuchOperator", ["h"], ["a"], name="bad"),
        helper.make_node("Neg", ["h"], ["b"], name="good"),
    ]
    path = save_model(model(nodes, {"x": ramp(2, 3)}, ["a", "b"]), tmp_path)
    assert "--outputs h,b" in refusal_of(path)


@pytest.mark.parametrize("outputs", [["x"], ["x", "z"], ["w"], ["r"]])
def test_a_cut_that_leaves_no_operator_is_an_error(tmp_path: Path, outputs: list[str]) -> None:
    """``r`` only has another shape: the optimizer removes what makes it."""
    nodes = [one("Reshape", "x", "k", outputs=["r"]), one("Add", "r", "w", outputs=["s"]), one("Mul", "s", "z")]
    constants = {"k": np.array([2, 3]), "w": ramp(2, 3, seed=1)}
    path = save_model(model(nodes, {"x": ramp(2, 3), "z": ramp(2, 3)}, ["y"], constants), tmp_path)
    with pytest.raises(tc.UsageError, match="the model would be empty: no operator is left"):
        tc.convert(path, source_options=tc.SourceOptions(outputs=outputs))


def test_a_source_that_passes_its_input_through_is_converted_with_a_note(tmp_path: Path) -> None:
    made = tc.convert(save_model(model([one("Identity", "x")], {"x": ramp(2, 3)}, ["y"]), tmp_path))
    assert "the model computes nothing: its outputs are its inputs or constants" in [
        note.message for note in made.notes
    ]
    with tc.Session(made) as session:
        np.testing.assert_array_equal(session.run({"x": ramp(2, 3)})["y"], ramp(2, 3))


@pytest.mark.parametrize(
    ("operator", "domain", "words"),
    [
        ("Rellu", "", "did you mean 'Relu'?"),
        ("relu", "", "did you mean 'Relu'?"),
        ("Conv2D", "", "did you mean 'Conv'?"),
        ("Matmul", "", "did you mean 'MatMul'?"),
        ("FusedMatMul", "", "did you mean the operator of the domain 'com.microsoft'?"),
        ("FusedMatMul", "com.micrsoft", "did you mean the operator of the domain 'com.microsoft'?"),
        ("Relu", "custom", "did you mean the operator of the standard (an empty domain)?"),
        ("FusedMatmul", "com.microsoft", "did you mean 'FusedMatMul'?"),
    ],
)
def test_unknown_operators_of_onnx_get_the_nearest_name(tmp_path: Path, operator: str, domain: str, words: str) -> None:
    nodes = [one("Neg", "x", outputs=["h"]), one(operator, "h", domain=domain)]
    proto = model(nodes, {"x": ramp(2, 3)}, ["y"], domains={domain: 1} if domain else None)
    assert words in refusal_of(save_model(proto, tmp_path))


def test_cuts_and_names_of_tflite_models(tmp_path: Path) -> None:
    tensors = [T("x", (1, 4)), T("h", (1, 4)), T("c", (1, 4)), T("y", (1, 4))]
    operators = [O("NEG", [0], [1]), O("CUSTOM:TFLite_Detection_PostProces", [1], [2]), O("NEG", [2], [3])]
    path = tmp_path / "net.tflite"
    path.write_bytes(serialize(S(tensors, operators, [0], [3])))
    message = refusal_of(path)
    assert "did you mean 'TFLite_Detection_PostProcess'?" in message
    assert "end the model before it:  --outputs h" in message
    assert follow(path, message) == 1
    path.write_bytes(serialize(S(tensors[:2], [O("CUSTOM:Mine", [0], [1])], [0], [1])))
    assert "no part of the model before it" in refusal_of(path)
    with pytest.raises(tc.UsageError, match="would be empty"):
        tc.convert(path, source_options=tc.SourceOptions(outputs=["x"]))


def test_cuts_and_names_of_caffe_networks(tmp_path: Path) -> None:
    path = tmp_path / "net.prototxt"
    layers = """name: "net" input: "x" input_shape { dim: 1 dim: 3 dim: 4 dim: 4 }
    layer { name: "pool" type: "Pooling" bottom: "x" top: "pool" pooling_param { kernel_size: 2 } }
    layer { name: "act" type: "ReLU" bottom: "pool" top: "pool" }
    layer { name: "it" type: "Sigmiod" bottom: "pool" top: "y" }
    """
    path.write_text(layers)
    message = refusal_of(path)
    assert "did you mean 'Sigmoid'?" in message
    assert "--outputs pool" in message
    assert follow(path, message) == 1
    path.write_text(layers.replace('top: "y"', 'top: "pool"'))  # in place: the name means the result of the layer
    assert "--outputs pool" not in refusal_of(path)
    with pytest.raises(tc.UsageError, match="would be empty"):
        tc.convert(path, source_options=tc.SourceOptions(outputs=["x"]))


def test_operators_that_the_chip_lacks_are_no_reason_for_an_empty_model(tmp_path: Path) -> None:
    """BM1682 has no bitwise operators; a chip that has them is named, a cut only where an operator is before them."""
    a = np.ones((1, 4), np.int32)
    proto = model([one("BitwiseAnd", "a", "b")], {"a": a, "b": a}, ["y"], opset=18)
    with pytest.raises(tc.UnsupportedError, match="--chip bm1684 or bm1686") as told:
        tc.convert(save_model(proto, tmp_path), chip="bm1682")
    assert "--outputs" not in str(told.value)
    nodes = [one("Add", "a", "b", outputs=["s"]), one("BitwiseAnd", "s", "b")]
    path = save_model(model(nodes, {"a": a, "b": a}, ["y"], opset=18), tmp_path)
    with pytest.raises(tc.UnsupportedError, match=r"end the model before it \(--outputs\)"):
        tc.convert(path, chip="bm1682")
    assert tc.convert(path, chip="bm1682", source_options=tc.SourceOptions(outputs=["s"])).graph.nodes
