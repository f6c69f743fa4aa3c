"""Tensors as lists of Python numbers, the drawing of examples, and the arithmetic that the oracles share."""

import functools
import itertools
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.support.operators.op_cases import equal_bits
from tpuconvert.schema.definition.op import ALL, Op, all_ops
from tpuconvert.schema.graph.legality import Status, check
from tpuconvert.schema.types import F32, I8, I16, I32, U8, U16, U32, Array, Chip, DType, Scalar, TensorType

COMPUTES_NOTHING = ("customed_ops",)
"""Operators without defined arithmetic: a plugin determines the result."""

BYTES = (I8, U8)
SMALL = (I8, U8, I16, U16)
WIDE = (I32, U32)


@dataclass
class Tensor:
    """Values in row-major order."""

    dtype: DType
    shape: tuple[int, ...]
    values: list[Any]

    def __post_init__(self) -> None:
        assert len(self.values) == math.prod(self.shape), self

    def at(self, index: Sequence[int]) -> Any:
        place = 0
        for i, extent in zip(index, self.shape, strict=True):
            assert 0 <= i < extent
            place = place * extent + i
        return self.values[place]

    def array(self) -> Array:
        return np.array(self.values, dtype=self.dtype.numpy).reshape(self.shape)

    @property
    def type(self) -> TensorType:
        return TensorType(self.dtype, self.shape)


