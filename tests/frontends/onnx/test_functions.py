"""Functions of a model: optional inputs and outputs, attributes, nesting, and opsets."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, FunctionProto, NodeProto, helper

from tests.support.onnx.models import graph_of, model, ops, ours, ramp
from tpuconvert.schema.errors import CorruptInputError, UnsupportedError
from tpuconvert.schema.types import Array

X = ramp(2, 3, 4)


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> NodeProto:
    """A node; ``-`` is an empty name."""
    names = [["" if name == "-" else name for name in text.split()] for text in (inputs, outputs)]
    domain = "local" if op[0].islower() else ""
    return helper.make_node(op, *names, name=f"the_{op}", domain=domain, **attributes)


def function(name: str, inputs: str, outputs: str, *nodes: NodeProto, opset: int = 17, **more: Any) -> FunctionProto:
    """A function of the domain ``local``."""
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("local", 1)]
    return helper.make_function("local", name, inputs.split(), outputs.split(), nodes, imports, **more)


def with_functions(nodes: list[NodeProto], *functions: FunctionProto, outputs: str = "y", **constants: Array) -> Any:
    """A model with the input x."""
    proto = model(nodes, {"x": X}, outputs.split(), constants, domains={"local": 1})
    proto.functions.extend(functions)
    return proto


LIMIT = function("limit", "a low high", "o", node("Clip", "a low high", "o"))
LOW, HIGH = np.array(-0.5, np.float32), np.array(0.5, np.float32)


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ("x low high", np.clip(X, -0.5, 0.5)),
        ("x low", np.maximum(X, -0.5)),
        ("x low -", np.maximum(X, -0.5)),
        ("x - high", np.minimum(X, 0.5)),
        ("x", X),
    ],
)
def test_optional_inputs(inputs: str, expected: Array, tmp_path: Path) -> None:
    given = {name: array for name, array in (("low", LOW), ("high", HIGH)) if name in inputs}
    proto = with_functions([node("limit", inputs, "y")], LIMIT, **given)
    assert np.array_equal(ours(proto, {"x": X}, tmp_path)["y"], expected)


def test_optional_inputs_of_nested_functions(tmp_path: Path) -> None:
    outer = function("outer", "a low high", "o", node("limit", "a low high", "o"))
    proto = with_functions([node("outer", "x - high", "y")], outer, LIMIT, high=HIGH)
    assert np.array_equal(ours(proto, {"x": X}, tmp_path)["y"], np.minimum(X, 0.5))


def test_a_function_asks_for_an_optional_input(tmp_path: Path) -> None:
    """OptionalHasElement decides by it; the branch reads the input of the function from outside."""
    branch = helper.make_graph(
        [node("Add", "a b", "then")], "then", [], [helper.make_tensor_value_info("then", 1, None)]
    )
    other = helper.make_graph([node("Neg", "a", "else")], "else", [], [helper.make_tensor_value_info("else", 1, None)])
    has = function("sum", "a b", "o", node("OptionalHasElement", "b", "has"),
                   node("If", "has", "o", then_branch=branch, else_branch=other), opset=18)  # fmt: skip
    for inputs, expected in (("x x", 2 * X), ("x", -X)):
        proto = with_functions([node("sum", inputs, "y")], has)
        proto.opset_import[0].version = 18
        assert np.array_equal(ours(proto, {"x": X}, tmp_path)["y"], expected)


def test_outputs_that_a_call_leaves_out_are_not_converted(tmp_path: Path) -> None:
    """Also nodes without a TPU operator, if nothing else depends on them."""
    two = function("two", "a", "first second", node("Relu", "a", "first"), node("Multinomial", "a", "second"))
    proto = with_functions([node("two", "x", "y")], two)
    assert ops(graph_of(proto, tmp_path)) == ["active"]
    proto = with_functions([node("two", "x", "- y")], function(
        "two", "a", "first second", node("Multinomial", "a", "first"), node("Neg", "a", "second")))  # fmt: skip
    assert np.array_equal(ours(proto, {"x": X}, tmp_path)["y"], -X)


def reference(name: str, to: str) -> AttributeProto:
    """An attribute that refers to one of the function."""
    return AttributeProto(name=name, ref_attr_name=to, type=AttributeProto.FLOAT)


def test_attributes_with_references_and_defaults(tmp_path: Path) -> None:
    inner = function("inner", "a", "o", node("LeakyRelu", "a", "o"), attributes=["slope"])
    inner.node[0].attribute.append(reference("alpha", "slope"))
    outer = function("outer", "a", "o", node("inner", "a", "o"),
                     attribute_protos=[helper.make_attribute("factor", 0.5)])  # fmt: skip
    outer.node[0].attribute.append(reference("slope", "factor"))
    for given, slope in (({}, 0.5), ({"factor": 0.25}, 0.25)):
        proto = with_functions([node("outer", "x", "y", **given)], outer, inner)
        np.testing.assert_allclose(ours(proto, {"x": X}, tmp_path)["y"], np.where(X < 0, slope * X, X), rtol=1e-6)
    # without a value and a default, the operator has its own default
    proto = with_functions([node("inner", "x", "y")], inner)
    np.testing.assert_allclose(ours(proto, {"x": X}, tmp_path)["y"], np.where(X < 0, 0.01 * X, X), rtol=1e-5)


def test_calls_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="4 inputs, but function limit has 3"):
        graph_of(with_functions([node("limit", "x low high x", "y")], LIMIT, low=LOW, high=HIGH), tmp_path)
    with pytest.raises(UnsupportedError, match="2 outputs, but function limit has 1"):
        graph_of(with_functions([node("limit", "x", "y z")], LIMIT), tmp_path)
    with pytest.raises(CorruptInputError, match="function 'limit' is defined more than once"):
        graph_of(with_functions([node("limit", "x", "y")], LIMIT, LIMIT), tmp_path)
    twice = function("twice", "a", "o", node("Neg", "a", "o"), node("Relu", "a", "o"))
    with pytest.raises(CorruptInputError, match="tensor 'o' is the output of more than one node"):
        graph_of(with_functions([node("twice", "x", "y")], twice), tmp_path)


def softmax(x: Array, axes: tuple[int, ...]) -> Array:
    """Softmax over axes."""
    power = np.exp(x - x.max(axes, keepdims=True))
    return np.asarray(power / power.sum(axes, keepdims=True))


def test_a_function_of_another_opset(tmp_path: Path) -> None:
    """A warning names the function and the operators that have another meaning; its own opset counts."""
    old = function("sm", "a", "o", node("Softmax", "a", "o"), opset=11)
    proto = with_functions([node("sm", "x", "y")], old)
    graph = graph_of(proto, tmp_path)
    (note,) = [note for note in graph.notes if "opset" in note]
    assert note == (
        "warning: function local:sm has opset 11, its model 17, in which Softmax may have another meaning:"
        " computed by opset 11"
    )
    np.testing.assert_allclose(ours(proto, {"x": X}, tmp_path)["y"], softmax(X, (1, 2)), rtol=1e-5)


def test_an_operator_that_is_the_same_in_both_opsets(tmp_path: Path) -> None:
    old = function("sine", "a", "o", node("Sin", "a", "o"), opset=11)
    graph = graph_of(with_functions([node("sine", "x", "y")], old), tmp_path)
    assert not [note for note in graph.notes if "opset" in note]


def test_an_opset_that_is_not_known(tmp_path: Path) -> None:
    new = function("sine", "a", "o", node("Sin", "a", "o"), opset=99)
    with pytest.raises(UnsupportedError, match="function local:sine has opset 99; the newest known opset is"):
        graph_of(with_functions([node("sine", "x", "y")], new), tmp_path)


def test_as_onnxruntime(tmp_path: Path) -> None:
    """Calls without optional inputs, and with empty names."""
    engine = pytest.importorskip("onnxruntime", reason="needs onnxruntime: install tpuconvert[oracles]")
    for inputs in ("x low", "x - high", "x"):
        given = {name: array for name, array in (("low", LOW), ("high", HIGH)) if name in inputs}
        proto = with_functions([node("limit", inputs, "y")], LIMIT, **given)
        untyped = onnx.ModelProto()
        untyped.CopyFrom(proto)
        untyped.graph.output[0].ClearField("type")
        session = engine.InferenceSession(untyped.SerializeToString(), providers=["CPUExecutionProvider"])
        assert np.array_equal(ours(proto, {"x": X}, tmp_path)["y"], session.run(None, {"x": X})[0])
