"""Reductions over axes, ArgMax, ArgMin, TopK, cumulative sums and products, determinants."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tpuconvert.frontends import emit, functions
from tpuconvert.frontends.onnx import shape_arguments
from tpuconvert.frontends.onnx.file import element_types
from tpuconvert.frontends.onnx.file.element_types import SMALL
from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.frontends.onnx.operators.data_movement import gather_slices
from tpuconvert.frontends.open_extents import is_open
from tpuconvert.frontends.registry import Kind
from tpuconvert.frontends.small_integers import as_integers
from tpuconvert.schema.errors import UNSUPPORTED_ATTRIBUTE, UNSUPPORTED_TYPE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas
from tpuconvert.schema.ops.host.slice import HostSlice
from tpuconvert.schema.ops.ordering import Arg, ArgMethod, Sort, Topk
from tpuconvert.schema.ops.reduce import ReduceMethodType
from tpuconvert.schema.types import DType, TensorType

Before = Callable[[Graph, Value], Value]


def _same(_: Graph, x: Value) -> Value:
    return x


def _reduction(
    name: str,
    method: ReduceMethodType,
    input_since: int = 18,
    before: Before = _same,
    after: Before = _same,
    *,
    of_small_integers: bool = False,
) -> None:
    is_whole = after is _same and method is not ReduceMethodType.REDUCE_MEAN

    def convert(node: OnnxNode, g: Graph) -> Result:
        x = node.input(0)
        if x.dtype in SMALL and not of_small_integers:
            raise node.fail(UNSUPPORTED_TYPE, f"its input is {node.element(0)}", "supported: int32, int64 and floats")
        axes = shape_arguments.reduce_axes(node, input_since)
        keep = bool(node.attr("keepdims", 1))
        y = before(g, emit.as_float(g, x))
        if axes:
            y = emit.reduce(g, method, y, axes, keep)
        shape = shape_arguments.without(node.shape(0), axes, keep)
        y = after(g, y)
        if x.dtype.is_integer:
            y = as_integers(g, y if is_whole else functions.truncate(g, y), x.dtype)
        return node.result(y, node.element(0), scalar=shape == ())

    convert.__doc__ = f"{name}: {method.name}, with element-wise operators before and after it where needed."
    kind = Kind.DIRECT if before is after is _same else Kind.DECOMPOSED
    onnx_op(name, since=1, kind=kind, limits="constant axes")(convert)


_SUM = ReduceMethodType.REDUCE_SUM
_reduction("ReduceSum", _SUM, 13, of_small_integers=True)
_reduction("ReduceMean", ReduceMethodType.REDUCE_MEAN)
_reduction("ReduceMax", ReduceMethodType.REDUCE_MAX, of_small_integers=True)
_reduction("ReduceMin", ReduceMethodType.REDUCE_MIN, of_small_integers=True)
_reduction("ReduceProd", ReduceMethodType.REDUCE_PROD)
_reduction("ReduceL1", _SUM, before=formulas.absolute)
_reduction("ReduceL2", _SUM, before=formulas.square, after=formulas.sqrt)
_reduction("ReduceSumSquare", _SUM, before=formulas.square)
_reduction("ReduceLogSum", _SUM, after=formulas.ln)


@onnx_op("ReduceLogSumExp", since=1)
def log_sum_exp(node: OnnxNode, g: Graph) -> Result:
    """``max + ln(sum(exp(x - max)))``, which cannot overflow.

    The maximum is clamped to finite numbers: infinite elements give an infinite result. Exponentials of integers and
    the result are truncated, like ONNX Runtime does.
    """
    is_integer = node.input(0).dtype.is_integer
    x = emit.as_float(g, node.input(0))
    axes = shape_arguments.reduce_axes(node, 18)
    keep = bool(node.attr("keepdims", 1))
    shape = shape_arguments.without(node.shape(0), axes, keep)
    if not axes:
        return node.elementwise(node.input(0))
    largest = emit.reduce(g, ReduceMethodType.REDUCE_MAX, x, axes)
    largest = formulas.clamp(g, largest, -_LARGEST, _LARGEST)
    powers = formulas.exp(g, emit.sub(g, x, largest))
    sums = emit.total(g, functions.truncate(g, powers) if is_integer else powers, axes)
    y = emit.reshape(g, emit.add(g, formulas.ln(g, sums), largest), shape or (1,))
    if is_integer:
        y = as_integers(g, functions.truncate(g, y), node.input(0).dtype)
    return node.result(y, node.element(0), scalar=shape == ())


_LARGEST = float(np.finfo(np.float32).max)


def _arg(name: str, method: ArgMethod) -> None:
    def convert(node: OnnxNode, g: Graph) -> Result:
        x = emit.as_float(g, node.input(0))
        shape = node.shape(0)
        axis = node.axis(node.attr("axis", 0), len(shape))
        last = node.attr("select_last_index", 0) if node.version >= 12 else 0
        if last:
            node.budget(shape[axis : axis + 1], 8, "index")
            x = gather_slices(g, x, axis, np.arange(shape[axis])[::-1])
        y = g.add(Arg(axis=axis, method=method), x)
        if last:
            y = emit.rsubs(g, shape[axis] - 1, y)
        target = shape_arguments.without(shape, (axis,), bool(node.attr("keepdims", 1)))
        return node.result(emit.reshape(g, y, target or (1,)), element_types.INT64, scalar=target == ())

    convert.__doc__ = f"{name}: index of the first or last extreme element."
    onnx_op(name, since=1, kind=Kind.DIRECT)(convert)


_arg("ArgMax", ArgMethod.max)
_arg("ArgMin", ArgMethod.min)


@onnx_op("TopK", since=1, kind=Kind.DIRECT, limits="the host selects a computed number k of elements")
def top_k(node: OnnxNode, g: Graph) -> list[Result]:
    """The k largest or smallest elements in order, and their indices."""
    x = node.input(0)
    axis = node.axis(node.attr("axis", -1), node.rank(0))
    largest = bool(node.attr("largest", 1)) if node.version >= 11 else True
    if node.version >= 11:
        node.optional_attr("sorted")  # sorted results are valid if it is 0, which leaves the order unspecified
    if node.version >= 10 and not node.is_constant(1):
        zero, count = g.constant(np.zeros(1, np.int32), "zero"), node.input(1)
        order = g.add_all(Sort(dim=axis, descending=largest), emit.as_float(g, x))
        indices, values = (g.add(HostSlice(axis, is_exact=True), value, zero, count) for value in order)
        # Both have the same data-dependent extent, and what is gathered by the indices is joined with the values.
        indices.type = TensorType(indices.dtype, values.shape)
    else:
        k, extent = node.required_attr("k", 1) if node.version < 10 else int(node.scalar(1)), node.shape(0)[axis]
        if k < 1 or (not is_open(extent) and k > extent):
            raise node.invalid(f"k={k} of extent {extent}")
        values, indices = g.add_all(Topk(k=k, axis=axis, descending=largest), emit.as_float(g, x))
    return [
        node.result(emit.cast(g, values, x.dtype), node.element(0)),
        node.result(indices, element_types.INT64),
    ]


@onnx_op("CumSum", since=11, kind=Kind.DIRECT, limits="a constant axis; float32, int32, int64")
def cum_sum(node: OnnxNode, g: Graph) -> Result:
    """Cumulative sum along an axis, as a matmul by a triangular matrix."""
    x = node.input(0)
    shape = node.shape(0)
    axis = node.axis(int(node.scalar(1)), len(shape))
    extent = shape[axis]
    if not is_open(extent):
        node.budget((extent, extent), 4, "triangular matrix")
    exclusive, reverse = bool(node.attr("exclusive", 0)), bool(node.attr("reverse", 0))
    y = functions.cumulative_sum(g, emit.as_float(g, x), axis, exclusive=exclusive, reverse=reverse)
    return node.result(as_integers(g, y, x.dtype) if x.dtype.is_integer else y, node.element(0))


@onnx_op("CumProd", since=26)
def cum_prod(node: OnnxNode, g: Graph) -> Result:
    """Cumulative product along an axis, in log2(extent) steps of doubling distance."""
    x, shape = node.input(0), node.shape(0)
    if x.dtype not in (DType.FLOAT32, DType.INT32):
        raise node.fail(UNSUPPORTED_TYPE, f"its input is {node.element(0)}", "supported: floating point, int32, int64")
    axis = node.axis(int(node.scalar(1)), len(shape))
    is_reverse, extent = bool(node.attr("reverse", 0)), shape[axis]
    node.budget(shape, 4, "factors")
    if node.attr("exclusive", 0):
        x = _moved_on(g, x, axis, 1, is_reverse)
    reach = 1
    while reach < extent:
        x = emit.mul(g, x, _moved_on(g, x, axis, reach, is_reverse))
        reach *= 2
    return node.result(x, node.element(0))


def _moved_on(g: Graph, x: Value, axis: int, count: int, is_reverse: bool) -> Value:
    """Shift the elements along an axis, and fill with ones."""
    shape = emit.extents(x)
    filler = g.constant(np.ones([count if k == axis else n for k, n in enumerate(shape)], x.dtype.numpy), name="ones")
    if count == shape[axis]:
        return filler
    if is_reverse:
        return emit.concat(g, [emit.slice_axis(g, x, axis, count, shape[axis]), filler], axis)
    return emit.concat(g, [filler, emit.slice_axis(g, x, axis, 0, shape[axis] - count)], axis)


@onnx_op("Det", since=11, limits="up to 3 rows")
def determinant(node: OnnxNode, g: Graph) -> Result:
    """Determinants of matrices of up to three rows, by cofactors."""
    x, shape = emit.floats(node.input(0)), node.shape(0)
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise node.invalid(f"matrices of shape {list(shape)}")
    size, last = shape[-1], len(shape) - 1
    if size > 3:
        raise node.fail(UNSUPPORTED_ATTRIBUTE, f"matrices of {size} rows", "supported: up to 3")

    def at(row: int, column: int) -> Value:
        return emit.slice_axis(g, emit.slice_axis(g, x, last - 1, row, row + 1), last, column, column + 1)

    def minor(rows: tuple[int, int], columns: tuple[int, int]) -> Value:
        (a, b), (c, d) = rows, columns
        return emit.sub(g, emit.mul(g, at(a, c), at(b, d)), emit.mul(g, at(a, d), at(b, c)))

    if size == 1:
        y = x
    elif size == 2:
        y = minor((0, 1), (0, 1))
    else:
        first, second, third = (
            emit.mul(g, at(0, k), minor((1, 2), tuple(c for c in range(3) if c != k)))  # type: ignore[arg-type]  # two
            for k in range(3)
        )
        y = emit.add(g, emit.sub(g, first, second), third)
    return node.result(emit.reshape(g, y, shape[:-2] or (1,)), scalar=len(shape) == 2)
