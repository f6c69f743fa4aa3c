"""Non-maximum suppression as the last node of a graph: ``--append-nms boxes=NAME,scores=NAME``.

The results equal the results of ONNX NonMaxSuppression, followed by gathers of the boxes and scores that it selects.
"""

from __future__ import annotations

from tpuconvert.conversion.options.nms_options import NmsTail
from tpuconvert.frontends import emit
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph.graph import Graph, Port, Source, Value
from tpuconvert.schema.ops.host.multiclass_nms import HostMulticlassNms
from tpuconvert.schema.text.spelling import did_you_mean
from tpuconvert.schema.types import DType, Scalar, format_shape

OUTPUTS = ("nms_boxes", "nms_scores", "nms_classes", "nms_images")
"""Names of the outputs: corners [K, 4], scores [K], classes [K] and images [K] of the selected boxes."""


def append_nms(graph: Graph, tail: NmsTail) -> None:
    """Replace two outputs of a graph by the boxes that a suppression selects. Other outputs remain.

    Args:
        graph: graph of a frontend; changed in place.
        tail: names and settings.

    Raises:
        UsageError: there are no such outputs, or they have other shapes or types.

    """
    boxes, scores = (_output(graph, name) for name in (tail.boxes, tail.scores))
    with graph.source(Source(graph.file, OUTPUTS[0], "NonMaxSuppression")):
        if boxes is scores:
            boxes, scores = _split(graph, boxes)
        else:
            boxes = _boxes(graph, boxes)
            scores = _scores(graph, scores, boxes)
        if tail.objectness:
            scores = _with_objectness(graph, scores)
        op = HostMulticlassNms(Scalar.f32(tail.iou), Scalar.f32(tail.score), tail.max, tail.format == "cxcywh")
        results = graph.add_all(op, boxes, scores)
    removed = {tail.boxes, tail.scores}
    remaining = [
        (value, port) for value, port in zip(graph.outputs, graph.output_ports, strict=True) if port.name not in removed
    ]
    graph.outputs[:], graph.output_ports[:] = [value for value, _ in remaining], [port for _, port in remaining]
    for name, value in zip(OUTPUTS, results, strict=True):
        if graph.unique(name) != name:
            raise UsageError(
                f"append_nms: the model has a tensor '{name}' already",
                file=graph.file,
                hint="rename that tensor in the source",
            )
        graph.rename(value, name)
        dtype = "int64" if value.dtype is DType.INT32 else "float32"
        graph.output(value, Port(name, dtype, value.shape))


def _output(graph: Graph, name: str) -> Value:
    for value, port in zip(graph.outputs, graph.output_ports, strict=True):
        if port.name == name:
            if value.dtype is not DType.FLOAT32:
                message = f"append_nms: output '{name}' has type {value.dtype.value}, expected floats"
                raise UsageError(message, file=graph.file, hint="--outputs selects other tensors of the model")
            return value
    names = [port.name for port in graph.output_ports]
    hint = did_you_mean(name, names) or f"outputs: {', '.join(names)}; --outputs makes other tensors outputs"
    raise UsageError(f"append_nms: the model has no output '{name}'", file=graph.file, hint=hint)


def _shape_error(graph: Graph, what: str, value: Value, expected: str) -> UsageError:
    message = f"append_nms: {what} have the shape {format_shape(value.shape)}, expected {expected}"
    return UsageError(message, file=graph.file, hint="--outputs selects other tensors of the model")


def _boxes(graph: Graph, value: Value) -> Value:
    """Return boxes as [N, B, 4], from [B, 4], [N, B, 4], [N, 4, B] or [N, B, 1, 4]."""
    shape = value.shape
    if len(shape) == 4 and shape[2] == 1 and shape[3] == 4:
        return emit.reshape(graph, value, (*emit.extents(value)[:2], 4))
    if len(shape) == 2 and shape[1] == 4:
        return emit.reshape(graph, value, (1, *emit.extents(value)))
    if len(shape) == 3 and shape[2] == 4:
        return value
    if len(shape) == 3 and shape[1] == 4:
        return emit.permute(graph, value, (0, 2, 1))
    raise _shape_error(graph, "boxes", value, "[N, B, 4], [N, 4, B] or [B, 4]")


def _scores(graph: Graph, value: Value, boxes: Value) -> Value:
    """Return scores as [N, C, B], from [N, C, B], [N, B, C], [N, B] or [B, C]."""
    count = boxes.shape[1]
    if len(value.shape) == 2:
        extents = emit.extents(value)
        is_batch = value.shape == (boxes.shape[0], count)
        value = emit.reshape(graph, value, (extents[0], 1, extents[1]) if is_batch else (1, *extents))
    if len(value.shape) != 3 or count not in value.shape[1:]:
        expected = f"[N, C, {count}] or [N, {count}, C] for boxes {format_shape(boxes.shape)}"
        raise _shape_error(graph, "scores", value, expected)
    # With as many classes as boxes the order of ONNX NonMaxSuppression is meant.
    return value if value.shape[2] == count else emit.permute(graph, value, (0, 2, 1))


def _split(graph: Graph, value: Value) -> tuple[Value, Value]:
    """Split [N, 4 + C, B] or [N, B, 4 + C], whose longer axis counts boxes, into boxes and scores."""
    shape = value.shape
    if len(shape) != 3 or not all(isinstance(extent, int) for extent in shape[1:]) or min(emit.extents(value)[1:]) < 5:
        raise _shape_error(graph, "boxes and scores", value, "[N, 4 + classes, B] or [N, B, 4 + classes]")
    rows = value if emit.extents(value)[1] < emit.extents(value)[2] else emit.permute(graph, value, (0, 2, 1))
    columns = emit.extents(rows)[1]
    boxes = emit.permute(graph, emit.slice_axis(graph, rows, 1, 0, 4), (0, 2, 1))
    return boxes, emit.slice_axis(graph, rows, 1, 4, columns)


def _with_objectness(graph: Graph, scores: Value) -> Value:
    columns = scores.shape[1]
    if not isinstance(columns, int) or columns < 2:
        raise _shape_error(graph, "scores with objectness", scores, "[N, 1 + classes, B]")
    first = emit.slice_axis(graph, scores, 1, 0, 1)
    return emit.mul(graph, emit.slice_axis(graph, scores, 1, 1, columns), first)
