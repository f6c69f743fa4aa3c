"""Evaluate operators on constants at conversion time: shapes, indices and widened weights.

Shape arithmetic (SHAPE, STRIDED_SLICE, PACK ...) is computed in 64-bit integers and adds no nodes to the graph. The
optimizer folds floating-point constants later, except for weights that are only widened (DEQUANTIZE, CAST).
An evaluator returns None if it does not apply, for example because an input is not constant or is floating point.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from tpuconvert.frontends.tflite.indexing import strided_index
from tpuconvert.frontends.tflite.node import TfliteNode, folds
from tpuconvert.frontends.tflite.tensors import NUMPY_NAMES
from tpuconvert.schema.errors import INVALID_NODE, UNSUPPORTED_TYPE
from tpuconvert.schema.types import Array

Folded = Array | tuple[Array, ...] | None


def _integers(node: TfliteNode, count: int | None = None, *, moves: bool = False) -> list[Array] | None:
    """All inputs as 64-bit integers or Booleans; None if one is not constant, has another type or is quantized.

    With ``moves`` the operator only moves elements, so that a tensor of any type without elements is accepted.

    Raises:
        CannotConvertError: the node does not have ``count`` inputs, or has no inputs.
    """
    if not node.input_count or (count is not None and node.input_count != count):
        raise node.fail(INVALID_NODE, f"has {node.input_count} inputs, expected {count or 'at least one'}")
    arrays: list[Array] = []
    is_empty = False
    for index in range(node.input_count):
        array = node.tensors.array(node.tensor(index)) if node.has_input(index) else None
        if array is None:
            return None
        if array.dtype.kind not in "iub" or node.quant(index) is not None:
            if not moves or array.size:
                return None
            is_empty = True
        arrays.append(array if array.dtype == np.bool_ else array.astype(np.int64))
    return arrays if is_empty or node.output_quant() is None else None


def _result(node: TfliteNode, array: Array, index: int = 0) -> Array:
    """Convert a result to the type that the file declares.

    Raises:
        CannotConvertError: an element is out of the range of the type.
    """
    dtype = np.dtype(NUMPY_NAMES.get(node.output_tensor(index).type, "int64"))
    if dtype.kind in "iu" and array.size and array.dtype.kind in "iu":
        limits = np.iinfo(dtype.name)
        if int(array.min()) < limits.min or int(array.max()) > limits.max:
            raise node.fail(INVALID_NODE, f"its constant result leaves the range of {dtype}")
    return np.asarray(array).astype(dtype, copy=False)


IntegerFunction = Callable[..., Array | None]
"""Evaluator of integers: function of the node and its inputs that returns the result, or None if it does not apply."""


def _integer_fold(
    *names: str, inputs: int | None = None, moves: bool = False
) -> Callable[[IntegerFunction], IntegerFunction]:
    """Register an evaluator for operators with only integer inputs, whose number is checked if it is given.

    With ``moves`` it also evaluates data movement of a tensor of another type that has no elements.
    """

    def register(function: IntegerFunction) -> IntegerFunction:
        @folds(*names)
        @functools.wraps(function)
        def evaluate(node: TfliteNode) -> Folded:
            arrays = _integers(node, inputs, moves=moves)
            result = None if arrays is None else function(node, *arrays)
            return None if result is None else _result(node, result)

        return function

    return register


def _within_limit(node: TfliteNode, shape: Sequence[int]) -> None:
    """Check the size of a result before it is computed."""
    node.check_size(shape, limit=node.tensors.file.limits.max_folded_bytes)


# Shape queries


@folds("SHAPE")
def shape(node: TfliteNode) -> Folded:
    """Shape of the input, whose elements need not be constant."""
    node.ignore_option("out_type")  # redundant: the result tensor has this type
    return _result(node, np.asarray(node.shape(0), dtype=np.int64))


@folds("RANK")
def rank(node: TfliteNode) -> Folded:
    """Rank of the input."""
    return _result(node, np.asarray(node.rank(0), dtype=np.int64))


@_integer_fold("BROADCAST_ARGS")
def broadcast_args(node: TfliteNode, *shapes: Array) -> Array:
    """Shape to which two shapes broadcast."""
    if any(shape.ndim != 1 or shape.dtype == np.bool_ for shape in shapes):
        raise node.fail(INVALID_NODE, f"shapes {[list(shape.shape) for shape in shapes]} must have rank 1")
    return np.asarray(np.broadcast_shapes(*(tuple(shape.tolist()) for shape in shapes)), dtype=np.int64)


# Arithmetic


def _divide(a: Array, b: Array) -> Array:
    """Integer division that truncates toward zero."""
    quotient = np.abs(a) // np.abs(b)
    return np.where((a < 0) != (b < 0), -quotient, quotient)


_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    **{"ADD": np.add, "SUB": np.subtract, "MUL": np.multiply, "MAXIMUM": np.maximum, "MINIMUM": np.minimum},
    **{"DIV": _divide, "FLOOR_DIV": np.floor_divide, "FLOOR_MOD": np.mod},
    **{"EQUAL": np.equal, "NOT_EQUAL": np.not_equal, "LESS": np.less, "LESS_EQUAL": np.less_equal},
    **{"GREATER": np.greater, "GREATER_EQUAL": np.greater_equal},
    **{"LOGICAL_AND": np.logical_and, "LOGICAL_OR": np.logical_or},
}


@_integer_fold(*_BINARY, inputs=2)
def binary(node: TfliteNode, a: Array, b: Array) -> Array | None:
    """Integer arithmetic and comparison with broadcasting."""
    if node.op_type in ("ADD", "SUB", "MUL", "DIV"):
        if node.option("fused_activation_function"):
            return None
        node.ignore_option(*(("pot_scale_int16",) if node.op_type in ("ADD", "SUB") else ()))  # for quantized kernels
    if node.op_type in ("FLOOR_DIV", "FLOOR_MOD", "DIV") and not b.all():
        raise node.fail(INVALID_NODE, "divides by zero")
    _within_limit(node, np.broadcast_shapes(a.shape, b.shape))
    return _BINARY[node.op_type](a, b)


_UNARY: dict[str, Callable[[Array], Array]] = {
    **{"NEG": np.negative, "ABS": np.abs, "SQUARE": np.square, "SIGN": np.sign, "LOGICAL_NOT": np.logical_not},
    "ZEROS_LIKE": np.zeros_like,
}


@_integer_fold(*_UNARY, inputs=1)
def unary(node: TfliteNode, x: Array) -> Array:
    """Unary integer functions."""
    return _UNARY[node.op_type](x)


_REDUCTIONS: dict[str, Callable[..., Array]] = {
    **{"SUM": np.sum, "REDUCE_PROD": np.prod, "REDUCE_MAX": np.max, "REDUCE_MIN": np.min},
    **{"REDUCE_ANY": np.any, "REDUCE_ALL": np.all},
}


@_integer_fold(*_REDUCTIONS, inputs=2)
def reduce(node: TfliteNode, x: Array, _axes: Array) -> Array | None:
    """Integer reductions."""
    axes = node.axes(node.ints(1), node.rank(0))
    if not x.size and node.op_type in ("REDUCE_MAX", "REDUCE_MIN"):
        return None
    return np.asarray(_REDUCTIONS[node.op_type](x, axes, keepdims=node.option("keep_dims")))


@_integer_fold("SELECT", "SELECT_V2", inputs=3)
def select(node: TfliteNode, condition: Array, x: Array, y: Array) -> Array | None:
    """Select elements of two constants by a constant condition."""
    if node.op_type == "SELECT" and condition.shape != x.shape:
        return None
    _within_limit(node, np.broadcast_shapes(condition.shape, x.shape, y.shape))
    return np.where(condition, x, y)


# Data movement


@_integer_fold("TRANSPOSE", moves=True)
def transpose(node: TfliteNode, x: Array, *_order: Array) -> Array:
    """Permute the axes."""
    order = node.ints(1)
    if sorted(order) != list(range(x.ndim)):
        raise node.fail(INVALID_NODE, f"order {list(order)} for rank {x.ndim}")
    return x.transpose(order)


@_integer_fold("EXPAND_DIMS", moves=True)
def expand_dims(node: TfliteNode, x: Array, *_axis: Array) -> Array:
    """Insert an axis of extent 1."""
    return np.expand_dims(x, node.axis(node.one_int(1), x.ndim + 1))


@_integer_fold("SQUEEZE", moves=True)
def squeeze(node: TfliteNode, x: Array, *_unused: Array) -> Array:
    """Remove some or all axes of extent 1."""
    return np.squeeze(x, node.axes(node.option("squeeze_dims", ()), x.ndim) or None)


@_integer_fold("RESHAPE", moves=True)
def reshape(node: TfliteNode, x: Array, *_shape: Array) -> Array:
    """Reshape. The second input takes precedence over the option, as in TFLite."""
    declared = node.option("new_shape", ())
    return x.reshape(node.ints(1) if node.has_input(1) else declared)


@_integer_fold("PACK", moves=True)
def pack(node: TfliteNode, *parts: Array) -> Array | None:
    """Stack tensors along a new axis."""
    if len({part.shape for part in parts}) != 1:
        return None
    node.ignore_option("values_count")
    return np.stack(parts, node.axis(node.option("axis"), parts[0].ndim + 1))


@folds("UNPACK")
def unpack(node: TfliteNode) -> Folded:
    """Split along an axis into slices, and remove the axis."""
    arrays = _integers(node, 1, moves=True)
    if arrays is None or not arrays[0].ndim:
        return None
    node.ignore_option("num")
    axis = node.axis(node.option("axis"), arrays[0].ndim)
    parts = np.moveaxis(arrays[0], axis, 0)
    if len(parts) != len(node.operator.outputs):
        raise node.fail(INVALID_NODE, f"has {len(node.operator.outputs)} outputs for {len(parts)} slices")
    return tuple(_result(node, part, index) for index, part in enumerate(parts))


@_integer_fold("CONCATENATION", moves=True)
def concatenation(node: TfliteNode, *parts: Array) -> Array | None:
    """Concatenate tensors along an axis."""
    if node.option("fused_activation_function"):
        return None
    return np.concatenate(parts, node.axis(node.option("axis"), parts[0].ndim))


@_integer_fold("STRIDED_SLICE", inputs=4, moves=True)
def strided_slice(node: TfliteNode, x: Array, *_bounds: Array) -> Array:
    """Strided slice, as a NumPy index."""
    return np.asarray(x[strided_index(node)])


@_integer_fold("SLICE", inputs=3, moves=True)
def slice_(node: TfliteNode, x: Array, *_bounds: Array) -> Array:
    """Slice a box."""
    begin, size = node.ints(1), node.ints(2)
    if len(begin) != x.ndim or len(size) != x.ndim:
        raise node.fail(INVALID_NODE, f"begin {list(begin)} and size {list(size)} for rank {x.ndim}")
    return x[tuple(slice(b, None if s < 0 else b + s) for b, s in zip(begin, size, strict=True))]


@_integer_fold("GATHER", inputs=2, moves=True)
def gather(node: TfliteNode, x: Array, indices: Array) -> Array | None:
    """Gather slices along an axis."""
    if node.option("batch_dims"):
        return None
    axis = node.axis(node.option("axis"), x.ndim)
    if indices.size and (int(indices.min()) < 0 or int(indices.max()) >= x.shape[axis]):
        raise node.fail(INVALID_NODE, f"an index is outside the extent {x.shape[axis]}")
    return np.take(x, indices, axis)


@_integer_fold("TILE", inputs=2, moves=True)
def tile(node: TfliteNode, x: Array, times: Array) -> Array | None:
    """Repeat the whole tensor along its axes."""
    if times.size != x.ndim:
        return None
    _within_limit(node, [extent * count for extent, count in zip(x.shape, node.ints(1), strict=True)])
    return np.tile(x, node.ints(1))


@_integer_fold("BROADCAST_TO", inputs=2, moves=True)
def broadcast_to(node: TfliteNode, x: Array, _shape: Array) -> Array:
    """Broadcast to a shape: repeat unit axes."""
    _within_limit(node, node.ints(1))
    return np.broadcast_to(x, node.ints(1))


# Creation of constants, and type conversions


@folds("FILL")
def fill(node: TfliteNode) -> Folded:
    """Constant of a constant shape, filled with a constant value."""
    if not (node.is_constant(0) and node.is_constant(1)) or node.output_quant() is not None:
        return None
    _within_limit(node, node.ints(0))
    return np.full(node.ints(0), node.constant(1).reshape(()))


@folds("RANGE")
def range_(node: TfliteNode) -> Folded:
    """``start, start + delta, ...`` below ``limit``."""
    if not all(node.is_constant(index) for index in range(3)):
        return None
    start, limit, delta = (node.constant(index).reshape(()).item() for index in range(3))
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
    """Index along one axis of each element, in the declared shape of the result."""
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
    dtype = NUMPY_NAMES.get(node.output_tensor().type)
    if dtype is None:
        return None
    node.ignore_option("in_data_type", "out_data_type")  # redundant: both tensors have types
    with np.errstate(invalid="ignore"):
        result: Array = node.constant(0).astype(dtype)
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
    """Return the dense weights: sparse tensors are already converted when the file is read."""
    return node.constant(0)


@folds("BITCAST", limits="constants")
def bitcast(node: TfliteNode) -> Folded:
    """Reinterpret the bytes of a constant as another type; no TPU operator does this at run time."""
    dtype, array = NUMPY_NAMES.get(node.output_tensor().type), np.array(node.constant(0), order="C")
    if dtype is None or node.quant(0) is not None or node.output_quant() is not None:
        raise node.fail(UNSUPPORTED_TYPE, f"{node.tensor(0).type} as {node.output_tensor().type}")
    sizes = array.itemsize, np.dtype(dtype).itemsize
    if sizes[0] == sizes[1]:
        return array.view(dtype)
    if sizes[0] > sizes[1]:
        return array[..., None].view(dtype)
    if not array.ndim or array.shape[-1] * sizes[0] != sizes[1]:
        raise node.fail(INVALID_NODE, f"{list(array.shape)} of {array.dtype} as {dtype}")
    return array.view(dtype)[..., 0]
