"""Evaluating operators on constants at conversion time: shapes, indices and widened weights.

Shape arithmetic (SHAPE, STRIDED_SLICE, PACK ...) runs in 64-bit integers and leaves nothing in the graph. Real-valued
constants are left to the optimizer, except where TFLite merely widens weights (DEQUANTIZE, CAST).
An evaluator returns None if it does not apply: an input is not constant, or it is floating point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tpuconvert.frontends.tflite.indexing import strided_index
from tpuconvert.frontends.tflite.node import TfliteNode, folds
from tpuconvert.frontends.tflite.tensors import NUMPY_NAMES
from tpuconvert.schema.errors import INVALID_NODE, UNSUPPORTED_TYPE
from tpuconvert.schema.types import Array

Folded = Array | tuple[Array, ...] | None


def _integers(node: TfliteNode, count: int | None = None) -> list[Array] | None:
    """All inputs as 64-bit integers or Booleans, None if one has another type.

    Raises:
        CannotConvertError: there are not ``count`` inputs, or none at all.
    """
    if not node.input_count or (count is not None and node.input_count != count):
        raise node.fail(INVALID_NODE, f"has {node.input_count} inputs, expected {count or 'at least one'}")
    arrays: list[Array] = []
    for index in range(node.input_count):
        array = node.tensors.array(node.tensor(index)) if node.has_input(index) else None
        if array is None or array.dtype.kind not in "iub" or node.quant(index) is not None:
            return None
        arrays.append(array if array.dtype == np.bool_ else array.astype(np.int64))
    return arrays if node.output_quant() is None else None


def _result(node: TfliteNode, array: Array, index: int = 0) -> Array:
    """The result in the type that the file declares.

    Raises:
        CannotConvertError: it does not fit.
    """
    dtype = np.dtype(NUMPY_NAMES.get(node.output_tensor(index).type, "int64"))
    if dtype.kind in "iu" and array.size and array.dtype.kind in "iu":
        limits = np.iinfo(dtype.name)
        if int(array.min()) < limits.min or int(array.max()) > limits.max:
            raise node.fail(INVALID_NODE, f"its constant result leaves the range of {dtype}")
    return np.asarray(array).astype(dtype, copy=False)


def _within_limit(node: TfliteNode, shape: Sequence[int]) -> None:
    """Refuse a result by its size before it is made."""
    node.check_size(shape, limit=node.tensors.file.limits.max_folded_bytes)


# Questions about shapes


@folds("SHAPE")
def shape(node: TfliteNode) -> Folded:
    """The extents of a tensor, which need not be constant itself."""
    node.ignore_option("out_type")  # the result tensor declares the same type
    return _result(node, np.asarray(node.shape(0), dtype=np.int64))


@folds("RANK")
def rank(node: TfliteNode) -> Folded:
    """The number of axes."""
    return _result(node, np.asarray(node.rank(0), dtype=np.int64))


@folds("BROADCAST_ARGS")
def broadcast_args(node: TfliteNode) -> Folded:
    """The shape that two shapes broadcast to."""
    arrays = _integers(node)
    if arrays is None:
        return None
    if any(array.ndim != 1 or array.dtype == np.bool_ for array in arrays):
        raise node.fail(INVALID_NODE, f"shapes {[list(array.shape) for array in arrays]} must have rank 1")
    try:
        found = np.broadcast_shapes(*(tuple(array.tolist()) for array in arrays))
    except ValueError as error:
        raise node.fail(INVALID_NODE, str(error)) from error
    return _result(node, np.asarray(found, dtype=np.int64))


# Arithmetic


def _div(node: TfliteNode, a: Array, b: Array) -> Array:
    """Integer division towards zero."""
    quotient = np.abs(a) // np.abs(b)
    return np.where((a < 0) != (b < 0), -quotient, quotient)


_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    **{"ADD": np.add, "SUB": np.subtract, "MUL": np.multiply, "MAXIMUM": np.maximum, "MINIMUM": np.minimum},
    **{"FLOOR_DIV": np.floor_divide, "FLOOR_MOD": np.mod},
    **{"EQUAL": np.equal, "NOT_EQUAL": np.not_equal, "LESS": np.less, "LESS_EQUAL": np.less_equal},
    **{"GREATER": np.greater, "GREATER_EQUAL": np.greater_equal},
    **{"LOGICAL_AND": np.logical_and, "LOGICAL_OR": np.logical_or},
}
_BY_ZERO = ("FLOOR_DIV", "FLOOR_MOD", "DIV")


@folds(*_BINARY, "DIV")
def binary(node: TfliteNode) -> Folded:
    """Integer arithmetic and comparison with broadcasting."""
    arrays = _integers(node, 2)
    if arrays is None:
        return None
    a, b = arrays
    if node.op_type in ("ADD", "SUB", "MUL", "DIV"):
        if node.option("fused_activation_function"):
            return None
        node.ignore_option(*(("pot_scale_int16",) if node.op_type in ("ADD", "SUB") else ()))  # quantized kernels only
    if node.op_type in _BY_ZERO and not b.all():
        raise node.fail(INVALID_NODE, "divides by zero")
    try:
        _within_limit(node, np.broadcast_shapes(a.shape, b.shape))
        result = _div(node, a, b) if node.op_type == "DIV" else _BINARY[node.op_type](a, b)
    except ValueError as error:
        raise node.fail(INVALID_NODE, str(error)) from error
    return _result(node, result)


_UNARY: dict[str, Callable[[Array], Array]] = {
    **{"NEG": np.negative, "ABS": np.abs, "SQUARE": np.square, "SIGN": np.sign, "LOGICAL_NOT": np.logical_not},
    "ZEROS_LIKE": np.zeros_like,
}


@folds(*_UNARY)
def unary(node: TfliteNode) -> Folded:
    """Integer functions of one tensor."""
    arrays = _integers(node, 1)
    return None if arrays is None else _result(node, _UNARY[node.op_type](arrays[0]))


_REDUCTIONS: dict[str, Callable[..., Array]] = {
    **{"SUM": np.sum, "REDUCE_PROD": np.prod, "REDUCE_MAX": np.max, "REDUCE_MIN": np.min},
    **{"REDUCE_ANY": np.any, "REDUCE_ALL": np.all},
}


@folds(*_REDUCTIONS)
def reduce(node: TfliteNode) -> Folded:
    """Integer reductions."""
    arrays = _integers(node, 2)
    if arrays is None:
        return None
    axes = node.axes(node.ints(1), node.rank(0))
    if not arrays[0].size:
        raise node.fail(INVALID_NODE, "reduces an empty tensor")
    return _result(node, np.asarray(_REDUCTIONS[node.op_type](arrays[0], axes, keepdims=node.option("keep_dims"))))


@folds("SELECT", "SELECT_V2")
def select(node: TfliteNode) -> Folded:
    """Choice between constants."""
    arrays = _integers(node, 3)
    if arrays is None:
        return None
    if node.op_type == "SELECT" and arrays[0].shape != arrays[1].shape:
        return None
    _within_limit(node, np.broadcast_shapes(*(array.shape for array in arrays)))
    return _result(node, np.where(*arrays))


# Movement


@folds("RESHAPE", "SQUEEZE", "EXPAND_DIMS", "TRANSPOSE")
def move(node: TfliteNode) -> Folded:
    """The same elements in another shape: the shape comes from the inferred one of the converter's rule."""
    arrays = _integers(node)
    if arrays is None:
        return None
    data = arrays[0]
    if node.op_type == "TRANSPOSE":
        order = node.ints(1)
        if sorted(order) != list(range(data.ndim)):
            raise node.fail(INVALID_NODE, f"order {list(order)} for rank {data.ndim}")
        return _result(node, data.transpose(order))
    if node.op_type == "EXPAND_DIMS":
        return _result(node, np.expand_dims(data, node.axis(node.one_int(1), data.ndim + 1)))
    if node.op_type == "SQUEEZE":
        axes = node.axes(node.option("squeeze_dims", ()), data.ndim)
        return _result(node, np.squeeze(data, axes or None))
    node.ignore_option("new_shape")  # the second input says the same; TFLite reads that one first
    target = node.ints(1) if node.has_input(1) else node.option("new_shape", ())
    try:
        return _result(node, data.reshape(target))
    except ValueError as error:
        raise node.fail(INVALID_NODE, str(error)) from error


