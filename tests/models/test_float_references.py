"""Trained models in float against the outputs of the framework that they come from.

Tolerance: 1e-4 of the output's range (binary32 sums in another order), 1e-5 absolute for probabilities.
"""

import numpy as np
import pytest

import tpuconvert as tc
from tools.accuracy.datasets import entries, input_shapes, model_files, reference_samples

MODELS = (
    "anomaly_autoencoder_tflite",
    "cifar10_quick_caffe",
    "cifar10_resnet8_caffe",
    "cifar10_resnet8_onnx",
    "cifar10_resnet8_tflite",
    "imagenet_mobilenet_v1_0.25_onnx",
    "imagenet_squeezenet_v1.1_caffe",
    "imagenet_squeezenet_v1.1_onnx",
    "lenet_mnist_caffe",
    "mnist_keras_onnx",
    "mtcnn_onet_caffe",
    "mtcnn_pnet_caffe",
    "mtcnn_rnet_caffe",
    "retinaface_mnet_caffe",
    "ultraface_rfb_320_caffe",
    "ultraface_rfb_320_onnx",
    "ultraface_rfb_320_tflite",
    "vww_mobilenet_tflite",
)

SAME_NETWORK = (
    ("cifar10_resnet8_onnx", "cifar10_resnet8_tflite", "cifar10_resnet8_caffe"),
    ("ultraface_rfb_320_onnx", "ultraface_rfb_320_tflite", "ultraface_rfb_320_caffe"),
    ("imagenet_squeezenet_v1.1_onnx", "imagenet_squeezenet_v1.1_caffe"),
)


def outputs_of(root, name, feeds):
    entry = entries(root)[name]
    source, weights = model_files(root, entry)
    model = tc.convert(source, weights=weights, source_options=tc.SourceOptions(input_shapes=input_shapes(entry)))
    with tc.Session(model) as session:
        return [session.run(sample) for sample in feeds]


@pytest.mark.parametrize("name", MODELS)
def test_matches_the_source_engine(name, data_root):
    samples = reference_samples(data_root, entries(data_root)[name])
    results = outputs_of(data_root, name, [feeds for feeds, _ in samples])
    for result, (_, expected) in zip(results, samples, strict=True):
        assert list(result) == list(expected)
        for output, want in expected.items():
            assert result[output].shape == want.shape
            assert result[output].dtype == want.dtype
            probabilities = want.min() >= 0 and np.allclose(want.sum(), 1, atol=1e-4)
            tolerance = 1e-5 if probabilities else 1e-4 * float(want.max() - want.min())
            assert np.abs(result[output].astype(np.float64) - want).max() <= tolerance


@pytest.mark.parametrize("names", SAME_NETWORK, ids=lambda names: names[0].rsplit("_", 1)[0])
def test_formats_agree(names, data_root):
    """One network from its formats on one input; outputs are matched by their number of elements.

    The ONNX file of ultraface also decodes the boxes, the others leave that to the caller: there only the other two
    agree about boxes.
    """
    known = entries(data_root)
    channels_first = reference_samples(data_root, known[names[0]])[0][0]
    (image,) = channels_first.values()
    found = []
    for name in names:
        (declared,) = known[name]["inputs"]
        x = image if declared["shape"][1] == image.shape[1] else image.transpose(0, 2, 3, 1)
        (outputs,) = outputs_of(data_root, name, [{declared["name"]: np.ascontiguousarray(x)}])
        found.append(sorted((value.reshape(-1) for value in outputs.values()), key=np.size))
    pairs = [(found[0], other) for other in found[1:]]
    if names[0] == "ultraface_rfb_320_onnx":
        pairs = [(found[0][:1], other[:1]) for other in found[1:]] + [(found[1], found[2])]
    for one, other in pairs:
        for first, second in zip(one, other, strict=True):
            assert np.abs(first.astype(np.float64) - second).max() <= 1e-4 * float(first.max() - first.min())
