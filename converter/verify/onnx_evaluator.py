"""Process that runs the evaluator of the onnx package, which is written in Python and NumPy and has known faults.

Four operators are corrected here. A model with another node that the evaluator computes differently from the standard
is refused, so that no fault of the evaluator is taken for one of the conversion. The faults were found by comparing the
evaluator with onnxruntime. The arguments are the same as for ``oracle_process``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from packaging.version import Version

from tpuconvert.verify.oracle_process import Arrays, Results, Runner, Settings, cast_input, load_onnx, run_folder

Attributes = Mapping[str, Any]

WRONG_BEFORE = {
    ("Conv", "auto_pad"): "1.23",
    ("OneHot", ""): "1.23",
    ("ScatterElements", "reduction"): "1.22",
    ("CenterCropPad", "axes"): "1.21",
    ("AveragePool", "ceil_mode"): "1.18",
    ("LpPool", ""): "1.17",
}
"""The first version of onnx whose evaluator computes an operator as its text says, by operator and, if only some nodes
are affected, an attribute that they have."""


def _is_unusual_recurrent(node: Any, attributes: Attributes) -> bool:
    has_lengths = len(node.input) > 4 and bool(node.input[4])
    return has_lengths or not {"activations", "clip", "input_forget"}.isdisjoint(attributes)


def _is_wrong_resize(node: Any, attributes: Attributes) -> bool:
    coordinates = attributes.get("coordinate_transformation_mode", b"half_pixel")
    is_nearest = attributes.get("mode", b"nearest") == b"nearest"
    return coordinates in (b"half_pixel_symmetric", b"align_corners") or (is_nearest and coordinates == b"half_pixel")


WRONG: dict[str, Callable[[Any, Attributes], bool]] = {
    "ConvTranspose": lambda node, attributes: "auto_pad" in attributes or attributes.get("group", 1) > 1,
    "GRU": _is_unusual_recurrent,
    "GlobalMaxPool": lambda node, attributes: True,
    "LSTM": _is_unusual_recurrent,
    "LpNormalization": lambda node, attributes: "p" in attributes,
    "MaxPool": lambda node, attributes: "auto_pad" in attributes,
    "RNN": _is_unusual_recurrent,
    "Resize": _is_wrong_resize,
    "RoiAlign": lambda node, attributes: True,
}
"""Operator -> function that returns True for nodes that every version evaluates differently from the standard."""


class BatchNormalization(OpRun):
    """Inference below opset 14, where the evaluator uses the statistics of the batch."""

    def _run(self, x: Any, scale: Any, bias: Any, mean: Any, var: Any, epsilon: float = 1e-5, **_: Any) -> Any:
        scale, bias, mean, var = (part.reshape(-1, *[1] * (x.ndim - 2)) for part in (scale, bias, mean, var))
        return ((scale * (x - mean) / np.sqrt(var + np.float32(epsilon)) + bias).astype(x.dtype),)


def _rows(x: Any, axis: int) -> Any:
    """Flatten all axes from ``axis`` on, as below opset 13."""
    return x.reshape(int(np.prod(x.shape[: axis % x.ndim])), -1)


class Softmax(OpRun):
    """Softmax below opset 13."""

    op_schema = onnx.defs.get_schema("Softmax", 11)  # whose axis is 1 by default

    def _run(self, x: Any, axis: int) -> Any:
        rows = _rows(x, axis)
        powers = np.exp(rows - rows.max(axis=1, keepdims=True))
        return ((powers / powers.sum(axis=1, keepdims=True)).reshape(x.shape).astype(x.dtype),)


class LogSoftmax(OpRun):
    """Logarithm of softmax below opset 13."""

    op_schema = onnx.defs.get_schema("LogSoftmax", 11)  # whose axis is 1 by default

    def _run(self, x: Any, axis: int) -> Any:
        rows = _rows(x, axis)
        rows = rows - rows.max(axis=1, keepdims=True)
        return ((rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))).reshape(x.shape).astype(x.dtype),)


class Hardmax(OpRun):
    """One at the first maximum, below opset 13."""

    op_schema = onnx.defs.get_schema("Hardmax", 11)  # whose axis is 1 by default

    def _run(self, x: Any, axis: int) -> Any:
        rows = _rows(x, axis)
        return (np.eye(rows.shape[1], dtype=x.dtype)[rows.argmax(axis=1)].reshape(x.shape),)


def make_evaluator(model: Any) -> Any:
    """Return the evaluator of a model.

    Raises:
        ValueError: the evaluator computes a node differently from the standard.
    """
    opset = max((item.version for item in model.opset_import if item.domain in ("", "ai.onnx")), default=1)
    installed = Version(onnx.__version__)
    for node in _nodes(model):
        attributes = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
        versions = [WRONG_BEFORE.get((node.op_type, name)) for name in ("", *attributes)]
        is_old = any(version and installed < Version(version) for version in versions)
        is_training = node.op_type == "BatchNormalization" and opset < 14 and (opset < 7 or len(node.output) > 1)
        is_wrong = node.op_type in WRONG and WRONG[node.op_type](node, attributes)
        if node.domain in ("", "ai.onnx") and (is_old or is_training or is_wrong):
            raise ValueError(f"its {node.op_type} '{node.name}' is not computed as the standard says")
    corrected: list[Any] = []
    if opset < 14:
        corrected.append(BatchNormalization)
    if opset < 13:
        corrected += [Softmax, LogSoftmax, Hardmax]
    return ReferenceEvaluator(model, new_ops=corrected)


def _nodes(model: Any) -> Iterator[Any]:
    pending = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    while pending:
        node = pending.pop()
        yield node
        for attribute in node.attribute:
            for graph in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                pending += graph.node


def onnx_runner(source: str, settings: Settings) -> Runner:
    """Use the evaluator of the onnx package, which is written in Python and NumPy."""
    model = load_onnx(source)
    evaluator = make_evaluator(model)
    outputs = [item.name for item in model.graph.output]
    inputs: dict[str, tuple[str, Any]] = {}
    for item in model.graph.input:
        tensor = item.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
        inputs[item.name] = (dtype, tensor.shape.dim)

    def run(feed: Arrays) -> Results:
        feed = {name: cast_input(array, *inputs[name]) for name, array in feed.items() if name in inputs}
        if settings["outputs_only"]:
            return Results(dict(zip(outputs, evaluator.run(None, feed), strict=True)), {})
        tensors = dict(evaluator.run(None, feed, intermediate=True))
        return Results({name: tensors.pop(name) for name in outputs}, tensors)

    return run


if __name__ == "__main__":
    run_folder(onnx_runner, *sys.argv[2:])
