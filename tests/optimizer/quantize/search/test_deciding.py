"""INT8 of networks that select by order or by rounding: paths to close decisions stay in float."""

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.networks.data_models import convert_model
from tests.support.quantize.onnx_builder import OnnxNet, compare
from tests.support.sampled import sampled
from tpuconvert.model.accuracy_notes import AccuracyWarning
from tpuconvert.model.integer_share import integer_share
from tpuconvert.optimizer.quantize.search.deciding import similarity_of_rows

ENOUGH = 0.99


def integers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def backbone(net: OnnxNet, x: str, channels: int) -> str:
    return net.add("Relu", net.conv(net.add("Relu", net.conv(x, channels, stride=2)), channels))


def top_rows(seed: int) -> tuple[OnnxNet, list[str]]:
    """Features at the ten positions with the largest scores."""
    net = OnnxNet(seed)
    features = backbone(net, net.input("x", 1, 3, 16, 16), 8)
    scores = net.reshape(net.conv(features, 1, 1), 1, 64)
    rows = net.permute(net.reshape(net.conv(features, 6, 1), 1, 6, 64), 0, 2, 1)
    _, indices = net.add("TopK", scores, net.constant(integers(10)), outputs=2, axis=1)
    if seed % 2:
        return net, [net.add("Gather", net.reshape(rows, 64, 6), net.reshape(indices, 10), axis=0)]
    wide = net.add("Expand", net.add("Unsqueeze", indices, net.constant(integers(2))), net.constant(integers(1, 10, 6)))
    return net, [net.add("GatherElements", rows, wide, axis=1)]


def detector(seed: int) -> tuple[OnnxNet, list[str]]:
    """Boxes around anchors and scores of three classes, as SSD has them, and non-maximum suppression."""
    net = OnnxNet(seed)
    features = backbone(net, net.input("x", 1, 3, 16, 16), 8)
    scores = net.add("Sigmoid", net.reshape(net.conv(features, 3, 1, gain=3), 1, 3, 64))
    places = net.permute(net.reshape(net.conv(features, 4, 1), 1, 4, 64), 0, 2, 1)
    offsets, sizes = net.add("Split", places, net.constant(integers(2, 2)), outputs=2, axis=2)
    grid = np.stack(np.meshgrid(np.arange(8), np.arange(8)), -1).reshape(1, 64, 2)
    anchors = net.constant(2 * grid.astype(np.float32))
    center = net.add("Add", net.add("Mul", offsets, net.constant(np.float32(0.5))), anchors)
    half = net.add(
        "Mul", net.add("Exp", net.add("Mul", sizes, net.constant(np.float32(0.2)))), net.constant(np.float32(2))
    )
    boxes = net.add("Concat", net.add("Sub", center, half), net.add("Add", center, half), axis=2)
    limits = [net.constant(integers(10)), net.constant(np.float32([0.5])), net.constant(np.float32([0.3]))]
    return net, [net.add("NonMaxSuppression", boxes, scores, *limits)]


def sampler(seed: int) -> tuple[OnnxNet, list[str]]:
    """Half of an image, sampled at coordinates that a network computes, as in optical flow.

    One step of INT8 moves a coordinate by a quarter of a pixel: cosine 0.96 with all convs in INT8.
    """
    net = OnnxNet(seed)
    x = net.input("x", 1, 2, 128, 128)
    moves = net.permute(net.add("Tanh", net.conv(backbone(net, x, 8), 2, gain=0.3)), 0, 2, 3, 1)
    grid = np.stack(np.meshgrid(np.linspace(-1, 1, 64), np.linspace(-1, 1, 64)), -1)[None].astype(np.float32)
    places = net.add("Add", net.add("Mul", moves, net.constant(np.float32(0.6))), net.constant(0.9 * grid))
    padding = ["zeros", "border", "reflection"][seed % 3]
    sampled = net.add("GridSample", x, places, mode="bicubic", align_corners=seed % 2, padding_mode=padding)
    return net, [net.conv(sampled, 4)]


NETWORKS = {"topk and gather": top_rows, "nms": detector}


