"""Trained models: optimizing keeps the results, and every chip can run the float form.

Tolerance: 1e-5 of the range of an output, because folding a normalization rounds every weight once more in float32.
"""

import numpy as np
import pytest

from tests.support.networks.data_models import names
from tests.support.rules.graphs import ops
from tools.accuracy.datasets import entries, input_shapes, model_files, reference_samples
from tools.pages import optimizer_page
from tpuconvert.conversion.options.options import Options
from tpuconvert.conversion.source import Source
from tpuconvert.conversion.source_loading import load_source
from tpuconvert.optimizer import fit_to_chip, optimize
from tpuconvert.optimizer.quantize import as_float
from tpuconvert.optimizer.validation import distance
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.errors import ProblemList
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.graph.legality import check_graph
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
    return load_source(Source(source, weights), Options(input_shapes=dict(input_shapes(entry) or {})))


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


def test_a_second_run_changes_nothing(data_root):
    graph = load(data_root, "ultraface_rfb_320_tflite")
    optimize(graph)
    assert not any(optimize(graph).fired.values())


def test_keeps_names_of_the_source(data_root):
    """Verification compares tensors by name: nearly all activations must keep theirs."""
    graph = load(data_root, "imagenet_mobilenet_v1_0.25_onnx")
    names = {node.name for node in graph.nodes}
    optimize(graph)
    assert len({node.name for node in graph.nodes} & names) >= 0.95 * len(names)


def test_every_node_knows_its_source(data_root):
    graph = load(data_root, "ultraface_rfb_320_onnx")
    optimize(graph)
    assert all(node.sources for node in graph.nodes)


ALWAYS = ("fastestdet_coco_onnx", "mtcnn_rnet_caffe", "face_short_range_tflite", "retinaface_mnet_caffe")
"""A few of the models; all others take part in the long run."""

EVERY = [pytest.param(name, marks=[] if name in ALWAYS else pytest.mark.slow) for name in names()]


@pytest.mark.parametrize("name", EVERY)
def test_page_has_the_node_counts_of_every_model(name, data_root):
    found = optimizer_page.count(load(data_root, name))
    row = [str(number) for number in (found.before, found.after, found.permutes)]
    assert optimizer_page.row_of("models", name) == row, f"run {optimizer_page.COMMAND}"


@pytest.mark.parametrize("name", EVERY)
def test_outputs_of_every_model(name, data_root):
    """Within 1e-4 of the range of an output. A quantized source is compared in dequantized values."""
    before, after = load(data_root, name), load(data_root, name)
    optimize(after)
    sample, _ = reference_samples(data_root, entries(data_root)[name])[0]
    feeds = dict(zip((port.name for port in before.input_ports), sample.values(), strict=True))
    expected, found = (Session(as_float(graph)).run(feeds) for graph in (before, after))
    for output, want in expected.items():
        assert distance(want, found[output]) <= 1e-4, output


@pytest.mark.parametrize("name", EVERY)
def test_no_foldable_node_remains_beside_a_linear_operator(name, data_root):
    """Checks normalizations, scales, biases and pads beside linear operators with constant weights, and no-ops."""
    graph = load(data_root, name)
    optimize(graph)
    assert not [node for node in graph.nodes if node.op.name in IDENTITIES and does_nothing(node)]
    for node in graph.nodes:
        before = node.inputs[0].producer if node.inputs and node.inputs[0] is not None else None
        if before is None or not graph.is_sole_use(node.inputs[0]) or node.inputs[0].quant is not None:
            continue
        assert not (is_scale(node) and is_linear(before)), node
        assert not (is_scale(before) and is_linear(node) and not has_bias(before)), node
        assert not (before.op.name == "pad" and node.op.name == "conv" and before.op.pad_val.value == 0), node


IDENTITIES = ("copy", "reshape", "permute", "cast", "extract", "pad", "tile", "concat")
SCALES = ("batch_norm", "muls", "divs", "adds", "subs", "rsubs", "mul", "add", "sub", "div")


def does_nothing(node) -> bool:
    x, y = node.inputs[0], node.outputs[0]
    if len(node.inputs) > 1 or x.type != y.type or x.quant != y.quant:
        return False
    return node.op.name != "permute" or node.op.order == tuple(range(x.rank))


def is_linear(node) -> bool:
    return node.op.name in ("conv", "deconv", "matrix_mul") and all(
        value is None or value.is_constant for value in node.inputs[1:]
    )


def is_scale(node) -> bool:
    """Return True for a per-channel vector or a scalar."""
    if node.op.name not in SCALES:
        return False
    constants = [value for value in node.inputs[1:] if value is not None]
    if not all(value.is_constant for value in constants):
        return False
    if node.op.name == "batch_norm":
        return True
    return all(extent == 1 for value in constants for axis, extent in enumerate(value.shape) if axis != 1)


def has_bias(node) -> bool:
    return node.op.name not in ("mul", "muls", "div", "divs")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in names() if name.endswith("_onnx")])
def test_no_more_nodes_than_simplifiers_leave(name, data_root):
    """onnxsim and onnxslim in a row, counted in TPU operators and in ONNX operators."""
    pytest.importorskip("onnxsim")
    pytest.importorskip("onnxslim")
    found = optimizer_page.simplify(data_root, name)
    assert found.ours <= min(found.operators, found.simplified)
    row = [str(number) for number in (found.onnx, found.simplified, found.operators, found.ours)]
    assert optimizer_page.row_of("simplifiers", name)[:4] == row, f"run {optimizer_page.COMMAND}"
