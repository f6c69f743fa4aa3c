"""Error of quantized graphs at the outputs, by sample."""

import numpy as np
import onnx.parser
import pytest

import tpuconvert as tc
from tests.support.quantize.networks import Net
from tpuconvert.optimizer.quantize import calibrate, legalize, quantize
from tpuconvert.optimizer.quantize.search import output_error as module
from tpuconvert.optimizer.quantize.search.output_error import Errors, OutputError, count_held_out
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.types import F32, I32, Chip, TensorType


def identity(shape, outputs=1) -> Graph:
    graph = Graph("net", "net.onnx")
    for index in range(outputs):
        graph.output(graph.input(f"x{index}", TensorType(F32, shape)))
    return graph


def feeds_of(*rows) -> list[dict[str, np.ndarray]]:
    return [{"x0": np.asarray(row, np.float32)} for row in rows]


def test_relates_the_squared_error_to_the_mean_power():
    errors = OutputError(identity((1, 2)), Chip.BM1686, feeds_of([[3, 4]], [[0, 5]]))
    found = errors.compare(feeds_of([[3, 3]], [[2, 5]]))
    assert found.samples.tolist() == [1 / 25, 4 / 25]
    assert found.mean == pytest.approx(2.5 / 25)
    assert found.sqnr == pytest.approx(10.0)


def test_averages_outputs_of_different_scale():
    graph = identity((1, 2), outputs=2)
    feed = {"x0": np.float32([[3, 4]]), "x1": np.float32([[300, 400]])}
    errors = OutputError(graph, Chip.BM1686, [feed])
    found = errors.compare([{"x0": np.float32([[3, 3]]), "x1": np.float32([[300, 400]])}])
    assert found.samples.tolist() == [0.02]


def test_separates_the_samples_of_a_batch():
    errors = OutputError(identity((2, 2)), Chip.BM1686, feeds_of([[3, 4], [0, 5]]))
    assert errors.compare(feeds_of([[3, 3], [2, 5]])).samples.tolist() == [1 / 25, 4 / 25]


def test_weights_values_far_from_the_mean_of_their_channel():
    map_ = np.full((1, 1, 4, 4), -1.0)
    map_[0, 0, 0, 0] = 15.0  # mean 0
    response, background = map_.copy(), map_.copy()
    response[0, 0, 0, 0] -= 1.0
    background[0, 0, 3, 3] -= 1.0
    errors = OutputError(identity((1, 1, 4, 4)), Chip.BM1686, feeds_of(map_))
    first, second = (errors.compare(feeds_of(found)) for found in (response, background))
    assert first.mean == pytest.approx(second.mean)
    assert first.mean_of_large == pytest.approx(225 * second.mean_of_large)


def test_compares_classes_by_their_logarithm():
    graph = Graph("net", "net.onnx")
    graph.output(graph.add(Softmax(1), graph.input("x0", TensorType(F32, (1, 2))), name="y"))
    errors = OutputError(graph, Chip.BM1686, feeds_of([[0, 0]]))
    found = errors.compare([{"y": np.float32([[0.5, 0.25]])}])
    assert found.mean == pytest.approx(np.log(2) ** 2 / (2 * np.log(2) ** 2))


def test_counts_other_integers():
    graph = Graph("net", "net.onnx")
    graph.output(graph.input("x0", TensorType(I32, (1, 4))))
    errors = OutputError(graph, Chip.BM1686, [{"x0": np.int32([[1, 2, 3, 4]])}])
    assert errors.compare([{"x0": np.int32([[1, 2, 3, 400]])}]).samples.tolist() == [0.25]


def test_another_shape_is_an_error_of_100_percent():
    errors = OutputError(identity((1, 2)), Chip.BM1686, feeds_of([[3, 4]]))
    assert errors.compare(feeds_of([[3, 4, 5]])).samples.tolist() == [1.0]


