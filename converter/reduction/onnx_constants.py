"""Constants of an ONNX model: their data, random replacements, and smaller ones."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from tpuconvert.frontends.onnx.file.messages import GraphProto, ModelProto, NodeProto, TensorProto
from tpuconvert.frontends.onnx.file.reader import subgraphs
from tpuconvert.frontends.onnx.file.tensor_reader import TensorReader
from tpuconvert.reduction.random_values import FEW, random_like
from tpuconvert.schema.errors import CorruptInputError
from tpuconvert.schema.system.limits import current_limits
from tpuconvert.schema.types import Array

_NUMPY: dict[int, np.dtype[Any]] = {
    TensorProto.FLOAT: np.dtype("<f4"),
    TensorProto.DOUBLE: np.dtype("<f8"),
    TensorProto.FLOAT16: np.dtype("<f2"),
    TensorProto.INT8: np.dtype("i1"),
    TensorProto.UINT8: np.dtype("u1"),
    TensorProto.INT16: np.dtype("<i2"),
    TensorProto.UINT16: np.dtype("<u2"),
    TensorProto.INT32: np.dtype("<i4"),
    TensorProto.UINT32: np.dtype("<u4"),
    TensorProto.INT64: np.dtype("<i8"),
    TensorProto.UINT64: np.dtype("<u8"),
    TensorProto.BOOL: np.dtype("?"),
}
_FIELDS = ("raw_data", "float_data", "double_data", "int32_data", "int64_data", "uint64_data", "string_data")


def tensors_of(graph: GraphProto) -> Iterator[TensorProto]:
    """Dense constants of a graph, of the attributes of its nodes, and of its subgraphs."""
    yield from graph.initializer
    for node in graph.node:
        yield from tensors_of_node(node)


def tensors_of_node(node: NodeProto) -> Iterator[TensorProto]:
    """Constants in the attributes of a node and in its subgraphs."""
    for attribute in node.attribute:
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors
    for inner in subgraphs(node):
        yield from tensors_of(inner)


def read_tensor(tensor: TensorProto) -> Array | None:
    """Return the elements, or None if this module does not write their type, or they are damaged."""
    if tensor.data_type not in _NUMPY:
        return None
    try:
        return TensorReader(None, current_limits()).read(tensor)
    except CorruptInputError:
        return None


def write_tensor(tensor: TensorProto, array: Array) -> None:
    """Replace the elements and the shape of a tensor, whose element type stays."""
    for field in _FIELDS:
        tensor.ClearField(field)
    tensor.ClearField("dims")
    tensor.dims.extend(array.shape)
    tensor.raw_data = np.ascontiguousarray(array).astype(_NUMPY[tensor.data_type]).tobytes()


def is_weight(tensor: TensorProto) -> bool:
    """Return True if a tensor has values of a training: floats of more than one element, or many integers."""
    size = int(np.prod(tensor.dims, dtype=np.int64))
    dtype = _NUMPY.get(tensor.data_type)
    if dtype is None or dtype.kind == "b":
        return False
    return size > 1 if dtype.kind == "f" else size > FEW


def with_random_weights(model: ModelProto, positions: Collection[int], seed: int) -> ModelProto:
    """Return the model with random values in some tensors, by their positions in ``tensors_of``."""
    changed = ModelProto()
    changed.CopyFrom(model)
    for position, tensor in enumerate(tensors_of(changed.graph)):
        if position in positions:
            array = read_tensor(tensor)
            assert array is not None, "only tensors that can be read are chosen"
            write_tensor(tensor, random_like(array, np.random.default_rng((seed, position))))
    return changed


def weight_positions(model: ModelProto) -> list[int]:
    """Positions in ``tensors_of`` of the tensors with weights."""
    return [
        position
        for position, tensor in enumerate(tensors_of(model.graph))
        if is_weight(tensor) and read_tensor(tensor) is not None
    ]


def count_other_weights(model: ModelProto) -> int:
    """Number of constants of several elements whose type this module does not write, or that are sparse."""
    others = [
        tensor for tensor in tensors_of(model.graph) if tensor.data_type not in _NUMPY and np.prod(tensor.dims) > 1
    ]
    return len(others) + len(model.graph.sparse_initializer)


SHAPE_ATTRIBUTES = frozenset(
    {"group", "hidden_size", "kernel_shape", "num_heads", "output_shape", "shape", "split", "value_int", "value_ints"}
)
"""Integer attributes that repeat extents of tensors."""


def with_extent(model: ModelProto, old: int, new: int) -> ModelProto | None:
    """Return the model with an extent replaced in all inputs, constants, shapes and attributes that have it.

    Returns:
        None if a tensor with this extent has a type that this module does not write.

    """
    changed = ModelProto()
    changed.CopyFrom(model)
    graph = changed.graph
    for info in graph.input:
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_value == old:
                dim.dim_value = new
    for info in graph.output:
        info.type.tensor_type.ClearField("shape")
    del graph.value_info[:]
    for tensor in tensors_of(graph):
        if not _shrink(tensor, old, new):
            return None
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name in SHAPE_ATTRIBUTES:
                if attribute.i == old:
                    attribute.i = new
                for position, number in enumerate(attribute.ints):
                    if number == old:
                        attribute.ints[position] = new
    return changed


def _shrink(tensor: TensorProto, old: int, new: int) -> bool:
    """Cut every axis with an extent, and replace it among the elements of a small integer tensor, in place."""
    has_extent = old in tensor.dims
    is_shape = tensor.data_type == TensorProto.INT64 and len(tensor.dims) <= 1 and not is_weight(tensor)
    if not has_extent and not is_shape:
        return True
    array = read_tensor(tensor)
    if array is None:
        return False
    if is_shape:
        array = np.where(array == old, new, array)
    write_tensor(tensor, array[tuple(slice(new) if extent == old else slice(None) for extent in array.shape)])
    return True


def extents_of(model: ModelProto) -> list[int]:
    """Extents above 1 of inputs and constants, the largest first."""
    extents = {dim.dim_value for info in model.graph.input for dim in info.type.tensor_type.shape.dim}
    for tensor in tensors_of(model.graph):
        extents |= set(tensor.dims)
    return sorted((extent for extent in extents if extent > 1), reverse=True)


def with_constants(model: ModelProto, values: Mapping[str, Array], codes: Mapping[str, int]) -> ModelProto:
    """Return the model in which tensors are initializers; the caller removes the nodes that computed them."""
    changed = ModelProto()
    changed.CopyFrom(model)
    for name, array in values.items():
        tensor = TensorProto(name=name, data_type=codes[name])
        write_tensor(tensor, array)
        changed.graph.initializer.append(tensor)
    return changed
