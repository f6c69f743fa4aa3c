"""ONNX files as graphs of TPU operators."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tpuconvert.frontends.limits import DEFAULT_LIMITS, Limits
from tpuconvert.frontends.onnx.importer import import_model
from tpuconvert.frontends.onnx.reader import read_model
from tpuconvert.frontends.sniffing import identify
from tpuconvert.schema.graph import Graph
from tpuconvert.schema.types import Array, Dim

if TYPE_CHECKING:
    from onnx import ModelProto


def load(
    source: str | os.PathLike[str] | ModelProto,
    *,
    input_shapes: Mapping[str, Sequence[Dim]] | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    fixed: Mapping[str, Array] | None = None,
    allow_root: str | os.PathLike[str] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Graph:
    """Read an ONNX file, or an ``onnx.ModelProto`` that is in memory.

    Args:
        source: path of the file, next to which external data are searched, or the message, which is not modified.
        input_shapes: extents for graph inputs whose shape the file leaves open; a name leaves one open.
        inputs: tensor names where the graph is to begin, instead of at the model's own inputs.
        outputs: tensor names where it is to end.
        fixed: values of graph inputs that become constants.
        allow_root: a directory that files of external data may be in besides the folder of the model.
        limits: bounds on sizes.

    Returns:
        The graph with FLOAT32 arithmetic; a quantized model carries annotations (``Value.quant``).

    Raises:
        CorruptInputError: damaged, or not an ONNX model.
        UnsupportedError: everything in the model that cannot be represented.
        UsageError: a name or shape in the arguments does not fit the model.
        ResourceLimitError: larger than the limits.
    """
    model = read_model(source, limits, allow_root)
    graph = import_model(model, input_shapes=input_shapes, inputs=inputs, outputs=outputs, fixed=fixed, limits=limits)
    graph.files = model.tensors.files
    return graph


def sniff(head: bytes, path: str | os.PathLike[str]) -> bool:
    """Whether a file with these first bytes and this name is meant to be read as ONNX.

    Protobuf has no magic number, so the name decides where the bytes say nothing.
    """
    name = os.fspath(path)
    kind = identify(head, max(len(head), 1), os.path.basename(name))
    if kind is not None and kind.id in ("tflite", "tpum", "prototxt"):
        return False
    return name.lower().endswith((".onnx", ".ort")) or (kind is not None and kind.id == "onnx")
