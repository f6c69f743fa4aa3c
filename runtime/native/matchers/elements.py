"""Instructions of a step for element-wise integer operators; see int8/elementwise/elements.h.

A term represents an intermediate result in the cheapest of three forms that is exact:

- a function of a stored byte: a table of 256 values, computed by the references of the operators;
- an exact linear function of a stored byte, with per-channel multipliers;
- the 32-bit result of an instruction, with the range of its values.

Range analysis proves that nothing overflows 32 bits. If it cannot, the tree is declined, and its nodes run as single
steps or references.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tpuconvert.runtime.native.matchers.epilogue import bias_of
from tpuconvert.schema.arithmetic.fixed_point import rescale_one_rounding, rescale_two_roundings
from tpuconvert.schema.array_fields import numbers_of
from tpuconvert.schema.graph.graph import Value
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.types import EXACT_FLOAT32, F32, I8, I16, I32, U8, U16, Array, DType

ELEMENT_TYPES = {U8: "u8", I8: "u8", U16: "u16", I16: "i16", I32: "32", F32: "32"}
"""Element types that steps support, mapped to their names in the extension."""

_OF_BYTES = {dtype: np.arange(256, dtype=np.int64) - bias_of(dtype) for dtype in (I8, U8)}
"""Values that the stored bytes 0..255 represent, by type."""

LARGEST = 2**31 - 1
_FACTOR = 2**15 - 1


Numbers = Sequence[int] | Sequence[float] | Array
"""Parameter of an instruction: one element, or one per channel."""


class Unsupported(Exception):
    """Error: the instructions do not support an operator, a type or a range."""


class Term(NamedTuple):
    """Representation of an operand or of an intermediate result.

    Args:
        dtype: type in the graph.
        low: lower bound of an integer term; 0 for floats.
        high: upper bound of an integer term; 0 for floats.
        register: index of the instruction that computes the term, or the argument of ``values``.
        operand: index of the operand to which ``values`` or ``factor`` applies, for terms without an instruction.
        values: table of results, indexed by the stored byte of the operand or by the instruction's 8-bit result.
        argument: type of the instruction's result that indexes ``values``.
        factor: with ``offset``, an exact linear function of the stored operand; one element, or one per channel.
        is_limited: True if the instruction itself clamps to ``low..high``.
    """

    dtype: DType
    low: int
    high: int
    register: int | None = None
    operand: int | None = None
    values: Array | None = None
    argument: DType = U8
    factor: Array | None = None
    offset: Array | None = None
    is_limited: bool = True


@dataclass(frozen=True)
class Instruction:
    """Opcode and arguments of an ``ElementInstruction``."""

    code: str
    arguments: dict[str, object]


class Elements:
    """Construction of the instructions of a step."""

    def __init__(self) -> None:
        self.operands: list[Value] = []
        self.instructions: list[Instruction] = []
        self.is_per_channel = False

    # Methods that create terms

    def operand(self, value: Value) -> Term:
        """Return the term of an operand."""
        if value.dtype not in ELEMENT_TYPES:
            raise Unsupported(f"{value.dtype} is not supported by the kernel")
        if value not in self.operands:
            self.operands.append(value)
        index = self.operands.index(value)
        if value.dtype.is_float:
            return Term(value.dtype, 0, 0, register=self._load(index, 0))
        low, high = value.dtype.min, value.dtype.max
        if value.is_constant and value.array.size:
            low, high = int(value.array.min()), int(value.array.max())
        if value.dtype in _OF_BYTES:
            return Term(value.dtype, low, high, operand=index, values=_OF_BYTES[value.dtype])
        return Term(value.dtype, low, high, register=self._load(index, 0))

    def function(self, x: Term, dtype: DType, reference: Callable[[Array], Array]) -> Term | None:
        """Apply a unary function by its reference; None for a term with more than 256 values."""
        if x.values is None:
            if x.dtype.bits != 8 or x.operand is not None:
                return None
            values = np.clip(_OF_BYTES[x.dtype], x.low, x.high)
            x = x._replace(argument=x.dtype, values=values)
        assert x.values is not None
        values = reference(x.values.astype(x.dtype.numpy))
        if dtype.is_float:
            return x._replace(dtype=dtype, low=0, high=0, values=values.astype(np.float32))
        values = values.astype(np.int64)
        # The bounds include results for arguments that do not occur.
        return x._replace(dtype=dtype, low=int(values.min()), high=int(values.max()), values=values)

    def linear(self, x: Term) -> Term | None:
        """Return an operand as an exact linear function with a 16-bit factor, or None if it is not linear."""
        if x.operand is None or x.dtype.is_float:
            return None
        if x.factor is not None:
            return x
        assert x.values is not None
        steps = x.values[1:] - x.values[:-1]
        if not (steps == steps[0]).all() or abs(int(steps[0])) > _FACTOR:
            return None
        return Term(x.dtype, x.low, x.high, operand=x.operand, factor=steps[:1], offset=x.values[:1])

    def value_of(self, x: Term) -> int:
        """Return the index of the instruction that computes a term, clamped to its bounds."""
        if x.values is not None or x.factor is not None:
            return self._evaluate_term(x)
        assert x.register is not None
        if x.is_limited:
            return x.register
        return self.add("clamp", x.register, low=x.low, high=x.high)

    def _evaluate_term(self, x: Term) -> int:
        linear = self.linear(x)
        if linear is not None:
            assert linear.operand is not None and linear.factor is not None and linear.offset is not None
            if linear.factor.size == linear.offset.size == 1 and linear.factor[0] == 1:
                return self._load(linear.operand, int(linear.offset[0]))
            return self.add("linear", linear.operand, parameters=[linear.factor, (0,), linear.offset])
        assert x.values is not None
        table = x.values.view(np.int32) if x.dtype.is_float else x.values.astype(np.int32)
        if x.operand is not None:
            return self.add("table", x.operand, table=table)
        assert x.register is not None
        source = self.value_of(x._replace(values=None, dtype=x.argument, low=x.argument.min, high=x.argument.max))
        bias = bias_of(x.argument)
        source = self.add("add_parameter", source, parameters=[[bias]]) if bias else source
        return self.add("look_up", source, table=table)

    # Methods that add instructions

    def add(self, code: str, a: int, b: int = -1, *, parameters: Sequence[Numbers] = (), **arguments: object) -> int:
        """Add an instruction and return its index. Each parameter has one element, or one per channel."""
        if parameters:
            arguments["parameters"] = [self._parameter_bits(numbers) for numbers in parameters]
        self.instructions.append(Instruction(code, {"a": a, "b": b, **arguments}))
        return len(self.instructions) - 1

    def result(
        self, code: str, dtype: DType, low: int, high: int, a: int, b: int = -1, *, parameters: Sequence[Numbers] = ()
    ) -> Term:
        """Add an instruction with integer results in ``low..high``. Return its term, saturated to a type.

        Raises:
            Unsupported: if it may overflow 32 bits.
        """
        if low < -LARGEST or high > LARGEST:
            raise Unsupported(f"{code} may overflow 32 bits")
        return self.integer(self.add(code, a, b, parameters=parameters), dtype, low, high)

    def saturated_result(self, code: str, dtype: DType, low: int, high: int, a: int, b: int) -> Term:
        """Add an instruction as ``result``, but use its saturating form if it may overflow."""
        if low < -LARGEST or high > LARGEST:
            code, low, high = f"{code}_limited", max(low, -LARGEST - 1), min(high, LARGEST)
        return self.integer(self.add(code, a, b), dtype, low, high)

    def integer(self, register: int, dtype: DType, low: int, high: int) -> Term:
        """Return the term of an existing instruction with values in ``low..high``, saturated to a type."""
        return self.limit(Term(dtype, low, high, register=register), dtype)

    def round_to_integer(
        self, register: int, dtype: DType = I32, low: int | None = None, high: int | None = None
    ) -> Term:
        """Round a float32 register to an integer, saturated to an interval or to a type."""
        return self.limit(Term(I32, I32.min, I32.max, register=self.add("from_float", register)), dtype, low, high)

    def multiply_float(self, register: int, factor: Numbers) -> int:
        """Add an instruction that multiplies a float32 register by a parameter. Return its index."""
        return self.add("float_multiply_parameter", register, parameters=[factor])

    def limit(self, x: Term, dtype: DType, low: int | None = None, high: int | None = None) -> Term:
        """Clamp an integer term to an interval, or to the range of its new type."""
        low = dtype.min if low is None else low
        high = dtype.max if high is None else high
        if x.values is not None or x.factor is not None:
            if x.low >= low and x.high <= high:
                return x if x.dtype is dtype else x._replace(dtype=dtype)
            if x.values is None:
                x = Term(x.dtype, x.low, x.high, register=self.value_of(x))
            else:
                values = np.clip(x.values, low, high)
                return x._replace(dtype=dtype, values=values, low=int(values.min()), high=int(values.max()))
        is_limited = x.is_limited and x.low >= low and x.high <= high
        least, largest = min(max(x.low, low), high), max(min(x.high, high), low)
        return Term(dtype, least, largest, register=x.register, is_limited=is_limited)

    def float_term(self, register: int) -> Term:
        """Return the term of an instruction with a float32 result."""
        return Term(F32, 0, 0, register=register)

    def _parameter_bits(self, values: Numbers) -> Array:
        """Return a parameter as 32-bit integers. Floats are reinterpreted."""
        if len(values) > 1:
            self.is_per_channel = True
        array = np.asarray(values)
        return array.astype(np.float32).view(np.int32) if array.dtype.kind == "f" else array

    def rescale(self, x: Term, op: RequantInt32) -> Term:
        """Apply ``requant_int32`` to a term."""
        multiplier = _integers(numbers_of(op, "multiplier_vec") if op.is_mul_shift_pc else (op.multiplier_val,))
        shift = _integers(numbers_of(op, "shift_vec") if op.is_mul_shift_pc else (op.shift_val,))
        offset = _integers(numbers_of(op, "offset_vec") if op.is_offset_pc else (op.offset_val,))
        dtype = op.out_dtype or I8
        twice = op.mode is not RequantMode.MULTIPLIER_SHIFT
        if twice:
            exact_term = self._exactly_linear(x, multiplier, shift, offset)
            if exact_term is not None:
                return self.limit(exact_term, dtype)
            multiple = self._multiple(x, multiplier, shift, offset)
            if multiple is not None:
                return self.limit(multiple, dtype)
        source, low, high = self.value_of(x), max(x.low, -(2**31)), x.high
        ends = np.asarray([[low], [high]], np.int64)
        rescaled = (
            rescale_two_roundings(ends, multiplier, shift)
            if twice
            else rescale_one_rounding(ends, multiplier, shift, op.round_mode)
        ) + offset
        register = self.add(
            "rescale",
            source,
            low=low,
            high=high,
            rounds_twice=twice,
            rounding=int(op.round_mode),
            multiplier=self._parameter_bits(multiplier),
            shift=self._parameter_bits(shift),
            offset=self._parameter_bits(offset),
            least=dtype.min,
            most=dtype.max,
        )
        return self.integer(register, dtype, int(rescaled.min()), int(rescaled.max()))

    def _exactly_linear(self, x: Term, multiplier: Array, shift: Array, offset: Array) -> Term | None:
        """Return a requantization that is an exact linear function of an operand in 32 bits, or None."""
        linear = self.linear(x)
        if linear is None:
            return None
        assert linear.factor is not None and linear.offset is not None
        integer_factor = _whole_factor(multiplier, shift)
        if integer_factor is None:
            return None
        factor, before = integer_factor * linear.factor, integer_factor * linear.offset
        span, start = 255 * factor, before + offset
        low, high = _range(start, start + span)
        # Requantization saturates before it adds the offset, so that both values must be in range.
        rescaled = _range(before, before + span) if offset.any() else (low, high)
        if min(low, rescaled[0]) < -LARGEST or max(high, rescaled[1]) > LARGEST or np.abs(factor).max() > _FACTOR:
            return None
        return Term(I32, low, high, operand=x.operand, factor=_shortest(factor), offset=_shortest(start))

    def _multiple(self, x: Term, multiplier: Array, shift: Array, offset: Array) -> Term | None:
        """Return a requantization that multiplies an integer by whole numbers within 32 bits, or None."""
        factor = _whole_factor(multiplier, shift)
        if factor is None or offset.any() or x.dtype is F32:
            return None
        low, high = _range(factor * x.low, factor * x.high)
        if min(low, x.low) < -LARGEST or max(high, x.high) > LARGEST:
            return None
        register = self.add("multiply_parameter", self.value_of(x), parameters=[_shortest(factor)])
        return self.integer(register, I32, low, high)

    def sum(self, a: Term, b: Term, sign: int, dtype: DType) -> Term:
        """``a + sign * b``, saturated to a type."""
        low, high = a.low + min(sign * b.low, sign * b.high), a.high + max(sign * b.low, sign * b.high)
        left, right = self.linear(a), self.linear(b)
        if left is not None and right is not None and low >= -LARGEST and high <= LARGEST:
            assert left.operand is not None and left.factor is not None and left.offset is not None
            assert right.operand is not None and right.factor is not None and right.offset is not None
            offset = _shortest(left.offset + sign * right.offset)
            if np.abs(offset).max() + 255 * 2 * _FACTOR <= LARGEST:
                parameters = [left.factor, sign * right.factor, offset]
                register = self.add("linear_sum", left.operand, right.operand, parameters=parameters)
                return self.integer(register, dtype, low, high)
        code = "add" if sign > 0 else "subtract"
        return self.saturated_result(code, dtype, low, high, self.value_of(a), self.value_of(b))

    def product(self, a: Term, b: Term, dtype: DType) -> Term:
        """``a * b``, saturated to a type."""
        corners = [left * right for left in (a.low, a.high) for right in (b.low, b.high)]
        first, second = self.value_of(a), self.value_of(b)
        return self.saturated_result("multiply", dtype, min(corners), max(corners), first, second)

    def shift_right(self, x: Term, amount: int, dtype: DType) -> Term:
        """``x / 2^amount`` rounded half up, saturated to a type."""
        if amount == 0:
            return self.limit(x, dtype)
        half = 1 << (amount - 1)
        if x.high + half > LARGEST:
            raise Unsupported("a rounding shift may overflow 32 bits")
        low, high = (x.low + half) >> amount, (x.high + half) >> amount
        return self.integer(self.add("shift", self.value_of(x), low=amount), dtype, low, high)

    def _load(self, operand: int, bias: int) -> int:
        for number, instruction in enumerate(self.instructions):
            if instruction.code == "load" and instruction.arguments == {"a": operand, "b": -1, "low": bias}:
                return number
        return self.add("load", operand, low=bias)


def _integers(values: Sequence[int] | Array) -> Array:
    if isinstance(values, np.ndarray):
        return values.astype(np.int64, copy=False)
    return np.fromiter(values, np.int64, len(values))


def _shortest(values: Array) -> Array:
    """Return one element if all elements are equal, else all of them."""
    return values[:1] if values.size > 1 and (values == values[0]).all() else values


def _whole_factor(multiplier: Array, shift: Array) -> Array | None:
    """Return ``multiplier * 2^(shift - 31)`` if it is a whole number in all channels, else None."""
    right = 31 - shift
    if right.min() < 0 or right.max() > 62 or (multiplier & ((np.int64(1) << right) - 1)).any():
        return None
    factor: Array = multiplier >> right
    return factor


def _range(first: Array, last: Array) -> tuple[int, int]:
    """Return the minimum and the maximum of two vectors."""
    return int(np.minimum(first, last).min()), int(np.maximum(first, last).max())


def through_binary32_is_exact(*terms: Term) -> bool:
    """Return True if the ranges are exact in float32."""
    return all(term.low >= -EXACT_FLOAT32 and term.high <= EXACT_FLOAT32 for term in terms)
