"""Functions of one 8-bit number: all 256 values of both types, on every chip that has the function.

Functions with a second number or an amount run with a few of them, and with all of them in the long run. Expected
values come from the formulas of ``integer_oracles``, one Python integer at a time.
"""

import functools
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import pytest

from tests.support.operators.integer_oracles.base import (
    BYTES,
    COMPUTES_NOTHING,
    ROUNDINGS,
    SMALL,
    Tensor,
    data_types,
    example,
    f32,
    half_away,
    half_up,
    make,
    rrs,
    saturate,
    wrap,
)
from tests.support.operators.integer_oracles.element_wise import (
    ARITHMETIC,
    COMPARISONS,
    INTEGER_FUNCTIONS,
    LOGIC,
    activate,
    converted,
)
from tests.support.paired import paired
from tpuconvert.schema.definition.op import Op, OpKind, all_ops
from tpuconvert.schema.ops.activation import ActiveType
from tpuconvert.schema.types import F32, I8, I16, I32, DType, Scalar

Function = Callable[[int], float]
Use = tuple[Op, DType, Function]
"""An operator, its result dtype, and its function as a Python integer expression."""

LEAKY = ActiveType.ACTIVE_LEAKY_RELU


def numbers(dtype: DType, every: bool) -> list[int]:
    """Values of the second operand of an 8-bit type."""
    if every:
        return list(range(dtype.min, dtype.max + 1))
    return sorted({dtype.min, dtype.min + 1, dtype.max, 0, 1, 2, 3, 77, *((-1, -5) if dtype.is_signed else ())})


def activations(name: str, x: DType, every: bool) -> Iterator[Use]:
    slopes = [n / 64 for n in range(-160, 161, 1 if every else 40)] + [0.01, 0.1, 0.3] if name != "active" else [0.0]
    for kind in INTEGER_FUNCTIONS:
        for slope in slopes if kind is LEAKY else [0.0]:
            given = {"params": (slope,)} if name == "active_param" else {}
            for out in (x,) if kind is LEAKY else SMALL:
                op = make(name, active_type=kind, out_dtype=out, **given)
                yield op, out, functools.partial(activation, kind, slope, out)


def activation(kind: ActiveType, slope: float, out: DType, v: int) -> int:
    return activate(kind, v, slope, out)


def casts(name: str, x: DType, every: bool) -> Iterator[Use]:
    for out in (*SMALL, F32):
        yield make(name, out_dtype=out), out, functools.partial(converted, source=x, out=out)


def clamps(name: str, x: DType, every: bool) -> Iterator[Use]:
    limits = numbers(x, False) if not every else numbers(x, True)[::5]
    for low in limits:
        for high in limits:
            if low <= high:
                op = make(name, min=Scalar(x, low), max=Scalar(x, high))
                yield op, x, lambda v, low=low, high=high: min(max(v, low), high)  # type: ignore[misc]  # defaults of a lambda


def with_number(name: str, x: DType, every: bool) -> Iterator[Use]:
    what = name[:-1]
    function = ARITHMETIC[what]
    for second in (x,) if what in ("max", "min") else BYTES:
        for number in numbers(second, every):
            for out in (x,) if what in ("max", "min") else SMALL:
                given = {} if what in ("max", "min") else {"out_dtype": out}
                op = make(name, scalar=Scalar(second, number), **given)
                yield op, out, lambda v, n=number, out=out: saturate(function(v, n), out)  # type: ignore[misc]  # defaults of a lambda


def with_number_and_shift(name: str, x: DType, every: bool) -> Iterator[Use]:
    function = ARITHMETIC[name.split("_")[0][:-1]]
    for second in BYTES:
        for number in numbers(second, every)[:: 5 if every else 1]:
            for shift in (0, 1, 2, 3, 7, 8, 9, 15, 31) if every else (0, 1, 7, 31):
                for out in BYTES:
                    op = make(name, scalar=Scalar(second, number), shift=shift, out_dtype=out)
                    yield (
                        op,
                        out,
                        lambda v, n=number, shift=shift, out=out: saturate(rrs(function(v, n), shift), out),  # type: ignore[misc]  # defaults of a lambda
                    )


def comparisons(name: str, x: DType, every: bool) -> Iterator[Use]:
    holds = COMPARISONS[name[:-1]]
    for number in numbers(x, every):
        yield make(name, scalar_i1=Scalar(x, number)), x, lambda v, n=number: int(holds(v, n))  # type: ignore[misc]  # defaults of a lambda


def logic(name: str, x: DType, every: bool) -> Iterator[Use]:
    function = LOGIC[name[4:-1]]
    for number in numbers(x, every):
        yield make(name, scalar_i=Scalar(x, number)), x, lambda v, n=number: function(v, n)  # type: ignore[misc]  # defaults of a lambda


def shifts(name: str, x: DType, every: bool) -> Iterator[Use]:
    is_logical = name == "logical_shift"
    for amount in range(-64, 32) if every else (-64, -9, -8, -7, -2, -1, 0, 1, 7, 31):
        for mode, rounding in ROUNDINGS.items():
            for out in [dtype for dtype in SMALL if dtype.is_signed == x.is_signed]:
                op = make(name, shift=amount, rounding_mode=mode, out_dtype=out)

                def value(v: int, amount: int = amount, rounding: Any = rounding, out: DType = out) -> int:
                    if amount <= 0:
                        return saturate(rounding(Fraction(v, 1 << -amount)), out)
                    return wrap(v << amount, out) if is_logical else saturate(v << amount, out)

                yield op, out, value


