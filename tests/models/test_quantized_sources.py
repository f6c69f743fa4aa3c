"""Models that are quantized at the source run on their own integers, end to end."""

import numpy as np
import pytest
from datasets import entries, labelled_set, model_files, reference_samples

import tpuconvert as tc

MODELS = {
    "anomaly_autoencoder_int8_tflite": 1.0,
    "cifar10_resnet8_int8_tflite": 1.0,
    "imagenet_mobilenet_v1_0.25_128_uint8_tflite": 1.0,
    "imagenet_mobilenet_v1_0.5_160_uint8_tflite": 1.0,
    "imagenet_mobilenet_v2_keras_int8_tflite": 0.99,
    "kws_dscnn_int8_tflite": 1.0,
    "micro_speech_int8_tflite": 1.0,
    "mnist_conv_int8_tflite": 1.0,
    "sine_int8_tflite": 1.0,
    "vww_mobilenet_int8_tflite": 1.0,
}
"""Share of output integers that equal TFLite's reference kernels exactly, at least. All lie within one step."""


@pytest.mark.parametrize("name", MODELS)
def test_integers_of_the_source_engine(name, data_root):
    entry = entries(data_root)[name]
    model = tc.convert(model_files(data_root, entry)[0])
    floats = [node.op.name for node in model.graph.nodes if any(v.dtype.is_float for v in node.outputs)]
    assert floats == [], "integer arithmetic from end to end"
    equal = total = 0
    with tc.Session(model) as session:
        for feeds, expected in reference_samples(data_root, entry):
            found = session.run(feeds)
            for output, want in expected.items():
                assert found[output].dtype == want.dtype
                step = np.abs(found[output].astype(np.int64) - want)
                assert step.max() <= 1
                equal, total = equal + int((step == 0).sum()), total + step.size
    assert equal >= MODELS[name] * total


QLINEAR = "imagenet_mobilenet_v2_qlinear_onnx"


@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_outputs_of_onnx_runtime(backend, data_root):
    """Every output of the QLinear MobileNetV2 is the published one: no rounding of 53 products and 11 sums differs."""
    entry = entries(data_root)[QLINEAR]
    model = tc.convert(model_files(data_root, entry)[0])
    integers = {node.op.name for node in model.graph.nodes if not any(v.dtype.is_float for v in node.outputs)}
    assert {"conv_v2", "matrix_mul_v2", "add", "requant_int32"} <= integers
    with tc.Session(model, backend=backend) as session:
        for feeds, expected in reference_samples(data_root, entry):
            found = session.run(feeds)
            np.testing.assert_array_equal(found["output"], expected["output"])


@pytest.mark.slow
def test_as_many_right_as_onnx_runtime(data_root):
    """The count that the data set states for ONNX Runtime, over all evaluation images."""
    entry = entries(data_root)[QLINEAR]
    images = labelled_set(data_root, entry)
    with tc.Session(tc.convert(model_files(data_root, entry)[0])) as session:
        found = [int(session.run({"input": x})["output"].argmax()) for x in images.samples]
    right = sum(one == label for one, label in zip(found, images.labels, strict=True))
    assert (right, len(found)) == (entry["reference_accuracy"]["correct"], entry["reference_accuracy"]["count"])
