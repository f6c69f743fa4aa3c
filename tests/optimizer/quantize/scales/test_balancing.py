"""Scales and zero points per channel for transformers with outlier channels."""

import re
from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.paired import paired
from tests.support.quantize.networks import Net
from tests.support.quantize.onnx_builder import cosine
from tests.support.sampled import sampled
from tools.bench.outliers import OUTLIER_NETWORKS, OutlierNetwork, Outliers
from tpuconvert.__main__ import main
from tpuconvert.conversion.options.options import group_options
from tpuconvert.model.integer_share import integer_share
from tpuconvert.optimizer.quantize import Legalized, balance, calibrate, choose_balancing, legalize, quantize
from tpuconvert.optimizer.quantize.search.float_simulation import simulate
from tpuconvert.optimizer.quantize.search.output_error import Errors
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.normalization import LayerNorm
from tpuconvert.schema.types import I8, Array, Chip, QuantParams

CALIBRATION = 24
ENOUGH = 0.995
"""Goal for the cosine similarity of transformers with outlier channels."""


def convert(network: OutlierNetwork, path: Path, chip: str = "bm1686", **options):
    return tc.convert(
        path, chip=chip, calibration=network.feeds(CALIBRATION, 1000), **group_options(quantize="int8", **options)
    )


def cosines(network: OutlierNetwork, path: Path, model) -> dict[str, float]:
    """Cosine similarity to the float model over samples that calibration has not seen, by output."""
    found: dict[str, list[tuple[Array, Array]]] = {}
    with tc.Session(tc.convert(path), threads=1) as floats, tc.Session(model, threads=1) as integers:
        for feeds in network.feeds(16, 2000):
            wanted, got = floats.run(feeds), integers.run(feeds)
            for name in wanted:
                found.setdefault(name, []).append((wanted[name], got[name]))
    return {name: cosine(*map(np.stack, zip(*pairs, strict=True))) for name, pairs in found.items()}


def balanced_notes(model) -> list[str]:
    return [note.message for note in model.notes if note.kind == "balancing"]


@pytest.mark.parametrize(("chip", "name"), paired(["bm1686", "bm1684"], list(OUTLIER_NETWORKS)))
def test_outlier_channels_cost_little(name, chip, tmp_path):
    network, path = OUTLIER_NETWORKS[name], tmp_path / "net.onnx"
    network.write(path)
    model = convert(network, path, chip)
    assert min(cosines(network, path, model).values()) > ENOUGH
    # The matmuls of an attention have no integer form on BM1684.
    assert integer_share(model.graph.nodes) > (0.99 if chip == "bm1686" else 0.93)
    (note,) = balanced_notes(model)
    assert re.match(r"[789] tensors \('reshape.*', .*\) with one scale and zero point per channel; error at the ", note)


@pytest.mark.parametrize("name", sampled(["vit", "bert"]))
def test_outlier_channels_cost_much_with_one_scale(name, tmp_path):
    network, path = OUTLIER_NETWORKS[name], tmp_path / "net.onnx"
    network.write(path)
    model = convert(network, path, without=["balancing", "coarse-nodes", "int16-nodes"])
    assert max(cosines(network, path, model).values()) < 0.98
    assert balanced_notes(model) == []


@pytest.mark.slow
@pytest.mark.parametrize("chip", ["bm1686", "bm1684"])
def test_a_model_without_outliers_does_not_change(chip, tmp_path):
    network, path = OUTLIER_NETWORKS["vit"], tmp_path / "net.onnx"
    network.write(path, outliers=Outliers(factor=0.0))
    models = [convert(network, path, chip, **options) for options in ({}, {"without": ["balancing"]})]
    for one, other in zip(*(model.graph.values for model in models), strict=True):
        assert (one.name, one.quant) == (other.name, other.quant)
        assert not one.is_constant or np.array_equal(one.array, other.array)


