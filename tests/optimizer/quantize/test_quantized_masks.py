"""Quantized sources (QDQ) of masked attention: masks are constants that are moved, and annotated at every step."""

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.quantize.onnx_builder import OnnxNet, cosine

STEPS, HEADS, SIZE = 8, 2, 16
LOWEST = -100.0


def quantize(net: OnnxNet, x: str, scale: float) -> str:
    step, zero = net.constant(np.float32(scale)), net.constant(np.int8(0))
    return net.add("DequantizeLinear", net.add("QuantizeLinear", x, step, zero), step, zero)


def store(net: OnnxNet, array: np.ndarray) -> str:
    """A constant of integers, as files have weights and masks."""
    scale = float(np.abs(array).max()) / 127
    integers = net.constant(np.rint(array / scale).astype(np.int8))
    return net.add("DequantizeLinear", integers, net.constant(np.float32(scale)), net.constant(np.int8(0)))


def weights(net: OnnxNet, x: str, scale: float) -> str:
    return quantize(net, net.add("MatMul", x, store(net, net.rng.normal(0, 0.25, (SIZE, SIZE)))), scale)


def expand(net: OnnxNet, mask: np.ndarray, is_joined: bool) -> str:
    """One copy per head, or per half of the mask and head, which are then concatenated. Quantized at every step."""
    parts = np.split(mask, 2, axis=3) if is_joined else [mask]
    extents = net.constant(np.array([1, HEADS, STEPS, STEPS // len(parts)], np.int64))
    copies = [quantize(net, net.add("Expand", store(net, part), extents), LOWEST / -127) for part in parts]
    return quantize(net, net.add("Concat", *copies, axis=3), LOWEST / -127) if is_joined else copies[0]


def masked_attention(seed: int, form: str, is_joined: bool) -> tuple[OnnxNet, str]:
    net = OnnxNet(seed)
    x = quantize(net, net.input("x", 1, STEPS, SIZE), 0.03)

    def heads(y: str) -> str:
        y = quantize(net, net.reshape(y, 1, STEPS, HEADS, SIZE // HEADS), 0.03)
        return quantize(net, net.permute(y, 0, 2, 1, 3), 0.03)

    q, k, v = (heads(weights(net, x, 0.03)) for _ in range(3))
    scores = quantize(net, net.add("MatMul", q, quantize(net, net.permute(k, 0, 1, 3, 2), 0.03)), 0.1)
    future = np.triu(np.full((1, 1, STEPS, STEPS), LOWEST), 1)
    if form == "add":
        scores = net.add("Add", scores, expand(net, future, is_joined))
        scores = quantize(net, scores, 0.9)
    else:
        allowed = net.constant(np.broadcast_to(future == 0, (1, HEADS, STEPS, STEPS)).copy())
        filling = np.full((1, 1, 1, 2), [LOWEST, LOWEST / 2]) if is_joined else np.full((1, 1, 1, 1), LOWEST)
        fill = expand(net, filling, is_joined)
        scores = quantize(net, net.add("Where", allowed, scores, fill), 0.9)
    share = quantize(net, net.add("Softmax", scores, axis=-1), 1 / 127)
    result = net.permute(quantize(net, net.add("MatMul", share, v), 0.03), 0, 2, 1, 3)
    return net, quantize(net, net.reshape(quantize(net, result, 0.03), 1, STEPS, SIZE), 0.03)


@pytest.mark.parametrize("is_joined", [False, True], ids=["expanded", "expanded and concatenated"])
@pytest.mark.parametrize("form", ["add", "where"])
def test_masks_of_quantized_constants_agree_with_onnxruntime(form, is_joined, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    net, output = masked_attention(0, form, is_joined)
    path = tmp_path / "net.onnx"
    path.write_bytes(net.model(output).SerializeToString())
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    oracle = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    with tc.Session(tc.convert(path)) as session:
        for feeds in net.samples(4):
            (wanted,) = oracle.run([output], feeds)
            # The softmax is float: a last bit of it may put a value on the other side of a tie, one step of 127.
            assert cosine(wanted, session.run(feeds)[output]) > 0.9999
