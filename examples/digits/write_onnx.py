"""Writes ``digits.onnx`` from ``weights.npz``: ``python write_onnx.py``.

NCHW; batch norm and relu are separate nodes.
"""

import onnx
from digits_network import (
    CLASSES,
    CONV1,
    CONV2,
    CONV_LAYERS,
    DEPTHWISE,
    EPSILON,
    IMAGE_SIZE,
    POINTWISE,
    WEIGHTS_FILE,
    ConvLayer,
    Weights,
    load_weights,
)
from onnx import TensorProto, helper, numpy_helper

OPSET = 13
IR_VERSION = 7  # the version of opset 13; by default onnx.helper writes its newest version


def conv_nodes(layer: ConvLayer, x: str) -> list[onnx.NodeProto]:
    """Creates Conv and BatchNormalization; their results are named after the layer."""
    conv = helper.make_node(
        "Conv",
        [x, f"{layer.name}/weight"],
        [layer.name],
        name=layer.name,
        kernel_shape=[layer.kernel, layer.kernel],
        pads=[layer.pad] * 4,
        strides=[1, 1],
        dilations=[1, 1],
        group=layer.groups,
    )
    parts = ("scale", "shift", "mean", "variance")
    y = f"{layer.name}/bn"
    norm = helper.make_node(
        "BatchNormalization", [layer.name, *(f"{layer.name}/{part}" for part in parts)], [y], name=y, epsilon=EPSILON
    )
    return [conv, norm]


def relu_node(x: str, y: str) -> onnx.NodeProto:
    """Creates a Relu with the name of its result."""
    return helper.make_node("Relu", [x], [y], name=y)


def build(weights: Weights) -> bytes:
    """Builds the model file. Equal weights give equal bytes."""
    nodes = [
        *conv_nodes(CONV1, "image"),
        relu_node("conv1/bn", "conv1/relu"),
        *conv_nodes(DEPTHWISE, "conv1/relu"),
        relu_node("depthwise/bn", "depthwise/relu"),
        *conv_nodes(POINTWISE, "depthwise/relu"),
        helper.make_node("Add", ["pointwise/bn", "conv1/relu"], ["add"], name="add"),
        relu_node("add", "add/relu"),
        *conv_nodes(CONV2, "add/relu"),
        relu_node("conv2/bn", "conv2/relu"),
        helper.make_node("MaxPool", ["conv2/relu"], ["pool"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["pool"], ["flatten"], name="flatten", axis=1),
        helper.make_node("Gemm", ["flatten", "fc/weight", "fc/bias"], ["fc"], name="fc", transB=1),
        helper.make_node("Softmax", ["fc"], ["probability"], name="probability", axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, CONV_LAYERS[0].in_channels, *[IMAGE_SIZE] * 2])],
        [helper.make_tensor_value_info("probability", TensorProto.FLOAT, [1, CLASSES])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(
        graph,
        producer_name="tpuconvert example digits",
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    return model.SerializeToString(deterministic=True)


if __name__ == "__main__":
    WEIGHTS_FILE.with_name("digits.onnx").write_bytes(build(load_weights()))
