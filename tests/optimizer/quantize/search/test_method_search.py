"""Choice of calibration methods by the error at the outputs."""

import gc

import numpy as np
import pytest

from tests.support.quantize.networks import RELU, Net
from tpuconvert.optimizer.quantize import calibrate, quantize
from tpuconvert.optimizer.quantize.calibration.calibration import AutoTensors, choose_methods
from tpuconvert.optimizer.quantize.search import method_search
from tpuconvert.optimizer.quantize.search.float_simulation import simulate
from tpuconvert.optimizer.quantize.search.method_search import SearchStart, is_better, search_methods
from tpuconvert.optimizer.quantize.search.output_error import Errors, OutputError
from tpuconvert.runtime.native.matchers.precision import deciding_nodes
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.graph.graph import Graph, Node
from tpuconvert.schema.graph.graph_copy import copy_graph
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.pool import Pool
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.system import gc_control
from tpuconvert.schema.system.gc_control import reduced_gc_frequency
from tpuconvert.schema.types import F32, Array, Chip, TensorType

Feeds = list[dict[str, Array]]


def peak_detector(seed: int = 0) -> Graph:
    """Maxima over an image, and a linear classifier: the rare largest values are the result."""
    rng = np.random.default_rng(seed)
    graph = Graph("net", "net.onnx")
    x = graph.input("x", TensorType(F32, (1, 8, 16, 16)))
    y = graph.add(RELU, x, name="y")
    peaks = graph.add(Pool(stride_h=1, stride_w=1, is_global_pooling=True), y, name="peaks")
    row = graph.add(Reshape((1, 8)), peaks, name="row")
    weight = graph.constant(rng.normal(size=(8, 4)).astype(np.float32), "w")
    bias = graph.constant(np.zeros((1, 4), np.float32), "b")
    graph.output(graph.add(MatrixMul(), row, weight, bias, name="scores"))
    return graph


def heavy_tailed(count: int, seed: int = 1) -> Feeds:
    rng = np.random.default_rng(seed)
    return [{"x": (rng.standard_t(2.5, size=(1, 8, 16, 16))).astype(np.float32)} for _ in range(count)]


def search(graph: Graph, feeds: Feeds, chip: Chip = Chip.BM1684, held_out: int = 16, start: str = "auto", **options):
    auto = AutoTensors(graph, "auto", {})
    ranges = calibrate(graph, feeds, start, auto=auto)
    method_of = choose_methods(graph, start)
    methods = {name: method_of(name) for name in auto.collectors}
    first = SearchStart(
        graph,
        chip,
        lambda found: quantize(graph, found, chip),
        auto.collectors,
        ranges,
        methods,
        feeds[-held_out:],
    )
    choice = search_methods(first, len(feeds), **options)
    return choice, ranges


@pytest.mark.parametrize("chip", [Chip.BM1684, Chip.BM1686])
def test_stops_clipping_what_the_outputs_depend_on(chip):
    choice, ranges = search(peak_detector(), heavy_tailed(64), chip, start="percentile")  # clips 1 value of 10,000
    assert choice is not None
    assert choice.after.mean < 0.1 * choice.before.mean
    assert choice.ranges["y"].threshold > ranges["y"].threshold
    assert choice.ranges["y"].method == choice.methods["y"] != "percentile"


@pytest.mark.parametrize("chip", [Chip.BM1684, Chip.BM1686])
def test_never_increases_the_measured_error(chip):
    for start in ("auto", "minmax", "octav"):
        choice, _ = search(peak_detector(), heavy_tailed(64), chip, start=start)
        assert choice is not None
        assert choice.after.mean <= choice.before.mean
        assert choice.after.mean_of_large <= choice.before.mean_of_large


def test_the_choice_holds_on_other_samples():
    graph = peak_detector()
    choice, ranges = search(graph, heavy_tailed(64), start="percentile")
    assert choice is not None
    others = OutputError(graph, Chip.BM1684, heavy_tailed(64, seed=2))
    errors = []
    for found in (ranges, choice.ranges):
        quantize(graph, found, Chip.BM1684)
        errors.append(others.measure(simulate(graph)))
    assert errors[1].minus(errors[0]).is_lower


def test_removes_its_annotations_and_is_reproducible():
    graph, feeds = peak_detector(), heavy_tailed(64)
    first, _ = search(graph, feeds)
    assert all(value.quant is None for value in graph.values)
    second, _ = search(graph, feeds)
    assert first is not None and second is not None
    assert first.ranges == second.ranges


