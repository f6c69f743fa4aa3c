"""Float models against their INT8 forms, and two quantizations, on the test models."""

from pathlib import Path
from typing import Any

import pytest

import tpuconvert as tc
from tests.support.networks.data_models import convert_model, names
from tools.accuracy.datasets import entries, input_shapes, model_files
from tpuconvert.conversion.options.options import group_options

FLOAT = names(is_float=True)
"""Every float model of the data set; three of them are run without ``slow``."""

QUICK = ("cifar10_resnet8_onnx", "lenet_mnist_caffe", "kws_dscnn_tflite")
MODELS = [pytest.param(name, marks=[] if name == QUICK[0] else pytest.mark.slow) for name in FLOAT]


@pytest.mark.parametrize("name", MODELS)
def test_float_and_int8(name: str, data_root: Path) -> None:
    """Nodes are matched with their integer forms: none is reported as added, removed or changed."""
    before, _ = convert_model(data_root, name, "bm1686", "float")
    after, _ = convert_model(data_root, name, "bm1686", "int8")
    found = tc.diff(before, after, samples=0)
    assert set(found.counts()) <= {"precision", "settings", "groups", "notes"}, found.text()
    assert tc.diff(after, after, samples=0).is_equal


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_two_quantizations(name: str, data_root: Path) -> None:
    """Other thresholds change scales and the integers that depend on them, and nothing else."""
    _, feeds = convert_model(data_root, name, "bm1686", "float")
    source, weights, shapes = _source(data_root, name)
    options = {"weights": weights, "input_shapes": shapes, "quantize": "int8"}
    models = [
        tc.convert(source, calibration=feeds, **group_options(calibration_method=method, **options))
        for method in ("minmax", "kl")
    ]
    found = tc.diff(*models, samples=0)
    assert found.matched == len(models[0].graph) == len(models[1].graph)
    assert set(found.counts()) == {"scales", "constants", "settings"}, found.text()


def _source(root: Path, name: str) -> tuple[Any, Any, Any]:
    entry = entries(root)[name]
    return (*model_files(root, entry), input_shapes(entry))
