"""Three small valid files of every format, for tests that cut them at every byte."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tpuconvert as tc
from tests.support.caffe.networks import weights_message
from tests.support.tflite.models import O, S, T, serialize

DIGITS = Path(tc.__file__).parents[1] / "examples" / "digits"
CHANCE = 7


def _floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(CHANCE).standard_normal(shape).astype(np.float32)


def _network(
    nodes: Sequence[onnx.NodeProto], shape: Sequence[int], result: Sequence[int], **constants: np.ndarray
) -> bytes:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, result)
    values = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], values)
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=8).SerializeToString()


def onnx_files() -> list[bytes]:
    """An activation, a matrix product and a convolution with a reshape."""
    conv = [
        helper.make_node("Conv", ["x", "w", "b"], ["h"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Reshape", ["r", "s"], ["y"]),
    ]
    constants = {"w": _floats(2, 1, 3, 3), "b": _floats(2), "s": np.array([1, -1])}
    return [
        _network([helper.make_node("Relu", ["x"], ["y"])], [1, 4], [1, 4]),
        _network([helper.make_node("MatMul", ["x", "w"], ["y"])], [1, 4], [1, 3], w=_floats(4, 3)),
        _network(conv, [1, 1, 4, 4], [1, 32], **constants),
    ]


def tflite_files() -> list[bytes]:
    """An activation, a sum with a constant and a fully connected layer."""
    x, y = T("x", (1, 4), "FLOAT32"), T("y", (1, 4), "FLOAT32")
    w, b = T("w", data=_floats(4, 4)), T("b", data=_floats(4))
    return [
        serialize(S([x, y], [O("RELU", [0], [1])], [0], [1])),
        serialize(S([x, b, y], [O("ADD", [0, 1], [2], "AddOptions")], [0], [2])),
        serialize(S([x, w, b, y], [O("FULLY_CONNECTED", [0, 1, 2], [3], "FullyConnectedOptions")], [0], [3])),
    ]


PROTOTXT = """name: "net"
input: "x" input_shape { dim: 1 dim: 2 dim: 4 dim: 4 }
layer { name: "c" type: "Convolution" bottom: "x" top: "c" convolution_param { num_output: 3 kernel_size: 3 pad: 1 } }
layer { name: "r" type: "ReLU" bottom: "c" top: "r" }
"""


def caffemodels() -> list[bytes]:
    """Weights of :data:`PROTOTXT`, alone and with the weights of other layers."""
    weights = [_floats(3, 2, 3, 3), _floats(3)]
    layers = [{"c": weights}, {"c": weights, "other": [_floats(5)]}, {"first": [_floats(2, 2)], "c": weights}]
    return [weights_message(blobs).SerializeToString() for blobs in layers]


def prototxts() -> list[bytes]:
    """The bundled network, and two without weights."""
    start = PROTOTXT.splitlines(keepends=True)[:2]
    relu = 'layer { name: "r" type: "ReLU" bottom: "x" top: "r" }\n'
    pool = 'layer { name: "p" type: "Pooling" bottom: "x" top: "p" pooling_param { kernel_size: 2 stride: 2 } }\n'
    return [(DIGITS / "digits.prototxt").read_bytes(), *("".join([*start, last]).encode() for last in (relu, pool))]


def programs() -> list[bytes]:
    """The small ONNX files, converted."""
    with tempfile.TemporaryDirectory() as folder:
        return [_program(content, Path(folder)) for content in onnx_files()]


def _program(content: bytes, folder: Path) -> bytes:
    (folder / "net.onnx").write_bytes(content)
    tc.convert(folder / "net.onnx").save(folder / "net.tpum")
    return (folder / "net.tpum").read_bytes()


def ranges() -> list[bytes]:
    """Ranges of the small ONNX files."""
    with tempfile.TemporaryDirectory() as name:
        folder, found = Path(name), []
        for content, shape in zip(onnx_files(), ((2, 1, 4), (2, 1, 4), (2, 1, 1, 4, 4)), strict=True):
            (folder / "net.onnx").write_bytes(content)
            samples = list(_floats(*shape))
            tc.calibrate(folder / "net.onnx", calibration=samples).save(folder / "r.json")
            found.append((folder / "r.json").read_bytes())
        return found


def manifests() -> list[bytes]:
    """Manifests of one and two models."""
    source = f"{DIGITS}/digits.onnx"
    return [
        f"models: {{m: {{source: {source}}}}}\n".encode(),
        f"defaults: {{chip: bm1686}}\nmodels:\n  m:\n    source: {source}\n    limits: {{size: 1 MB}}\n".encode(),
        f"models:\n  a: {{source: {source}, samples: 3}}\n  b: {{source: {source}, quantize: int8}}\n".encode(),
    ]


def preprocessings() -> list[bytes]:
    """Files of the option --preprocess."""
    texts = ("size: [24, 24]\n", "mean: [1, 2, 3]\nscale: 0.5\ncolor: bgr\n", "{fit: crop, layout: NHWC, pad: 7}\n")
    return [text.encode() for text in texts]


def arrays() -> list[bytes]:
    """Plain and compressed arrays."""
    found = []
    for save, content in ((np.savez, _floats(3)), (np.savez_compressed, _floats(20)), (np.savez, np.zeros((2, 0)))):
        made = io.BytesIO()
        save(made, x=content)
        found.append(made.getvalue())
    return found


def images() -> list[bytes]:
    """PNG, JPEG and BMP."""
    from PIL import Image

    pixels = np.random.default_rng(CHANCE).integers(0, 256, (6, 6, 3), np.uint8)
    found = []
    for kind in ("PNG", "JPEG", "BMP"):
        made = io.BytesIO()
        Image.fromarray(pixels).save(made, kind)
        found.append(made.getvalue())
    return found
