"""Short spellings of the target operators that nearly every converter writes.

Functions take and return graph values. Shape changes of a constant are made at once, so that weights reach their
operator as constants; nothing else is evaluated here. Functions of one value are those of ``formulas``.

Definitions of operators are imported by the functions that write them: a network has few of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from typing import cast as cast_type

import numpy as np

from tpuconvert.frontends.onnx import open_extents
from tpuconvert.frontends.onnx.node import CannotConvertError
from tpuconvert.frontends.onnx.open_extents import is_one
from tpuconvert.schema.errors import INVALID_NODE, UNKNOWN_SHAPE, UNSUPPORTED_TYPE
from tpuconvert.schema.graph import Graph, Value, static
from tpuconvert.schema.op import Op
from tpuconvert.schema.types import Array, Dim, DType, QuantParams, Scalar, format_shape

if TYPE_CHECKING:
    from tpuconvert.schema.ops.reduce import ReduceMethodType


def extents(value: Value) -> tuple[int, ...]:
    """The extents of a value. One may be open (see ``open_extents``), but none may depend on data."""
    shape = value.type.shape
    if str in map(type, shape) and any("?" in str(extent) for extent in shape):
        raise CannotConvertError(UNKNOWN_SHAPE, f"shape {format_shape(shape)} depends on data")
    return open_extents.from_shape(shape)


def reshape(g: Graph, x: Value, shape: Sequence[int]) -> Value:
    """The elements of x in another shape, all of whose extents are given; some may be open."""
    if shape is x.shape:
        return x
    wanted = open_extents.to_shape(shape) or (1,)
    if wanted == x.shape:
        return x
    if 0 in wanted or -1 in wanted:
        raise CannotConvertError(INVALID_NODE, f"a tensor without elements, shape {format_shape(wanted)}")
    from tpuconvert.schema.ops.shape_change import Reshape, reshape_params

    if not (x.type.is_static and all(isinstance(extent, int) for extent in wanted)):
        params = reshape_params(x.shape, wanted)
        return _with_other_ones(g, x, wanted) if params is None else g.add(Reshape(params), x)
    target = static(wanted)
    if x.is_constant:
        quant = None if x.quant is None else _reshaped_params(x.quant, extents(x), target)
        stored = None if quant is None or x.stored is None else x.stored.reshape(target)
        return g.constant(x.array.reshape(target), x.name, quant, stored)
    return g.add(Reshape(target), x)


def _with_other_ones(g: Graph, x: Value, wanted: Sequence[Dim]) -> Value:
    """The elements of x in a shape that differs in its axes of extent 1 alone, for what a reshape cannot say."""
    if [extent for extent in x.shape if extent != 1] != [extent for extent in wanted if extent != 1]:
        names = [extent for extent in wanted if isinstance(extent, str) and extent not in x.shape]
        names += [extent for extent in (*wanted, *x.shape) if isinstance(extent, str)]
        raise open_extents.OpenExtentError(names[0])
    from tpuconvert.schema.ops.shape_change import ExpandDims, Squeeze

    if removed := tuple(axis for axis, extent in enumerate(x.shape) if extent == 1):
        x = g.add(Squeeze(removed), x)
    for axis, extent in enumerate(wanted):
        x = g.add(ExpandDims(axis), x) if extent == 1 else x
    return x


def _reshaped_params(quant: QuantParams, old: tuple[int, ...], new: tuple[int, ...]) -> QuantParams | None:
    """Parameters of a constant in another shape; None where its axis does not survive."""
    if quant.axis is None:
        return quant
    before, extent = math.prod(old[: quant.axis]), old[quant.axis]
    for axis in range(len(new)):
        if new[axis] == extent and math.prod(new[:axis]) == before:
            return QuantParams(quant.scale, quant.zero_point, quant.dtype, axis)
    return None


def permute(g: Graph, x: Value, order: Sequence[int]) -> Value:
    """The elements of x with its axes in another order."""
    target = tuple(int(axis) for axis in order)
    if target == tuple(range(len(target))):
        return x
    if x.is_constant:
        quant = x.quant
        if quant is not None and quant.axis is not None:
            quant = QuantParams(quant.scale, quant.zero_point, quant.dtype, target.index(quant.axis))
        stored = None if x.stored is None else np.ascontiguousarray(x.stored.transpose(target))
        assert x.data is not None
        return g.constant(np.ascontiguousarray(x.data.transpose(target)), x.name, quant, stored)
    from tpuconvert.schema.ops.permute import Permute

    return g.add(Permute(target), x)


def cast(g: Graph, x: Value, dtype: DType) -> Value:
    """The elements of x in another data type; the pairs that the operator set lacks go through FLOAT32."""
    if x.dtype is dtype:
        return x
    from tpuconvert.schema.ops.cast import Cast

    if not (x.dtype.is_float or dtype.is_float) and 32 in (x.dtype.bits, dtype.bits):
        x = g.add(Cast(DType.FLOAT32), x)
    return g.add(Cast(dtype), x)


def as_float(g: Graph, x: Value) -> Value:
    """The elements of x as FLOAT32, for operators without an integer form (integers are exact below 2^24)."""
    return cast(g, x, DType.FLOAT32)


def floats(x: Value, what: str = "its input") -> Value:
    """The same value, when it is floating point."""
    if x.dtype is not DType.FLOAT32:
        raise CannotConvertError(UNSUPPORTED_TYPE, f"{what} holds {x.dtype.value}", "supported: floating point")
    return x


def align(g: Graph, *values: Value) -> list[Value]:
    """Values with axes of extent 1 put in front, so that all have the same rank."""
    rank = max(value.rank for value in values)
    return [reshape(g, value, (1,) * (rank - value.rank) + extents(value)) for value in values]


def expand(g: Graph, x: Value, shape: Sequence[int]) -> Value:
    """The elements of x repeated along its axes of extent 1, after axes were put in front."""
    target = tuple(shape)
    own = (1,) * (len(target) - x.rank) + extents(x)
    if any(not is_one(have) and have != want for have, want in zip(own, target, strict=True)):
        raise CannotConvertError(INVALID_NODE, f"shapes {list(own)} and {list(target)} do not broadcast")
    x = reshape(g, x, own)
    pairs = list(zip(own, target, strict=True))
    longer = {axis: want for axis, (have, want) in enumerate(pairs) if is_one(have) and open_extents.is_open(want)}
    times = tuple(1 if axis in longer else int(want // have) for axis, (have, want) in enumerate(pairs))
    if set(times) != {1}:
        from tpuconvert.schema.ops.tile import Tile

        x = g.add(Tile(times), x)
    if longer:
        from tpuconvert.frontends.onnx.open_repeats import repeat

        for axis, extent in longer.items():
            x = repeat(g, x, axis, cast_type(open_extents.OpenExtent, extent))
    return x


def broadcast_shape(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The common shape of operands, aligned on the right."""
    found: list[int] = []
    for axis in range(-max(map(len, shapes), default=0), 0):
        longer = [shape[axis] for shape in shapes if len(shape) >= -axis and not is_one(shape[axis])]
        if any(extent != longer[0] for extent in longer[1:]):
            text = " and ".join(str(list(shape)) for shape in shapes)
            raise CannotConvertError(INVALID_NODE, f"shapes {text} do not broadcast")
        found.append(longer[0] if longer else 1)
    return tuple(found)


