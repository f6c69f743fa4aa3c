"""No node of a model of the data set runs its NumPy reference, except for accepted reasons."""

from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.networks.data_models import names
from tools.pages.fallbacks import EXCEPTIONS, Survey, fallbacks_of, page, survey_layers, survey_models
from tpuconvert.runtime.native.builder.loader import extension
from tpuconvert.schema.file.file_model import FileModel
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds
from tpuconvert.schema.ops.compare import Gts
from tpuconvert.schema.ops.normalization import Lrn
from tpuconvert.schema.ops.selection import MaskedSelect
from tpuconvert.schema.types import F32, Chip, Scalar, TensorType

pytestmark = pytest.mark.skipif(extension() is None, reason="the native engine was not built")

SAMPLE = ["cifar10_resnet8_onnx", "kws_dscnn_int8_tflite", "mnist_lstm_tflite"]


def test_sample_of_models(data_root: Path) -> None:
    survey = Survey()
    survey_models(survey, data_root, SAMPLE)
    assert survey.planned >= 9 and not survey.refused
    assert survey.found == {}


@pytest.mark.slow
def test_all_models(data_root: Path) -> None:
    survey = Survey()
    survey_models(survey, data_root, names())
    assert survey.planned >= 190
    assert survey.unexplained == {}


@pytest.mark.parametrize(
    ("formats", "planned"),
    [(["caffe"], 14), pytest.param(["onnx", "tflite", "caffe"], 470, marks=pytest.mark.slow)],
)
def test_layers(data_root: Path, formats: list[str], planned: int) -> None:
    """Other tests convert the layers of ONNX and TFLite in each run, and compare their results."""
    survey = Survey()
    survey_layers(survey, data_root, formats)
    assert survey.planned >= planned
    assert survey.unexplained == {}


def test_the_tool_reports_operator_types_and_reason() -> None:
    graph = Graph()
    x = graph.input("x", TensorType(F32, (2, 5, 6)))
    graph.output(graph.add(Lrn(3, bias=-9.0, beta=2), x, name="y"))
    survey = Survey()
    survey.add("negative sums", tc.Model(FileModel(graph, Chip.BM1686, "0.1")))
    ((fallback, models),) = survey.unexplained.items()
    assert (fallback.operator, fallback.types) == ("lrn", "FLOAT32 -> FLOAT32")
    assert fallback.reason == "its kernels do not take these types or parameters"
    assert models == ["negative sums"]
    assert "| `lrn` | FLOAT32 -> FLOAT32 | its kernels" in page(survey)


def test_extents_that_depend_on_data_are_accepted() -> None:
    graph = Graph()
    x = graph.input("x", TensorType(F32, (5,)))
    chosen = graph.add(MaskedSelect(), x, graph.add(Gts(Scalar.f32(1)), x), name="chosen")
    graph.output(graph.add(Adds(Scalar.f32(2)), chosen, name="y"))
    found = fallbacks_of(tc.Model(FileModel(graph, Chip.BM1686, "0.1")), {"x": np.arange(5, dtype=np.float32)})
    assert [fallback.operator for fallback in found] == ["masked_select", "adds"]
    assert {fallback.reason for fallback in found} <= set(EXCEPTIONS)
