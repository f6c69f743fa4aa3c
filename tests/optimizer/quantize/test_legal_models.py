"""Legalization of whole models: all nodes are legal, conversions are few, and float nodes have a reason."""

from collections import Counter

import pytest

import tpuconvert as tc
from tools.accuracy.datasets import entries, input_shapes, model_files, reference_samples
from tpuconvert.conversion.options.options import group_options
from tpuconvert.model.description import describe_model
from tpuconvert.model.summary import summary_text
from tpuconvert.schema.errors import ProblemList
from tpuconvert.schema.graph.graph import Node
from tpuconvert.schema.graph.legality import check_graph
from tpuconvert.schema.types import F32

MODELS = ("mtcnn_rnet_caffe", "silero_vad_16k_onnx", "kws_dscnn_tflite")
LONG = ("vttrack_onnx", "retinaface_mnet_caffe", "face_short_range_tflite", "text_det_en_ppocrv3_onnx")
MOVES = ("channel_shuffle", "concat", "copy", "extract", "pad", "permute", "reshape", "split", "tile")


def converts(node: Node) -> bool:
    """Return True for a node that only converts integers to floats or floats to integers."""
    x = node.inputs[0] if node.inputs else None
    kind = node.op.name == "cast" or "quant" in node.op.name
    return kind and x is not None and x.dtype.is_float != node.outputs[0].dtype.is_float


@pytest.fixture(scope="module")
def model(request, data_root):
    name, chip = request.param
    entry = entries(data_root)[name]
    source, weights = model_files(data_root, entry)
    samples = [sample for sample, _ in reference_samples(data_root, entry)][:2]
    options = {"quantize": "int8", "calibration": samples} if chip != "bm1682" else {}
    return tc.convert(source, weights=weights, chip=chip, **group_options(input_shapes=input_shapes(entry), **options))


CASES = [
    pytest.param((name, chip), id=f"{name} {chip}", marks=[pytest.mark.slow] * (name in LONG))
    for name in (*MODELS, *LONG)
    for chip in ("bm1682", "bm1684", "bm1686")
]


@pytest.mark.parametrize("model", CASES, indirect=True)
def test_legal_with_few_conversions_and_a_reason_for_every_float(model):
    graph = model.graph
    problems = ProblemList("test")
    check_graph(graph, model.chip, problems)
    assert not list(problems)
    for value in graph.values:
        made = Counter(str(user.op) for user in value.users if converts(user))
        assert all(count == 1 for count in made.values()), f"'{value.name}' is converted twice: {made}"
    conversions = [node for node in graph.nodes if converts(node)]
    for node in conversions:
        for user in node.outputs[0].users:
            if converts(user) and user.outputs[0].quant is not None:
                assert user.outputs[0].quant != node.inputs[0].quant, "there and back: only a rescale may do that"
    told = {note.node for note in model.notes if note.kind == "float"}
    floats = [node for node in graph.nodes if node.outputs[0].dtype is F32 and not converts(node)]
    if model.quantize == "int8":
        silent = [node for node in floats if node.name not in told and node.op.name not in MOVES]
        assert not [node for node in silent if not is_part_of_a_conversion(node)]
    shown = describe_model(model.content)
    assert shown["conversions"] == len(conversions)
    assert ("between integers and floats" in summary_text(shown)) == bool(conversions)


def is_part_of_a_conversion(node: Node) -> bool:
    """BM1684 scales before a cast to integers and after one from them, also per channel; scales of a source divide."""
    if node.op.name in ("muls", "divs"):
        around = [node.inputs[0].producer, *node.outputs[0].users]
    elif node.op.name in ("mul", "add", "sub") and any(value.is_constant for value in node.inputs):
        before, after = node.inputs[0].producer, node.outputs[0].users
        around = [before, *after, *(user for item in after for user in item.outputs[0].users)]
        around += [] if before is None or before.inputs[0] is None else [before.inputs[0].producer]
    else:
        return False
    return any(other is not None and converts(other) for other in around)
