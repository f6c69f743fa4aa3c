"""The doctor on all models of the data set with their right preprocessing: no warning."""

import pytest

import tpuconvert as tc
from tests.support.networks.data_models import names
from tools.accuracy.datasets import entries, input_shapes, labeled_set, model_files, reference_samples
from tpuconvert.conversion.options.options import group_options
from tpuconvert.samples.image_files import IMAGE_SUFFIXES
from tpuconvert.samples.preprocess import Preprocess

QUICK = ("mnist_conv_tflite", "cifar10_resnet8_onnx", "sine_float_tflite", "mtcnn_rnet_caffe")
IMAGES = 24
"""Images per model, more than the comparison of variants needs."""


def findings(root, name):
    """Warnings about calibration images, or about the reference inputs."""
    entry = entries(root)[name]
    source, weights = model_files(root, entry)
    given = {"input_shapes": input_shapes(entry), "threads": 1}
    how = entry["preprocessing"]
    if "labels" not in entry and how["kind"] == "image":
        rule = Preprocess.from_mapping({key: value for key, value in how.items() if key not in ("kind", "images")})
        folder = root / "images" / how["images"]
        images = sorted(path for path in folder.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES)[:IMAGES]
        return tc.doctor(source, images, weights, preprocess=rule, **group_options(**given)).findings
    samples = [list(feeds.values()) for feeds, _ in reference_samples(root, entry)]
    if "labels" in entry:
        samples = [[x] for x in labeled_set(root, entry).calibration[:64]]
    inputs = [
        port.name
        for port in tc.convert(
            source, weights, source_options=tc.SourceOptions(input_shapes=input_shapes(entry))
        ).inputs
    ]
    feeds = [dict(zip(inputs, sample, strict=True)) for sample in samples]
    return tc.doctor(source, feeds, weights, **group_options(**given)).findings


@pytest.mark.parametrize("name", [name for name in QUICK if name in names()])
def test_right_preprocessing_of_a_trained_model_gives_no_warning(name, data_root):
    assert findings(data_root, name) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in names() if name not in QUICK])
def test_right_preprocessing_of_every_trained_model_gives_no_warning(name, data_root):
    assert findings(data_root, name) == []
