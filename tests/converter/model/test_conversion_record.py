"""Record of the conversion in a model file: rules and calibration, its size, and damaged records."""

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.networks.small_models import examples, scaled_and_shifted
from tpuconvert.conversion.conversion import Conversion
from tpuconvert.conversion.conversion_record_writer import make_record
from tpuconvert.conversion.options.options import Options, group_options
from tpuconvert.conversion.quantization.ranges_file import measure_ranges, read_ranges
from tpuconvert.conversion.source import Source as SourceModel
from tpuconvert.model.conversion_record import KEY, ConversionRecord, read_record
from tpuconvert.model.description import describe_model
from tpuconvert.model.model import Model
from tpuconvert.progress import SILENT
from tpuconvert.schema.errors import CorruptInputError
from tpuconvert.schema.graph.graph import Graph, Source
from tpuconvert.schema.ops.batch_norm import BatchNorm
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.types import F32, TensorType

PREPROCESS = "color=GRAY,scale=0.0625"


@pytest.fixture(scope="module")
def model() -> Model:
    given = {"calibration": examples() / "calibration.npz", "preprocess": PREPROCESS}
    return tc.convert(examples() / "digits.onnx", **group_options(quantize="int8", **given))


def test_calibration_is_recorded_for_the_integer_tensors(model: Model) -> None:
    description = describe_model(model.content)
    quantized = {
        value["name"]
        for layer in description["layers"]
        for value in layer["outputs"]
        if value["quantization"] and value["dtype"] in ("INT8", "UINT8", "INT16")
    }
    histograms = description["histograms"]
    assert histograms and histograms.keys() <= quantized | {port["name"] for port in description["inputs"]}
    for found in histograms.values():
        assert found["minimum"] <= found["maximum"] and found["threshold"] > 0
        largest = max(-found["minimum"], found["maximum"])
        # Numbers have five digits.
        assert found["threshold"] <= largest * 1.0001 and (not found["counts"] or found["high"] >= largest * 0.9999)
        assert not found["counts"] or found["counts"][-1] > 0
    assert any(found["counts"] and found["method"] != "minmax" for found in histograms.values())
    convergence = description["convergence"]
    assert convergence["samples"] == [1, 2, 4, 8, 16, 32, 64, 100] and convergence["slowest"] in histograms
    for shares in (convergence["median"], convergence["smallest"]):
        assert shares == sorted(shares) and shares[-1] == 1
    assert KEY not in description["metadata"] and "recipe" in description["metadata"]


def test_record_is_kept_in_the_file(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "net.tpum")
    loaded = tc.load(tmp_path / "net.tpum")
    assert read_record(loaded.graph, loaded.metadata) == read_record(model.graph, model.metadata)
    assert describe_model(loaded.content)["histograms"] == describe_model(model.content)["histograms"]


def test_two_workers_give_the_same_record(model: Model) -> None:
    given = {"calibration": examples() / "calibration.npz", "preprocess": PREPROCESS, "quantize": "int8"}
    two = tc.convert(examples() / "digits.onnx", **group_options(workers=2, **given))
    assert two.metadata[KEY] == model.metadata[KEY]


def test_ranges_of_a_file_give_the_same_record(model: Model, tmp_path: Path) -> None:
    """Numbers in the file have all digits of the calibration."""
    options = Options.of(chip="bm1686", quantize="int8", preprocess=PREPROCESS)
    source, samples = str(examples() / "digits.onnx"), examples() / "calibration.npz"
    measure_ranges(SourceModel(source), options, samples, progress=SILENT).save(tmp_path / "ranges.json")
    ranges = read_ranges(tmp_path / "ranges.json")
    found = Conversion(options, samples, ranges=ranges).of_source(SourceModel(source))
    assert found.metadata[KEY]["tensors"] == model.metadata[KEY]["tensors"]
    assert found.metadata[KEY]["convergence"] == model.metadata[KEY]["convergence"]


def test_order_of_samples_gives_the_same_record(model: Model) -> None:
    images = np.load(examples() / "calibration.npz")["images"]
    shuffled = images[np.random.default_rng(0).permutation(len(images))]
    found = tc.convert(examples() / "digits.onnx", calibration=shuffled, preprocess=PREPROCESS, quantize="int8")
    assert found.metadata[KEY] == model.metadata[KEY]