def binary(g: Graph, function: str, a: Value, b: Value) -> Value:
    """An arithmetic operator with right-aligned broadcasting; a constant of one element becomes its scalar."""
    if a.dtype is not b.dtype:
        raise CannotConvertError(UNSUPPORTED_TYPE, f"operands of different types: {a.dtype.value} and {b.dtype.value}")
    broadcast_shape(extents(a), extents(b))
    scalar_forms = a.dtype is DType.FLOAT32 or function != "div"
    if scalar_forms and _is_scalar(b) and a.rank >= b.rank and not a.is_constant:
        return g.add(_with_scalar(function, _scalar(b)), a)
    if scalar_forms and _is_scalar(a) and b.rank >= a.rank and not b.is_constant:
        return g.add(_with_scalar(function, _scalar(a), is_first=True), b)
    return g.add(_of_tensors(function), *align(g, a, b))


def _of_tensors(function: str) -> Op:
    from tpuconvert.schema.ops.arithmetic import Add, Div, Max, Min, Mul, Sub

    forms: dict[str, type[Op]] = {"add": Add, "sub": Sub, "mul": Mul, "div": Div, "max": Max, "min": Min}
    return forms[function]()


def _with_scalar(function: str, number: Scalar, *, is_first: bool = False) -> Op:
    """An arithmetic operator whose second operand is a number, or its first."""
    from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Divs, Maxs, Mins, Muls, Rdivs, Rsubs, Subs

    if is_first and function in ("sub", "div"):
        return Rsubs(number) if function == "sub" else Rdivs(number)
    forms: dict[str, Callable[[Scalar], Op]]
    forms = {"add": Adds, "sub": Subs, "mul": Muls, "div": Divs, "max": Maxs, "min": Mins}
    return forms[function](number)


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


