"""ONNX frontend: read ONNX models as graphs of TPU operators."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.system.limits import Limits, current_limits
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
    limits: Limits | None = None,
) -> Graph:
    """Read an ONNX file, or an ``onnx.ModelProto`` that is in memory.

    Args:
        source: path of the file, or the message, which is not modified. External data are in the folder of the file.
        input_shapes: shapes of graph inputs with dynamic extents; a name keeps an extent symbolic.
        inputs: names of tensors to use as inputs of the graph instead of the inputs of the model.
        outputs: names of tensors to use as outputs.
        fixed: values of graph inputs that become constants.
        allow_root: another directory that may contain files of external data.
        limits: bounds on sizes; those in force by default.

    Returns:
        The graph with FLOAT32 arithmetic; values of a quantized model are annotated (``Value.quant``).

    Raises:
        CorruptInputError: damaged, or not an ONNX model.
        UnsupportedError: all parts of the model that cannot be converted.
        UsageError: a name or shape in the arguments does not match the model.
        ResourceLimitError: larger than the limits.
    """
    # 32 ms, which other formats do not need: the converters and the message classes of the onnx package.
    from tpuconvert.frontends.onnx.importer import import_model

    return import_model(
        source,
        allow_root,
        limits or current_limits(),
        input_shapes=input_shapes,
        inputs=inputs,
        outputs=outputs,
        fixed=fixed,
    )
