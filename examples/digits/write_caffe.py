"""Writes ``digits.prototxt`` and ``digits.caffemodel`` from ``weights.npz``: ``python write_caffe.py``.

NCHW. Batch norm is Caffe's pair of layers BatchNorm (mean, variance) and Scale (scale, shift); these and ReLU work in
place, as published Caffe networks do. Of the writers, only this one imports tpuconvert, which contains the description
of Caffe's messages.
"""

from collections.abc import Iterable

import numpy as np
from digits_network import (
    CLASSES,
    CONV1,
    CONV2,
    DEPTHWISE,
    EPSILON,
    IMAGE_SIZE,
    POINTWISE,
    WEIGHTS_FILE,
    Array,
    ConvLayer,
    Weights,
    load_weights,
)
from google.protobuf import text_format

from tpuconvert.frontends.caffe.file.messages import new_message


def layer_text(name: str, kind: str, bottoms: Iterable[str], top: str, parameters: str = "") -> str:
    """Formats one layer of the prototxt; ``parameters`` is the last line of its body."""
    lines = [f'name: "{name}"', f'type: "{kind}"', *(f'bottom: "{bottom}"' for bottom in bottoms), f'top: "{top}"']
    if parameters:
        lines.append(parameters)
    return "layer {\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


def conv_text(layer: ConvLayer, x: str) -> str:
    """Formats Convolution, BatchNorm and Scale; the last two work in place."""
    numbers = f"num_output: {layer.out_channels} kernel_size: {layer.kernel} stride: 1 pad: {layer.pad}"
    if layer.groups > 1:
        numbers += f" group: {layer.groups}"
    name = layer.name
    return (
        layer_text(name, "Convolution", [x], name, f"convolution_param {{ {numbers} bias_term: false }}")
        + layer_text(
            f"{name}/bn", "BatchNorm", [name], name, f"batch_norm_param {{ use_global_stats: true eps: {EPSILON} }}"
        )
        + layer_text(f"{name}/scale", "Scale", [name], name, "scale_param { bias_term: true }")
    )


def relu_text(name: str) -> str:
    """Formats a ReLU that works in place."""
    return layer_text(f"{name}/relu", "ReLU", [name], name)


def build_prototxt() -> str:
    """Builds the prototxt: the layers without their weights."""
    dims = " ".join(f"dim: {d}" for d in (1, CONV1.in_channels, IMAGE_SIZE, IMAGE_SIZE))
    return "".join(
        [
            'name: "digits"\n',
            layer_text("image", "Input", [], "image", f"input_param {{ shape {{ {dims} }} }}"),
            conv_text(CONV1, "image"),
            relu_text("conv1"),
            conv_text(DEPTHWISE, "conv1"),
            relu_text("depthwise"),
            conv_text(POINTWISE, "depthwise"),
            layer_text("add", "Eltwise", ["pointwise", "conv1"], "add", "eltwise_param { operation: SUM }"),
            relu_text("add"),
            conv_text(CONV2, "add"),
            relu_text("conv2"),
            layer_text("pool", "Pooling", ["conv2"], "pool", "pooling_param { pool: MAX kernel_size: 2 stride: 2 }"),
            layer_text("fc", "InnerProduct", ["pool"], "fc", f"inner_product_param {{ num_output: {CLASSES} }}"),
            layer_text("probability", "Softmax", ["fc"], "probability"),
        ]
    )


def layer_blobs(weights: Weights) -> dict[str, list[Array]]:
    """Returns layer name -> weights, for the layers that have weights.

    The third blob of BatchNorm is a divisor of the other two, because Caffe stores sums. It is 1 here.
    """
    blobs: dict[str, list[Array]] = {}
    for layer in (CONV1, DEPTHWISE, POINTWISE, CONV2):
        name = layer.name
        blobs[name] = [weights[f"{name}/weight"]]
        blobs[f"{name}/bn"] = [weights[f"{name}/mean"], weights[f"{name}/variance"], np.ones(1, np.float32)]
        blobs[f"{name}/scale"] = [weights[f"{name}/scale"], weights[f"{name}/shift"]]
    blobs["fc"] = [weights["fc/weight"], weights["fc/bias"]]
    return blobs


def build_caffemodel(weights: Weights) -> bytes:
    """Builds the caffemodel: the layers with their weights. Equal weights give equal bytes."""
    network = new_message("NetParameter")
    text_format.Parse(build_prototxt(), network)
    blobs = layer_blobs(weights)
    for layer in network.layer:
        for content in blobs.get(layer.name, []):
            blob = layer.blobs.add()
            blob.shape.dim.extend(content.shape)
            blob.data.extend(content.ravel().tolist())
    data: bytes = network.SerializeToString(deterministic=True)
    return data


if __name__ == "__main__":
    WEIGHTS_FILE.with_name("digits.prototxt").write_text(build_prototxt(), encoding="utf-8", newline="\n")
    WEIGHTS_FILE.with_name("digits.caffemodel").write_bytes(build_caffemodel(load_weights()))
