"""Exact lowerings are chosen by operators, and their results checked against the annotated graph."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.tflite.models import O, S, T, serialize
from tpuconvert.optimizer.quantize import legalize
from tpuconvert.optimizer.quantize.lowering.tflite import forms
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.errors import InternalError
from tpuconvert.schema.graph.graph import Graph, Source
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.types import F32, I8, I16, Arithmetic, Chip, QuantParams, TensorType

X, Y = QuantParams.per_tensor(0.01, 3, I8), QuantParams.per_tensor(0.02, -5, I8)
CUT = Extract((0, 2), (1, 5), (1, 1))


def one_node(op: Op, x: QuantParams, y: QuantParams, source: str) -> Graph:
    graph = Graph("net", "net.tflite")
    graph.rescale = "tflite"
    value = graph.input("x", TensorType(F32, (1, 6)), quant=x)
    with graph.source(Source("net.tflite", "y", source)):
        result = graph.add(op, value, name="y")
    result.quant = y
    graph.output(result)
    return graph


def test_a_slice_with_the_origin_of_a_requantization_is_a_slice() -> None:
    """Rules pass on the origin of the nodes that they replace: it says nothing about the operator."""
    lowered = legalize(one_node(CUT, X, Y, "QUANTIZE"), Chip.BM1686).graph
    assert lowered.outputs[0].shape == (1, 3)
    assert "extract" in [node.op.name for node in lowered.nodes]


@pytest.mark.parametrize("source", ["", "LOGISTIC", "RELU", "SLICE"])
def test_the_origin_does_not_choose_the_form(source: str) -> None:
    tanh = Active(ActiveType.ACTIVE_TANH)
    graphs = [legalize(one_node(tanh, X, Y, name), Chip.BM1686).graph for name in ("TANH", source)]
    tables = [next(v.array for v in graph.values if v.is_constant) for graph in graphs]
    np.testing.assert_array_equal(*tables)


def test_the_annotation_states_the_arithmetic() -> None:
    """A requantization by a power of two rounds twice, the shift in a 16-bit ADD once."""
    x, y = QuantParams.per_tensor(2.0**-12, 0, I16), QuantParams.per_tensor(2.0**-10, 0, I16)
    shifted = dataclasses.replace(y, arithmetic=Arithmetic.SHIFT)
    assert shifted == y and hash(shifted) == hash(y)
    for params, name in ((y, "requant_int32"), (shifted, "arithmetic_shift")):
        lowered = legalize(one_node(Copy(), x, params, "ADD"), Chip.BM1686).graph
        assert name in [node.op.name for node in lowered.nodes]


@pytest.mark.parametrize("is_type", [True, False])
def test_a_form_with_another_result_is_an_internal_error(is_type: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names value, form, operator and rules."""

    def wrong_form(node, lowering):
        x = lowering.quantized_value(node.inputs[0])
        if is_type:
            return (lowering.widen(x, 0, "wrong"),)
        cut = lowering.g.add(CUT, x, name="wrong")
        cut.quant = Y
        return (cut,)

    monkeypatch.setitem(forms._FORMS, (Copy, Arithmetic.OPERATOR), wrong_form)
    graph = one_node(Copy(), X, Y, "QUANTIZE")
    graph.nodes[0].rules = ("some_rule",)
    with pytest.raises(InternalError) as caught:
        legalize(graph, Chip.BM1686)
    for part in ("'y'", "wrong_form", "copy", "some_rule", "INT32" if is_type else "[1, 3]"):
        assert part in str(caught.value)


def test_bounds_of_a_clamp_are_rounded_as_float32() -> None:
    """1 / scale is 16089.5 in float32, and a little less in float64."""
    scale = 6.215233588591218e-05
    tensors = [
        T("x", (1, 4), "INT16", scale=(3.0517578125e-05,), zero_point=(0,)),
        T("c", (1,), data=np.array([28430], np.int16), scale=(3.0517578125e-05,), zero_point=(0,)),
        T("y", (1, 4), "INT16", scale=(scale,), zero_point=(0,)),
    ]
    add = O("ADD", [0, 1], [2], "AddOptions", {"fused_activation_function": 2})  # RELU_N1_TO_1
    model = tc.convert(serialize(S(tensors, [add], [0], [2])))
    with tc.Session(model) as session:
        (y,) = session.run({"x": np.array([[28466, 10594, -32768, 32767]], np.int16)}).values()
    assert y.tolist() == [[16090, 16090, -2130, 16090]]