def positions(shape: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Every index, in row-major order."""
    return itertools.product(*map(range, shape))


def made(dtype: DType, shape: Sequence[int], value: Callable[[tuple[int, ...]], Any]) -> Tensor:
    """A tensor from a function of the index."""
    return Tensor(dtype, tuple(shape), [value(index) for index in positions(shape)])


# --- numbers ----------------------------------------------------------------------------------------------------------


def saturate(value: int, dtype: DType) -> int:
    return min(max(value, dtype.min), dtype.max)


def wrap(value: int, dtype: DType) -> int:
    low = value % (1 << dtype.bits)
    return low - (1 << dtype.bits) if low > dtype.max else low


def half_up(value: Fraction) -> int:
    return math.floor(value + Fraction(1, 2))


def half_away(value: Fraction) -> int:
    return half_up(value) if value >= 0 else -half_up(-value)


ROUNDINGS: dict[int, Callable[[Fraction], int]] = {
    0: round,  # ties to even
    1: half_away,
    2: math.trunc,
    3: math.floor,
    4: math.ceil,
    5: half_up,
    6: lambda value: -half_up(-value),
}


def rrs(value: int, shift: int) -> int:
    return half_up(Fraction(value, 1 << shift)) if shift > 0 else value


def f32(value: float) -> float:
    """Round to the nearest binary32. The value may be the binary64 result of one operation on binary32 operands."""
    try:
        rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded


def nearest_int32(value: float) -> int:
    """Round to an integer, ties away from zero, and saturate; NaN gives 0."""
    if math.isnan(value):
        return 0
    if math.isinf(value):
        return I32.max if value > 0 else I32.min
    return saturate(half_away(Fraction(value)), I32)


# --- drawing ----------------------------------------------------------------------------------------------------------


@functools.cache
def integers_of(dtype: DType) -> st.SearchStrategy[int]:
    """Draw from the whole range; its ends, its middle and the neighbors of powers of two more often."""
    edges = {dtype.min, dtype.min + 1, dtype.max, dtype.max - 1, 0, 1, 2, 3, dtype.max // 2, dtype.max // 2 + 1}
    if dtype.is_signed:
        edges |= {-1, -2, -3, dtype.min // 2}
    if dtype.bits == 32:
        edges |= {2**24 + 1, 2**24 + 3, 2**31 - 65}
    return st.one_of(st.sampled_from(sorted(edges)), st.integers(dtype.min, dtype.max))


REALS = st.one_of(
    st.sampled_from([0.0, -0.0, 0.5, -0.5, 1.5, -2.5, 127.5, -128.5, 255.5, math.inf, -math.inf, math.nan, 1e30]),
    st.floats(width=32),
    st.integers(-600, 600).map(lambda n: n / 2),
)

SCALES = st.one_of(
    st.sampled_from([1.0, 0.5, 2.0, 0.25, 2.0**-7, 2.0**-12, 3.0, 255.0, 1e-9, 0.99999994, 1.0000001, 2.0**-126, 1e30]),
    st.floats(2.0**-14, 4.0, allow_nan=False),
)


class Sampler:
    """Source of random examples for the oracles."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw

    def number(self, low: int, high: int) -> int:
        value: int = self.draw(st.integers(low, high))
        return value

    def choice(self, items: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(items))

    def flag(self) -> bool:
        value: bool = self.draw(st.booleans())
        return value

    def integer(self, dtype: DType) -> int:
        value: int = self.draw(integers_of(dtype))
        return value

    def numbers(self, low: int, high: int, count: int) -> tuple[int, ...]:
        return tuple(self.draw(st.lists(st.integers(low, high), min_size=count, max_size=count)))

    def shape(self, least: int = 1, most: int = 4, extent: int = 3) -> tuple[int, ...]:
        return tuple(self.draw(st.lists(st.integers(1, extent), min_size=least, max_size=most)))

    def tensor(self, dtype: DType, shape: Sequence[int]) -> Tensor:
        count = math.prod(shape)
        elements = REALS if dtype.is_float else integers_of(dtype)
        return Tensor(dtype, tuple(shape), self.draw(st.lists(elements, min_size=count, max_size=count)))

    def scalar(self, dtype: DType) -> Scalar:
        return Scalar(dtype, self.integer(dtype))

    def out(self, choices: Sequence[DType], default: DType) -> tuple[DType | None, DType]:
        """Draw the parameter ``out_dtype``. Return it with the type of the result."""
        out = self.choice((None, *choices))
        return out, default if out is None else out

    def data_type(self, name: str) -> DType:
        """Draw an integer type that the first operand may have on some chip; FLOAT32 if there is none."""
        return self.choice(data_types(name))  # type: ignore[no-any-return]  # a choice of Any

    def axis(self, rank: int, first: int = 0) -> tuple[int, int]:
        """Draw an axis. Return it as a parameter, which may be negative, and as an index."""
        axis = self.number(first, rank - 1)
        return (axis - rank if self.flag() else axis), axis


@functools.cache
def data_types(name: str) -> tuple[DType, ...]:
    definition = all_ops()[name]
    found = {
        dtype
        for support in definition.dtypes.values()
        for case in support.cases
        for dtype in case.operands.get(definition.inputs[0].name, case.operands.get(ALL, ()))
        if dtype.is_integer
    }
    return tuple(dtype for dtype in DType if dtype in found) or (F32,)


# --- examples ---------------------------------------------------------------------------------------------------------


@dataclass
class Example:
    """Operands of an operator and its expected results, which may depend on the chip."""

    op: Op
    inputs: list[Tensor | None]
    expected: Callable[[Chip], list[Tensor]]
    constants: tuple[bool, ...] = ()

    def check(self) -> bool:
        """Compare on every chip that takes these types; False when none does."""
        types = [None if tensor is None else tensor.type for tensor in self.inputs]
        inferred = self.op.infer(*types)
        chips = [
            chip for chip in Chip if check(self.op, chip, types, inferred, self.constants).status is not Status.ILLEGAL
        ]
        arrays = [None if tensor is None else tensor.array() for tensor in self.inputs]
        for chip in chips:
            found, wanted = self.op.evaluate(*arrays, chip=chip), self.expected(chip)
            assert len(found) == len(wanted) == len(inferred)
            for array, tensor, type_ in zip(found, wanted, inferred, strict=True):
                assert array.dtype == tensor.dtype.numpy == type_.dtype.numpy, chip
                assert array.shape == tensor.shape, chip
                known = zip(type_.shape, tensor.shape, strict=True)
                assert all(isinstance(extent, str) or extent == real for extent, real in known)
                assert equal_bits(array, tensor.array()), f"{chip.value}: {array.tolist()}, not {tensor.values}"
        return bool(chips)


def example(op: Op, inputs: list[Tensor | None], *results: Tensor, constants: tuple[bool, ...] = ()) -> Example:
    """An example with the same results on every chip."""
    return Example(op, inputs, lambda chip: list(results), constants)


Builder = Callable[[str, Sampler], Example]
ORACLES: dict[str, Builder] = {}


def oracle(*names: str) -> Callable[[Builder], Builder]:
    """Register a function for these operators."""

    def register(builder: Builder) -> Builder:
        for name in names:
            assert name not in ORACLES, name
            ORACLES[name] = builder
        return builder

    return register


def make(name: str, **parameters: Any) -> Op:
    """An operator by name."""
    return all_ops()[name](**parameters)


@st.composite
def examples(draw: Callable[[st.SearchStrategy[Any]], Any], name: str) -> Example:
    """Examples of one operator."""
    return ORACLES[name](name, Sampler(draw))
