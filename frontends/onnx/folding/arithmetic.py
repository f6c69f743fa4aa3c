"""Constant evaluators of arithmetic, comparison, logic, reductions and casts, in the element type of the file."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from tpuconvert.frontends.onnx import shape_arguments
from tpuconvert.frontends.onnx.file import element_types
from tpuconvert.frontends.onnx.file.element_types import ELEMENTS, Element, describe
from tpuconvert.frontends.onnx.node import OnnxNode, folds
from tpuconvert.frontends.open_extents import is_shape_tensor
from tpuconvert.schema.errors import UNSUPPORTED_TYPE
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.types import Array

Unary = Callable[[Array], Array]
Binary = Callable[[Array, Array], Array]


def _operands(node: OnnxNode) -> list[Array]:
    """Return all inputs after checking the size of their common shape. Broadcasting of opset 6 aligns on the left."""
    arrays = [node.constant(index) for index in range(len(node.inputs))]
    if not arrays:
        raise node.invalid("has no inputs")
    if len(arrays) == 2 and node.version < 7 and node.attr("broadcast", 0):
        axis = node.axis(node.attr("axis", arrays[0].ndim - arrays[1].ndim), max(arrays[0].ndim, 1))
        after = arrays[0].ndim - axis - arrays[1].ndim
        arrays[1] = arrays[1].reshape(arrays[1].shape + (1,) * max(after, 0))
    kinds = {array.dtype for array in arrays if not is_shape_tensor(array)}
    if len(kinds) > 1:
        raise node.invalid(f"operands of different types: {', '.join(str(a.dtype) for a in arrays)}")
    node.budget(np.broadcast_shapes(*(array.shape for array in arrays)), 8)
    return arrays


def _divide(a: Array, b: Array) -> Array:
    """Divide; integer division truncates toward zero."""
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    if is_shape_tensor(a):
        return np.asarray(a // b)  # symbolic extents accept exact quotients only
    if (b == 0).any():
        raise ValueError("integer division by zero")
    quotient = np.abs(a) // np.abs(b)
    return np.asarray(np.where((a < 0) != (b < 0), -quotient, quotient))


def _apply(function: Callable[..., Array], *arrays: Array) -> Array:
    """Apply a NumPy function; report its TypeError as an invalid node."""
    try:
        return np.asarray(function(*arrays))
    except TypeError as error:
        raise ValueError(f"not defined for {arrays[0].dtype}") from error


def _binary(name: str, function: Binary, since: int = 1) -> None:
    def evaluate(node: OnnxNode, _: Graph) -> Array:
        a, b = _operands(node)
        return _apply(function, a, b)

    folds(name, since=since)(evaluate)


for _name, _function in (
    ("Add", np.add),
    ("Sub", np.subtract),
    ("Mul", np.multiply),
    ("Div", _divide),
    ("Equal", np.equal),
    ("Less", np.less),
    ("Greater", np.greater),
    ("LessOrEqual", np.less_equal),
    ("GreaterOrEqual", np.greater_equal),
    ("And", np.logical_and),
    ("Or", np.logical_or),
    ("Xor", np.logical_xor),
    ("BitwiseAnd", np.bitwise_and),
    ("BitwiseOr", np.bitwise_or),
    ("BitwiseXor", np.bitwise_xor),
):
    _binary(_name, _function)


def _variadic(name: str, function: Binary) -> None:
    def evaluate(node: OnnxNode, _: Graph) -> Array:
        return functools.reduce(functools.partial(_apply, function), _operands(node))

    folds(name, since=1)(evaluate)


_variadic("Max", np.maximum)
_variadic("Min", np.minimum)
_variadic("Sum", np.add)


def _unary(name: str, function: Unary, since: int = 1) -> None:
    def evaluate(node: OnnxNode, _: Graph) -> Array:
        x = node.constant(0)
        return _apply(function, x).astype(x.dtype, copy=False)

    folds(name, since=since)(evaluate)


for _name, _one in (
    ("Neg", np.negative),
    ("Abs", np.abs),
    ("Sign", np.sign),
    ("Floor", np.floor),
    ("Ceil", np.ceil),
    ("Round", np.rint),
    ("Sqrt", np.sqrt),
    ("Exp", np.exp),
    ("Log", np.log),
    ("Sin", np.sin),
    ("Cos", np.cos),
    ("Reciprocal", lambda x: 1 / x),
    ("Relu", lambda x: np.maximum(x, 0)),
    ("Not", np.logical_not),
    ("BitwiseNot", np.invert),
):
    _unary(_name, _one)


@folds("Mod", since=10)
def mod(node: OnnxNode, _: Graph) -> Array:
    """Remainder with the sign of the divisor; with ``fmod`` it has the sign of the dividend."""
    a, b = _operands(node)
    if a.dtype.kind in "iu" and (b == 0).any():
        raise node.invalid("integer division by zero")
    return np.fmod(a, b) if node.attr("fmod", 0) else np.mod(a, b)


@folds("Pow", since=1)
def power(node: OnnxNode, _: Graph) -> Array:
    """``a ** b`` in the type of ``a``."""
    if node.version < 7:
        node.refuse_attr("broadcast", 0)
        node.refuse_attr("axis", None)
    a, b = node.constant(0), node.constant(1)
    node.budget(np.broadcast_shapes(a.shape, b.shape), 8)
    if a.dtype.kind in "iu" and b.dtype.kind in "iu" and (b >= 0).all():
        return np.power(a, b.astype(np.int64)).astype(a.dtype)
    return np.power(a.astype(np.float64), b).astype(a.dtype)


def cast_array(array: Array, target: Element) -> Array:
    """Cast elements: floats to integers truncate toward zero, bfloat16 rounds half to even."""
    if target.bits < 8 or "float8" in target.name:
        raise ValueError(f"cast to {target}")
    if target is element_types.BFLOAT16:
        bits = np.atleast_1d(array).astype(np.float32).view(np.uint32).astype(np.uint64)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        widened: Array = np.asarray(rounded.astype(np.uint32)).view(np.float32)
        widened[np.isnan(np.atleast_1d(array))] = np.nan
        return widened.reshape(array.shape)
    if is_shape_tensor(array) and (target.is_integer or target is element_types.FLOAT):
        return array
    if target is element_types.BOOL:
        return np.not_equal(array, 0)
    return array.astype(target.numpy)


_OLD_NAMES = {"FLOAT": 1, "UINT8": 2, "INT8": 3, "UINT16": 4, "INT16": 5, "INT32": 6, "INT64": 7, "BOOL": 9,
              "FLOAT16": 10, "DOUBLE": 11, "UINT32": 12, "UINT64": 13}  # fmt: skip


def cast_target(node: OnnxNode) -> Element:
    """Result type of Cast; the attribute is a type name before opset 6, and a type code since then."""
    code = _OLD_NAMES.get(node.required_attr("to", ""), 0) if node.version < 6 else node.required_attr("to", 0)
    node.optional_attr("saturate")  # applies to float8 only, which is not supported
    node.optional_attr("round_mode")  # applies to float8 only, too
    target = ELEMENTS.get(code)
    if target is None or target.bits < 8 or "float8" in target.name:
        raise node.fail(UNSUPPORTED_TYPE, f"cast to {describe(code)}", "supported: numbers of 8 bits and more")
    return target


@folds("Clip", since=1)
def clip(node: OnnxNode, _: Graph) -> Array:
    """Clamp to an interval."""
    x = node.constant(0)
    if node.version < 11:
        return np.clip(x, node.attr("min", float("-inf")), node.attr("max", float("inf"))).astype(x.dtype)
    clamped = np.maximum(x, node.constant(1)) if node.has_input(1) else x
    return np.minimum(clamped, node.constant(2)) if node.has_input(2) else clamped


def _reduction(name: str, function: Callable[..., Array], input_since: int) -> None:
    def evaluate(node: OnnxNode, _: Graph) -> Array:
        x = node.constant(0)
        axes = shape_arguments.reduce_axes(node, input_since)
        keep = bool(node.attr("keepdims", 1))
        if not axes and x.ndim:
            return x
        if not x.size and name in _OF_NOTHING:
            target = shape_arguments.without(x.shape, axes, keep)
            return np.full(target, _OF_NOTHING[name](x.dtype), x.dtype)
        return np.asarray(function(x, axis=axes, keepdims=keep)).astype(x.dtype)

    folds(name, since=1)(evaluate)


def _extreme_value(dtype: np.dtype[np.generic], of_maximum: bool) -> float | int | bool:
    """Lowest or highest value of a type: the result of max or min over no elements."""
    if dtype.kind == "b":
        return not of_maximum
    if dtype.kind == "f":
        return -np.inf if of_maximum else np.inf
    limits = np.iinfo(dtype.name)
    return int(limits.min if of_maximum else limits.max)


_OF_NOTHING: dict[str, Callable[[np.dtype[np.generic]], float | int | bool]] = {
    "ReduceMax": lambda dtype: _extreme_value(dtype, True),
    "ReduceMin": lambda dtype: _extreme_value(dtype, False),
}


def _log_sum_exp(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    wide = x.astype(np.float64)
    top = np.max(wide, axis=axis, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0)
    sums = np.log(np.sum(np.exp(wide - top), axis=axis, keepdims=True)) + top
    return np.asarray(sums if keepdims else np.squeeze(sums, axis))


for _name, _reduce, _since in (
    ("ReduceLogSumExp", _log_sum_exp, 18),
    ("ReduceSum", np.sum, 13),
    ("ReduceProd", np.prod, 18),
    ("ReduceMax", np.max, 18),
    ("ReduceMin", np.min, 18),
    ("ReduceMean", np.mean, 18),
):
    _reduction(_name, _reduce, _since)


def _arg(name: str, function: Callable[..., Array]) -> None:
    def evaluate(node: OnnxNode, _: Graph) -> Array:
        x = node.constant(0)
        axis = node.axis(node.attr("axis", 0), x.ndim)
        is_last = bool(node.attr("select_last_index", 0)) if node.version >= 12 else False
        index = function(np.flip(x, axis) if is_last else x, axis=axis)
        if is_last:
            index = x.shape[axis] - 1 - index
        return np.asarray(np.expand_dims(index, axis) if node.attr("keepdims", 1) else index, np.int64)

    folds(name, since=1)(evaluate)


_arg("ArgMax", np.argmax)
_arg("ArgMin", np.argmin)
