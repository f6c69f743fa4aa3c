"""Element-wise integers: trees of operators in one step give the bytes of their references."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.support.each import each
from tests.support.native_cases.random_graphs import INTEGERS, SMALL, Drawing, check, needs_extension
from tests.support.paired import paired
from tests.support.sampled import sampled
from tpuconvert.schema.arithmetic.fixed_point import RoundingMode
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.activation import Active, ActiveParam, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Max, Min, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Divs, Maxs, Mins, Muls, Rsubs, Subs
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.quantization.dequant_int_to_fp32 import DequantIntToFp32
from tpuconvert.schema.ops.quantization.lut import Lut
from tpuconvert.schema.ops.quantization.requant_fp32_to_int import RequantFp32Mode, RequantFp32ToInt
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.shifts.shift_arithmetic import (
    AddShift,
    AddsShift,
    MulShift,
    MulsShift,
    RsubsShift,
    SubShift,
    SubsShift,
)
from tpuconvert.schema.types import F32, I8, I16, I32, U8, U16, Chip, DType, Scalar, TensorType

pytestmark = needs_extension
SEEDS = range(6)


def requant(case: Drawing, mode: RequantMode, out: DType, channels: int = 1, **fixed: object) -> RequantInt32:
    """A random rescale, often with ties."""
    rng = case.rng
    lowest, highest = (-12, 3) if mode is not RequantMode.MULTIPLIER_SHIFT else (-45, -20)
    if mode is RequantMode.TFLITE:
        highest = 0
    whole = bool(rng.integers(2))
    multiplier = [int(rng.integers(1, 2**8) << 23 if whole else rng.integers(2**29, 2**31)) for _ in range(channels)]
    shift = [int(rng.integers(lowest, highest)) for _ in range(channels)]
    offset = [int(rng.integers(-200, 200)) for _ in range(channels)]
    parameters: dict[str, object] = {
        "is_mul_shift_pc": channels > 1,
        "multiplier_val": multiplier[0],
        "shift_val": shift[0],
        "multiplier_vec": tuple(multiplier) if channels > 1 else (),
        "shift_vec": tuple(shift) if channels > 1 else (),
        "is_offset_pc": channels > 1 and whole,
        "offset_val": offset[0],
        "offset_vec": tuple(offset) if channels > 1 and whole else (),
        "mode": mode,
        "out_dtype": out,
    }
    return RequantInt32(**(parameters | fixed))  # type: ignore[arg-type]  # by name


@pytest.mark.parametrize(("seed", "dtype", "mode"), paired(SEEDS, INTEGERS, list(RequantMode)))
def test_requant_int32(seed: int, dtype: DType, mode: RequantMode) -> None:
    case = Drawing(seed)
    channels = int(case.rng.choice([1, 2, 5, 17]))
    rank = int(case.rng.integers(2, 5))
    shape = (2, channels, *case.shape(rank - 2, 11))
    x = case.tensor(dtype, shape) if rank > 2 else case.input(dtype, shape)
    results = []
    for out in INTEGERS:
        if out is I32 and mode is RequantMode.MULTIPLIER_SHIFT:
            continue
        results.append(case.graph.add(requant(case, mode, out, channels), x))
        results.append(case.graph.add(requant(case, mode, out), x))
    case.check(*results)


@pytest.mark.parametrize("rounding", [mode for mode in RoundingMode if mode is not RoundingMode.UNKNOWN])
def test_every_rounding_and_extreme_shifts(rounding: RoundingMode) -> None:
    case = Drawing(int(rounding))
    results = []
    for dtype in (I32, I16):
        x = case.tensor(dtype, (1, 3, 5, 7))
        for shift in (-64, -63, -62, -40, -33, -32, -31, -1, 0, 1, 31):
            for multiplier in (1, -1, 3, 2**30, 2**31 - 1, -(2**31), 0):
                op = requant(
                    case,
                    RequantMode.MULTIPLIER_SHIFT,
                    I16,
                    shift_val=shift,
                    multiplier_val=multiplier,
                    round_mode=rounding,
                )
                results.append(case.graph.add(op, x))
    case.check(*results)


@pytest.mark.parametrize("shift", sampled([-64, -40, -32, -31, -8, -1, 0, 1, 8, 31], every=2))
def test_two_roundings_at_the_limits(shift: int) -> None:
    case = Drawing(100 + shift)
    results = []
    for dtype in INTEGERS:
        x = case.tensor(dtype, (1, 4, 3, 5))
        for multiplier in (1, -1, 2**30, 2**31 - 1, -(2**31), 0):
            for offset in (0, 100, 2**31 - 1, -(2**31)):
                op = requant(
                    case,
                    RequantMode.TFLITE_LSHIFT,
                    I32,
                    shift_val=shift,
                    multiplier_val=multiplier,
                    offset_val=offset,
                )
                results.append(case.graph.add(op, x))
    case.check(*results)


def exact(case: Drawing, x: Value, channels: int) -> Value:
    """An exact linear rescale to INT32, as sums of calibrated models have it."""
    factors = [int(factor) for factor in case.rng.integers(-(2**15) + 1, 2**15, channels)]
    offsets = [int(offset) for offset in case.rng.integers(-(2**22), 2**22, channels)]
    op = RequantInt32(
        is_mul_shift_pc=channels > 1,
        multiplier_val=factors[0] << 16,
        shift_val=15,
        multiplier_vec=tuple(factor << 16 for factor in factors) if channels > 1 else (),
        shift_vec=(15,) * channels if channels > 1 else (),
        is_offset_pc=channels > 1,
        offset_val=offsets[0],
        offset_vec=tuple(offsets) if channels > 1 else (),
        mode=RequantMode.TFLITE_LSHIFT,
        out_dtype=I32,
    )
    return case.graph.add(op, x)


def widen(case: Drawing, x: Value) -> Value:
    """The add of TFLite: shifted left by 20 bits without the zero point, then requantized."""
    zero = int(case.rng.integers(-128, 128))
    wide = RequantInt32(
        multiplier_val=1 << 30, shift_val=21, offset_val=-(zero << 20), mode=RequantMode.TFLITE_LSHIFT, out_dtype=I32
    )
    scale = requant(case, RequantMode.TFLITE_LSHIFT, I32, offset_val=0, shift_val=int(case.rng.integers(-3, 1)))
    return case.graph.add(scale, case.graph.add(wide, x))


@pytest.mark.parametrize("kind", [Add, Sub])
@pytest.mark.parametrize("seed", SEEDS)
def test_residual_sums(seed: int, kind: type[Add] | type[Sub]) -> None:
    case = Drawing(seed)
    channels = int(case.rng.choice([1, 3, 16, 31, 600]))
    shape = (2, channels, *case.shape(2, 13))
    dtypes = [(I8, U8)[int(pick)] for pick in case.rng.integers(2, size=4)]
    draw = case.channels_last if seed % 3 else case.input
    a, b = draw(dtypes[0], shape), draw(dtypes[1], shape)
    per_channel = channels if seed % 2 else 1
    total = case.graph.add(kind(), exact(case, a, per_channel), exact(case, b, 1))
    mode = RequantMode.MULTIPLIER_SHIFT
    linear = case.graph.add(requant(case, mode, dtypes[2], shift_val=-46, shift_vec=(-46,) * channels), total)
    other = case.graph.add(kind(), widen(case, a), widen(case, b))
    rounded = requant(case, RequantMode.TFLITE_LSHIFT, I8, shift_val=-18)
    twice = case.graph.add(rounded, other)
    total = case.graph.add(kind(), widen(case, b), widen(case, a))
    limited = case.graph.add(Clamp(Scalar(I8, -20), Scalar(I8, 90)), case.graph.add(rounded, total))
    looked_up = case.graph.add(Lut(), limited, case.constant(U8, (256,)))
    case.check(linear, twice, looked_up)


@pytest.mark.parametrize(("size", "bits"), paired([1, 31, 32, 33, 63, 64, 65, 8191, 20000], range(6, 16)))
def test_residual_sums_of_small_units(size: int, bits: int) -> None:
    """Sums below 2^24, for which a float form may be proved; many ties where the multiplier has one bit."""
    case = Drawing(size + bits)
    results = []
    for out, low in ((I8, 0), (U8, -30), (I8, -128)):
        terms = []
        for dtype in (I8, U8):
            factor, zero = int(case.rng.integers(1, 2**bits)), int(case.rng.integers(dtype.min, dtype.max + 1))
            op = RequantInt32(
                multiplier_val=factor << 16,
                shift_val=15,
                offset_val=-zero * factor,
                mode=RequantMode.TFLITE_LSHIFT,
                out_dtype=I32,
            )
            terms.append(case.graph.add(op, case.input(dtype, (1, size))))
        total = case.graph.add(Add(), *terms)
        multiplier = int(case.rng.integers(2**30, 2**31)) if case.rng.integers(3) else 1 << 30
        rescale = requant(
            case,
            RequantMode.MULTIPLIER_SHIFT,
            out,
            multiplier_val=multiplier,
            shift_val=-30 - bits,
            offset_val=low + 20,
        )
        results.append(case.graph.add(rescale, total))
    case.check(*results)


@each("other", [(1, 1, 1, 1), (1, 6, 1, 1), (2, 6, 1, 1), (2, 1, 7, 5), (1, 6, 7, 5), (1, 1, 7, 1)])
@pytest.mark.parametrize("kind", [Add, Sub, Mul, Max, Min])
@pytest.mark.parametrize("dtype", [*SMALL, I32])
def test_broadcasting(dtype: DType, kind: type[Add], other: tuple[int, ...]) -> None:
    case = Drawing(sum(other))
    shape = (2, 6, 7, 5)
    results = []
    for draw in (case.input, case.channels_last):
        x = draw(dtype, shape)
        results.append(case.graph.add(kind(), x, draw(dtype, other)))
        results.append(case.graph.add(kind(), case.constant(dtype, other), x))
    case.check(*results)


@pytest.mark.parametrize("seed", SEEDS)
def test_scaled_channels(seed: int) -> None:
    """Squeeze and excite: an image times one factor per channel and sample."""
    case = Drawing(seed)
    shape = (2, int(case.rng.choice([1, 5, 16, 40])), *case.shape(2))
    results = []
    for a, b in ((I8, I8), (U8, U8), (I8, U8)):
        for dtype in (I16, I32):
            x, gate = case.channels_last(a, shape), case.input(b, (2, shape[1], 1, 1))
            if dtype is I32:
                x, gate = exact(case, x, 1), exact(case, gate, 1)
            out = U16 if (a, b, dtype) == (U8, U8, I16) else dtype
            product = case.graph.add(Mul(out_dtype=out), x, gate)
            results.append(case.graph.add(requant(case, RequantMode.MULTIPLIER_SHIFT, a), product))
    case.check(*results)


@pytest.mark.parametrize("kind", [Adds, Subs, Rsubs, Muls, Maxs, Mins])
@pytest.mark.parametrize("chip", [Chip.BM1684, Chip.BM1686])
def test_numbers(kind: type[Adds], chip: Chip) -> None:
    case = Drawing(3)
    results = []
    for dtype in (I8, U8) if kind is Muls else SMALL:
        for number in (dtype.min, dtype.max, 0, 1, 77):
            results.append(case.graph.add(kind(Scalar(dtype, number)), case.tensor(dtype, (2, 3, 5, 4))))
    if chip is Chip.BM1686 and kind not in (Muls, Rsubs):
        results.append(case.graph.add(kind(Scalar(I32, 12345)), case.tensor(I32, (2, 3, 5, 4))))
    case.check(*results, chip=chip)


@pytest.mark.parametrize("seed", SEEDS)
def test_sums_through_binary32(seed: int) -> None:
    case = Drawing(seed)
    shape = (1, *case.shape(3))
    a, b = case.tensor(I32, shape), case.tensor(I32, shape)
    case.check(*(case.graph.add(kind(), a, b) for kind in (Add, Sub, Mul)), chip=Chip.BM1684)


@pytest.mark.parametrize("seed", sampled(SEEDS, every=2))
def test_shift_arithmetic(seed: int) -> None:
    case = Drawing(seed)
    shape = (1, *case.shape(3))
    results = []
    for first in SMALL:
        x = case.tensor(first, shape)
        for shift in (0, 31, int(case.rng.integers(1, 16))):
            results += [
                case.graph.add(kind(Scalar(U8, number), shift, out), x)
                for kind in (MulsShift, AddsShift, SubsShift, RsubsShift)
                for number, out in ((0, None), (255, I16), (93, I8))
            ]
            y = case.tensor(first, shape)
            results += [case.graph.add(kind(shift), x, y) for kind in (AddShift, SubShift)]
            results.append(case.graph.add(MulShift(shift, I16), x, case.tensor(U8, shape)))
    scaled = [
        case.graph.add(MulsShift(Scalar(U8, int(case.rng.integers(128, 256))), 4, I16), case.tensor(I8, shape))
        for _ in range(2)
    ]
    results.append(case.graph.add(AddShift(5, I8), *scaled))
    case.check(*results, chip=Chip.BM1684)


@pytest.mark.parametrize("seed", SEEDS)
def test_casts(seed: int) -> None:
    case = Drawing(seed)
    shape = (1, *case.shape(3, 12))
    results = []
    for source in (*INTEGERS, F32):
        x = case.tensor(source, shape)
        results += [case.graph.add(Cast(out), x) for out in (*INTEGERS, F32) if out is not source]
    case.check(*results)


@pytest.mark.parametrize("seed", SEEDS)
def test_limits(seed: int) -> None:
    case = Drawing(seed)
    shape = (1, *case.shape(3))
    results = []
    for dtype in SMALL:
        x = case.tensor(dtype, shape)
        low, high = sorted(int(end) for end in case.rng.integers(dtype.min, dtype.max, 2))
        results.append(case.graph.add(Clamp(Scalar(dtype, low), Scalar(dtype, high)), x))
        results += [case.graph.add(Active(kind), x) for kind in (ActiveType.ACTIVE_RELU, ActiveType.ACTIVE_ABSVAL)]
        results.append(case.graph.add(Active(ActiveType.ACTIVE_RELU, out_dtype=I8), x))
        results.append(case.graph.add(ActiveParam(ActiveType.ACTIVE_LEAKY_RELU, (0.1,)), x))
        results.append(case.graph.add(ActiveParam(ActiveType.ACTIVE_LEAKY_RELU, (-1.5,)), x))
    case.check(*results)


@pytest.mark.parametrize("table", [I8, U8, F32])
@pytest.mark.parametrize("dtype", [I8, U8])
@pytest.mark.parametrize("size", [1, 15, 31, 32, 33, 63, 64, 65, 200, 20000])
def test_tables(size: int, dtype: DType, table: DType) -> None:
    case = Drawing(size)
    x = case.input(dtype, (1, size))
    one = case.graph.add(Lut(), x, case.constant(table, (256,)))
    case.check(one, *((case.graph.add(Lut(), one, case.constant(I8, (256,))),) if table is not F32 else ()))


@pytest.mark.parametrize("seed", SEEDS)
def test_into_integers(seed: int) -> None:
    case = Drawing(seed)
    channels = int(case.rng.choice([1, 2, 3, 4, 7, 40]))
    rank = int(case.rng.integers(2, 5))
    shape = (2, channels, *case.shape(rank - 2, 40))
    results = []
    for draw in (case.input, case.channels_last) if rank > 2 else (case.input,):
        x = draw(F32, shape)
        for out in SMALL:
            scales = tuple(float(np.float32(scale)) for scale in case.rng.normal(1, 1, channels))
            offsets = tuple(int(offset) for offset in case.rng.integers(-128, 128, channels))
            results.append(case.graph.add(into(out, scale_val=scales[0], offset_val=offsets[0]), x))
            results.append(case.graph.add(into(out, is_scale_pc=True, scale_vec=scales), x))
            results.append(case.graph.add(into(out, is_offset_pc=True, offset_vec=offsets, scale_val=scales[0]), x))
            if out.bits == 8:
                divided = case.graph.add(Divs(Scalar.f32(0.37)), x)
                results.append(case.graph.add(into(out, offset_val=3), divided))
    case.check(*results)


def into(out: DType, **parameters: object) -> RequantFp32ToInt:
    """requant_fp32_to_int in mode 0."""
    return RequantFp32ToInt(out_dtype=out, mode=RequantFp32Mode.SCALE_ROUND_OFFSET, **parameters)  # type: ignore[arg-type]  # by name


@pytest.mark.parametrize("seed", SEEDS)
def test_older_way_into_bytes(seed: int) -> None:
    case = Drawing(seed)
    results = []
    for out in (I8, U8):
        scaled = [case.graph.add(Muls(Scalar.f32(0.71)), case.input(F32, (1, 3, *case.shape(2)))) for _ in range(2)]
        results.append(case.graph.add(Cast(out), scaled[0]))
        results.append(case.graph.add(Adds(Scalar(I16, -77), out_dtype=out), case.graph.add(Cast(I16), scaled[1])))
    case.check(*results, chip=Chip.BM1684)


@pytest.mark.parametrize("offset", [2**23, -(2**23), 2**24, 2**30, -(2**31), 2**31 - 1])
def test_far_offsets(offset: int) -> None:
    case = Drawing(1)
    x = case.input(F32, (1, 2, 9, 9))
    ops = [into(out, offset_val=offset, scale_val=scale) for out in SMALL for scale in (1.0, 1e6, -3e7)]
    far = [op.out_dtype for op in ops if abs(offset) >= 2**30]  # their sums may exceed 32 bits: references run
    case.check(*(case.graph.add(op, x) for op in ops), reference=["requant_fp32_to_int"] * len(far))


@pytest.mark.parametrize("seed", SEEDS)
def test_multiplies_integers_by_floats(seed: int) -> None:
    case = Drawing(seed)
    channels = int(case.rng.choice([1, 3, 20]))
    shape = (2, channels, *case.shape(2))
    results = []
    for dtype in (I32, I16, U16):
        for out in SMALL:
            scales = tuple(float(np.float32(scale)) for scale in case.rng.normal(0, 1e-2, channels))
            op = RequantFp32ToInt(
                is_scale_pc=True,
                scale_vec=scales,
                offset_fp_val=-3.5,
                mode=RequantFp32Mode.SCALE_OFFSET_ROUND,
                out_dtype=out,
            )
            results.append(case.graph.add(op, case.tensor(dtype, shape)))
    case.check(*results)


def test_older_way_out_of_bytes() -> None:
    """A cast, a difference and a product, as chips without dequant_int_to_fp32 write it."""
    case = Drawing(4)
    results = []
    for dtype in SMALL:
        real = case.graph.add(Cast(F32), case.tensor(dtype, (1, 5, 7, 3)))
        results.append(case.graph.add(Muls(Scalar.f32(0.37)), case.graph.add(Subs(Scalar.f32(17)), real)))
        results.append(case.graph.add(Rsubs(Scalar.f32(3.5)), case.graph.add(Cast(F32), case.input(dtype, (2, 3)))))
    case.check(*results, chip=Chip.BM1684)


@pytest.mark.parametrize("dtype", SMALL)
@pytest.mark.parametrize("seed", SEEDS)
def test_out_of_integers(seed: int, dtype: DType) -> None:
    case = Drawing(seed)
    channels = int(case.rng.choice([1, 3, 20]))
    shape = (2, channels, *case.shape(2))
    x = case.tensor(dtype, shape)
    scales = tuple(float(np.float32(scale)) for scale in case.rng.normal(0, 1e-2, channels))
    offsets = tuple(int(offset) for offset in case.rng.integers(-128, 128, channels))
    draws: list[Callable[[], DequantIntToFp32]] = [
        lambda: DequantIntToFp32(scale_val=scales[0], offset_val=offsets[0]),
        lambda: DequantIntToFp32(scale_val=scales[0], offset_val=2**30),
        lambda: DequantIntToFp32(is_scale_pc=True, scale_vec=scales, is_offset_pc=True, offset_vec=offsets),
    ]
    reals = [case.graph.add(draw(), x) for draw in draws]
    again = case.graph.add(into(dtype, scale_val=3.3), case.graph.add(DequantIntToFp32(scale_val=0.7), x))
    case.check(*reals, again)


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (2, 1, 0)])
def test_columns_of_an_input_in_another_order(order: tuple[int, ...]) -> None:
    """A column has a pitch between its rows of one element, which another order of the unit axes would not have."""
    graph = Graph()
    x = graph.input("x", TensorType(I16, (6, 1, 5)))
    first, second = (graph.add(Extract((0, 0, at), (2, 1, at + 1), (1, 1, 1)), x) for at in (1, 3))
    turned = graph.add(Permute(order), second)
    graph.output(graph.add(Min(), graph.add(Reshape(turned.type.static_shape), first), turned, name="y"))
    check(graph, [np.random.default_rng(0).integers(-999, 999, (6, 1, 5)).astype(np.int16)])
