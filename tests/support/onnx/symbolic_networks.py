"""Networks with a symbolic batch, sequence length and image size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from tests.support.onnx.graphs import FLOAT, info, node
from tpuconvert.schema.types import Array

IMAGES = ["N", 3, "H", "W"]
SIZES = [(1, 3, 32, 32), (2, 3, 48, 32), (1, 3, 40, 64), (3, 3, 36, 36)]
Extents = Sequence[int | str]


class Weights:
    """Named initializers with reproducible random elements."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.tensors: list[onnx.TensorProto] = []

    def normal(self, name: str, *shape: int) -> None:
        array = self.random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) or 1)
        self.array(name, array.astype(np.float32))

    def array(self, name: str, array: Any) -> None:
        self.tensors.append(numpy_helper.from_array(np.asarray(array), name))


def model(nodes: Sequence[NodeProto], weights: Weights, shape: Extents, outputs: str = "y") -> onnx.ModelProto:
    results = [info(name) for name in outputs.split()]
    graph = helper.make_graph(list(nodes), "g", [info("x", FLOAT, shape)], results, weights.tensors)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    proto.ir_version = 8
    return proto


def conv(x: str, y: str, name: str, kernel: int = 3, **attributes: Any) -> NodeProto:
    pads = [kernel // 2] * 4
    return node("Conv", f"{x} {name} {name}_b", y, kernel_shape=[kernel] * 2, pads=pads, **attributes)


def between_convs(nodes: Sequence[NodeProto], channels: int = 16, **arrays: Any) -> onnx.ModelProto:
    """Two convolutions with nodes from ``r`` [N, 16, H/2, W/2] to ``m`` between them."""
    weights = Weights()
    for name, shape in (("w0", (16, 3, 3, 3)), ("w1", (8, channels, 1, 1))):
        weights.normal(name, *shape)
        weights.normal(f"{name}_b", shape[0])
    for name, array in arrays.items():
        weights.array(name, np.asarray(array))
    first = [conv("x", "c", "w0", strides=[2, 2]), node("Relu", "c", "r")]
    return model([*first, *nodes, conv("m", "y", "w1", 1)], weights, IMAGES)


def resize(*, scales: Sequence[float] = (1, 1, 2, 2), **attributes: Any) -> onnx.ModelProto:
    return between_convs(
        [helper.make_node("Resize", ["r", "", "s"], ["m"], **attributes)], s=np.array(scales, np.float32)
    )


def resize_like(stride: int, **attributes: Any) -> onnx.ModelProto:
    """A feature map is pooled, then resized to the size it had before, and added to it."""
    nodes = [
        node("MaxPool", "r", "p", kernel_shape=[3, 3], strides=[stride] * 2, pads=[1] * 4),
        node("Shape", "r", "sh"), node("Slice", "sh i2 i4", "hw"), node("Shape", "p", "sp"),
        node("Slice", "sp i0 i2", "nc"), node("Concat", "nc hw", "sizes", axis=0),
        helper.make_node("Resize", ["p", "", "", "sizes"], ["u"], **attributes), node("Add", "u r", "m"),
    ]  # fmt: skip
    return between_convs(nodes, i0=[0], i2=[2], i4=[4])


NEAREST = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
LINEAR = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
ENDS = {"ends": [2**62] * 2, "axes": [2, 3], "steps": [2, 2]}
GROUP = np.ones(4, np.float32)

MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "upsample": lambda: resize(**NEAREST),
    "nearest 2 x 3": lambda: resize(scales=(1, 1, 2, 3), **NEAREST),
    "bilinear": lambda: resize(**LINEAR),
    "bilinear to half": lambda: resize(scales=(1, 1, 0.5, 0.5), **LINEAR),
    "corners": lambda: resize(mode="linear", coordinate_transformation_mode="align_corners"),
    "nearest like": lambda: resize_like(2, **NEAREST),
    "nearest like, a ratio of about 3": lambda: resize_like(3, **NEAREST),
    "bilinear like": lambda: resize_like(2, **LINEAR),
    "global average": lambda: between_convs([node("GlobalAveragePool", "r", "g"), node("Mul", "r g", "m")]),
    "mean": lambda: between_convs([node("ReduceMean", "r", "m", axes=[2, 3])]),
    "average": lambda: between_convs([node("AveragePool", "r", "m", kernel_shape=[3, 3], strides=[2, 2])]),
    "pixel shuffle": lambda: between_convs([node("DepthToSpace", "r", "m", blocksize=2, mode="CRD")], 4),
    "slices": lambda: between_convs(
        [node("Slice", "r zeros ends axes steps", "a"), node("Slice", "r ones ends axes steps", "b"),
         node("Concat", "a b", "m", axis=1)], 32, zeros=[0, 0], ones=[1, 1], **ENDS),
    "crop": lambda: between_convs([node("Slice", "r one minus two", "m")], one=[1], minus=[-1], two=[2]),
    "group norm": lambda: between_convs(
        [node("Shape", "r", "sh"), node("Reshape", "r groups", "q"),
         node("InstanceNormalization", "q scale bias", "i"), node("Reshape", "i sh", "m")],
        groups=[0, 4, -1], scale=GROUP, bias=0 * GROUP),
    "channel shuffle": lambda: between_convs(
        [node("Shape", "r", "sh"), node("Slice", "sh zero one", "n"), node("Slice", "sh two four", "hw"),
         node("Concat", "n two eight hw", "s5", axis=0), node("Reshape", "r s5", "q"),
         node("Transpose", "q", "t", perm=[0, 2, 1, 3, 4]), node("Reshape", "t sh", "m")],
        zero=[0], one=[1], two=[2], four=[4], eight=[8]),
}  # fmt: skip