@pytest.mark.slow
def test_keeps_no_graphs_of_earlier_candidates(monkeypatch):
    alive = []  # number of nodes; they are reference cycles

    def simulate_and_count(graph, **options):
        result = simulate(graph, **options)
        alive.append(sum(isinstance(item, Node) for item in gc.get_objects()))
        return result

    monkeypatch.setattr(method_search, "simulate", simulate_and_count)
    monkeypatch.setattr(gc_control, "_MOST_BYTES", 0)  # as for a network of many megabytes
    gc.collect()
    with reduced_gc_frequency():  # as during a conversion
        choice, _ = search(peak_detector(), heavy_tailed(64))
    assert choice is not None and choice.candidates >= 5
    assert alive[-1] == alive[2]  # the start, the candidate before and this one


def test_searches_only_if_the_calibration_takes_much_longer():
    feeds = heavy_tailed(64)
    assert search(peak_detector(), feeds, least=0.0)[0] is None
    few, _ = search(peak_detector(), feeds, least=1.5e9)
    many, _ = search(peak_detector(), feeds)
    assert few is not None and many is not None and 0 < few.candidates < many.candidates


def test_needs_several_held_out_samples():
    choice, _ = search(peak_detector(), heavy_tailed(8), held_out=2)
    assert choice is None


def test_only_tensors_with_the_automatic_method_take_part():
    net = Net((1, 4, 16, 16))
    graph = net.done(net.conv(net.conv(net.x, 8, "a"), 8, "b", relu=False))
    assert {"x", "b"} <= AutoTensors(graph, "auto", {}).names
    assert AutoTensors(graph, "mse", {}).names == set()
    assert AutoTensors(graph, "mse", {"x": "auto"}).names == {"x"}


def test_describes_the_choice():
    choice, _ = search(peak_detector(), heavy_tailed(64), start="percentile")
    assert choice is not None
    text = choice.describe()
    assert "tensor" in text and f"{choice.before.sqnr:.1f} dB -> {choice.after.sqnr:.1f} dB" in text


@pytest.mark.parametrize(
    ("factor", "large", "clips", "expected"),
    [
        (0.5, 1.0, True, True),
        (1.5, 1.0, True, False),  # larger
        (0.999, 1.0, True, False),  # less than the smallest gain
        (0.5, 1.1, True, False),  # clips what is large
        (0.7, 1.0, False, True),
        (0.9, 1.0, False, False),  # less than the smallest gain
        (0.5, 1.1, False, False),
    ],
)
def test_accepts_a_smaller_error_that_does_not_clip_large_values(factor, large, clips, expected):
    current = Errors(np.array([[1.0, 10.0, 0.1, 3.0]]), np.ones((1, 4)))
    assert (
        is_better(Errors(factor * current.branches, large * current.large_branches), current, clips=clips) is expected
    )


def test_declines_clipping_within_the_scatter():
    current = Errors(np.ones((1, 4)), np.ones((1, 4)))
    assert not is_better(Errors(np.array([[0.2, 1.3, 1.2, 1.1]]), np.ones((1, 4))), current, clips=True)


def test_one_sample_can_end_clipping_but_not_begin_it():
    current = Errors(np.array([[100.0, 1.0, 1.0, 1.0]]), np.ones((1, 4)))
    found = Errors(np.array([[50.0, 2.0, 2.0, 2.0]]), np.ones((1, 4)))
    assert not is_better(found, current, clips=True)
    assert is_better(found, current, clips=False)


def test_the_simulation_rounds_to_the_annotated_scales():
    net = Net()
    graph = net.done(net.conv(net.x, 8, "a"))
    samples = net.samples(4)
    quantize(graph, calibrate(graph, samples, "minmax"), Chip.BM1686)
    with Session(simulate(graph)) as session, Session(graph) as floats:
        for feed in samples:
            params = graph.inputs[0].quant
            assert params is not None
            rounded = {"x": params.dequantize(params.quantize(feed["x"]))}
            wanted, found = floats.run(rounded)["a"], session.run(feed)["a"]
            quant = graph.outputs[0].quant
            assert quant is None or np.abs(wanted - found).max() <= 0.51 * max(quant.scale)
            assert np.abs(wanted - found).max() < 0.01 * np.abs(wanted).max()


def test_the_simulation_sums_in_binary32():
    net = Net()
    graph = net.done(net.conv(net.x, 8, "a"))
    quantize(graph, calibrate(graph, net.samples(4), "minmax"), Chip.BM1686)
    estimate = simulate(graph)
    exact = copy_graph(estimate)
    exact.is_estimate = False
    assert deciding_nodes(exact)
    assert not deciding_nodes(estimate)
    assert not deciding_nodes(copy_graph(estimate))