def test_an_output_of_zeros_has_a_finite_error():
    errors = OutputError(identity((1, 2)), Chip.BM1686, feeds_of([[0, 0]]))
    assert errors.compare(feeds_of([[0, 0]])).mean == 0.0
    assert errors.compare(feeds_of([[0, 1]])).mean == 1.0


def test_pairs_the_samples_of_two_measurements():
    first = Errors(np.array([[1.0, 10.0, 100.0]]), np.ones((1, 3)))
    second = Errors(first.branches + np.array([0.1, 0.2, 0.3]), first.large_branches)
    found = first.minus(second)
    assert found.mean == pytest.approx(-0.2)
    assert found.standard_error == pytest.approx(0.1 / np.sqrt(3))
    assert found.is_lower and not second.minus(first).is_lower


def test_measures_a_quantized_graph():
    net = Net(seed=3)
    graph = net.done(net.conv(net.conv(net.x, 8, "a"), 8, "b"))
    samples = net.samples(6)
    measured = {}
    errors = OutputError(graph, Chip.BM1684, samples[:4])
    for method in ("minmax", "percentile:50"):
        reasons = quantize(graph, calibrate(graph, samples, method), Chip.BM1684)
        measured[method] = errors.measure(legalize(graph, Chip.BM1684, reasons).graph)
    assert measured["minmax"].samples.shape == (4,)
    assert measured["minmax"].mean < 0.01  # 8 bits: 20 dB is far below what two layers reach
    assert measured["minmax"].minus(measured["percentile:50"]).is_lower


def test_limits_the_memory_of_the_recorded_outputs(monkeypatch):
    monkeypatch.setattr(module, "_MEMORY", 20)
    errors = OutputError(identity((1, 2)), Chip.BM1686, feeds_of([[3, 4]], [[0, 5]], [[1, 1]]))
    assert len(errors.feeds) == 2  # 8 bytes each


@pytest.mark.parametrize(("feeds", "count"), [(1, 1), (8, 2), (40, 10), (100, 16), (10_000, 16)])
def test_holds_a_quarter_of_the_feeds_out(feeds, count):
    assert count_held_out(feeds) == count


SELECTED_BOXES = """
<ir_version: 8, opset_import: ["" : 17]>
selected (float[1, 64, 4] x) => (float[n, 4] boxes)
<float limit = {0.5}, int64[1] first = {0}, int64[2] places = {64, 4},
 float[4, 2] a = {1.0, 0.0, 0.0, 1.0, 0.5, 0.0, 0.0, 0.5}, float[4, 2] b = {0.0, 2.0, 0.0, 0.0, 3.0, 0.0, 0.0, 1.0}>
{
  rows = Reshape(x, places)
  scores = ReduceMax <axes = [1], keepdims = 0> (rows)
  is_response = Greater(scores, limit)
  places_of_responses = NonZero(is_response)
  numbers = Squeeze(places_of_responses, first)
  responses = Gather <axis = 0> (rows, numbers)
  centers = MatMul(responses, a)
  sizes = MatMul(responses, b)
  boxes = Concat <axis = 1> (centers, sizes)
}
"""


def test_measures_outputs_whose_extents_depend_on_values():
    rng = np.random.default_rng(0)
    graph = tc.convert(onnx.parser.parse_model(SELECTED_BOXES)).graph
    feeds = [{"x": rng.normal(0, 0.5, (1, 64, 4)).astype(np.float32)} for _ in range(6)]
    with Session(graph) as session:
        runs = [session.run(feed) for feed in feeds]
    assert len({run["boxes"].shape for run in runs}) > 1
    errors = OutputError(graph, Chip.BM1686, feeds)
    found = errors.compare([runs[0], *(run | {"boxes": run["boxes"][1:]} for run in runs[1:])])
    assert found.samples.tolist() == [0.0, 1.0, 1.0, 1.0, 1.0, 1.0]