def requantizations(name: str, x: DType, every: bool) -> Iterator[Use]:
    for multiplier in (1 << 30, (1 << 31) - 1, -(1 << 31), 1518500250, 3):
        for shift in range(-12, 8) if every else (-7, -1, 0, 3):
            for zero in (0, -128, 127):
                for out in (I8, I16, I32):
                    op = make(name, mode=0, multiplier_val=multiplier, shift_val=shift, offset_val=zero, out_dtype=out)

                    def value(v: int, m: int = multiplier, s: int = shift, zero: int = zero, out: DType = out) -> int:
                        high = saturate(half_up(Fraction(v * m * (1 << max(s, 0)), 1 << 31)), I32)
                        return saturate(half_away(Fraction(high, 1 << max(-s, 0))) + zero, out)

                    yield op, out, value


def dequantizations(name: str, x: DType, every: bool) -> Iterator[Use]:
    for zero in numbers(x, every):
        for scale in (1.0, 0.1, 1 / 255, 3e-5, -7.3):
            op = make(name, scale_val=scale, offset_val=zero)
            yield op, F32, lambda v, zero=zero, scale=scale: f32(f32(v - zero) * f32(scale))  # type: ignore[misc]  # defaults of a lambda


FUNCTIONS: dict[str, Callable[[str, DType, bool], Iterator[Use]]] = {
    "active": activations,
    "active_param": activations,
    "cast": casts,
    "clamp": clamps,
    **dict.fromkeys(("adds", "subs", "rsubs", "muls", "maxs", "mins"), with_number),
    **dict.fromkeys(("adds_shift", "subs_shift", "rsubs_shift", "muls_shift"), with_number_and_shift),
    **dict.fromkeys(("gts", "ges", "lts", "les", "eqs", "nes"), comparisons),
    **dict.fromkeys(("bit_ands", "bit_ors", "bit_xors"), logic),
    "arithmetic_shift": shifts,
    "logical_shift": shifts,
    "requant_int32": requantizations,
    "dequant_int_to_fp32": dequantizations,
}

MORE_THAN_ONE_ELEMENT = {
    *("arg", "reduce", "softmax_int", "pool", "pool_int", "pool3d_int", "upsample", "number_like", "shape_fetch"),
    *("lshift", "rshift", "clshift", "crshift", "batch_to_space", "space_to_batch", "extract", "pad", "permute"),
    *("split", "concat", "tile", "broadcast", "repeat", "reshape", "squeeze", "expand_dims", "copy", "constdata"),
    *("stride_cpy", "stride_cpy_offset"),
}
"""8-bit operators that are not element-wise, or that copy elements unchanged."""


def compare(name: str, dtype: DType, every: bool) -> None:
    values = list(range(dtype.min, dtype.max + 1))
    x = Tensor(dtype, (1, 1, 1, 256), values)
    count = 0
    for op, out, function in FUNCTIONS[name](name, dtype, every):
        count += example(op, [x], Tensor(out, x.shape, [function(v) for v in values])).check()
    assert count or (name, dtype) == ("logical_shift", I8), f"{name} has no legal form of {dtype.value}"


DEFINED = [name for name in FUNCTIONS if name in all_ops()]


@pytest.mark.parametrize(("name", "dtype"), paired(DEFINED, BYTES))
def test_all_values(name: str, dtype: DType) -> None:
    compare(name, dtype, every=False)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", BYTES, ids=lambda dtype: dtype.value)
@pytest.mark.parametrize("name", DEFINED)
def test_all_values_with_every_parameter(name: str, dtype: DType) -> None:
    compare(name, dtype, every=True)


def test_lut_reads_every_entry() -> None:
    for dtype in BYTES:
        for out in BYTES:
            table = [wrap(n * 37 + 11, out) for n in range(256)]
            values = list(range(dtype.min, dtype.max + 1))
            x, expected = Tensor(dtype, (256,), values), Tensor(out, (256,), [table[v % 256] for v in values])
            assert example(make("lut"), [x, Tensor(out, (256,), table)], expected).check()


def test_no_function_of_one_byte_is_forgotten() -> None:
    unary = {
        name
        for name, definition in all_ops().items()
        if definition.kind is OpKind.TPU and len(definition.inputs) == 1 and set(BYTES) & set(data_types(name))
    }
    assert sorted(unary - set(FUNCTIONS) - MORE_THAN_ONE_ELEMENT - set(COMPUTES_NOTHING)) == []


PAIRS = [(first, second) for first in BYTES for second in BYTES]


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), PAIRS, ids=lambda dtype: dtype.value)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "add_shift", "sub_shift", "mul_shift"])
def test_all_pairs(name: str, first: DType, second: DType) -> None:
    rows, columns = (range(dtype.min, dtype.max + 1) for dtype in (first, second))
    a = Tensor(first, (256, 256), [v for v in rows for _ in columns])
    b = Tensor(second, (256, 256), [v for _ in rows for v in columns])
    function = ARITHMETIC[name.split("_")[0]]
    exact = [function(v, w) for v, w in zip(a.values, b.values, strict=True)]
    for out in SMALL:
        if name == "sub_shift" and not out.is_signed:
            continue
        for shift in (0, 1, 6, 9) if name.endswith("shift") else (0,):
            op = make(name, out_dtype=out, **({"shift": shift} if name.endswith("shift") else {}))
            assert example(op, [a, b], Tensor(out, a.shape, [saturate(rrs(v, shift), out) for v in exact])).check()