@pytest.mark.parametrize("chip", ["bm1686", "bm1684"])
def test_engine_and_reference_agree_after_loading(chip, tmp_path):
    network, path = OUTLIER_NETWORKS["bert"], tmp_path / "net.onnx"
    network.write(path)
    convert(network, path, chip, effort="low").save(tmp_path / "net.tpum")
    model = tc.load(tmp_path / "net.tpum")
    balanced = [value for value in model.graph.values if value.quant is not None and value.quant.axis is not None]
    assert any(value.dtype is I8 and max(map(abs, value.quant.zero_point)) > 127 for value in balanced)
    with tc.Session(model) as engine, tc.Session(model, backend="reference") as reference:
        for feeds in network.feeds(2, 2000):
            expected = reference.run(feeds)
            for name, array in engine.run(feeds).items():
                assert np.array_equal(array, expected[name])


@pytest.mark.slow
def test_the_order_and_split_of_samples_do_not_matter(tmp_path):
    network, path = OUTLIER_NETWORKS["vit"], tmp_path / "net.onnx"
    network.write(path)
    feeds = network.feeds(12, 1000)
    for name, samples, workers in (("one", feeds, 1), ("reversed", feeds[::-1], 1), ("two", feeds, 2)):
        model = tc.convert(path, quantize=tc.Quantization(workers=workers), calibration=samples)
        assert balanced_notes(model)
        model.save(tmp_path / name)
    first, *others = ((tmp_path / name).read_bytes() for name in ("one", "reversed", "two"))
    assert others == [first, first]


def test_a_rule_for_the_range_of_a_tensor_wins(tmp_path):
    network, path = OUTLIER_NETWORKS["vit"], tmp_path / "net.onnx"
    network.write(path, outliers=Outliers(norms=(3,)))
    (note,) = balanced_notes(convert(network, path, effort="low"))
    tensor = note.split("'")[1]
    ruled = convert(network, path, effort="low", precision=[f"{tensor}=minmax"])
    assert balanced_notes(ruled) == []
    assert ruled.graph.find(f"{tensor}:int8").quant.axis is None


@pytest.mark.slow
def test_ranges_from_a_file_keep_one_scale(tmp_path):
    network, path = OUTLIER_NETWORKS["vit"], tmp_path / "net.onnx"
    network.write(path)
    samples, ranges, output = (str(tmp_path / name) for name in ("samples.npz", "ranges.json", "net.tpum"))
    np.savez(samples, **network.samples(8, 1000))
    assert main(["calibrate", str(path), "--calibration", samples, "-o", ranges]) == 0
    assert main(["quantize", str(path), "--ranges", ranges, "--calibration", samples, "-o", output]) == 0
    assert balanced_notes(tc.load(output)) == []


def linear_after_norm(outlier: float, shift: float) -> tuple[Net, Graph]:
    """A layer normalization with one outlier channel, and a matmul that uses the result."""
    net = Net((40, 8))
    scale, bias = np.ones(8, np.float32), np.zeros(8, np.float32)
    scale[3], bias[3] = outlier, shift
    constants = [net.graph.constant(array, name) for array, name in ((scale, "scale"), (bias, "bias"))]
    normal = net.graph.add(LayerNorm(), net.x, *constants, name="normal")
    w, b = net.constant(8, 5, scale=0.3, name="w"), net.constant(1, 5, name="b")
    return net, net.done(net.graph.add(MatrixMul(), normal, w, b, name="y"))


def relative_error(net: Net, graph: Graph, chip: Chip, names: list[str] | None) -> float:
    samples = net.samples(8)
    with Session(graph) as session:
        wanted = np.stack([session.run(feeds)["y"] for feeds in samples])
    ranges = calibrate(graph, samples)
    reasons = quantize(graph, ranges, chip)
    balance(graph, ranges, reasons, chip, names)
    legalized = legalize(graph, chip, reasons).graph
    legalized.validate()
    with Session(_Program(legalized, chip)) as session:
        found = np.stack([session.run(feeds)["y"] for feeds in samples])
    centred = wanted - wanted.mean(axis=(0, 1))
    return float(np.square(found - wanted).sum() / np.square(centred).sum())


class _Program:
    def __init__(self, graph: Graph, chip: Chip) -> None:
        self.graph, self.chip = graph, chip


@pytest.mark.parametrize("chip", [Chip.BM1684, Chip.BM1686], ids=lambda chip: chip.value)
def test_zero_points_of_channels_are_part_of_the_bias(chip):
    # The values of channel 3 are near 100, so that one scale has a step of about 0.8.
    assert relative_error(*linear_after_norm(1.0, 100.0), chip, []) > 0.02
    # The largest range is about 6: a step of 0.05 and an error of 0.014 for a deviation of 1.
    assert relative_error(*linear_after_norm(1.0, 100.0), chip, None) < 0.002


