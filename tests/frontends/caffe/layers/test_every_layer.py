"""Every layer type that networks are written with is converted, or refused by name with a reason."""

import re

import pytest

from tests.support.caffe.networks import layer, load_text, with_input
from tpuconvert.frontends.caffe.file.messages import message_class
from tpuconvert.frontends.caffe.file.upgrade import V0_TYPES, V1_TYPES
from tpuconvert.frontends.caffe.node import caffe_op
from tpuconvert.frontends.caffe.unsupported import REASONS
from tpuconvert.schema.errors import UnsupportedError

STANDARD = """
AbsVal Accuracy ArgMax BNLL BatchNorm BatchReindex Bias Clip Concat ContrastiveLoss Convolution Crop Data Deconvolution
Dropout DummyData ELU Eltwise Embed EuclideanLoss Exp Filter Flatten HDF5Data HDF5Output HingeLoss Im2col ImageData
InfogainLoss InnerProduct Input LRN LSTM LSTMUnit Log MVN MemoryData MultinomialLogisticLoss PReLU Parameter Pooling
Power Python RNN ReLU Recurrent Reduction Reshape SPP Scale Sigmoid SigmoidCrossEntropyLoss Silence Slice Softmax
SoftmaxWithLoss Split Swish TanH Threshold Tile WindowData
"""
FORKS = """
AnnotatedData Axpy BN BilinearInterpolation CReLU ConvolutionData ConvolutionDepthwise Correlation CuDNNBatchNorm
DepthwiseConvolution DetectionEvaluate DetectionOutput FlowWarp Focus GELU HardSigmoid HardSwish Interp L2Norm MatMul
Maximum Minimum Mish MultiBoxLoss Normalize NormalizeBBox PSROIPooling PassThrough Permute PriorBox Proposal ROIPooling
ReLU6 Region Reorg Resample ResizeBilinear ShuffleChannel Unpooling Upsample VideoData YoloDetectionOutput
"""
LOSSES_WITHOUT_CONVERTER = {"ContrastiveLoss", "EuclideanLoss", "HingeLoss", "InfogainLoss", "MultinomialLogisticLoss"}


def test_every_type_is_converted_or_refused_with_a_reason():
    converted, refused = set(caffe_op.names()), set(REASONS)
    old = (set(V1_TYPES.values()) | set(V0_TYPES.values())) - {""}
    standard, forks = set(STANDARD.split()), set(FORKS.split())
    assert len(standard) == 62
    assert standard | forks | old <= converted | refused
    assert not converted & refused
    assert refused & standard == LOSSES_WITHOUT_CONVERTER | {"Python", "Recurrent"}
    assert all(message and hint for message, hint in REASONS.values())


def test_every_parameter_message_has_a_reader(repository):
    """A ``..._param`` of the schema that no converter reads would be noted as another layer's, and dropped."""
    asked = set()
    for file in (repository / "frontends" / "caffe").rglob("*.py"):
        if file.name != "upgrade.py":  # it moves them, it does not read them
            asked |= set(re.findall(r'"(\w+_param)"', file.read_text(encoding="utf-8")))
    fields = message_class("LayerParameter").DESCRIPTOR.fields_by_name
    of_losses = {name for name in fields if name.endswith("_loss_param") or name == "multibox_loss_param"}
    left = {name for name in fields if name.endswith("_param")} - asked - of_losses
    assert left == {"python_param"}  # named in the refusal


@pytest.mark.parametrize("type_", sorted(REASONS))
def test_refusals(tmp_path, type_):
    """By name, with what to do; a loss is refused only where another layer reads it."""
    text = with_input((1, 4), layer(type_, tops="a", name="it") + layer("AbsVal", "", "a", "b", "after"))
    with pytest.raises(UnsupportedError) as error:
        load_text(tmp_path, text)
    (problem,) = error.value.problems
    assert (problem.op, problem.node) == (type_, "it")
    assert problem.message.startswith(REASONS[type_][0])
    assert problem.hint


def test_python_layers_are_named(tmp_path):
    parameters = 'python_param { module: "rpn.proposal_layer" layer: "ProposalLayer" }'
    with pytest.raises(UnsupportedError, match=r"arbitrary code: ProposalLayer of module 'rpn\.proposal_layer'"):
        load_text(tmp_path, with_input((1, 4), layer("Python", parameters)))


@pytest.mark.parametrize(
    ("type_", "parameters"),
    [
        ("EuclideanLoss", ""),
        ("HingeLoss", "hinge_loss_param { norm: L2 }"),
        ("FocalLoss", "focal_loss_param { gamma: 2 }"),
        ("Python", 'python_param { module: "m" layer: "L" } loss_weight: 1'),
    ],
)
def test_losses_are_left_out(tmp_path, type_, parameters):
    """Their bottoms become outputs, and labels that only they read are not inputs."""
    data = 'layer { name: "d" type: "MemoryData" top: "x" top: "label" memory_data_param {'
    data += " batch_size: 1 channels: 4 height: 1 width: 1 } }"
    graph = load_text(
        tmp_path, data + layer("ReLU", "", "x", "y", "r") + layer(type_, parameters, "y label", "l", "it")
    )
    assert [port.name for port in graph.input_ports] == ["x"]
    assert [port.name for port in graph.output_ports] == ["y"]
    assert graph.notes == [f"layer 'it' ({type_}) measures a loss: left out"]