def _scalar_for(x: Value, number: float) -> Scalar:
    return Scalar.f32(number) if x.dtype is DType.FLOAT32 else Scalar(x.dtype, number)


def adds(g: Graph, x: Value, number: float) -> Value:
    """``x + number``."""
    return g.add(_with_scalar("add", _scalar_for(x, number)), x)


def muls(g: Graph, x: Value, number: float) -> Value:
    """``x * number``."""
    return g.add(_with_scalar("mul", _scalar_for(x, number)), x)


def divs(g: Graph, x: Value, number: float) -> Value:
    """``x / number``."""
    return g.add(_with_scalar("div", _scalar_for(x, number)), x)


def rsubs(g: Graph, number: float, x: Value) -> Value:
    """Number - x."""
    return g.add(_with_scalar("sub", _scalar_for(x, number), is_first=True), x)


def rdivs(g: Graph, number: float, x: Value) -> Value:
    """Number / x."""
    return g.add(_with_scalar("div", _scalar_for(x, number), is_first=True), x)


def maxs(g: Graph, x: Value, number: float) -> Value:
    """max(x, number)."""
    return g.add(_with_scalar("max", _scalar_for(x, number)), x)


def mins(g: Graph, x: Value, number: float) -> Value:
    """min(x, number)."""
    return g.add(_with_scalar("min", _scalar_for(x, number)), x)


def reduce(g: Graph, method: ReduceMethodType, x: Value, axes: Sequence[int], keep_dims: bool = True) -> Value:
    """One reduction over axes counted from the front."""
    from tpuconvert.schema.ops.reduce import Reduce

    return g.add(Reduce(method=method, axis_list=tuple(axes), axis_num=len(tuple(axes)), keep_dims=keep_dims), x)


def mean(g: Graph, x: Value, axes: Sequence[int], keep_dims: bool = True) -> Value:
    """Arithmetic mean over axes."""
    from tpuconvert.schema.ops.reduce import ReduceMethodType

    return reduce(g, ReduceMethodType.REDUCE_MEAN, x, axes, keep_dims)


def total(g: Graph, x: Value, axes: Sequence[int], keep_dims: bool = True) -> Value:
    """Sum over axes."""
    from tpuconvert.schema.ops.reduce import ReduceMethodType

    return reduce(g, ReduceMethodType.REDUCE_SUM, x, axes, keep_dims)


def cut(g: Graph, x: Value, axis: int, start: int, end: int, step: int = 1) -> Value:
    """Elements start, start+step, ... below end along one axis."""
    shape = extents(x)
    if (start, end, step) == (0, shape[axis], 1):
        return x
    if any(map(open_extents.is_open, shape)):
        return _cut_beside_open(g, x, axis, range(start, end, step))
    starts = tuple(start if k == axis else 0 for k in range(len(shape)))
    ends = tuple(end if k == axis else extent for k, extent in enumerate(shape))
    steps = tuple(step if k == axis else 1 for k in range(len(shape)))
    return extract(g, x, starts, ends, steps)


def _cut_beside_open(g: Graph, x: Value, axis: int, taken: range) -> Value:
    """As ``cut`` where other axes are open, which ``extract`` would have to name the ends of."""
    extent = extents(x)[axis]
    if taken.step == 1:
        from tpuconvert.schema.ops.concat import Split

        sizes = [taken.start, len(taken), extent - taken.stop]
        parts = g.add_all(Split(axis=axis, num=sum(map(bool, sizes)), size=tuple(filter(None, sizes))), x)
        return parts[1 if taken.start else 0]
    from tpuconvert.schema.ops.index_select import IndexSelect

    index = g.constant(np.array(taken, np.int32), name="index")
    return cast(g, g.add(IndexSelect(dim=axis), as_float(g, x), index), x.dtype)


def extract(g: Graph, x: Value, start: Sequence[int], end: Sequence[int], step: Sequence[int]) -> Value:
    """A strided slice on every axis; bounds as the operator wants them."""
    from tpuconvert.schema.ops.extract import Extract

    return g.add(Extract(tuple(start), tuple(end), tuple(step)), x)


def float_constant(g: Graph, data: Array, name: str = "constant") -> Value:
    """A FLOAT32 constant."""
    return g.constant(np.asarray(data, np.float32), name=name)
