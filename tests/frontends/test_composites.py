"""Source operators that the TPU operator set has as one composite operator arrive as that operator."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.support.caffe.networks import layer, load_text, with_input
from tests.support.onnx.models import graph_of as onnx_graph
from tests.support.tflite.models import T, single
from tests.support.tflite.models import graph_of as tflite_graph
from tpuconvert.schema.graph.graph import Graph

IMAGE, TOKENS, HEADS = (2, 8, 6, 6), (2, 5, 16), (1, 4, 5, 8)


def names(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


def onnx_model(op: str, shapes: list[tuple[int, ...]], constants: list[Any], opset: int, **attributes: Any) -> Any:
    """One node whose first inputs are the inputs of the model."""
    inputs, given = [f"x{k}" for k in range(len(shapes))], [f"c{k}" for k in range(len(constants))]
    domain = attributes.pop("domain", "")
    node = helper.make_node(op, [*inputs, *given], ["y"], name="node", domain=domain, **attributes)
    graph = helper.make_graph(
        [node],
        "net",
        [helper.make_tensor_value_info(name, 1, shape) for name, shape in zip(inputs, shapes, strict=True)],
        [helper.make_tensor_value_info("y", 1, None)],
        [numpy_helper.from_array(array, name) for array, name in zip(constants, given, strict=True)],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def vector(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).uniform(0.5, 1.5, shape).astype(np.float32)


MICROSOFT = {"domain": "com.microsoft"}
ONNX = [
    ("Gelu", [IMAGE], [], 20, {}, "gelu"),
    ("Gelu", [IMAGE], [], 20, {"approximate": "tanh"}, "gelu"),
    ("HardSigmoid", [IMAGE], [], 17, {}, "hard_sigmoid"),
    ("HardSwish", [IMAGE], [], 17, {}, "hard_swish"),
    ("Mish", [IMAGE], [], 18, {}, "mish"),
    ("Softplus", [IMAGE], [], 17, {}, "softplus"),
    ("Swish", [IMAGE], [], 24, {"alpha": 1.5}, "silu"),
    ("LayerNormalization", [TOKENS], [vector(16), vector(16)], 17, {}, "layer_norm"),
    ("LayerNormalization", [TOKENS], [vector(1, 16)], 17, {"axis": 1}, "layer_norm"),
    ("LayerNormalization", [TOKENS, (16,)], [], 17, {}, "layer_norm"),
    ("RMSNormalization", [TOKENS], [vector(16)], 23, {}, "rms_norm"),
    ("InstanceNormalization", [IMAGE], [vector(8), vector(8)], 17, {}, "group_norm"),
    ("GroupNormalization", [IMAGE], [vector(4), vector(4)], 18, {"num_groups": 4}, "group_norm"),
    ("GroupNormalization", [IMAGE], [vector(8), vector(8)], 21, {"num_groups": 4}, "group_norm"),
    ("LRN", [IMAGE], [], 13, {"size": 3}, "lrn"),
    ("Attention", [HEADS] * 3, [], 23, {"is_causal": 1}, "attention"),
    ("Attention", [HEADS] * 3, [np.tri(5).astype(bool)], 23, {}, "attention"),
    ("Gelu", [IMAGE], [], 17, MICROSOFT, "gelu"),
    ("QuickGelu", [IMAGE], [], 17, MICROSOFT, "silu"),
    ("SimplifiedLayerNormalization", [TOKENS], [vector(16)], 17, {}, "rms_norm"),
]


@pytest.mark.parametrize(("op", "shapes", "constants", "opset", "attributes", "expected"), ONNX)
def test_onnx_operator_is_one_node(
    op: str,
    shapes: list[tuple[int, ...]],
    constants: list[Any],
    opset: int,
    attributes: Any,
    expected: str,
    tmp_path: Path,
) -> None:
    proto: onnx.ModelProto = onnx_model(op, shapes, constants, opset, **attributes)
    assert names(onnx_graph(proto, tmp_path)) == [expected]


def test_scale_that_does_not_fit_the_operator_is_multiplied(tmp_path: Path) -> None:
    """A computed scale that broadcasts along a normalized axis is not an operand of layer_norm."""
    proto = onnx_model("LayerNormalization", [TOKENS, (1, 16)], [], 17, axis=1)
    assert names(onnx_graph(proto, tmp_path)) == ["layer_norm", "reshape", "mul"]


TFLITE = [
    ("GELU", "GeluOptions", {}, ["gelu"]),
    ("GELU", "GeluOptions", {"approximate": True}, ["gelu"]),
    ("HARD_SWISH", "", {}, ["hard_swish"]),
    (
        "LOCAL_RESPONSE_NORMALIZATION",
        "LocalResponseNormalizationOptions",
        {"radius": 2, "bias": 1.0, "alpha": 0.1, "beta": 0.75},
        ["permute", "lrn", "permute"],
    ),
]


@pytest.mark.parametrize(("op", "table", "options", "expected"), TFLITE)
def test_tflite_operator_is_one_node(op: str, table: str, options: Any, expected: list[str], tmp_path: Path) -> None:
    graph = tflite_graph(tmp_path, single(op, [T("x", (1, 6, 6, 8))], [T("y", (1, 6, 6, 8))], table, **options))
    assert names(graph) == expected


CAFFE = [
    ("BNLL", "", "softplus"),
    ("GELU", "", "gelu"),
    ("HardSigmoid", "", "hard_sigmoid"),
    ("HardSwish", "", "hard_swish"),
    ("LRN", "lrn_param { local_size: 3 beta: 0.5 }", "lrn"),
    ("Mish", "", "mish"),
    ("ShuffleChannel", "shuffle_channel_param { group: 2 }", "channel_shuffle"),
    ("Swish", "swish_param { beta: 1.5 }", "silu"),
]


@pytest.mark.parametrize(("type_", "parameters", "expected"), CAFFE)
def test_caffe_layer_is_one_node(type_: str, parameters: str, expected: str, tmp_path: Path) -> None:
    assert names(load_text(tmp_path, with_input(IMAGE, layer(type_, parameters)))) == [expected]
