"""Operators that are no-ops at inference: Identity and Dropout."""

from __future__ import annotations

import numpy as np

from tpuconvert.frontends.onnx.element_types import BOOL, FLOAT
from tpuconvert.frontends.onnx.node import Folded, OnnxNode, OnnxTensor, onnx_op
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import UNSUPPORTED_ATTRIBUTE
from tpuconvert.schema.graph import Graph


@onnx_op("Identity", since=1, kind=Kind.FOLDED)
def identity(node: OnnxNode, _: Graph) -> OnnxTensor:
    """The input; no node is added."""
    return node.tensor(0)


@onnx_op("Dropout", since=1, kind=Kind.FOLDED, limits="inference")
def dropout(node: OnnxNode, _: Graph) -> list[OnnxTensor | Folded]:
    """The input: dropout has no effect at inference; the mask is true everywhere."""
    if node.version < 7:
        node.refuse_attr("is_test", 1, "training is not supported: export the model for inference")
    node.optional_attr("ratio")
    node.optional_attr("seed")
    if node.has_input(1):
        node.tensor(1)  # the ratio does not matter
    if node.has_input(2) and node.scalar(2):
        raise node.fail(UNSUPPORTED_ATTRIBUTE, "training_mode is true", "export the model for inference")
    results: list[OnnxTensor | Folded] = [node.tensor(0)]
    if len(node.output_names) > 1:
        node.budget(node.shape(0), 1)
        kind = BOOL if node.version >= 10 else FLOAT
        results.append(Folded(np.ones(node.shape(0), kind.numpy), kind))
    return results