@pytest.mark.parametrize("seed", sampled(range(3), every=3))
@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS.keys())
def test_decisions_agree_with_float_and_notes_name_the_decision(network, seed, tmp_path):
    net, outputs = network(seed)
    found = compare(net, outputs, tmp_path)
    assert found.worst >= ENOUGH, f"seed {seed}: {found.cosines}"
    notes = [note.message for note in found.model.notes if note.kind == "float"]
    assert any("INT8 would change the decision" in note for note in notes)


@pytest.mark.slow
def test_coordinates_of_a_bicubic_sampler_are_as_accurate_as_in_float(tmp_path):
    net, outputs = sampler(1)
    assert compare(net, outputs, tmp_path).worst >= 0.995


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 20))
@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS.keys())
def test_random_decisions_agree_with_float(network, seed, tmp_path):
    test_decisions_agree_with_float_and_notes_name_the_decision(network, seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_random_samplers_are_as_accurate_as_in_float(seed, tmp_path):
    net, outputs = sampler(seed)
    assert compare(net, outputs, tmp_path).worst >= 0.995, f"seed {seed}"


def test_a_label_at_the_end_keeps_nothing_in_float(tmp_path):
    net = OnnxNet(0)
    features = backbone(net, net.input("x", 1, 3, 16, 16), 8)
    labels = net.add("ArgMax", net.conv(features, 5, 1), axis=1, keepdims=0)
    model = compare(net, [labels], tmp_path).model
    assert [node.op.name for node in model.graph.nodes].count("conv_v2") == 3
    assert not [note for note in model.notes if "decision" in note.message]


def test_clear_decisions_keep_nothing_in_float(tmp_path):
    """Scores that are far apart have the same order in INT8."""
    net = OnnxNet(0)
    features = backbone(net, net.input("x", 1, 3, 16, 16), 8)
    means = net.reshape(net.add("GlobalAveragePool", net.conv(features, 4, 1, gain=0.01)), 1, 4)
    scores = net.add("Add", means, net.constant(np.float32([[1, 5, 3, 8]])))
    values, indices = net.add("TopK", scores, net.constant(integers(2)), outputs=2, axis=1)
    found = compare(net, [values, indices], tmp_path)
    assert found.worst > 0.9999
    assert not [note for note in found.model.notes if "decision" in note.message]


def test_rows_of_a_set_are_compared_in_any_order():
    rows = np.random.default_rng(0).normal(size=(1, 1, 6, 7))
    assert similarity_of_rows(rows, rows[:, :, [1, 0, 2, 3, 5, 4]]) == pytest.approx(1)  # sums in another order
    other = rows.copy()
    other[0, 0, 2] = -other[0, 0, 2]
    assert similarity_of_rows(rows, other) < 0.95
    assert similarity_of_rows(rows, rows[:, :, :5]) == 0


@pytest.mark.slow
def test_a_trained_detector_whose_decisions_are_clear_stays_in_int8(data_root):
    """Its detections are sorted by scores, some of which are almost the same."""
    model, _ = convert_model(data_root, "retinaface_mnet_caffe", "bm1686", "int8")
    share = integer_share(model.graph.nodes)
    assert share is not None and share > 0.9


def test_infinite_results_have_a_similarity():
    infinite, huge = np.full((1, 4), np.inf, np.float32), np.full((1, 4), 3e38, np.float32)
    assert similarity_of_rows(infinite, infinite) == similarity_of_rows(huge, huge) == 1.0


def test_a_decision_on_infinite_results_can_be_quantized(tmp_path):
    """The exponential overflows on every sample, so that the outputs have no finite similarity."""
    net = OnnxNet(0)
    hidden = net.add("Mul", net.dense(net.input("x", 1, 8), 8), net.constant(np.float32(1000)))
    outputs = [net.add("Exp", net.add("Abs", hidden)), net.add("ArgMax", net.dense(hidden, 8), axis=1)]
    gathered = net.add("Gather", outputs[0], outputs[1], axis=1)
    path = tmp_path / "net.onnx"
    path.write_bytes(net.model(gathered).SerializeToString())
    for chip in ("bm1684", "bm1686"):
        with pytest.warns(AccuracyWarning, match=gathered):
            tc.convert(path, chip=chip, quantize="int8", calibration=net.samples(8))
