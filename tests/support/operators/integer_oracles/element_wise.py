"""Arithmetic, comparisons, logic, shifts, activations, casts and tables."""

import operator
from collections.abc import Callable, Sequence
from fractions import Fraction

from tests.support.operators.integer_oracles.base import (
    BYTES,
    ROUNDINGS,
    SMALL,
    Example,
    Sampler,
    Tensor,
    example,
    f32,
    half_away,
    made,
    make,
    nearest_int32,
    oracle,
    positions,
    rrs,
    saturate,
    wrap,
)
from tpuconvert.schema.ops.activation import ActiveType
from tpuconvert.schema.types import F32, I8, I16, I32, U8, U16, U32, Chip, DType, Scalar

Function = Callable[[int, int], int]

ARITHMETIC: dict[str, Function] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "max": max,
    "min": min,
    "rsub": lambda a, b: b - a,
}
COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "gt": operator.gt,
    "ge": operator.ge,
    "lt": operator.lt,
    "le": operator.le,
    "eq": operator.eq,
    "ne": operator.ne,
}
LOGIC: dict[str, Function] = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}


def broadcast_shapes(s: Sampler) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Draw two shapes that broadcast with each other. Return them with the shape of the result."""
    whole = s.shape(extent=4)
    first, second = (tuple(1 if s.number(0, 3) == 0 else n for n in whole) for _ in range(2))
    return first, second, tuple(max(a, b) for a, b in zip(first, second, strict=True))


def element_of(tensor: Tensor, index: Sequence[int]) -> int:
    value: int = tensor.at([0 if extent == 1 else i for i, extent in zip(index, tensor.shape, strict=True)])
    return value


def types_of_sum(s: Sampler) -> tuple[DType, DType, DType | None, DType]:
    """Draw the types of two operands, ``out_dtype``, and the type of the result."""
    kind = s.number(0, 3)
    if kind > 1:
        wide = I32 if kind == 2 else U32
        return wide, wide, None, wide
    first = s.choice(SMALL)
    return first, s.choice(SMALL), *s.out(SMALL, first)


def types_of_product(s: Sampler) -> tuple[DType, DType, DType | None, DType]:
    if s.number(0, 2) == 0:
        return I32, I32, None, I32
    first = s.choice(BYTES)
    return first, s.choice(BYTES), *s.out(SMALL, first)


def types_of_choice(s: Sampler) -> tuple[DType, DType, DType | None, DType]:
    dtype = s.choice((*SMALL, I32, U32))
    return dtype, dtype, None, dtype


def types_for(name: str, s: Sampler) -> tuple[DType, DType, DType | None, DType]:
    if "max" in name or "min" in name:
        return types_of_choice(s)
    return types_of_product(s) if "mul" in name else types_of_sum(s)


def result(function: Function, a: int, b: int, out: DType, chip: Chip) -> int:
    """INT32 passes through binary32 on the two older chips."""
    if out is I32 and chip is not Chip.BM1686:
        return nearest_int32(f32(function(f32(a), f32(b))))  # type: ignore[arg-type]  # a function of NumPy
    return saturate(function(a, b), out)


@oracle("add", "sub", "mul", "max", "min")
def two_tensors(name: str, s: Sampler) -> Example:
    first, second, asked, out = types_for(name, s)
    shape0, shape1, shape = broadcast_shapes(s)
    x0, x1 = s.tensor(first, shape0), s.tensor(second, shape1)
    op = make(name) if asked is None else make(name, out_dtype=asked)
    function = ARITHMETIC[name]
    return Example(
        op,
        [x0, x1],
        lambda chip: [made(out, shape, lambda i: result(function, element_of(x0, i), element_of(x1, i), out, chip))],
    )


@oracle("adds", "subs", "rsubs", "muls", "maxs", "mins")
def with_scalar(name: str, s: Sampler) -> Example:
    first, second, asked, out = types_for(name, s)
    x, scalar = s.tensor(first, s.shape()), s.scalar(second)
    op = make(name, scalar=scalar) if asked is None else make(name, scalar=scalar, out_dtype=asked)
    function, number = ARITHMETIC[name[:-1]], int(scalar.value)
    return Example(op, [x], lambda chip: [made(out, x.shape, lambda i: result(function, x.at(i), number, out, chip))])


@oracle("stride_add", "stride_sub", "stride_mul", "stride_max", "stride_min")
@oracle(*(f"stride_{what}_offset" for what in ("add", "sub", "mul", "max", "min")))
def sample_case(name: str, s: Sampler) -> Example:
    what = name.split("_")[1]
    first, second, asked, out = types_for(what, s)
    shape0, shape1, shape = broadcast_shapes(s)
    x0, x1 = s.tensor(first, shape0), s.tensor(second, shape1)
    stride, offset, parameters = strides(name, s, shape, [n == 1 for n in shape])
    if asked is not None:
        parameters["out_dtype"] = asked
    function = ARITHMETIC[what]

    def value(index: tuple[int, ...]) -> int:
        place = [o + i * step for i, step, o in zip(index, stride, offset, strict=True)]
        return saturate(function(element_of(x0, place), element_of(x1, place)), out)

    counts = [1 if n == 1 else -((o - n) // step) for n, o, step in zip(shape, offset, stride, strict=True)]
    return example(make(name, **parameters), [x0, x1], made(out, counts, value))


@oracle("stride_cpy", "stride_cpy_offset")
def sampled_copy(name: str, s: Sampler) -> Example:
    x = s.tensor(s.choice(SMALL), s.shape(extent=5))
    stride, offset, parameters = strides(name, s, x.shape, [False] * len(x.shape))
    counts = [-((o - n) // step) for n, o, step in zip(x.shape, offset, stride, strict=True)]
    value = made(
        x.dtype, counts, lambda index: x.at([o + i * n for i, n, o in zip(index, stride, offset, strict=True)])
    )
    return example(make(name, **parameters), [x], value)


def strides(
    name: str, s: Sampler, shape: Sequence[int], fixed: Sequence[bool]
) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, object]]:
    """Draw stride and offset. Return them with the parameters of the operator."""
    stride = s.numbers(1, 3, len(shape))
    offset = tuple(0 if single else s.number(0, n - 1) for n, single in zip(shape, fixed, strict=True))
    if not name.endswith("_offset"):
        return stride, (0,) * len(shape), {"stride": stride}
    return stride, offset, {"stride": stride, "offset": offset}


@oracle("mul_shift", "add_shift", "sub_shift")
def shifted_tensors(name: str, s: Sampler) -> Example:
    first, second, shape, shift = s.choice(SMALL), s.choice(SMALL), s.shape(), s.number(0, 31)
    function = ARITHMETIC[name.split("_")[0]]
    asked, out = s.out(SMALL, signed_type(first) if name == "sub_shift" else first)
    a, b = s.tensor(first, shape), s.tensor(second, shape)
    value = made(out, shape, lambda i: saturate(rrs(function(a.at(i), b.at(i)), shift), out))
    return example(make(name, shift=shift, out_dtype=asked), [a, b], value)


@oracle("muls_shift", "adds_shift", "subs_shift", "rsubs_shift")
def shifted_with_scalar(name: str, s: Sampler) -> Example:
    first, shift = s.choice(SMALL), s.number(0, 31)
    scalar = s.scalar(s.choice(SMALL))
    what = name.split("_")[0][:-1]
    asked, out = s.out(SMALL, signed_type(first) if "sub" in what else first)
    x, number = s.tensor(first, s.shape()), int(scalar.value)
    value = made(out, x.shape, lambda i: saturate(rrs(ARITHMETIC[what](x.at(i), number), shift), out))
    return example(make(name, scalar=scalar, shift=shift, out_dtype=asked), [x], value)


def signed_type(dtype: DType) -> DType:
    return {U8: I8, U16: I16}.get(dtype, dtype)


@oracle(*COMPARISONS)
def compare(name: str, s: Sampler) -> Example:
    dtype = s.choice(SMALL)
    shape0, shape1, shape = broadcast_shapes(s)
    x0, x1 = s.tensor(dtype, shape0), s.tensor(dtype, shape1)
    holds = COMPARISONS[name]
    return example(make(name), [x0, x1], made(dtype, shape, lambda i: int(holds(element_of(x0, i), element_of(x1, i)))))


@oracle(*(f"{name}s" for name in COMPARISONS))
def compared_with_scalar(name: str, s: Sampler) -> Example:
    x = s.tensor(s.choice(SMALL), s.shape())
    # Independent random operands would hardly ever be equal.
    scalar = Scalar(x.dtype, s.choice(x.values)) if s.flag() else s.scalar(x.dtype)
    holds = COMPARISONS[name[:-1]]
    value = made(x.dtype, x.shape, lambda i: int(holds(x.at(i), int(scalar.value))))
    return example(make(name, scalar_i1=scalar), [x], value)


@oracle("bit_and", "bit_or", "bit_xor")
def logic_of_tensors(name: str, s: Sampler) -> Example:
    dtype, shape = s.choice((*SMALL, I32)), s.shape()
    x0, x1 = s.tensor(dtype, shape), s.tensor(dtype, shape)
    return example(make(name), [x0, x1], made(dtype, shape, lambda i: LOGIC[name[4:]](x0.at(i), x1.at(i))))


@oracle("bit_ands", "bit_ors", "bit_xors")
def logic_with_scalar(name: str, s: Sampler) -> Example:
    x = s.tensor(s.choice((*SMALL, I32)), s.shape())
    scalar = s.scalar(x.dtype)
    function = LOGIC[name[4:-1]]
    value = made(x.dtype, x.shape, lambda i: function(x.at(i), int(scalar.value)))
    return example(make(name, scalar_i=scalar), [x], value)


@oracle("clamp")
def clamp_case(name: str, s: Sampler) -> Example:
    x = s.tensor(s.choice((*SMALL, I32)), s.shape())
    low, high = sorted(s.integer(x.dtype) for _ in range(2))

    def value(number: int) -> int:
        if x.dtype is I32:
            return nearest_int32(min(max(f32(number), f32(low)), f32(high)))
        return min(max(number, low), high)

    op = make(name, min=Scalar(x.dtype, low), max=Scalar(x.dtype, high))
    return example(op, [x], Tensor(x.dtype, x.shape, [value(number) for number in x.values]))


# --- shifts -----------------------------------------------------------------------------------------------------------


def shifted_left(value: int, amount: int, dtype: DType) -> int:
    """Shift without saturation: bits beyond the width are dropped. A negative amount shifts right and rounds down."""
    return wrap(value << min(amount, 64), dtype) if amount >= 0 else value >> -amount


def amounts(s: Sampler, dtype: DType, shape: Sequence[int]) -> Tensor:
    """Draw shift amounts: mostly within twice the width, sometimes any value of the type."""
    if s.number(0, 3) == 0:
        return s.tensor(dtype, shape)
    count = len(list(positions(shape)))
    return Tensor(dtype, tuple(shape), list(s.numbers(-40 if dtype.is_signed else 0, 40, count)))


def amount_types(s: Sampler) -> tuple[DType, DType]:
    return s.choice(((I32, I32), (I16, I16), (U16, I16)))  # type: ignore[no-any-return]  # a choice of Any


@oracle("arith_lshift", "arith_rshift", "round_rshift")
def shifted_by_tensor(name: str, s: Sampler) -> Example:
    dtype, amount_dtype = amount_types(s)
    x = s.tensor(dtype, s.shape())
    num = amounts(s, amount_dtype, [1 if s.number(0, 3) == 0 else n for n in x.shape])
    asked, out = s.out(SMALL, dtype) if name == "round_rshift" else (None, dtype)
    value = made(out, x.shape, lambda i: shifted_by(name, x.at(i), element_of(num, i), out))
    return example(make(name, **({} if asked is None else {"out_dtype": asked})), [x, num], value)


@oracle("arith_lshifts", "arith_rshifts", "round_rshifts")
def shifted_by_scalar(name: str, s: Sampler) -> Example:
    x = s.tensor(s.choice((I16, U16) if name == "round_rshifts" else (I32, I16, U16)), s.shape())
    num = amounts(s, s.choice((I32, I16) if name == "round_rshifts" else (I32, I16, U16)), (1,))
    asked, out = s.out(SMALL, x.dtype) if name == "round_rshifts" else (None, x.dtype)
    value = made(out, x.shape, lambda i: shifted_by(name[:-1], x.at(i), num.values[0], out))
    parameters: dict[str, object] = {"scalar_num": Scalar(num.dtype, num.values[0])}
    if asked is not None:
        parameters["out_dtype"] = asked
    return example(make(name, **parameters), [x], value)


def shifted_by(name: str, value: int, amount: int, out: DType) -> int:
    if name == "round_rshift":
        return saturate(rrs(value, min(amount, 99)), out)
    return shifted_left(value, amount if name == "arith_lshift" else -amount, out)


@oracle("arithmetic_shift", "arithmetic_pc_shift", "logical_shift", "logical_pc_shift")
def shifted_with_rounding(name: str, s: Sampler) -> Example:
    types = (U32, U16, U8) if name.startswith("logical") else (*SMALL, I32, U32)
    x, mode = s.tensor(s.choice(types), s.shape(2)), s.number(0, 6)
    asked, out = s.out([dtype for dtype in types if dtype.is_signed == x.dtype.is_signed], x.dtype)
    if name.endswith("pc_shift"):
        axis = s.number(0, len(x.shape) - 1)
        by = amounts(s, s.choice([dtype for dtype in (I32, I16, I8) if dtype.bits <= x.dtype.bits]), (x.shape[axis],))
        op = make(name, rounding_mode=mode, shift_axis=axis, out_dtype=asked)
        operands = [x, by]
    else:
        axis, by = 0, Tensor(I32, (x.shape[0],), [s.number(-64, 31)] * x.shape[0])
        op = make(name, shift=by.values[0], rounding_mode=mode, out_dtype=asked)
        operands = [x]

    def value(number: int, amount: int) -> int:
        if amount < 0:
            return saturate(ROUNDINGS[mode](Fraction(number, 1 << min(-amount, 99))), out)
        exact = number << min(amount, 99)
        return wrap(exact, out) if name.startswith("logical") and amount else saturate(exact, out)

    return example(op, list(operands), made(out, x.shape, lambda i: value(x.at(i), by.values[i[axis]])))


# --- one operand ------------------------------------------------------------------------------------------------------

INTEGER_FUNCTIONS = (ActiveType.ACTIVE_RELU, ActiveType.ACTIVE_ABSVAL, ActiveType.ACTIVE_LEAKY_RELU)


def activate(function: ActiveType, value: int, slope: float, out: DType) -> int:
    if function is ActiveType.ACTIVE_RELU:
        return saturate(max(value, 0), out)
    if function is ActiveType.ACTIVE_ABSVAL:
        return saturate(abs(value), out)
    return saturate(value if value >= 0 else half_away(Fraction(f32(value * f32(slope)))), out)


@oracle("active", "active_param")
def activation(name: str, s: Sampler) -> Example:
    function = s.choice(INTEGER_FUNCTIONS)
    x = s.tensor(s.choice(SMALL), s.shape())
    is_leaky = function is ActiveType.ACTIVE_LEAKY_RELU
    asked, out = (None, x.dtype) if is_leaky else s.out(SMALL, x.dtype)
    slope = 0.0
    parameters: dict[str, object] = {"active_type": function, "out_dtype": asked}
    if name == "active_param" and s.flag():
        slope = s.choice((0.0, 0.5, 0.25, 0.01, 0.1, -0.5, -2.0, 1.0, 3.5, s.number(-256, 256) / 128))
        parameters["params"] = (slope,)
    value = made(out, x.shape, lambda i: activate(function, x.at(i), slope, out))
    return example(make(name, **parameters), [x], value)


def converted(value: float, source: DType, out: DType) -> float:
    if out is F32:
        return f32(value)
    if source is not F32:
        return saturate(int(value), out)
    return 0 if value != value else nearest_wide(value, out)


def nearest_wide(value: float, out: DType) -> int:
    if abs(value) > 2.0**40:
        return out.max if value > 0 else out.min
    return saturate(half_away(Fraction(value)), out)


@oracle("cast")
def cast(name: str, s: Sampler) -> Example:
    source = s.choice((F32, I32, *SMALL))
    out = s.choice((I32, *SMALL, F32) if source is not F32 else (I32, *SMALL))
    x = s.tensor(source, s.shape())
    values = [converted(value, source, out) for value in x.values]
    return example(make(name, out_dtype=out), [x], Tensor(out, x.shape, values))


@oracle("lut")
def lut(name: str, s: Sampler) -> Example:
    x, dtype = s.tensor(s.choice(BYTES), s.shape()), s.choice(BYTES)
    first, step = s.integer(dtype), s.number(0, 255)
    shape = s.choice(((256,), (1, 256), (16, 16), (1, 1, 1, 256)))
    table = Tensor(dtype, shape, [wrap(first + n * step, dtype) for n in range(256)])
    return example(make(name), [x, table], made(dtype, x.shape, lambda i: table.values[x.at(i) % 256]))