@folds("PACK")
def pack(node: TfliteNode) -> Folded:
    """Tensors stacked along a new axis."""
    arrays = _integers(node)
    if arrays is None or len({array.shape for array in arrays}) != 1:
        return None
    node.ignore_option("values_count")
    return _result(node, np.stack(arrays, node.axis(node.option("axis"), arrays[0].ndim + 1)))


@folds("UNPACK")
def unpack(node: TfliteNode) -> Folded:
    """The slices along an axis."""
    arrays = _integers(node, 1)
    if arrays is None or not arrays[0].ndim:
        return None
    node.ignore_option("num")
    axis = node.axis(node.option("axis"), arrays[0].ndim)
    parts = np.moveaxis(arrays[0], axis, 0)
    if len(parts) != len(node.operator.outputs):
        raise node.fail(INVALID_NODE, f"has {len(node.operator.outputs)} outputs for {len(parts)} slices")
    return tuple(_result(node, part, index) for index, part in enumerate(parts))


@folds("CONCATENATION")
def concatenation(node: TfliteNode) -> Folded:
    """Tensors joined along an axis."""
    arrays = _integers(node)
    if arrays is None or not arrays or node.option("fused_activation_function"):
        return None
    try:
        return _result(node, np.concatenate(arrays, node.axis(node.option("axis"), arrays[0].ndim)))
    except ValueError as error:
        raise node.fail(INVALID_NODE, str(error)) from error


