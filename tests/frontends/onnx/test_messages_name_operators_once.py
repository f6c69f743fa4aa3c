"""Messages about nodes that cannot be converted, and notes about nodes that stay float: no operator twice in a row."""

import re

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.onnx.models import model, one, ramp, save_model
from tests.support.quantize.onnx_builder import OnnxNet
from tpuconvert.schema.errors import TpuConvertError, without_operator

X = ramp(1, 3, 4, 4)

WRONG = {
    "Conv, channels": (one("Conv", "x", "w"), {"w": ramp(4, 5, 3, 3)}),
    "Conv, groups": (one("Conv", "x", "w", group=2), {"w": ramp(5, 3, 3, 3)}),
    "Conv, volume": (one("Conv", "x", "w"), {"w": ramp(4, 3, 1, 1, 1)}),
    "ConvTranspose": (one("ConvTranspose", "x", "w"), {"w": ramp(4, 5, 3, 3)}),
    "MatMul": (one("MatMul", "x", "w"), {"w": ramp(5, 4)}),
    "Gemm": (one("Gemm", "x", "w"), {"w": ramp(5, 4)}),
    "Add": (one("Add", "x", "w"), {"w": ramp(1, 2, 4, 4)}),
    "Concat": (one("Concat", "x", "w", axis=1), {"w": ramp(1, 3, 5, 4)}),
    "Reshape": (one("Reshape", "x", "w"), {"w": np.array([7, 7], np.int64)}),
    "Transpose": (one("Transpose", "x", perm=[0, 1, 1, 2]), {}),
    "MaxPool": (one("MaxPool", "x", kernel_shape=[9, 9]), {}),
    "AveragePool": (one("AveragePool", "x", kernel_shape=[9, 9]), {}),
    "Softmax": (one("Softmax", "x", axis=7), {}),
    "ReduceMean": (one("ReduceMean", "x", axes=[9]), {}),
    "DepthToSpace": (one("DepthToSpace", "x", blocksize=2), {}),
    "InstanceNormalization": (one("InstanceNormalization", "x", "w", "w"), {"w": ramp(5)}),
    "LayerNormalization": (one("LayerNormalization", "x", "w"), {"w": ramp(5)}),
    "TopK": (one("TopK", "x", "w", outputs=("y", "z"), axis=3), {"w": np.array([9], np.int64)}),
    "Slice": (one("Slice", "x", "a", "a", "w"), {"a": np.array([0], np.int64), "w": np.array([9], np.int64)}),
    "Split": (one("Split", "x", "w", outputs=("y", "z"), axis=1), {"w": np.array([2, 2], np.int64)}),
    "Gather": (one("Gather", "x", "w", axis=3), {"w": np.array([9], np.int64)}),
    "Tile": (one("Tile", "x", "w"), {"w": np.array([2], np.int64)}),
    "PRelu": (one("PRelu", "x", "w"), {"w": ramp(5)}),
    "LSTM": (one("LSTM", "x", "w", "w", hidden_size=3), {"w": ramp(1, 5, 5)}),
    "BatchNormalization": (one("BatchNormalization", "x", "w", "w", "w", "w"), {"w": ramp(5)}),
    "GroupNormalization": (one("GroupNormalization", "x", "w", "w", num_groups=2), {"w": ramp(3)}),
    "Nonsense": (one("Nonsense", "x"), {}),
}


def find_repeated_names(text: str) -> list[str]:
    """Operators that are named twice in a row: ``Conv 'x'  conv: ...``, ``add: add has ...``."""
    words = re.sub(r"'[^']*'", " ", text).replace("_", "").lower()
    return re.findall(r"\b(\w+)\b[\s:,]+\1\b(?=\s*[: ])", words)


@pytest.mark.parametrize("name", WRONG)
def test_an_error_names_an_operator_once(name, tmp_path):
    node, constants = WRONG[name]
    opset = 21 if name.startswith("Group") else 17
    with pytest.raises(TpuConvertError) as caught:
        tc.convert(save_model(model([node], {"x": X}, [node.output[0]], constants, opset=opset), tmp_path))
    assert not find_repeated_names(str(caught.value)), str(caught.value)


def test_notes_name_an_operator_once(tmp_path):
    net = OnnxNet(0)
    x = net.conv(net.input("x", 1, 4, 8, 8), 4)
    gathered = net.add("Gather", x, net.constant(np.array([3, 0, 1], np.int64)), axis=2)
    summed = net.add("CumSum", gathered, net.constant(np.int64(2)))
    output = net.conv(net.add("Softmax", net.add("Erf", summed), axis=3), 4)
    path = tmp_path / "net.onnx"
    path.write_bytes(net.model(output).SerializeToString())
    model = tc.convert(path, quantize="int8", calibration=net.samples(4))
    texts = [note.message for note in model.notes] + [model.summary()]
    assert any(note.kind == "float" for note in model.notes)
    assert not [found for text in texts for found in find_repeated_names(text)], texts


@pytest.mark.parametrize("message", ["conv: 3 channels", "Conv: 3 channels"])
def test_the_name_at_the_beginning_of_a_message_is_removed(message):
    assert without_operator(message, "Conv") == "3 channels"
    assert without_operator(message, "Deconv") == message
    assert without_operator("batch_matmul: a: b", "BatchMatMul") == "a: b"


def test_repetitions_are_found():
    assert find_repeated_names("Conv  'x'  conv: 3 channels") == ["conv"]
    assert find_repeated_names("index_select: index_select has no form")
    assert not find_repeated_names("conv: 3 channels of a conv")
