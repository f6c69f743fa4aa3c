"""Lowerings of floating-point operators at the end of a network. The device may round their results differently."""

from __future__ import annotations

import numpy as np

from tpuconvert.exporters.lowerings import NoExactForm
from tpuconvert.exporters.tpu_mlir.dialect import quantized_element
from tpuconvert.exporters.tpu_mlir.lowering import Lowering, reciprocal_scale, static_shape
from tpuconvert.exporters.tpu_mlir.registry import lowers, lowers_bm1684
from tpuconvert.schema.graph.graph import Node
from tpuconvert.schema.ops.activation import Active
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.ops.softmax_int import SoftmaxInt
from tpuconvert.schema.types import DType

_ACTIVATIONS = {"ACTIVE_SIGMOID": "SIGMOID", "ACTIVE_TANH": "TANH", "ACTIVE_EXP": "EXP"}


@lowers(Softmax)
@lowers_bm1684(Softmax)
def softmax(op: Softmax, node: Node, d: Lowering) -> None:
    """Lower a float32 softmax."""
    y = node.output
    d.add("tpu.Softmax", [d.tensor(node.inputs[0])], y, axis=op.axis % y.rank)


@lowers(Active)
@lowers_bm1684(Active)
def activation(op: Active, node: Node, d: Lowering) -> None:
    """Lower a float32 activation function."""
    mode = _ACTIVATIONS.get(op.active_type.name)
    if mode is None or node.output.dtype is not DType.FLOAT32:
        raise NoExactForm(f"{op.active_type.name} of {node.output.dtype.name} has no exact form")
    d.add("tpu.Active", [d.tensor(node.inputs[0])], node.output, mode=mode)


@lowers(SoftmaxInt)
def softmax_int(op: SoftmaxInt, node: Node, d: Lowering) -> None:
    """Lower an 8-bit softmax that uses a table of exponentials. The result type contains scale and zero point."""
    x, y = node.inputs[0], node.output
    if y.quant is None:
        raise NoExactForm(f"'{y.name}' has no scale, expected {1 / op.scale}")
    table = d.module.weight(np.array(op.table, np.float32), "f32", f"{y.name}_table", (1, 1, 1, 256))
    element = quantized_element(y.dtype, y.quant, reciprocal_scale(op.scale), op.zero_point)
    d.define(y, d.module.add("tpu.Softmax", [d.tensor(x), table], static_shape(y), element, y.name, axis=1))
