"""Layers with integer weights and float activations against the reference kernels, which round activations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.sampled import sampled
from tests.support.tflite.models import O, S, T, graph_of, ops, serialize, single

pytest.importorskip("ai_edge_litert.interpreter")

from tools.exactness.tflite_exactness import Oracle, outputs_by_name


def weights(g: np.random.Generator, shape: tuple[int, ...], axis: int | None) -> T:
    data = g.integers(-127, 128, shape).astype(np.int8)
    count = 1 if axis is None else shape[axis]
    scales = tuple(float(np.float32(s)) for s in g.uniform(0.005, 0.03, count))
    return T("w", data=data, scale=scales, zero_point=(0,) * count, axis=axis or 0)


def layer(kind: str, g: np.random.Generator) -> S:
    bias = T("b", data=g.standard_normal(6).astype(np.float32))
    x, y = T("", (2, 5, 7, 3)), T("", ())
    options = {"stride_h": 1, "stride_w": 2}
    if kind.startswith("conv"):
        w = weights(g, (6, 3, 3, 3), 0 if kind == "conv_per_channel" else None)
        return single("CONV_2D", [x, w, bias], [y], "Conv2DOptions", **options)
    if kind == "depthwise":
        options |= {"stride_w": 1, "depth_multiplier": 2}
        return single(
            "DEPTHWISE_CONV_2D", [x, weights(g, (1, 3, 3, 6), 3), bias], [y], "DepthwiseConv2DOptions", **options
        )
    asymmetric = kind.endswith("in_range")
    if kind.startswith("batch_matmul"):
        return batch_matmul(kind, g, asymmetric)
    if kind.startswith("svdf"):
        return svdf(g, asymmetric)
    if kind.startswith(("lstm", "rnn")):
        return recurrent(kind, g, asymmetric)
    inputs = [T("", (4, 12)), weights(g, (6, 12), 0 if "per_channel" in kind else None), bias]
    table = "FullyConnectedOptions"
    return single("FULLY_CONNECTED", inputs, [T("", (4, 6))], table, asymmetric_quantize_inputs=asymmetric)


def batch_matmul(kind: str, g: np.random.Generator, asymmetric: bool) -> S:
    adj_x, adj_y = "_x" in kind, "_y" in kind
    batch = (3,) if "batched" in kind else ()
    left, right = (3, 7, 12) if adj_x else (3, 12, 7), (5, 7) if adj_y else (7, 5)
    options = {"adj_x": adj_x, "adj_y": adj_y, "asymmetric_quantize_inputs": asymmetric}
    inputs = [T("", left), weights(g, (*batch, *right), None)]
    return single("BATCH_MATMUL", inputs, [T("", (3, 12, 5))], "BatchMatMulOptions", **options)


def recurrent(kind: str, g: np.random.Generator, asymmetric: bool) -> S:
    """Two samples of three steps with four features; five units."""
    gates = 4 if kind.startswith("lstm") else 1
    matrices = [weights(g, (5, size), None) for size in (4, 5) for _ in range(gates)]
    biases = [T("b", data=g.standard_normal(5).astype(np.float32)) for _ in range(gates)]
    states = [T("", (2, 5), variable=True) for _ in range(2 if gates > 1 else 1)]
    given = [T("", (2, 3, 4)), *matrices, *biases, *states]
    tensors = [T(**{**tensor.__dict__, "name": f"t{i}"}) for i, tensor in enumerate([*given, T("", (2, 3, 5))])]
    out = len(given)
    options = {"fused_activation_function": 4, "asymmetric_quantize_inputs": asymmetric}
    if gates == 1:
        operator = O("UNIDIRECTIONAL_SEQUENCE_RNN", range(out), [out], "SequenceRNNOptions", options, version=3)
    else:
        places = [*range(9), -1, -1, -1, *range(9, 13), -1, -1, 13, 14]
        table = "UnidirectionalSequenceLSTMOptions"
        operator = O("UNIDIRECTIONAL_SEQUENCE_LSTM", places, [out], table, options, version=3)
    return S(tensors, [operator], [0], [out])


def svdf(g: np.random.Generator, asymmetric: bool) -> S:
    """Rank 2, three units, a memory of four steps."""
    given = [T("", (2, 5)), weights(g, (6, 5), None), weights(g, (6, 4), None), T("", (3,)), T("", (2, 24))]
    given[3] = T("", data=g.standard_normal(3).astype(np.float32))
    given[4] = T("", (2, 24), variable=True)
    tensors = [T(**{**tensor.__dict__, "name": f"t{i}"}) for i, tensor in enumerate([*given, T("", (2, 3))])]
    options = {"rank": 2, "asymmetric_quantize_inputs": asymmetric}
    return S(tensors, [O("SVDF", range(5), [5], "SVDFOptions", options, version=3)], [0], [5])


KINDS = (
    *("conv_per_tensor", "conv_per_channel", "depthwise", "dense", "dense_in_range"),
    *("dense_per_channel", "dense_per_channel_in_range"),
    *("batch_matmul", "batch_matmul_in_range", "batch_matmul_x_y", "batch_matmul_y_in_range", "batch_matmul_batched"),
    *("lstm", "lstm_in_range", "rnn", "rnn_in_range", "svdf", "svdf_in_range"),
)


@pytest.mark.parametrize("kind", sampled(KINDS))
def test_hybrid_layers(kind: str, tmp_path: Path) -> None:
    """Within binary32 sums of the kernel's, far nearer than the rounding of the activations."""
    for seed in range(6):
        g = np.random.default_rng([seed, KINDS.index(kind)])
        file = tmp_path / "model.tflite"
        file.write_bytes(serialize(layer(kind, g)))
        oracle = Oracle(file)
        (x,) = oracle.random_feeds(g)
        feeds = [[x], [np.maximum(x, 0)], [np.zeros_like(x)], [x * 1e-3]]
        with tc.Session(tc.convert(file)) as session:
            for feed in feeds:
                (found,), (want,) = session.run(outputs_by_name(session, feed)).values(), oracle.run(feed)
                assert np.abs(found - want).max() <= 1e-5 * max(float(np.ptp(want)), 1e-6), (kind, seed)


def test_activations_stay_float_for_int8_conversion(tmp_path: Path) -> None:
    model = layer("conv_per_channel", np.random.default_rng(0))
    assert ops(graph_of(tmp_path, model)) == ["permute", "conv", "permute"]
    samples = np.random.default_rng(1).standard_normal((4, 2, 5, 7, 3)).astype(np.float32)
    converted = tc.convert(tmp_path / "model.tflite", quantize="int8", calibration=list(samples))
    assert "conv_v2" in {node.op.name for node in converted.graph.nodes}
    assert "reduce" not in {node.op.name for node in converted.graph.nodes}
