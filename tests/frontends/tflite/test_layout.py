"""Axis orders, names of values, and ports."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.support.tflite.models import O, S, T, graph_of, ops, run, single
from tpuconvert.schema.ops.permute import Permute

WINDOW = {"padding": 1, "stride_h": 1, "stride_w": 1}


def weights(oc: int, kh: int, kw: int, ic: int) -> T:
    return T("w", data=np.arange(oc * kh * kw * ic, dtype=np.float32).reshape(oc, kh, kw, ic))


def two_convolutions() -> S:
    tensors = [T("x", (1, 3, 4, 2)), weights(2, 1, 1, 2), T("m", (1, 3, 4, 2)), T("y", (1, 3, 4, 2))]
    options = {**WINDOW, "fused_activation_function": 1}
    return S(
        tensors,
        [O("CONV_2D", [0, 1], [2], "Conv2DOptions", options), O("CONV_2D", [2, 1], [3], "Conv2DOptions", WINDOW)],
        [0],
        [3],
    )


def test_a_chain_stays_nchw_in_between(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, two_convolutions())
    assert ops(graph) == ["permute", "conv", "active", "conv", "permute"]
    names = [node.name for node in graph.nodes]
    assert names == ["x:nchw", "m:pre", "m:nchw", "y:nchw", "y"]
    into, back = graph.nodes[0].op, graph.nodes[-1].op
    assert (into, back) == (Permute(order=(0, 3, 1, 2)), Permute(order=(0, 2, 3, 1)))


def test_two_readers_share_one_permute(tmp_path: Path) -> None:
    tensors = [T("x", (1, 3, 4, 2)), weights(1, 1, 1, 2), T("a", (1, 3, 4, 1)), T("b", (1, 3, 4, 1))]
    operators = [O("CONV_2D", [0, 1], [i], "Conv2DOptions", WINDOW) for i in (2, 3)]
    graph = graph_of(tmp_path, S(tensors, operators, [0], [2, 3]))
    assert ops(graph).count("permute") == 3  # one in, one back per result


def test_an_nhwc_reader_gets_the_tensor_back(tmp_path: Path) -> None:
    """RESHAPE depends on the order of elements, so it reads the NHWC form."""
    tensors = [T("x", (1, 2, 2, 1)), T("w", data=np.asarray([[[[1]]], [[[10]]]], np.float32)), T("y", (1, 2, 2, 2))]
    tensors += [T("shape", data=np.asarray([1, 8], np.int32)), T("z", (1, 8))]
    operators = [
        O("CONV_2D", [0, 1], [2], "Conv2DOptions", WINDOW),
        O("RESHAPE", [2, 3], [4], "ReshapeOptions", {"new_shape": (1, 8)}),
    ]
    graph = graph_of(tmp_path, S(tensors, operators, [0], [4]))
    assert [node.name for node in graph.nodes] == ["x:nchw", "y:nchw", "y", "z"]
    (z,) = run(graph, np.arange(1, 5).reshape(1, 2, 2, 1))
    assert z.tolist() == [[1, 10, 2, 20, 3, 30, 4, 40]]


def test_sources_and_ports(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, two_convolutions())
    assert [(port.name, port.dtype, port.shape) for port in graph.input_ports] == [("x", "float32", (1, 3, 4, 2))]
    assert [(port.name, port.dtype, port.shape) for port in graph.output_ports] == [("y", "float32", (1, 3, 4, 2))]
    source = graph.nodes[1].sources[0]
    assert (source.file, source.node, source.op) == ("model.tflite", "m", "CONV_2D")


def test_rank_0_and_bool_and_int64_ports(tmp_path: Path) -> None:
    tensors = [T("x", (2,)), T("axis", data=np.asarray([0], np.int32)), T("s", ()), T("c", (2,), "BOOL")]
    tensors += [T("dim", data=np.asarray(0, np.int32)), T("p", (), "INT64")]
    operators = [
        O("SUM", [0, 1], [2], "ReducerOptions", {"keep_dims": False}),
        O("LESS", [0, 2], [3]),
        O("ARG_MAX", [0, 4], [5], "ArgMaxOptions", {"output_type": 4}),
    ]
    graph = graph_of(tmp_path, S(tensors, operators, [0], [2, 3, 5]))
    total, less, place = run(graph, [3, -1])
    assert (total.shape, total.dtype.name, float(total)) == ((), "float32", 2)
    assert (less.dtype.name, less.tolist()) == ("bool", [False, True])
    assert (place.shape, place.dtype.name, int(place)) == ((), "int64", 0)


def test_tensor_names_win_over_generated_names(tmp_path: Path) -> None:
    """A tensor with the name of a TPU operator keeps it; FLOOR_MOD becomes div, floor, mul and sub."""
    tensors = [T("x", (2,)), T("floor", (2,)), T("mul", (2,)), T("div", (2,))]
    operators = [O("FLOOR_MOD", [0, 0], [3]), O("ABS", [3], [1]), O("EXP", [1], [2])]
    graph = graph_of(tmp_path, S(tensors, operators, [0], [2]))
    found = {node.name: node.op.name for node in graph.nodes}
    assert found["div"] == "sub"
    assert (found["floor"], found["mul"]) == ("active", "active")


def test_constants_at_the_output(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, single("SHAPE", [T(shape=(2, 5))], [T(shape=(2,), type="INT32")], "ShapeOptions"))
    assert run(graph, np.zeros((2, 5)))[0].tolist() == [2, 5]
