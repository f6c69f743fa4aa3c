"""Constants of TFLite models: random replacements, smaller ones, and quantization parameters."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import tflite

from tpuconvert.frontends.tflite.file.rows import ROWS
from tpuconvert.reduction.random_values import FEW, random_like
from tpuconvert.reduction.tflite_parts import compact, elements, has_data
from tpuconvert.schema.types import Array

DTYPES: dict[int, np.dtype[Any]] = {
    tflite.TensorType.FLOAT32: np.dtype("<f4"),
    tflite.TensorType.FLOAT16: np.dtype("<f2"),
    tflite.TensorType.FLOAT64: np.dtype("<f8"),
    tflite.TensorType.INT8: np.dtype("i1"),
    tflite.TensorType.UINT8: np.dtype("u1"),
    tflite.TensorType.INT16: np.dtype("<i2"),
    tflite.TensorType.UINT16: np.dtype("<u2"),
    tflite.TensorType.INT32: np.dtype("<i4"),
    tflite.TensorType.UINT32: np.dtype("<u4"),
    tflite.TensorType.INT64: np.dtype("<i8"),
    tflite.TensorType.UINT64: np.dtype("<u8"),
    tflite.TensorType.BOOL: np.dtype("?"),
}
"""Element types that this module writes."""

Position = tuple[str, int, int]
"""``data`` or ``scales``, index of the subgraph, index of the tensor."""


def constants_of(model: Any) -> Iterator[tuple[int, int, Any]]:
    """Index of the subgraph, index of the tensor, and tensor, for each constant; one of those that share a buffer."""
    seen: set[int] = set()
    for number, subgraph in enumerate(model.subgraphs):
        for index, tensor in enumerate(subgraph.tensors):
            if has_data(model, tensor) and tensor.buffer not in seen:
                seen.add(tensor.buffer)
                yield number, index, tensor


def read_constant(model: Any, tensor: Any) -> Array | None:
    """Return the elements of a constant, or None if this module does not write its type or form."""
    dtype = DTYPES.get(tensor.type)
    data = model.buffers[tensor.buffer].data
    if dtype is None or tensor.sparsity is not None or len(data) != elements(tensor) * dtype.itemsize:
        return None
    array: Array = np.frombuffer(data.tobytes(), dtype).reshape(tensor.shape)
    return array


def is_weight(tensor: Any) -> bool:
    """Return True for floats and quantized integers of more than one element, and for many other integers."""
    dtype = DTYPES.get(tensor.type)
    if dtype is None or dtype.kind == "b":
        return False
    is_quantized = tensor.quantization is not None and len(tensor.quantization.scale) > 0
    return elements(tensor) > (1 if dtype.kind == "f" or is_quantized else FEW)


def weight_positions(model: Any) -> list[Position]:
    """Positions of the weights, and of the vectors of scales per channel, which were derived from weights."""
    positions: list[Position] = [
        ("data", number, index)
        for number, index, tensor in constants_of(model)
        if is_weight(tensor) and read_constant(model, tensor) is not None
    ]
    positions += [
        ("scales", number, index)
        for number, subgraph in enumerate(model.subgraphs)
        for index, tensor in enumerate(subgraph.tensors)
        if tensor.quantization is not None and len(set(tensor.quantization.scale)) > 1
    ]
    return positions


def count_other_weights(model: Any) -> int:
    """Number of constants of several elements whose type or form this module does not write."""
    return sum(elements(tensor) > 1 and read_constant(model, tensor) is None for _, _, tensor in constants_of(model))


def with_random_weights(model: Any, positions: Collection[Position], seed: int) -> Any:
    """Return the model with random values in some constants, and equal scales in some vectors of scales.

    Scales per channel become their geometric mean. The scales of a bias are the products of the scales of the input
    and of the weights; so are their means.
    """
    buffers = list(model.buffers)
    for kind, number, index in positions:
        if kind == "data":
            tensor = model.subgraphs[number].tensors[index]
            array = read_constant(model, tensor)
            assert array is not None, "only constants that can be read are chosen"
            drawn = random_like(array, np.random.default_rng((seed, number, index)))
            buffers[tensor.buffer] = _buffer(drawn)
    chosen = {(number, index) for kind, number, index in positions if kind == "scales"}
    subgraphs = [
        subgraph._replace(
            tensors=tuple(
                _with_equal_scales(tensor) if (number, index) in chosen else tensor
                for index, tensor in enumerate(subgraph.tensors)
            )
        )
        for number, subgraph in enumerate(model.subgraphs)
    ]
    return model._replace(buffers=tuple(buffers), subgraphs=tuple(subgraphs))


def _buffer(array: Array) -> Any:
    return ROWS["Buffer"](data=np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8))


def _with_equal_scales(tensor: Any) -> Any:
    scales = np.asarray(tensor.quantization.scale, np.float64)
    if not (scales > 0).all():
        return tensor
    mean = float(np.exp(np.log(scales).mean()))
    return tensor._replace(quantization=tensor.quantization._replace(scale=(mean,) * len(scales)))


def extents_of(model: Any) -> list[int]:
    """Extents above 1 of the inputs and constants of the first subgraph, the largest first."""
    main = model.subgraphs[0]
    shapes = [main.tensors[index].shape for index in main.inputs]
    shapes += [tensor.shape for tensor in main.tensors if has_data(model, tensor)]
    return sorted({extent for shape in shapes for extent in shape if extent > 1}, reverse=True)


def with_extent(model: Any, old: int, new: int) -> Any | None:
    """Return the model with an extent replaced in the tensors, shapes and options of the first subgraph that have it.

    Returns:
        None if a constant with this extent has a type or form that this module does not write.

    """
    main = model.subgraphs[0]
    buffers, tensors = list(model.buffers), []
    for tensor in main.tensors:
        changed = _cut_tensor(tensor, old, new)
        if has_data(model, tensor):
            array = _cut_constant(model, tensor, old, new)
            if array is None:
                return None
            buffers.append(_buffer(array))
            changed = changed._replace(buffer=len(buffers) - 1)
        tensors.append(changed)
    operators = [_cut_options(operator, old, new) for operator in main.operators]
    part = main._replace(tensors=tuple(tensors), operators=tuple(operators))
    return compact(model._replace(buffers=tuple(buffers), subgraphs=(part, *model.subgraphs[1:])))


def _cut_tensor(tensor: Any, old: int, new: int) -> Any:
    def cut(extents: Any) -> tuple[int, ...]:
        return tuple(new if extent == old else extent for extent in extents)

    scales, axis = tensor.quantization, 0 if tensor.quantization is None else tensor.quantization.quantized_dimension
    if scales is not None and len(scales.scale) == old and axis < len(tensor.shape) and tensor.shape[axis] == old:
        zero_points = tuple(scales.zero_point)
        scales = scales._replace(
            scale=tuple(scales.scale)[:new], zero_point=zero_points[:new] if len(zero_points) == old else zero_points
        )
    return tensor._replace(shape=cut(tensor.shape), shape_signature=cut(tensor.shape_signature), quantization=scales)


def _cut_constant(model: Any, tensor: Any, old: int, new: int) -> Array | None:
    """Cut every axis with an extent, and replace it among the elements of a small integer tensor."""
    array = read_constant(model, tensor)
    if array is None:
        return None if old in tensor.shape else model.buffers[tensor.buffer].data
    is_shape = array.dtype.kind == "i" and array.ndim <= 1 and not is_weight(tensor) and tensor.type in _SHAPE_TYPES
    if is_shape:
        array = np.where(array == old, new, array).astype(array.dtype)
    return array[tuple(slice(new) if extent == old else slice(None) for extent in array.shape)]


_SHAPE_TYPES = (tflite.TensorType.INT32, tflite.TensorType.INT64)


def _cut_options(operator: Any, old: int, new: int) -> Any:
    options = operator.builtin_options
    if options is None or not hasattr(options, "new_shape"):
        return operator
    shape = tuple(new if extent == old else extent for extent in options.new_shape)
    return operator._replace(builtin_options=options._replace(new_shape=shape))
