"""Training layers: removed, or replaced by their inference behavior."""

from tpuconvert.frontends.caffe.node import CaffeNode, caffe_op
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas
from tpuconvert.schema.ops.softmax import Softmax


@caffe_op("Dropout", kind=Kind.FOLDED)
def dropout(node: CaffeNode, g: Graph) -> Value:
    """The input: dropout has no effect at inference if training scaled the activations (``scale_train``)."""
    p = node.params("dropout_param")
    p.ignore("dropout_ratio")
    if not p.flag("scale_train"):
        ratio = p.number("dropout_ratio")
        raise node.fail("scale_train: false", f"put a Power layer with scale: {1 - ratio:g} in its place")
    return node.input(0)


@caffe_op("Split", kind=Kind.FOLDED)
def split(node: CaffeNode, g: Graph) -> list[Value]:
    """The input, once per top."""
    return [node.input(0)] * len(node.output_names)


@caffe_op("Silence", kind=Kind.FOLDED)
def silence(node: CaffeNode, g: Graph) -> None:
    """Mark the bottoms as read, so that they do not become graph outputs."""
    for index in range(node.input_count):
        node.input(index)


@caffe_op("Accuracy", "DetectionEvaluate", "HDF5Output", kind=Kind.FOLDED)
def evaluation(node: CaffeNode, g: Graph) -> list[None]:
    """Remove a layer that only evaluates results. Its bottoms are not marked as read, so they can be graph outputs."""
    node.params("accuracy_param").ignore("top_k", "axis", "ignore_label")
    node.params("hdf5_output_param").ignore("file_name")
    node.params("detection_evaluate_param").ignore(
        "num_classes", "background_label_id", "overlap_threshold", "evaluate_difficult_gt", "name_size_file"
    )
    return [None] * len(node.output_names)


@caffe_op("SoftmaxWithLoss", "SoftmaxLoss", kind=Kind.FOLDED)
def softmax_with_loss(node: CaffeNode, g: Graph) -> list[Value | None]:
    """Softmax of the first bottom; the labels are ignored."""
    axis = node.axis(node.params("softmax_param").whole("axis"), len(node.shape(0)))
    return _probabilities(node, g.add(Softmax(axis), node.input(0)))


@caffe_op("SigmoidCrossEntropyLoss", kind=Kind.FOLDED)
def sigmoid_cross_entropy_loss(node: CaffeNode, g: Graph) -> list[Value | None]:
    """Sigmoid of the first bottom; the labels are ignored."""
    return _probabilities(node, formulas.sigmoid(g, node.input(0)))


def _probabilities(node: CaffeNode, value: Value) -> list[Value | None]:
    """Results of a loss layer: the probabilities for its last top, None for a loss before it."""
    return [*[None] * (len(node.output_names) - 1), value]
