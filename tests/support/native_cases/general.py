"""Element-wise operators that single general kernels compute: comparisons, selections, bit logic, shifts, FLOAT16."""

import numpy as np

from tests.support.native_cases.draft import Draft, kind
from tests.support.native_cases.elementwise import image
from tests.support.native_cases.rescaling import some_shape
from tpuconvert.schema.arithmetic.fixed_point import RoundingMode
from tpuconvert.schema.graph.graph import Value
from tpuconvert.schema.ops.arithmetic import Add, Max, Min, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Maxs, Mins, Muls, Rsubs, Subs
from tpuconvert.schema.ops.bit_logic import BitAnd, BitAnds, BitOr, BitOrs, BitXor, BitXors
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.compare import ScalarComparison, TensorComparison
from tpuconvert.schema.ops.selection import ConditionSelect, Select, SelectType
from tpuconvert.schema.ops.shifts.arithmetic_shift import ArithmeticPcShift, ArithmeticShift
from tpuconvert.schema.ops.shifts.logical_shift import LogicalPcShift, LogicalShift
from tpuconvert.schema.ops.shifts.shift_by_amount import (
    ArithLshift,
    ArithLshifts,
    ArithRshift,
    ArithRshifts,
    RoundRshift,
    RoundRshifts,
)
from tpuconvert.schema.ops.stride_arithmetic import SampledArithmetic, StartsAtOffset
from tpuconvert.schema.types import F16, F32, I8, I16, I32, U8, U16, U32, Array, Chip, DType, Scalar

SMALL = (I8, U8, I16, U16)
INTEGERS = (*SMALL, I32, U32)


def half(draft: Draft, shape: tuple[int, ...]) -> Array:
    """Draw FLOAT16 elements: of any bits, or ordinary numbers."""
    if draft.chance(0.5):
        return draft.rng.integers(0, 1 << 16, shape).astype(np.uint16).view(np.float16)
    return (draft.rng.standard_normal(shape) * draft.pick(1e-6, 1, 300)).astype(np.float16)


def operand(draft: Draft, dtype: DType, shape: tuple[int, ...]) -> Value:
    """Add an input or a constant, sometimes a permuted channels-last input."""
    array = half(draft, shape) if dtype is F16 else draft.data(dtype, shape)
    if dtype is F32 and draft.chance(0.3):
        array = draft.rng.choice(np.array([np.nan, -np.inf, np.inf, 0, -0.0, 1.5], np.float32), shape)
    if draft.chance(0.2):
        return draft.constant(array)
    if dtype is not F16 and dtype is not F32:
        return image(draft, dtype, shape)
    return draft.input(dtype, shape, array)