@folds("STRIDED_SLICE")
def strided_slice(node: TfliteNode) -> Folded:
    """Slices with steps, as NumPy takes them."""
    arrays = _integers(node, 4)
    return None if arrays is None else _result(node, arrays[0][strided_index(node)])


@folds("SLICE")
def slice_(node: TfliteNode) -> Folded:
    """A box of a tensor."""
    arrays = _integers(node, 3)
    if arrays is None:
        return None
    begin, size = node.ints(1), node.ints(2)
    if len(begin) != arrays[0].ndim or len(size) != arrays[0].ndim:
        raise node.fail(INVALID_NODE, f"begin {list(begin)} and size {list(size)} for rank {arrays[0].ndim}")
    index = tuple(slice(b, None if s < 0 else b + s) for b, s in zip(begin, size, strict=True))
    return _result(node, arrays[0][index])


@folds("GATHER")
def gather(node: TfliteNode) -> Folded:
    """Elements by index along an axis."""
    arrays = _integers(node, 2)
    if arrays is None or node.option("batch_dims"):
        return None
    data, indices = arrays
    axis = node.axis(node.option("axis"), data.ndim)
    if indices.size and (int(indices.min()) < 0 or int(indices.max()) >= data.shape[axis]):
        raise node.fail(INVALID_NODE, f"an index is outside the extent {data.shape[axis]}")
    return _result(node, np.take(data, indices, axis))


@folds("TILE")
def tile(node: TfliteNode) -> Folded:
    """Repetition of the whole tensor."""
    arrays = _integers(node, 2)
    if arrays is None or arrays[1].size != arrays[0].ndim:
        return None
    _within_limit(node, [e * r for e, r in zip(arrays[0].shape, node.ints(1), strict=True)])
    return _result(node, np.tile(arrays[0], node.ints(1)))


