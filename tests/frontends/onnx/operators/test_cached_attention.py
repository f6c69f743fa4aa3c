"""Attention operators with caches of past keys and values, with static and with dynamic extents, as ONNX Runtime."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import tpuconvert as tc
from tests.support.onnx.models import ramp, save_model
from tpuconvert.frontends.onnx import load
from tpuconvert.schema.errors import UnsupportedError
from tpuconvert.schema.types import Array

Shapes = dict[str, tuple[int | str, ...]]

COS, SIN = np.cos(ramp(64, 8, seed=8)), np.sin(ramp(64, 8, seed=8))
"""Tables of angles for heads of 16 elements."""


def model_of(
    node: NodeProto, feeds: dict[str, Array], constants: dict[str, Array], shapes: Shapes | None = None, opset: int = 23
) -> onnx.ModelProto:
    """A model with one node, whose inputs have the shapes of the feeds, or symbolic ones."""
    graph = helper.make_graph(
        [node],
        "net",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), (shapes or {}).get(name, array.shape)
            )
            for name, array in feeds.items()
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in node.output if name],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=11)


def assert_as_onnxruntime(proto: onnx.ModelProto, feeds: dict[str, Array], tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    reference = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = reference.run(None, feeds)
    graph = load(save_model(proto, tmp_path))
    found = tc.Session(graph).run(feeds)
    for port, want in zip(reference.get_outputs(), wanted, strict=True):
        np.testing.assert_allclose(found[port.name], want, atol=1e-5, err_msg=port.name)


def grouped(past: int, rows: int, *, packed: bool = False, batch: int = 1) -> dict[str, Array]:
    """Feeds of GroupQueryAttention with 4 query heads and 2 key heads of 16 elements."""
    feeds = {"q": ramp(batch, rows, (8 if packed else 4) * 16)}
    if not packed:
        feeds |= {"k": ramp(batch, rows, 32, seed=1), "v": ramp(batch, rows, 32, seed=2)}
    if past:
        feeds |= {"pk": ramp(batch, 2, past, 16, seed=3), "pv": ramp(batch, 2, past, 16, seed=4)}
    return {**feeds, "n": np.full(batch, past + rows - 1, np.int32), "t": np.array([past + rows], np.int32)}


CASES: list[tuple[str, dict[str, Array], dict[str, Any]]] = [
    ("prompt", grouped(0, 5), {}),
    ("past", grouped(6, 1), {}),
    ("past-chunk", grouped(6, 3), {}),
    ("rotary", grouped(6, 3), {"do_rotary": 1}),
    ("interleaved", grouped(6, 1), {"do_rotary": 1, "rotary_interleaved": 1}),
    ("not rotary", grouped(6, 1), {"do_rotary": 0, "rotary_interleaved": 0}),
    ("packed", grouped(4, 2, packed=True), {"do_rotary": 1}),
    ("scale", grouped(4, 2), {"scale": 0.5}),
    ("batch", grouped(4, 1, batch=3), {"do_rotary": 1}),
    ("batch-prompt", grouped(0, 4, batch=2), {"do_rotary": 1}),
]


def grouped_node(feeds: dict[str, Array], attributes: dict[str, Any]) -> NodeProto:
    inputs = [name if name in feeds else "" for name in ("q", "k", "v", "pk", "pv", "n", "t")]
    inputs += ["cos", "sin"] if attributes.get("do_rotary") else []
    return helper.make_node(
        "GroupQueryAttention", inputs, ["y", "nk", "nv"], name="node", domain="com.microsoft", num_heads=4,
        kv_num_heads=2, **attributes,
    )  # fmt: skip


@pytest.mark.parametrize(("feeds", "attributes"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
@pytest.mark.parametrize("is_open", [False, True])
def test_group_query_attention(
    feeds: dict[str, Array], attributes: dict[str, Any], is_open: bool, tmp_path: Path
) -> None:
    batch, _, width = feeds["q"].shape
    shapes: Shapes = {"q": (batch, "rows", width), "k": (batch, "rows", 32), "v": (batch, "rows", 32)}
    shapes |= dict.fromkeys(("pk", "pv"), (batch, 2, "past", 16))
    constants = {"cos": COS, "sin": SIN} if attributes.get("do_rotary") else {}
    proto = model_of(grouped_node(feeds, attributes), feeds, constants, shapes if is_open else None)
    assert_as_onnxruntime(proto, feeds, tmp_path)


@pytest.mark.parametrize(
    ("attributes", "message"), [({"local_window_size": 4}, "local_window_size=4"), ({"softcap": 2.0}, "softcap=2.0")]
)
def test_refused(attributes: dict[str, Any], message: str, tmp_path: Path) -> None:
    feeds = grouped(4, 2)
    with pytest.raises(UnsupportedError, match=message):
        load(save_model(model_of(grouped_node(feeds, attributes), feeds, {}), tmp_path))


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("more", [{}, {"unidirectional": 1}])
def test_multi_head_attention(is_open: bool, more: dict[str, int], tmp_path: Path) -> None:
    feeds = {"q": ramp(1, 3, 32), "k": ramp(1, 3, 32, seed=1), "v": ramp(1, 3, 32, seed=2)}
    feeds |= {"pk": ramp(1, 2, 4, 16, seed=3), "pv": ramp(1, 2, 4, 16, seed=4)}
    node = helper.make_node(
        "MultiHeadAttention", ["q", "k", "v", "", "", "", "pk", "pv"], ["y", "nk", "nv"], name="node",
        domain="com.microsoft", num_heads=2, **more,
    )  # fmt: skip
    shapes: Shapes = {**dict.fromkeys("qkv", (1, "rows", 32)), **dict.fromkeys(("pk", "pv"), (1, 2, "past", 16))}
    assert_as_onnxruntime(model_of(node, feeds, {}, shapes if is_open else None), feeds, tmp_path)


@pytest.mark.parametrize("past", [0, 4])
def test_causal_attention_of_dynamic_length(past: int, tmp_path: Path) -> None:
    feeds = {"q": ramp(2, 4, 3, 8), "k": ramp(2, 2, 3, 8, seed=1), "v": ramp(2, 2, 3, 6, seed=2)}
    shapes: Shapes = {"q": (2, 4, "rows", 8), "k": (2, 2, "rows", 8), "v": (2, 2, "rows", 6)}
    inputs, outputs = ["q", "k", "v"], ["y"]
    if past:
        feeds |= {"pk": ramp(2, 2, past, 8, seed=3), "pv": ramp(2, 2, past, 6, seed=4)}
        shapes |= {"pk": (2, 2, "past", 8), "pv": (2, 2, "past", 6)}
        inputs, outputs = [*inputs, "", "pk", "pv"], ["y", "nk", "nv"]
    node = helper.make_node("Attention", inputs, outputs, name="node", is_causal=1)
    assert_as_onnxruntime(model_of(node, feeds, {}, shapes), feeds, tmp_path)


def test_softcap_needs_static_shapes(tmp_path: Path) -> None:
    feeds = {name: ramp(1, 2, 3, 8) for name in "qkv"}
    shapes: Shapes = dict.fromkeys("qkv", (1, 2, "rows", 8))
    node = helper.make_node("Attention", ["q", "k", "v"], ["y"], name="node", is_causal=1, softcap=2.0)
    with pytest.raises(UnsupportedError, match="softcap or scores as an output, with a causal mask of dynamic extents"):
        load(save_model(model_of(node, feeds, {}, shapes), tmp_path))