def test_a_weight_of_several_operators_is_not_copied():
    net, graph = linear_after_norm(40.0, 0.0)
    scale, bias, w, b = map(graph.find, ("scale", "bias", "w", "b"))
    second = graph.add(LayerNorm(), net.x, scale, bias, name="second")
    graph.output(graph.add(MatrixMul(), second, w, b, name="z"))
    ranges = calibrate(graph, net.samples(8))
    reasons = quantize(graph, ranges, Chip.BM1686)
    assert balance(graph, ranges, reasons, Chip.BM1686) == []


def test_weights_take_the_ratios_of_the_scales():
    net, graph = linear_after_norm(40.0, 0.0)
    ranges = calibrate(graph, net.samples(8))
    reasons = quantize(graph, ranges, Chip.BM1686)
    assert balance(graph, ranges, reasons, Chip.BM1686) == ["normal"]
    quant = graph.find("normal").quant
    assert quant.dtype is I8 and quant.axis == 1
    assert np.argmax(quant.scale) == 3
    assert quant.scale[3] > 3 * max(scale for channel, scale in enumerate(quant.scale) if channel != 3)


def simulated(net: Net, graph: Graph, output: str) -> tuple[Array, Array]:
    """Results of the float graph, and of the one that rounds its activations."""
    samples = net.samples(8)
    reasons = quantize(graph, calibrate(graph, samples), Chip.BM1686)
    assert balance(graph, calibrate(graph, samples), reasons, Chip.BM1686) == ["normal"]
    with Session(graph) as floats, Session(simulate(graph, floats=reasons)) as rounded:
        runs = [(floats.run(feeds)[output], rounded.run(feeds)[output]) for feeds in samples]
    exact, found = map(np.stack, zip(*runs, strict=True))
    return exact, found


def test_the_simulation_has_the_zero_points_of_channels():
    exact, found = simulated(*linear_after_norm(1.0, 100.0), "y")
    error = np.square(found - exact).sum() / np.square(exact - exact.mean(axis=(0, 1))).sum()
    assert 1e-6 < error < 0.002


def test_the_simulation_does_not_round_between_float_nodes():
    net, graph = linear_after_norm(1.0, 100.0)
    constants = [net.graph.constant(np.ones(8, np.float32), name) for name in ("second scale", "second bias")]
    graph.output(graph.add(LayerNorm(), graph.find("normal"), *constants, name="after"))
    exact, found = simulated(net, graph, "after")
    assert np.array_equal(exact, found)


def test_channels_of_equal_ranges_keep_one_scale():
    net, graph = linear_after_norm(1.0, 0.0)
    ranges = calibrate(graph, net.samples(8))
    reasons = quantize(graph, ranges, Chip.BM1686)
    assert balance(graph, ranges, reasons, Chip.BM1686) == []
    assert graph.find("normal").quant.axis is None


@pytest.mark.parametrize(("errors", "names"), [((2.0, 1.0), ("a",)), ((1.0, 2.0), ()), ((1.0, 1.0), ())])
def test_balancing_stays_only_if_the_measured_error_decreases(errors, names):
    graphs = {(): Graph("without", ""), ("a",): Graph("with", "")}
    values = dict(zip(("without", "with"), errors, strict=True))

    class Measurement:
        def measure(self, graph: Graph) -> Errors:
            vector = np.full(4, values[graph.name])
            return Errors(vector[np.newaxis], vector[np.newaxis])

    found = choose_balancing(("a",), lambda chosen: Legalized(graphs[tuple(chosen)]), Measurement())
    assert (found.names, found.before, found.after) == (names, *errors)


def test_zero_points_per_channel_may_exceed_the_type():
    params = QuantParams((0.5, 1.0), (-300, 4), I8, axis=1)
    assert params.dequantize(np.int8([[0, 4]])).tolist() == [[150.0, 0.0]]
    assert params.quantize(np.float32([[151.0, 1.0]])).tolist() == [[2, 5]]
    with pytest.raises(ValueError, match="range of INT8"):
        QuantParams.per_tensor(0.5, -300, I8)