@folds("BROADCAST_TO")
def broadcast_to(node: TfliteNode) -> Folded:
    """Repetition of extents of 1."""
    arrays = _integers(node, 2)
    if arrays is None:
        return None
    _within_limit(node, node.ints(1))
    try:
        return _result(node, np.broadcast_to(arrays[0], node.ints(1)))
    except ValueError as error:
        raise node.fail(INVALID_NODE, str(error)) from error


# Made from nothing


@folds("FILL")
def fill(node: TfliteNode) -> Folded:
    """One value in a shape that is known."""
    if not (node.is_constant(0) and node.is_constant(1)) or node.output_quant() is not None:
        return None
    _within_limit(node, node.ints(0))
    return np.full(node.ints(0), node.constant(1).reshape(-1)[0])


@folds("RANGE")
def range_(node: TfliteNode) -> Folded:
    """Start, start + delta, ... below the limit."""
    if not all(node.is_constant(index) for index in range(3)):
        return None
    start, limit, delta = (node.constant(index).reshape(-1)[0].item() for index in range(3))
    if delta == 0:
        raise node.fail(INVALID_NODE, "the step is 0")
    if not all(map(math.isfinite, (start, limit, delta))):
        raise node.fail(INVALID_NODE, f"from {start} to {limit} in steps of {delta}")
    count = max(0, int(np.ceil((limit - start) / delta)))
    _within_limit(node, [count])
    result: Array = (start + np.arange(count) * delta).astype(node.constant(0).dtype)
    return result


@folds("STABLEHLO_IOTA")
def iota(node: TfliteNode) -> Folded:
    """Positions along one axis of a shape that the result declares."""
    extents = node.output_tensor().shape
    axis = node.axis(node.option("iota_dimension"), len(extents))
    _within_limit(node, extents)
    line = np.arange(extents[axis]).reshape([-1 if i == axis else 1 for i in range(len(extents))])
    return _result(node, np.broadcast_to(line, extents))


@folds("CAST")
def cast(node: TfliteNode) -> Folded:
    """Cast: integers wrap around, floats are truncated, as in the TFLite kernel."""
    if not node.is_constant(0) or node.quant(0) is not None or node.output_quant() is not None:
        return None
    wanted = NUMPY_NAMES.get(node.output_tensor().type)
    if wanted is None:
        return None
    node.ignore_option("in_data_type", "out_data_type")  # both tensors declare their types
    with np.errstate(invalid="ignore"):
        result: Array = node.constant(0).astype(wanted)
    return result


@folds("DEQUANTIZE")
def dequantize(node: TfliteNode) -> Folded:
    """Dequantize stored weights: float16 is widened, integers are scaled."""
    if not node.is_constant(0):
        return None
    array, quant = node.constant(0), node.quant(0)
    if quant is not None:
        return quant.dequantize(array)
    return array.astype(np.float32) if array.dtype.kind == "f" else None


@folds("DENSIFY")
def densify(node: TfliteNode) -> Folded:
    """Weights that the exporter stored as sparse, which have been filled up when they were read."""
    return node.constant(0)


@folds("BITCAST", limits="constants")
def bitcast(node: TfliteNode) -> Folded:
    """The bytes of a constant read as another type; at run time there is no such operator."""
    wanted, array = NUMPY_NAMES.get(node.output_tensor().type), np.ascontiguousarray(node.constant(0))
    if wanted is None or node.quant(0) is not None or node.output_quant() is not None:
        raise node.fail(UNSUPPORTED_TYPE, f"{node.tensor(0).type} as {node.output_tensor().type}")
    sizes = array.itemsize, np.dtype(wanted).itemsize
    if sizes[0] == sizes[1]:
        return array.view(wanted)
    if sizes[0] > sizes[1]:
        return array[..., None].view(wanted)
    if not array.ndim or array.shape[-1] * sizes[0] != sizes[1]:
        raise node.fail(INVALID_NODE, f"{list(array.shape)} of {array.dtype} as {wanted}")
    return array.view(wanted)[..., 0]
