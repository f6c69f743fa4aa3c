"""The three files of the example: generated from the committed weights, and read equally by other engines."""

import itertools

import numpy as np
import onnx
import onnx.reference
import pytest
import tflite
import write_caffe
import write_onnx
import write_tflite
from digits_data import FOLDER, load_part
from digits_network import CONV_LAYERS, load_weights, predict

BUILDERS = {
    "digits.onnx": lambda: write_onnx.build(load_weights()),
    "digits.tflite": lambda: write_tflite.build(load_weights()),
    "digits.prototxt": lambda: write_caffe.build_prototxt().encode(),
    "digits.caffemodel": lambda: write_caffe.build_caffemodel(load_weights()),
}
ENGINES = ("onnxruntime", "litert", "opencv")
TOLERANCE = 1e-5  # of a probability: the engines compute in float32 and sum in different orders


@pytest.fixture(scope="module")
def expected_probabilities():
    with np.load(FOLDER / "expected.npz") as archive:
        return dict(archive)


@pytest.mark.parametrize("name", BUILDERS)
def test_file_is_what_the_writer_makes_of_the_weights(name):
    assert (FOLDER / name).read_bytes() == BUILDERS[name](), f"run the writer of {name} again"


@pytest.mark.parametrize("name", [*BUILDERS, "digits.npz", "weights.npz", "expected.npz"])
def test_file_is_small(name):
    assert (FOLDER / name).stat().st_size < 300_000


@pytest.mark.parametrize("engine", ENGINES)
def test_engine_agrees_with_the_numpy_network(engine, expected_probabilities):
    images = load_part("test").images[expected_probabilities["chosen"]]
    assert expected_probabilities[engine].shape == (16, 10)
    np.testing.assert_allclose(expected_probabilities[engine], predict(load_weights(), images), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(ENGINES, 2)))
def test_engines_agree(one, other, expected_probabilities):
    np.testing.assert_allclose(expected_probabilities[one], expected_probabilities[other], rtol=0, atol=TOLERANCE)


def test_onnx_reference_agrees(expected_probabilities):
    model = onnx.load(FOLDER / "digits.onnx")
    # onnx's evaluator normalizes with the batch's own statistics from opset 9 to 13, even where one output says
    # inference (onnx/onnx#8442). At opset 15 the nodes of this file mean the same and it takes the stored statistics.
    model.opset_import[0].version = 15
    evaluator = onnx.reference.ReferenceEvaluator(model)
    for image, y in zip(
        load_part("test").images[expected_probabilities["chosen"]], expected_probabilities["onnxruntime"], strict=True
    ):
        np.testing.assert_allclose(evaluator.run(None, {"image": image[None]})[0], [y], rtol=0, atol=TOLERANCE)


def test_onnx_is_valid_and_keeps_batch_norm():
    model = onnx.load(FOLDER / "digits.onnx")
    onnx.checker.check_model(model, full_check=True)
    conv, norm, relu = "Conv", "BatchNormalization", "Relu"
    assert [node.op_type for node in model.graph.node] == [
        *(conv, norm, relu),
        *(conv, norm, relu),
        *(conv, norm, "Add", relu),
        *(conv, norm, relu),
        *("MaxPool", "Flatten", "Gemm", "Softmax"),
    ]


def test_tflite_has_batch_norm_folded_and_aligned_buffers():
    content = (FOLDER / "digits.tflite").read_bytes()
    model = tflite.Model.GetRootAs(content, 0)
    graph = model.Subgraphs(0)
    codes = [model.OperatorCodes(graph.Operators(i).OpcodeIndex()) for i in range(graph.OperatorsLength())]
    code = tflite.BuiltinOperator
    assert [c.BuiltinCode() for c in codes] == [
        *(code.CONV_2D, code.DEPTHWISE_CONV_2D, code.CONV_2D, code.ADD, code.CONV_2D),
        *(code.MAX_POOL_2D, code.RESHAPE, code.FULLY_CONNECTED, code.SOFTMAX),
    ]
    whole = np.frombuffer(content, np.uint8).__array_interface__["data"][0]
    for i in range(1, model.BuffersLength()):
        start = model.Buffers(i).DataAsNumpy().__array_interface__["data"][0] - whole
        assert start % 16 == 0, f"buffer {i} begins at byte {start}"


def test_caffe_keeps_batch_norm_and_scale():
    text = (FOLDER / "digits.prototxt").read_text(encoding="utf-8")
    assert text.count('type: "BatchNorm"') == text.count('type: "Scale"') == len(CONV_LAYERS)
