"""Tensors whose extents are computed when the model runs: ConstantOfShape, and Resize to computed sizes.

``host_pad`` creates the extents: one element, padded by the computed size minus 1.
"""

from __future__ import annotations

import contextlib

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.onnx.file.element_types import FLOAT
from tpuconvert.frontends.onnx.file.messages import TensorProto
from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.frontends.open_extents import OpenExtentError
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import UNSUPPORTED_ATTRIBUTE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.host.pad import HostPad
from tpuconvert.schema.types import Array, DType, Scalar


def computed_sizes(node: OnnxNode, index: int) -> Value:
    """Return an input that holds computed sizes: an INT32 value of rank 1 with a known number of elements."""
    value = node.input(index)
    if value.dtype is not DType.INT32 or node.rank(index) != 1 or not isinstance(value.shape[0], int):
        raise node.invalid(f"input {index} holds sizes of type {node.element(index)}{list(node.shape(index))}")
    return value


def known_elements(value: Value) -> list[int | None]:
    """Return the elements of a vector that are known at conversion; None for computed ones."""
    if value.is_constant:
        return [int(item) for item in value.array]
    if value.producer is not None and isinstance(value.producer.op, Concat):
        return [item for part in value.producer.inputs if part is not None for item in known_elements(part)]
    (count,) = value.shape
    return [None] * int(count)


def fill(g: Graph, sizes: Value, filler: Array) -> Value:
    """Add a tensor of a computed shape, all of whose elements are ``filler`` (one element in the type of the graph).

    ``sizes`` is an INT32 vector with one size per axis. A negative one is an error of the run.
    """
    (rank,) = sizes.shape
    axes = tuple(range(int(rank)))
    one = g.constant(filler.reshape((1,) * len(axes)), name="filler")
    number = filler.reshape(()).item()
    value = Scalar.f32(number) if one.dtype is DType.FLOAT32 else Scalar(one.dtype, number)
    before = g.constant(np.zeros(len(axes), np.int32), name="before")
    pads = emit.concat(g, [before, emit.adds(g, sizes, -1)], 0)
    return g.add(HostPad(axes=axes, value=value), one, pads)


@onnx_op("ConstantOfShape", since=9, kind=Kind.FOLDED, limits="the host fills a computed shape")
def constant_of_shape(node: OnnxNode, g: Graph) -> Result:
    """Tensor of a computed shape filled with one value; the host creates it if the extents of inputs do not give it."""
    attribute = node.optional_attr("value")
    filler, element = np.zeros(1, np.float32), FLOAT
    if isinstance(attribute, TensorProto):
        filler, element = node.reader.read(attribute), node.reader.element(attribute)
    if filler.size != 1:
        raise node.invalid(f"its value has {filler.size} elements")
    filler = filler.astype(element.graph.numpy)
    if node.is_constant(0) and (extents := node.ints(0)):
        with contextlib.suppress(OpenExtentError):
            one = g.constant(filler.reshape((1,) * len(extents)), name="filler")
            return node.result(emit.expand(g, one, extents), element)
    sizes = computed_sizes(node, 0)
    if not sizes.shape[0]:
        raise node.fail(UNSUPPORTED_ATTRIBUTE, "its computed shape has no axes")
    return node.result(fill(g, sizes, filler), element)
