"""Layers with integer weights and real activations against the reference kernels, which round activations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tflite_models import S, T, graph_of, ops, serialized, single

import tpuconvert as tc

pytest.importorskip("ai_edge_litert.interpreter")

from tflite_exactness import Oracle, named


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
    asymmetric = kind == "dense_in_range"
    inputs = [T("", (4, 12)), weights(g, (6, 12), None), bias]
    table = "FullyConnectedOptions"
    return single("FULLY_CONNECTED", inputs, [T("", (4, 6))], table, asymmetric_quantize_inputs=asymmetric)


KINDS = ("conv_per_tensor", "conv_per_channel", "depthwise", "dense", "dense_in_range")


@pytest.mark.parametrize("kind", KINDS)
def test_hybrid_layers(kind: str, tmp_path: Path) -> None:
    """Within binary32 sums of the kernel's, far nearer than the rounding of the activations."""
    for seed in range(6):
        g = np.random.default_rng([seed, KINDS.index(kind)])
        file = tmp_path / "model.tflite"
        file.write_bytes(serialized(layer(kind, g)))
        oracle = Oracle(file)
        (x,) = oracle.random_feeds(g)
        feeds = [[x], [np.maximum(x, 0)], [np.zeros_like(x)], [x * 1e-3]]
        with tc.Session(tc.convert(file)) as session:
            for feed in feeds:
                (found,), (want,) = session.run(named(session, feed)).values(), oracle.run(feed)
                assert np.abs(found - want).max() <= 1e-5 * max(float(np.ptp(want)), 1e-6), (kind, seed)


def test_activations_stay_real_where_int8_is_asked_for(tmp_path: Path) -> None:
    model = layer("conv_per_channel", np.random.default_rng(0))
    assert ops(graph_of(tmp_path, model)) == ["permute", "conv", "permute"]
    samples = np.random.default_rng(1).standard_normal((4, 2, 5, 7, 3)).astype(np.float32)
    converted = tc.convert(tmp_path / "model.tflite", quantize="int8", calibration=list(samples))
    assert "conv_v2" in {node.op.name for node in converted.graph.nodes}
    assert "reduce" not in {node.op.name for node in converted.graph.nodes}