def conv_with_batch_norm() -> Graph:
    """Return a conv, a batch norm and a bias, each from its own source node."""
    g = Graph("net", "net.onnx")
    x = g.input("x", TensorType(F32, (1, 2, 4, 4)))
    with g.source(Source("net.onnx", "conv", "Conv")):
        x = g.add(Conv(), x, g.constant(np.full((2, 2, 1, 1), 0.5, np.float32), "weight"), name="y")
    with g.source(Source("net.onnx", "norm", "BatchNormalization")):
        mean, variance = (g.constant(np.array(given, np.float32), "statistics") for given in ([1, 2], [3, 4]))
        x, *_ = g.add_all(BatchNorm(), x, mean, variance, names=("z", "mean", "variance"))
    g.output(x)
    return g


def test_rules_of_a_fused_node_are_recorded(tmp_path: Path) -> None:
    model = Conversion(Options.of(chip="bm1686")).of_graph(conv_with_batch_norm())
    [layer] = describe_model(model.content)["layers"]
    assert layer["rules"] == ["fold_scale_into_previous_linear"] and layer["op"] == "conv"
    assert layer["sources"] == ["net.onnx: Conv 'conv'", "net.onnx: BatchNormalization 'norm'"]
    model.save(tmp_path / "net.tpum")
    assert describe_model(tc.load(tmp_path / "net.tpum").content)["layers"] == [layer]


def test_rules_are_passed_on_to_integer_nodes() -> None:
    samples = {"x": np.random.default_rng(0).normal(size=(8, 2, 4, 4)).astype(np.float32)}
    model = Conversion(Options.of(chip="bm1686", quantize="int8"), samples).of_graph(conv_with_batch_norm())
    by_op = {layer["op"]: layer for layer in describe_model(model.content)["layers"]}
    for op in ("conv_v2", "requant_int32"):
        assert by_op[op]["rules"] == ["fold_scale_into_previous_linear"], by_op[op]


def test_nothing_to_record_adds_nothing() -> None:
    graph = scaled_and_shifted()
    assert make_record(graph, {}) == {}
    model = Conversion(Options.of(chip="bm1686")).of_graph(graph)
    assert (KEY in model.metadata) == any(node.rules for node in graph.nodes)
    assert read_record(graph, {}) == ConversionRecord()


def test_record_takes_little_space(model: Model, tmp_path: Path) -> None:
    """About 150 bytes per tensor, so that a hundredth of a file is enough for networks with 15 kB per layer."""
    record = model.metadata[KEY]
    size = len(json.dumps(record, separators=(",", ":")))
    assert size < 400 + 170 * len(record["tensors"]["positions"])


DAMAGE: dict[str, Any] = {
    "not a table": lambda r: [],
    "rule that does not exist": lambda r: {**r, "rules": {"names": ["a"], "lists": [[1]], "nodes": [0, 0]}},
    "node that does not exist": lambda r: {**r, "rules": {"names": ["a"], "lists": [[0]], "nodes": [10**9, 0]}},
    "rule that is not text": lambda r: {**r, "rules": {"names": [1], "lists": [], "nodes": []}},
    "odd pairs": lambda r: {**r, "rules": {"names": ["a"], "lists": [[0]], "nodes": [0]}},
    "tensor that does not exist": lambda r: _with_column(r, "positions", 10**9),
    "negative position": lambda r: _with_column(r, "positions", -1),
    "threshold that is text": lambda r: _with_column(r, "thresholds", "1"),
    "method that does not exist": lambda r: _with_column(r, "method", 99),
    "levels that are not base64": lambda r: _with_column(r, "levels", "!"),
    "huge width": lambda r: _with_column(r, "exponents", 10**6),
    "missing column": lambda r: {**r, "tensors": {"methods": []}},
    "short column": lambda r: {**r, "tensors": {**r["tensors"], "low": []}},
    "convergence of different lengths": lambda r: {**r, "convergence": {**r["convergence"], "median": [1]}},
}


def _with_column(record: dict[str, Any], name: str, value: object) -> dict[str, Any]:
    changed = copy.deepcopy(record)
    changed["tensors"][name][0] = value
    if name == "exponents":
        changed["tensors"]["levels"][0] = "AAAA"
    return changed


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_damaged_record_is_an_error(model: Model, damage: Any) -> None:
    metadata = {**model.metadata, KEY: damage(copy.deepcopy(model.metadata[KEY]))}
    damaged = Model(dataclasses.replace(model.content, metadata=metadata))
    with pytest.raises(CorruptInputError, match="the record of the conversion is damaged"):
        describe_model(damaged.content)
