"""Small models with one wrong shape, constant, type, option or operand end with documented errors.

``structure_changes`` lists the changes. docs/reference/security.md has the full counts, in the table of campaigns.
"""

from pathlib import Path

import pytest

from tests.support.damage import structure_changes
from tests.support.damage.mutation_campaign import Outcome, run_campaign
from tests.support.damage.mutation_formats import FORMATS, Listed, full_count
from tests.support.damage.structure_seeds import onnx_models, tflite_models
from tpuconvert.frontends.caffe.node import caffe_op
from tpuconvert.frontends.onnx import node as onnx
from tpuconvert.frontends.registry import ConverterRegistry
from tpuconvert.frontends.tflite import node as tflite

STRUCTURE = [name for name, each in FORMATS.items() if isinstance(each, Listed)]
SAMPLE = 4
"""Cases of a format in every run; with the start of the worker they take about 1 s of CPU time."""

MANY_LAYERS = "AnnotatedData Data HDF5Data ImageData VideoData WindowData Parameter"
WITHOUT_RESULT = "Accuracy DetectionEvaluate HDF5Output Silence"
OF_POSITIONS = "Unpooling"  # reads the positions of a pooling layer


def names_of(*registries: ConverterRegistry) -> set[str]:
    """Names of operators with a converter in the package; other tests register converters of their own."""
    entries = (entry for each in registries for entry in each.entries())
    return {entry.name for entry in entries if entry.module.startswith("tpuconvert.")}


def test_every_operator_has_a_model() -> None:
    """An operator with a converter that no model has would not be tried."""
    operators = {item.name for graphs in tflite_models() for graph in graphs for item in graph.operators}
    assert names_of(tflite.tflite_op, tflite.folds) <= {name.removeprefix("CUSTOM:") for name in operators}
    nodes = {item.op_type for model in onnx_models() for item in model.graph.node}
    aliases = {"QLinearReduceMean", "TransposeMatMul"}  # as QLinearGlobalAveragePool and FusedMatMul
    assert names_of(onnx.onnx_op, onnx.folds) - nodes == aliases
    text = "".join(structure_changes.FORMATS["caffe"][0]())
    missing = {name for name in names_of(caffe_op) if f'type: "{name}"' not in text}
    assert missing <= set(f"{MANY_LAYERS} {WITHOUT_RESULT} {OF_POSITIONS} ConvolutionData".split())


@pytest.fixture(scope="module", params=STRUCTURE)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def check_seeds(name: str, folder: Path, step: int) -> None:
    """Convert, save and open unchanged models, which would otherwise be refused for a reason other than the change."""
    path = folder / f"net{FORMATS[name].suffix}"
    for content in FORMATS[name].seeds()[::step]:
        path.write_bytes(content)
        FORMATS[name].use(path)


def check(found: Outcome, count: int) -> None:
    assert found.failures == [] and found.tried == count


def test_a_sample(name: str, tmp_path: Path) -> None:
    check_seeds(name, tmp_path, 150)
    check(run_campaign(name, SAMPLE), SAMPLE)


@pytest.mark.slow
def test_all(name: str, tmp_path: Path) -> None:
    check_seeds(name, tmp_path, 1)
    check(run_campaign(name, full_count(name)), full_count(name))