def broadcast(draft: Draft, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Replace some extents by 1."""
    return tuple(extent if draft.chance(0.7) else 1 for extent in shape)


def scalar(draft: Draft, dtype: DType) -> Scalar:
    if dtype is F16:
        return Scalar(F16, float(np.float16(draft.rng.standard_normal())))
    if dtype is F32:
        return Scalar(F32, float(np.float32(draft.rng.standard_normal())))
    return Scalar(dtype, int(draft.data(dtype, (1,))[0]))


def computed(draft: Draft, value: Value) -> Value:
    """Make the value an intermediate result, in the arena, in some cases."""
    if value.is_constant or value.dtype not in (I8, U8) or draft.chance(0.5):
        return value
    return draft.add(BitXors(Scalar(value.dtype, 5)), value)


@kind(400)
def compare(draft: Draft) -> None:
    dtype = draft.pick(*SMALL, F16)
    shape = some_shape(draft)
    x = draft.input(dtype, shape, half(draft, shape) if dtype is F16 else None)
    if draft.chance(0.5):
        op = draft.pick(*ScalarComparison.__subclasses__())(scalar(draft, dtype))
        draft.add(op, computed(draft, x))
        return
    op = draft.pick(*TensorComparison.__subclasses__())()
    draft.add(op, computed(draft, x), computed(draft, operand(draft, dtype, broadcast(draft, shape))))


@kind(400)
def select(draft: Draft) -> None:
    dtype = draft.pick(I8, U8, F16, F32)
    shape = some_shape(draft)
    choices = [operand(draft, dtype, shape if draft.chance(0.7) else (1,) * len(shape)) for _ in range(2)]
    choices = [choice if np.prod(choice.type.static_shape) > 1 or choice.is_constant else
               draft.constant(draft.arrays[choice]) for choice in choices]  # fmt: skip
    condition = draft.input(dtype, shape, half(draft, shape) if dtype is F16 else None)
    if draft.chance(0.5):
        draft.add(ConditionSelect(), computed(draft, condition), *choices)
        return
    kind = draft.pick(SelectType.GREATER_THAN, SelectType.GREATER_EQUAL)
    draft.add(Select(kind), condition, operand(draft, dtype, broadcast(draft, shape)), *choices)


@kind(300)
def bit_logic(draft: Draft) -> None:
    dtype = draft.pick(*SMALL, I32)
    shape = some_shape(draft)
    x = draft.input(dtype, shape)
    if draft.chance(0.5):
        draft.add(draft.pick(BitAnds, BitOrs, BitXors)(scalar(draft, dtype)), x)
    else:
        draft.add(draft.pick(BitAnd, BitOr, BitXor)(), x, operand(draft, dtype, shape))


@kind(500)
def rounding_shift(draft: Draft) -> None:
    is_logical = draft.chance(0.4)
    dtype = draft.pick(U32, U16, U8) if is_logical else draft.pick(*INTEGERS)
    results = (U32, U16, U8) if is_logical else [kind for kind in INTEGERS if kind.is_signed == dtype.is_signed]
    mode = RoundingMode(draft.number(0, 6))
    shape = some_shape(draft)
    x = draft.input(dtype, shape)
    out = draft.pick(*results)
    if draft.chance(0.5):
        amount = draft.pick(draft.number(-64, 31), draft.number(-9, 3))
        draft.add((LogicalShift if is_logical else ArithmeticShift)(amount, mode, out_dtype=out), x)
        return
    axis = draft.number(0, len(shape) - 1)
    kinds = [kind for kind in (I32, I16, I8) if kind.bits <= dtype.bits]
    amounts = draft.rng.integers(-70, 70, shape[axis]).astype(draft.pick(*kinds).numpy)
    vector = (
        draft.constant(amounts) if draft.chance(0.5) else draft.input(DType.of(amounts.dtype), amounts.shape, amounts)
    )
    draft.add((LogicalPcShift if is_logical else ArithmeticPcShift)(mode, axis, out_dtype=out), x, vector)


@kind(300)
def shift_by_amount(draft: Draft) -> None:
    draft.chip = Chip.BM1684
    shape = some_shape(draft)
    is_rounding = draft.chance(0.5)
    dtype = draft.pick(I16, U16) if is_rounding else draft.pick(I32, I16, U16)
    number = I32 if dtype is I32 else I16
    further = {}
    if is_rounding:
        further["out_dtype"] = draft.pick(I8, I16) if dtype.is_signed else draft.pick(U8, U16)
    x = draft.input(dtype, shape)
    if draft.chance(0.5):
        kind = draft.pick(RoundRshifts) if is_rounding else draft.pick(ArithLshifts, ArithRshifts)
        draft.add(kind(Scalar(I16 if is_rounding else dtype, draft.number(0, 40)), **further), x)
        return
    amounts = draft.rng.integers(-40, 40, broadcast(draft, shape)).astype(number.numpy)
    op = RoundRshift(**further) if is_rounding else draft.pick(ArithLshift, ArithRshift)()
    draft.add(op, x, draft.input(number, amounts.shape, amounts))


@kind(300)
def wide_arithmetic(draft: Draft) -> None:
    """FLOAT16 and 32-bit integers, whose results may saturate."""
    draft.chip = draft.pick(Chip.BM1686, Chip.BM1686, Chip.BM1684)
    dtype = draft.pick(F16, U32, I32) if draft.chip is Chip.BM1686 else I32
    shape = some_shape(draft)
    x = draft.input(dtype, shape, half(draft, shape) if dtype is F16 else None)
    has_product = dtype is not U32
    if draft.chance(0.5):
        kinds = [Adds, Subs, Rsubs, Maxs, Mins, *([Muls] if has_product else [])]
        draft.add(draft.pick(*kinds)(scalar(draft, dtype)), x)
        return
    kinds = [Add, Sub, Max, Min, *([Mul] if has_product else [])]
    draft.add(draft.pick(*kinds)(), x, operand(draft, dtype, broadcast(draft, shape)))


@kind(200)
def half_conversion(draft: Draft) -> None:
    shape = some_shape(draft)
    if draft.chance(0.3):
        low, high = sorted((draft.number(-(2**30), 2**30), draft.number(-(2**30), 2**30)))
        draft.add(Clamp(Scalar(I32, low), Scalar(I32, high)), draft.input(I32, shape))
        return
    other = draft.pick(F32, I32, I8, U8, I16, U16)
    if draft.chance(0.5):
        draft.add(Cast(other), draft.input(F16, shape, half(draft, shape)))
    else:
        draft.add(Cast(F16), draft.input(other, shape))


@kind(200)
def sampled_arithmetic(draft: Draft) -> None:
    """Arithmetic on strided samples, where an operand may be broadcast."""
    kinds = [kind for kind in SampledArithmetic.__subclasses__() if kind.__name__.startswith("Stride")]
    operator = draft.pick(*kinds)
    is_product, is_quotient = "Mul" in operator.__name__, "Div" in operator.__name__
    dtype = draft.pick(F32, F16) if is_quotient else draft.pick(F32, F16, I8, U8, *(() if is_product else (I16, U16)))
    shape = some_shape(draft)
    stride = tuple(draft.number(1, 3) for _ in shape)
    further = {}
    if issubclass(operator, StartsAtOffset):
        further["offset"] = tuple(draft.number(0, extent - 1) for extent in shape)
    operands = [operand(draft, dtype, size) for size in (shape, broadcast(draft, shape))]
    if all(value.is_constant for value in operands):
        operands[0] = draft.input(dtype, shape, draft.arrays[operands[0]])
    draft.add(operator(stride=stride, **further), *operands)
