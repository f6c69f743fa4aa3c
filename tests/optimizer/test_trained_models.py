"""Trained models: the optimized graph computes what the imported one does, and every chip can run its float form.

Tolerance: 1e-5 of an output's range; folding normalization rounds every weight once more, in binary32.
"""

import numpy as np
import pytest
from datasets import entries, input_shapes, model_files, reference_samples
from optimizer.graphs import ops

from tpuconvert.optimizer import fit_to_chip, optimize
from tpuconvert.pipeline import Options, load_source
from tpuconvert.runtime.session import Session
from tpuconvert.schema.errors import ProblemList
from tpuconvert.schema.graph import Graph
from tpuconvert.schema.legality import check_graph
from tpuconvert.schema.types import Chip

NODES_AFTER = {
    "cifar10_resnet8_tflite": 24,
    "face_short_range_tflite": 95,
    "imagenet_mobilenet_v1_0.25_onnx": 58,
    "mnist_keras_onnx": 14,
    "mtcnn_rnet_caffe": 26,
    "retinaface_mnet_caffe": 119,
    "ultraface_rfb_320_onnx": 125,
    "ultraface_rfb_320_tflite": 111,
    "vww_mobilenet_tflite": 59,
    "yunet_n_320_onnx": 109,
}
"""Model -> an upper bound: a rule that stops firing shows here."""


def load(root, name) -> Graph:
    entry = entries(root)[name]
    source, weights = model_files(root, entry)
    return load_source(source, weights, Options(input_shapes=dict(input_shapes(entry) or {})))


@pytest.mark.parametrize("name", NODES_AFTER)
def test_optimizing_keeps_the_outputs(name, data_root):
    before, after = load(data_root, name), load(data_root, name)
    optimize(after)
    after.validate()
    assert len(after) <= NODES_AFTER[name], ops(after)
    feeds, _ = reference_samples(data_root, entries(data_root)[name])[0]
    expected = Session(before).run(feeds)
    forms = [after]
    for chip in (Chip.BM1682, Chip.BM1684):
        forms.append(load(data_root, name))
        optimize(forms[-1])
        fit_to_chip(forms[-1], chip)
        problems = ProblemList(name)
        check_graph(forms[-1], chip, problems)
        assert not list(problems)
    for graph in forms:
        for output, found in Session(graph).run(feeds).items():
            want = expected[output]
            span = float(want.max() - want.min())
            assert np.abs(found.astype(np.float64) - want).max() <= 1e-5 * span, output


def test_a_second_run_finds_nothing(data_root):
    graph = load(data_root, "ultraface_rfb_320_tflite")
    optimize(graph)
    assert not any(optimize(graph).fired.values())


def test_names_of_the_source_survive(data_root):
    """Verification compares tensors by name: nearly all activations must still be there."""
    graph = load(data_root, "imagenet_mobilenet_v1_0.25_onnx")
    names = {node.name for node in graph.nodes}
    optimize(graph)
    assert len({node.name for node in graph.nodes} & names) >= 0.95 * len(names)


def test_every_node_knows_its_source(data_root):
    graph = load(data_root, "ultraface_rfb_320_onnx")
    optimize(graph)
    assert all(node.sources for node in graph.nodes)
