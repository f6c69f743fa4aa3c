"""Functions for all frontends that add TPU operators to a graph; they take and return graph values.

Reshapes and permutes of constants are evaluated immediately, so that weights stay constants; all other operators become
nodes. Unary functions such as ``exp`` are in ``formulas``; functions that need several operators are in ``functions``.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import cast as cast_type

import numpy as np

from tpuconvert.frontends import open_extents
from tpuconvert.frontends.cannot_convert import CannotConvertError
from tpuconvert.frontends.extents import Extents
from tpuconvert.frontends.open_extents import OpenExtent, OpenExtentError, is_one
from tpuconvert.schema.arithmetic.elementwise import Arithmetic
from tpuconvert.schema.definition.extents import factorize, split_sum, times, without_parentheses
from tpuconvert.schema.definition.op import Trait
from tpuconvert.schema.errors import INVALID_NODE, UNSUPPORTED_TYPE
from tpuconvert.schema.graph.formula_source import formula_source
from tpuconvert.schema.graph.graph import Graph, Value, static
from tpuconvert.schema.ops.arithmetic import Add, Mul, of_tensors
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Divs, Maxs, Mins, Muls, Rdivs, Rsubs, with_scalar
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.compare import Lt
from tpuconvert.schema.ops.concat import Concat, Split
from tpuconvert.schema.ops.copy import Constdata
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.generation import ShapeFetch
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.positions import FormulaPositions, Positions
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.shape_change import ExpandDims, Reshape, Squeeze, reshape_params
from tpuconvert.schema.ops.symbolic_movement import ReshapeAxes, ReshapeByFormulas, ReshapeLike, SliceAxis
from tpuconvert.schema.ops.tile import Tile
from tpuconvert.schema.types import Array, Dim, DType, QuantParams, Scalar, Shape, format_shape

# Shapes


def extents(value: Value) -> Extents:
    """Shape of a value. Extents may be symbolic (see ``open_extents``)."""
    return Extents(open_extents.from_shape(value.type.shape))


def reshape(g: Graph, x: Value, shape: Sequence[int]) -> Value:
    """Reshape to complete extents (no -1), of which some may be symbolic."""
    if shape is x.shape:
        return x
    new_shape = open_extents.to_shape(shape) or (1,)
    if new_shape == x.shape:
        return x
    if -1 in new_shape or (0 in new_shape and not x.is_constant):
        raise CannotConvertError(INVALID_NODE, f"a tensor without elements, shape {format_shape(new_shape)}")
    if not (x.type.is_static and all(isinstance(extent, int) for extent in new_shape)):
        params = reshape_params(x.shape, new_shape)
        return _reshape_symbolic(g, x, new_shape) if params is None else g.add(Reshape(params), x)
    target = static(new_shape)
    if x.is_constant:
        quant = None if x.quant is None else _reshaped_params(x.quant, extents(x), target)
        stored = None if quant is None or x.stored is None else x.stored.reshape(target)
        return g.constant(x.array.reshape(target), x.name, quant, stored)
    return g.add(Reshape(target), x)


def _reshape_symbolic(g: Graph, x: Value, new_shape: Shape) -> Value:
    """Reshape to a shape that no ``reshape`` operator expresses, because several extents are symbolic.

    Raises:
        OpenExtentError: an extent follows neither from axes of x or of an input, nor from a tensor with this shape.
    """
    if [extent for extent in x.shape if extent != 1] == [extent for extent in new_shape if extent != 1]:
        return _move_unit_axes(g, x, new_shape)
    if (op := _products_of_axes(x.shape, new_shape)) is not None:
        return g.add(op, x)
    if _may_have_equal_counts(x.shape, new_shape) and (source := formula_source(g, new_shape)) is not None:
        return g.add(ReshapeByFormulas(tuple(map(str, new_shape)), source.names, source.axes), x, source.value)
    for like in reversed(list(g.values)):
        if like.shape == new_shape and not like.is_constant and _may_have_equal_counts(x.shape, new_shape):
            return g.add(ReshapeLike(), x, like)
    names = [extent for extent in new_shape if isinstance(extent, str) and extent not in x.shape]
    names += [extent for extent in (*new_shape, *x.shape) if isinstance(extent, str)]
    raise OpenExtentError(names[0])


def _may_have_equal_counts(shape: Shape, new_shape: Shape) -> bool:
    """Return True if two shapes have equal numbers of elements for all extents."""
    return times(*shape) == times(*new_shape)


def _products_of_axes(shape: Shape, new_shape: Shape) -> ReshapeAxes | None:
    """Operator whose result extents are multiples of products of axes of x, or None."""
    if times(*shape) != times(*new_shape):
        return None
    factors, masks = [], []
    for extent in new_shape:
        number, names = factorize((extent,))
        mask = 0
        for axis, own in enumerate(shape):
            own_number, own_names = factorize((own,))
            if own_names and own_names <= names and number % own_number == 0:
                mask, number, names = mask | 1 << axis, number // own_number, names - own_names
        if names:
            return None
        factors.append(number)
        masks.append(mask)
    return ReshapeAxes(tuple(factors), (1,) * len(factors), tuple(masks))


def _move_unit_axes(g: Graph, x: Value, new_shape: Sequence[Dim]) -> Value:
    """Reshape to a shape that differs only in unit axes, where symbolic extents rule out a ``reshape`` operator."""
    if removed := tuple(axis for axis, extent in enumerate(x.shape) if extent == 1):
        x = g.add(Squeeze(removed), x)
    for axis, extent in enumerate(new_shape):
        x = g.add(ExpandDims(axis), x) if extent == 1 else x
    return x


def _reshaped_params(quant: QuantParams, old: tuple[int, ...], new: tuple[int, ...]) -> QuantParams | None:
    """Quantization parameters of a reshaped constant; None if their axis does not exist in the new shape."""
    if quant.axis is None:
        return quant
    before, extent = math.prod(old[: quant.axis]), old[quant.axis]
    for axis in range(len(new)):
        if new[axis] == extent and math.prod(new[:axis]) == before:
            return dataclasses.replace(quant, axis=axis)
    return None


def permute(g: Graph, x: Value, order: Sequence[int]) -> Value:
    """Transpose: axis ``k`` of the result is axis ``order[k]`` of x."""
    target = tuple(int(axis) for axis in order)
    if target == tuple(range(len(target))):
        return x
    if x.is_constant:
        quant = x.quant
        if quant is not None and quant.axis is not None:
            quant = dataclasses.replace(quant, axis=target.index(quant.axis))
        stored = None if x.stored is None else np.ascontiguousarray(x.stored.transpose(target))
        assert x.data is not None
        return g.constant(np.ascontiguousarray(x.data.transpose(target)), x.name, quant, stored)
    return g.add(Permute(target), x)


def align(g: Graph, *values: Value) -> list[Value]:
    """Prepend unit axes, so that all values have the same rank."""
    rank = max(value.rank for value in values)
    return [reshape(g, value, (1,) * (rank - value.rank) + extents(value)) for value in values]


def broadcast_shape(*shapes: Sequence[int]) -> tuple[int, ...]:
    """Shape that operands broadcast to, aligned on the right."""
    common: list[int] = []
    for axis in range(-max(map(len, shapes), default=0), 0):
        longer = [shape[axis] for shape in shapes if len(shape) >= -axis and not is_one(shape[axis])]
        if any(extent != longer[0] for extent in longer[1:]):
            text = " and ".join(str(list(shape)) for shape in shapes)
            raise CannotConvertError(INVALID_NODE, f"shapes {text} do not broadcast")
        common.append(longer[0] if longer else 1)
    return tuple(common)


def expand(g: Graph, x: Value, shape: Sequence[int]) -> Value:
    """Broadcast x to a shape: prepend unit axes, then repeat along unit axes."""
    target = tuple(shape)
    own = (1,) * (len(target) - x.rank) + extents(x)
    if any(not is_one(have) and have != want for have, want in zip(own, target, strict=True)):
        raise CannotConvertError(INVALID_NODE, f"shapes {list(own)} and {list(target)} do not broadcast")
    if open_extents.has_zero(target) and not open_extents.open_within(target):
        return as_computed(g, g.constant(np.empty(target, x.dtype.numpy), "empty"))
    x = reshape(g, x, own)
    pairs = list(zip(own, target, strict=True))
    symbolic = {axis: want for axis, (have, want) in enumerate(pairs) if is_one(have) and open_extents.is_open(want)}
    times = tuple(1 if axis in symbolic or have == want else int(want) for axis, (have, want) in enumerate(pairs))
    if set(times) != {1}:
        x = g.add(Tile(times), x)
    for axis, extent in symbolic.items():
        x = _repeat(g, x, axis, cast_type(OpenExtent, extent))
    return x


def is_zeros(value: Value) -> bool:
    """Return True for a constant of zeros, also one that was brought to a symbolic shape (see ``expand``)."""
    if value.is_constant:
        return not value.array.any()
    producer = value.producer
    if producer is None:
        return False
    if isinstance(producer.op, Lt):
        return producer.inputs[0] is producer.inputs[1]
    if isinstance(producer.op, Add):
        return all(operand is not None and is_zeros(operand) for operand in producer.inputs)
    first = producer.inputs[0]
    is_kept = Trait.RESHAPES in producer.op.traits or isinstance(producer.op, (Cast, Tile))
    return is_kept and first is not None and is_zeros(first)


def _repeat(g: Graph, x: Value, axis: int, extent: OpenExtent) -> Value:
    """Repeat x along a unit axis to a symbolic extent.

    The counts of ``tile`` must be integers, but arithmetic broadcasts: x is added to zeros that have this extent.

    Raises:
        OpenExtentError: no input of the model has the extent, or a divisor of it.
    """
    if x.dtype not in (DType.FLOAT32, DType.INT32):
        raise OpenExtentError(extent.name)
    shape = [1] * x.rank
    shape[axis] = extents(zeros := _zeros(g, extent))[0]
    return add(g, x, cast(g, reshape(g, zeros, shape), x.dtype))


def zeros(g: Graph, extent: int) -> Value:
    """Zeros of shape [extent] for a symbolic extent, which may be a sum.

    Raises:
        OpenExtentError: no input of the model has the extent, or an extent of the sum.
    """
    terms = cast_type(OpenExtent, extent).terms()
    return concat(g, [_zeros(g, term) for term in terms], 0)


def extent_number(g: Graph, extent: str) -> Value:
    """Add a symbolic extent as one INT32 element that is computed when the model runs.

    Raises:
        OpenExtentError: neither a tensor has the extent, nor the terms or factors of its formula.
    """
    for value in g.values:
        if not value.is_constant and extent in value.shape:
            axis = value.shape.index(extent)
            return g.add(ShapeFetch(axis, axis + 1), value)
    terms = split_sum(extent)
    number, names = factorize((extent,))
    if len(terms) > 1:
        parts = [_extent_part(g, term) for term in terms]
        return functools.reduce(lambda a, b: g.add(Add(), a, b), parts)
    if number == 1 and names.total() < 2:
        raise OpenExtentError(extent)
    parts = [extent_number(g, without_parentheses(name)) for name in names.elements()]
    product = functools.reduce(lambda a, b: g.add(Mul(), a, b), parts)
    return product if number == 1 else g.add(Mul(), product, _extent_part(g, number))


def _extent_part(g: Graph, extent: Dim) -> Value:
    if isinstance(extent, str):
        return extent_number(g, extent)
    return g.constant(np.array([extent], np.int32), "extent")


def positions(g: Graph, extent: int) -> Value:
    """Add ``0, 1, ..., extent - 1`` in INT32 for a symbolic extent.

    It is computed from the shape of an input if the extent is a formula of its extents: a user of another tensor
    could prevent that this tensor is fused.

    Raises:
        OpenExtentError: the extent is neither such a formula nor an extent of a tensor.
    """
    name = str(extent)
    for value in g.inputs:
        if name in value.shape:
            return g.add(Positions(value.shape.index(name)), value)
    if (source := formula_source(g, [name])) is not None:
        return g.add(FormulaPositions(name, source.names, source.axes), source.value)
    for value in reversed(list(g.values)):
        if not value.is_constant and name in value.shape:
            return g.add(Positions(value.shape.index(name)), value)
    raise OpenExtentError(name)


def _zeros(g: Graph, extent: OpenExtent) -> Value:
    """Zeros of shape [extent]: ``v < v`` of an input v with that extent, which is false for NaN and infinity too.

    An input with another symbolic extent may be empty, as a cache of no tokens is: then ``v`` are positions.
    """
    number, names = factorize((extent.name,))
    for value in g.inputs:
        if names.total() != 1 or (name := next(iter(names))) not in value.shape:
            continue
        axis = value.shape.index(name)
        if any(open_extents.is_open(other) for k, other in enumerate(extents(value)) if k != axis):
            continue
        for other in range(value.rank):
            if other != axis:
                value = slice_axis(g, value, other, 0, 1)
        one = reshape(g, as_float(g, value), (extents(value)[axis], 1))
        zeros = g.add(Lt(), one, one)
        if number > 1:
            zeros = g.add(Tile((1, number)), zeros)
        return reshape(g, zeros, (extents(zeros)[0] * number,))
    numbers = as_float(g, positions(g, cast_type(int, extent)))
    return g.add(Lt(), numbers, numbers)


def slice_axis(g: Graph, x: Value, axis: int, start: int, end: int, step: int = 1) -> Value:
    """Slice one axis: elements start, start + step, ... below end."""
    shape = extents(x)
    if (start, step) == (0, 1) and str(end) == str(shape[axis]):
        return x
    if any(map(open_extents.is_open, shape)):
        return _slice_symbolic(g, x, axis, range(start, end, step))
    starts = tuple(start if k == axis else 0 for k in range(len(shape)))
    ends = tuple(end if k == axis else extent for k, extent in enumerate(shape))
    steps = tuple(step if k == axis else 1 for k in range(len(shape)))
    return extract(g, x, starts, ends, steps)


def _slice_symbolic(g: Graph, x: Value, axis: int, positions: range) -> Value:
    """Slice one axis of a tensor with symbolic extents; ``extract`` would need the ends of all axes as integers."""
    extent = extents(x)[axis]
    if len(positions) == 1 and open_extents.is_open(extent):
        return g.add(SliceAxis(axis, positions.start, positions.stop), x)
    if positions.step == 1:
        sizes = [positions.start, len(positions), extent - positions.stop]
        parts = g.add_all(Split(axis=axis, num=sum(map(bool, sizes)), size=tuple(filter(None, sizes))), x)
        return parts[1 if positions.start else 0]
    index = g.constant(np.array(positions, np.int32), name="index")
    return cast(g, g.add(IndexSelect(dim=axis), as_float(g, x), index), x.dtype)


def extract(g: Graph, x: Value, start: Sequence[int], end: Sequence[int], step: Sequence[int]) -> Value:
    """Slice every axis with a step, by the bounds of the ``extract`` operator."""
    return g.add(Extract(tuple(start), tuple(end), tuple(step)), x)


def concat(g: Graph, parts: Sequence[Value], axis: int) -> Value:
    """Concatenate along an axis; a single part is returned unchanged."""
    return parts[0] if len(parts) == 1 else g.add(Concat(axis), *parts)


# Types and constants


def as_computed(g: Graph, x: Value) -> Value:
    """Return x, copied by a node if it is a constant, for operands that must not be constants."""
    return g.add(Constdata(), x) if x.is_constant else x


def cast(g: Graph, x: Value, dtype: DType) -> Value:
    """Cast to a data type; pairs that the ``cast`` operator does not have go through FLOAT32."""
    if x.dtype is dtype:
        return x
    if not (x.dtype.is_float or dtype.is_float) and 32 in (x.dtype.bits, dtype.bits):
        x = g.add(Cast(DType.FLOAT32), x)
    return g.add(Cast(dtype), x)


def as_float(g: Graph, x: Value) -> Value:
    """Cast to FLOAT32, for operators without an integer form. Integers are exact below 2^24."""
    return cast(g, x, DType.FLOAT32)


def floats(x: Value, what: str = "its input") -> Value:
    """Return x if it is FLOAT32, otherwise raise an error in which ``what`` describes x."""
    if x.dtype is not DType.FLOAT32:
        raise CannotConvertError(UNSUPPORTED_TYPE, f"{what} holds {x.dtype.value}", "supported: floating point")
    return x


def float_constant(g: Graph, data: Array | float, name: str = "constant") -> Value:
    """Add a FLOAT32 constant."""
    return g.constant(np.asarray(data, np.float32), name=name)


# Arithmetic


def binary(g: Graph, function: str, a: Value, b: Value) -> Value:
    """Add a binary arithmetic operator with broadcasting; a constant with one element becomes a scalar operand."""
    if a.dtype is not b.dtype:
        raise CannotConvertError(UNSUPPORTED_TYPE, f"operands of different types: {a.dtype.value} and {b.dtype.value}")
    broadcast_shape(extents(a), extents(b))
    arithmetic = Arithmetic(function)
    has_scalar_form = a.dtype is DType.FLOAT32 or arithmetic is not Arithmetic.DIV
    if has_scalar_form and _is_scalar(b) and a.rank >= b.rank and not a.is_constant:
        return g.add(with_scalar(arithmetic, _scalar(b)), a)
    if has_scalar_form and _is_scalar(a) and b.rank >= a.rank and not b.is_constant:
        return g.add(with_scalar(arithmetic, _scalar(a), scalar_first=True), b)
    return g.add(of_tensors(arithmetic), *align(g, a, b))


def _is_scalar(value: Value) -> bool:
    return value.is_constant and value.array.size == 1


def _scalar(value: Value) -> Scalar:
    return Scalar(value.dtype, value.array.reshape(-1)[0].item())


def add(g: Graph, a: Value, b: Value) -> Value:
    """``a + b``."""
    return binary(g, "add", a, b)


def sub(g: Graph, a: Value, b: Value) -> Value:
    """``a - b``."""
    return binary(g, "sub", a, b)


def mul(g: Graph, a: Value, b: Value) -> Value:
    """``a * b``."""
    return binary(g, "mul", a, b)


def div(g: Graph, a: Value, b: Value) -> Value:
    """``a / b``."""
    return binary(g, "div", a, b)


def _number(x: Value, number: float) -> Scalar:
    return Scalar.f32(number) if x.dtype is DType.FLOAT32 else Scalar(x.dtype, number)


def adds(g: Graph, x: Value, number: float) -> Value:
    """``x + number``."""
    return g.add(Adds(_number(x, number)), x)


def muls(g: Graph, x: Value, number: float) -> Value:
    """``x * number``."""
    return g.add(Muls(_number(x, number)), x)


def divs(g: Graph, x: Value, number: float) -> Value:
    """``x / number``."""
    return g.add(Divs(_number(x, number)), x)


def rsubs(g: Graph, number: float, x: Value) -> Value:
    """``number - x``."""
    return g.add(Rsubs(_number(x, number)), x)


def rdivs(g: Graph, number: float, x: Value) -> Value:
    """``number / x``."""
    return g.add(Rdivs(_number(x, number)), x)


def maxs(g: Graph, x: Value, number: float) -> Value:
    """``max(x, number)``."""
    return g.add(Maxs(_number(x, number)), x)


def mins(g: Graph, x: Value, number: float) -> Value:
    """``min(x, number)``."""
    return g.add(Mins(_number(x, number)), x)


def clamp(g: Graph, x: Value, low: float, high: float) -> Value:
    """``min(max(x, low), high)``, with fewer operators if a bound is infinite."""
    if math.isinf(low) and math.isinf(high):
        return x
    if low > high:
        return mins(g, maxs(g, x, low), high)
    if math.isinf(low):
        return mins(g, x, high)
    if math.isinf(high):
        return maxs(g, x, low)
    return g.add(Clamp(_number(x, low), _number(x, high)), x)


# Reductions


def reduce(g: Graph, method: ReduceMethodType, x: Value, axes: Sequence[int], keep_dims: bool = True) -> Value:
    """Reduce over nonnegative axes."""
    target = tuple(axes)
    return g.add(Reduce(method=method, axis_list=target, axis_num=len(target), keep_dims=keep_dims), x)


def mean(g: Graph, x: Value, axes: Sequence[int], keep_dims: bool = True) -> Value:
    """Arithmetic mean over axes."""
    return reduce(g, ReduceMethodType.REDUCE_MEAN, x, axes, keep_dims)


def total(g: Graph, x: Value, axes: Sequence[int], keep_dims: bool = True) -> Value:
    """Sum over axes."""
    return reduce(g, ReduceMethodType.REDUCE_SUM, x, axes, keep_dims)