def network() -> onnx.ModelProto:
    """A small network with a pyramid, squeeze and excitation, and a classifier."""
    weights = Weights()
    layers = (("w0", (16, 3, 3, 3)), ("w1", (32, 16, 3, 3)), ("w2", (16, 64, 1, 1)), ("w3", (16, 16, 1, 1)))
    for name, shape in (*layers, ("wf", (16, 10))):
        weights.normal(name, *shape)
        weights.normal(f"{name}_b", shape[-1] if name == "wf" else shape[0])
    weights.array("s", np.array([1, 1, 2, 2], np.float32))
    nodes = [
        conv("x", "c0", "w0"), node("Relu", "c0", "r0"), conv("r0", "c1", "w1", strides=[2, 2]),
        node("Sigmoid", "c1", "s1"), node("Mul", "c1 s1", "m1"),
        node("MaxPool", "m1", "p1", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Resize", ["p1", "", "s"], ["u1"], **NEAREST), node("Concat", "u1 m1", "k", axis=1),
        conv("k", "c2", "w2", 1), node("GlobalAveragePool", "c2", "ga"), conv("ga", "se", "w3", 1),
        node("HardSigmoid", "se", "hs"), node("Mul", "c2 hs", "y"), node("Flatten", "ga", "f"),
        node("Gemm", "f wf wf_b", "z"),
    ]  # fmt: skip
    return model(nodes, weights, IMAGES, "y z")


def encoder(width: int = 32, heads: int = 4) -> onnx.ModelProto:
    """Two layers of a transformer encoder, with a symbolic batch and sequence length."""
    weights = Weights()
    weights.array("split", np.array([0, 0, heads, width // heads]))
    weights.array("join", np.array([0, 0, width]))
    weights.array("root", np.float32(np.sqrt(width / heads)))
    nodes, x = [], "x"
    for p in ("first_", "second_"):
        for name in "qkv":
            weights.normal(f"{p}w{name}", width, width)
            order = [0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]
            nodes += [node("MatMul", f"{x} {p}w{name}", f"{p}{name}0"),
                      node("Reshape", f"{p}{name}0 split", f"{p}{name}1"),
                      node("Transpose", f"{p}{name}1", f"{p}{name}", perm=order)]  # fmt: skip
        for name, shape in (("wo", (width, width)), ("w1", (width, 4 * width)), ("w2", (4 * width, width))):
            weights.normal(p + name, *shape)
        weights.array(f"{p}scale", np.ones(width, np.float32))
        nodes += [
            node("MatMul", f"{p}q {p}k", f"{p}s"), node("Div", f"{p}s root", f"{p}d"),
            node("Softmax", f"{p}d", f"{p}a", axis=-1), node("MatMul", f"{p}a {p}v", f"{p}o"),
            node("Transpose", f"{p}o", f"{p}t", perm=[0, 2, 1, 3]), node("Reshape", f"{p}t join", f"{p}j"),
            node("MatMul", f"{p}j {p}wo", f"{p}m"), node("Add", f"{x} {p}m", f"{p}r"),
            node("LayerNormalization", f"{p}r {p}scale", f"{p}n", axis=-1),
            node("MatMul", f"{p}n {p}w1", f"{p}h0"), node("Relu", f"{p}h0", f"{p}h"),
            node("MatMul", f"{p}h {p}w2", f"{p}f"), node("Add", f"{p}n {p}f", f"{p}y"),
        ]  # fmt: skip
        x = f"{p}y"
    return model([*nodes, node("Identity", x, "y")], weights, ["N", "S", width])


def patches(width: int = 16) -> onnx.ModelProto:
    """Convolution to patches, attention between them, and a classifier of their mean."""
    weights = Weights()
    weights.normal("w0", width, 3, 4, 4)
    for name in ("wq", "wk", "wf"):
        weights.normal(name, width, width)
    weights.normal("wg", width, 5)
    for name, number in (("zero", 0), ("two", 2), ("rest", -1)):
        weights.array(name, np.array([number]))
    weights.array("scale", np.ones(width, np.float32))
    nodes = [
        node("Conv", "x w0", "c", kernel_shape=[4, 4], strides=[4, 4]), node("Shape", "c", "sh"),
        node("Slice", "sh zero two", "nc"), node("Concat", "nc rest", "rows", axis=0),
        node("Reshape", "c rows", "t0"), node("Transpose", "t0", "t", perm=[0, 2, 1]), node("MatMul", "t wq", "q"),
        node("MatMul", "t wk", "k"), node("Transpose", "k", "kt", perm=[0, 2, 1]), node("MatMul", "q kt", "s"),
        node("Softmax", "s", "a", axis=-1), node("MatMul", "a t", "o"), node("Add", "o t", "r"),
        node("LayerNormalization", "r scale", "n", axis=-1), node("MatMul", "n wf", "f0"), node("Relu", "f0", "f"),
        node("ReduceMean", "f", "pm", axes=[1], keepdims=0), node("Gemm", "pm wg", "y"),
    ]  # fmt: skip
    return model(nodes, weights, IMAGES)


NETWORKS = {
    "network": (network, SIZES),
    "encoder": (encoder, [(1, 7, 32), (2, 20, 32), (3, 12, 32)]),
    "patches": (patches, SIZES[:3]),
}


def samples(sizes: Sequence[tuple[int, ...]], count: int = 2) -> list[dict[str, Array]]:
    random = np.random.default_rng(5)
    return [{"x": random.standard_normal(size).astype(np.float32)} for size in sizes for _ in range(count)]
