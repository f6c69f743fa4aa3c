"""Framework for lowering an annotated float graph to the integer operators of one chip.

A new graph is built. Every value of the old graph has up to three forms in it: FLOAT32, FLOAT16, and quantized
(integers with the parameters of its annotation). The lowering of a node computes one form; conversion nodes compute the
others at their first use.

Lowerings register per operator and chip. A lowering that does not support a node returns ``Declined`` with the reason;
the node then stays float.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from tpuconvert.optimizer.quantize.lowering.binary32_rescale import find_rescale
from tpuconvert.optimizer.quantize.lowering.wide_plan import NO_PLAN, WidePlan
from tpuconvert.schema.arithmetic.fixed_point import (
    RoundingMode,
    multiplier_shift,
    power_of_two,
    rescale_two_roundings,
    saturate,
)
from tpuconvert.schema.definition.op import Op, Trait
from tpuconvert.schema.errors import InternalError
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.graph.legality import Status, check
from tpuconvert.schema.graph.type_inference import may_be_same_type
from tpuconvert.schema.ops.arithmetic import Add, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Divs, Muls, Subs
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.quantization.dequant_int_to_fp32 import DequantIntToFp32
from tpuconvert.schema.ops.quantization.lut import Lut
from tpuconvert.schema.ops.quantization.requant_fp32_to_int import RequantFp32Mode, RequantFp32ToInt
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.types import F16, F32, I8, I16, I32, U8, Array, Chip, DType, QuantParams, Scalar, TensorType

_NO_FRACTION = 3 << 22
"""1.5 * 2^23. All binary32 numbers near it are integers, so that adding it rounds to an integer."""


@dataclass(frozen=True)
class Declined:
    """Reason for which a node is not lowered to integers."""

    reason: str


@dataclass(frozen=True)
class Product:
    """Float counterpart of an integer linear operator.

    Args:
        name: name of the float value that its accumulator approximates.
        unrounded: computes the weights of the operator divided by their scales, before rounding.
        fine: result of the operator with the second term of the weights, which precedes this one; or None.
        fine_steps: step of the weights divided by the step of their second term.
    """

    name: str
    unrounded: Callable[[], Array]
    fine: Value | None = None
    fine_steps: int = 1


Lowered = tuple[Value, ...] | Declined
LoweringFunction = Callable[[Node, "Lowering"], Lowered]

ONNX = "onnx"
"""``Graph.rescale`` of ONNX sources: rescaling in binary32 with one rounding, ties to even."""

TFLITE = "tflite"
"""``Graph.rescale`` of TFLite sources, whose reference kernels round twice when rescaling."""

_TIES = {ONNX: RoundingMode.HALF_TO_EVEN, TFLITE: RoundingMode.HALF_AWAY_FROM_ZERO}
"""Rounding of the kernels that round once, by ``Graph.rescale``."""

_LOWERINGS: dict[tuple[str | Trait, Chip, bool], LoweringFunction] = {}


def lowers(
    *operators: str | Trait, chips: tuple[Chip, ...], shifts_only: bool = False
) -> Callable[[LoweringFunction], LoweringFunction]:
    """Register a lowering of operators, by name or trait, on chips. A second one for the same key is an error.

    With ``shifts_only`` the lowering replaces the other one in the mode of this name (``quantize``).
    """

    def register(function: LoweringFunction) -> LoweringFunction:
        for key in itertools.product(operators, chips, (shifts_only,)):
            if key in _LOWERINGS:
                raise ValueError(f"two lowerings of {key[0]} for {key[1].value}")
            _LOWERINGS[key] = function
        return function

    return register


def find_lowering(op: type[Op], chip: Chip, *, shifts_only: bool = False) -> LoweringFunction | None:
    """Return the lowering of an operator on a chip, or None.

    A lowering for ``shifts_only`` takes precedence over the others, and a lowering by name over one by trait.
    """
    if shifts_only and (op.name, chip, True) in _LOWERINGS:
        return _LOWERINGS[op.name, chip, True]
    traits = (
        trait
        for trait, lowered_chip, _ in _LOWERINGS
        if lowered_chip is chip and isinstance(trait, Trait) and trait in op.traits
    )
    return _LOWERINGS.get((op.name, chip, False)) or next((_LOWERINGS[trait, chip, False] for trait in traits), None)


class Lowering:
    """Construction of the new graph: it stores the float and quantized forms of the old graph's values.

    ``form`` is the name of the lowering that is applied to a node, for messages.

    ``products`` maps the result of every integer linear operator to its float counterpart. The names of both may
    differ: if a clamp needed no operator, the integer result has the name of the clamp. ``per_tensor`` has the names of
    linear operators with one scale for all weights, ``two_terms`` the names of linear operators whose weights
    are sums of two terms, and ``float16`` the names of float nodes that compute in FLOAT16.
    ``plan`` has the values with 16 bits due to precision rules, and ``narrow`` the parameters of their 8-bit forms by
    name.
    """

    def __init__(
        self,
        old: Graph,
        chip: Chip,
        shifts_only: bool = False,
        per_tensor: Collection[str] = (),
        two_terms: Collection[str] = (),
        float16: Collection[str] = (),
        plan: WidePlan = NO_PLAN,
        narrow: Mapping[str, QuantParams] | None = None,
    ) -> None:
        self.old = old
        self.chip = chip
        self.shifts_only = shifts_only
        self.per_tensor = per_tensor
        self.two_terms = two_terms
        self.float16 = float16
        self.plan = plan
        self._narrow = narrow or {}
        self._narrowed: dict[Value, Value] = {}
        self.g = Graph(old.name, old.file)
        self.g.notes, self.g.deviations = list(old.notes), list(old.deviations)
        self.rescale = old.rescale
        self.products: dict[Value, Product] = {}
        self.form = ""
        self._floats: dict[Value, Value] = {}
        self._halves: dict[Value, Value] = {}
        self._quantized: dict[Value, Value] = {}

    # Forms of a value

    def set_float_value(self, old: Value, new: Value) -> None:
        """Set the FLOAT32 form of a value, or the only form of integers of the source."""
        if not may_be_same_type(new.type, old.type):
            self._fail(old, f"is {old.type}, and lowered as {new.type}")
        self._floats[old] = new

    def set_half_value(self, old: Value, new: Value) -> None:
        """Set the FLOAT16 form of a value."""
        if not may_be_same_type(new.type, TensorType(F16, old.shape)):
            self._fail(old, f"is {old.type}, and lowered as {new.type}")
        self._halves[old] = new

    def set_quantized(self, old: Value, new: Value) -> None:
        """Set the integer form of a value."""
        new.quant = old.quant if new.quant is None else new.quant
        if new.quant != old.quant:
            self._fail(old, f"is annotated {old.quant}, and lowered as {new.quant}")
        if not may_be_same_type(new.type, integer_type(old)):
            self._fail(old, f"is annotated {integer_type(old)}, and lowered as {new.type}")
        self._quantized[old] = new

    def _fail(self, old: Value, message: str) -> NoReturn:
        """Raise the internal error for a lowered value that is not the annotated one: a fault of a form or a rule."""
        node = old.producer
        if node is None:
            raise InternalError(f"'{old.name}' {message}", file=self.g.file)
        rules = f", after the rules {', '.join(node.rules)}" if node.rules else ""
        text = f"'{old.name}' {message}, by the form '{self.form}' of {node.op.name}{rules}"
        raise InternalError(text, file=self.g.file, node=node.name)

    def float_value(self, old: Value) -> Value:
        """Return the FLOAT32 form of a value. It is dequantized at the first use."""
        if old not in self._floats:
            if old.is_constant:
                self._floats[old] = self.g.constant(old.array, old.name)
            elif old in self._halves:
                self._floats[old] = self.g.add(Cast(out_dtype=F32), self._halves[old], name=f"{old.name}:float32")
            else:
                self._floats[old] = self._dequantize(self._quantized[old], f"{old.name}:float32")
        return self._floats[old]

    def half_value(self, old: Value) -> Value:
        """Return the FLOAT16 form of a float value. It is rounded at the first use."""
        if old not in self._halves:
            if old.is_constant:
                self._halves[old] = self.g.constant(old.array.astype(np.float16), old.name)
            else:
                wide = self.float_value(old)
                self._halves[old] = self.g.add(Cast(out_dtype=F16), wide, name=f"{old.name}:float16")
        return self._halves[old]

    def quantized_value(self, old: Value, params: QuantParams | None = None) -> Value:
        """Integer form of a value.

        Args:
            old: an annotated value, or a constant, which is quantized to symmetric INT8 if it has no annotation.
            params: parameters to use instead of the annotation; this adds a lookup table.
        """
        if old.is_constant:
            return self._quantized_constant(old, params)
        if old not in self._quantized:
            own = params_of(old)
            self.set_quantized(
                old, self.quantize_float(self.float_value(old), own, f"{old.name}:{own.dtype.value.lower()}")
            )
        new = self._quantized[old]
        return new if params is None else self.change_params(new, params, f"{old.name}:rescaled")

    @contextlib.contextmanager
    def narrowed_operands(self, node: Node) -> Iterator[None]:
        """Replace 16-bit operands of a node that takes 8 bits by their 8-bit forms while it is lowered."""
        wide: dict[Value, tuple[QuantParams, Value | None]] = {}
        for old in [] if self.plan.reads(node) else node.inputs:
            if old is None or old not in self.plan.values or old in wide:
                continue
            if old.quant is None or old.quant.dtype is not I16:
                continue
            params = self._narrow[old.name]
            if old not in self._narrowed:
                name = f"{old.name}:{params.dtype.value.lower()}"
                if old in self._quantized:
                    self._narrowed[old] = self.change_params(self._quantized[old], params, name)
                else:
                    self._narrowed[old] = self.quantize_float(self.float_value(old), params, name)
            wide[old] = params_of(old), self._quantized.get(old)
            old.quant, self._quantized[old] = params, self._narrowed[old]
        try:
            yield
        finally:
            for old, (params, value) in wide.items():
                old.quant = params
                if value is None:
                    del self._quantized[old]
                else:
                    self._quantized[old] = value

    def integers(self, values: Array, params: QuantParams) -> Array:
        """Quantize floats with the rounding of the source format. ONNX divides in binary32, with ties to even."""
        if self.rescale != ONNX or params.axis is not None:
            return params.quantize(values)
        with np.errstate(all="ignore"):
            steps = np.rint(values.astype(np.float32) / np.float32(params.scale[0])).astype(np.float64)
        return saturate(np.nan_to_num(steps) + params.zero_point[0], params.dtype)

    def _quantized_constant(self, old: Value, params: QuantParams | None) -> Value:
        target = params or old.quant
        if target is None:
            largest = float(np.abs(old.array).max(initial=0.0)) or 1.0
            target = QuantParams.per_tensor(float(np.float32(largest / 127)), 0, I8)
        if old.stored is not None and target == old.quant:
            return self.g.constant(old.stored, old.name, target)
        return self.g.constant(self.integers(old.array, target), old.name, target)

    def saturate_float_value(self, old: Value) -> None:
        """Saturate the FLOAT32 form of an annotated value to the range of its integers.

        A quantized source relies on saturation where a float model has an activation function.
        """
        params = params_of(old)
        if self.chip is Chip.BM1682:
            limits = np.array([params.dtype.min, params.dtype.max], params.dtype.numpy)
            low, high = params.dequantize(limits).tolist()
            op = Clamp(min=Scalar.f32(low), max=Scalar.f32(high))
            self._floats[old] = self.g.add(op, self._floats[old], name=f"{old.name}:saturated")
        else:
            self.quantized_value(old)
            del self._floats[old]

    def rounded_float(self, new: Value, params: QuantParams, name: str) -> Value:
        """Return a FLOAT32 value of the new graph after it was quantized and dequantized."""
        return self._dequantize(self.quantize_float(new, params, name), f"{name}:float32")

    # Building blocks

    def table(self, x: Value, params: QuantParams, function: Callable[[Array], Array], name: str) -> Value:
        """Lower a unary function of 8-bit integers to a lookup table: entry = quantize(function(dequantize(index))).

        The entries are ordered by the unsigned bit pattern of the operand.
        """
        entries = self.integers(function(params_of(x).dequantize(_patterns(x.dtype))), params)
        return self._look_up(x, params, entries, name)

    def _look_up(self, x: Value, params: QuantParams, entries: Array, name: str) -> Value:
        return with_quant(self.g.add(Lut(), x, self.g.constant(entries, f"{name}:table"), name=name), params)

    def requantize(
        self, x: Value, factors: Sequence[float], params: QuantParams, name: str, *, twice: bool | None = None
    ) -> Value:
        """Multiply integers by float factors (one, or one per index of axis 1) and add the zero point.

        A TFLite source is rounded twice (mode 0) unless ``twice`` is False. Other sources are rounded once (mode 2),
        ONNX with ties to even, and TFLite with ties away from zero, like its kernels that round once. Mode 0 has no
        unsigned 8-bit result: INT16 is computed and then saturated, which gives the same value. For calibrated scales,
        multipliers are rounded to the 24 bits of binary32, so that the engine needs one multiplication instead of two.
        """
        tflite = self.rescale == "tflite" if twice is None else twice
        if not self.rescale:
            factors = [float(np.float32(factor)) for factor in factors]
        pairs = [multiplier_shift(factor) for factor in factors]
        if not tflite:
            pairs = [(multiplier, shift - 31) for multiplier, shift in pairs]
        mode = RequantMode.TFLITE_LSHIFT if tflite else RequantMode.MULTIPLIER_SHIFT
        narrow = tflite and params.dtype is U8
        rounding = _TIES.get(self.rescale, RoundingMode.HALF_UP)
        op = requant_int32(pairs, mode, I16 if narrow else params.dtype, params.zero_point[:1], rounding)
        result = self.g.add(op, x, name=f"{name}:int16" if narrow else name)
        if narrow:
            result = self.g.add(Cast(out_dtype=U8), result, name=name)
        return with_quant(result, params)

    def requantize_product(
        self, x: Value, units: Sequence[float], params: QuantParams, name: str, *, twice: bool | None = None
    ) -> Value:
        """Requantize an accumulator, as ``requantize``. It has one scale, or one per index of axis 1.

        For an ONNX source the result is computed in binary32. A single factor without an exact integer form is applied
        in binary32. If one of several factors has no exact integer form, it is applied to the exact product with
        one rounding, because float arithmetic would add four operators for all channels.
        """
        if self.rescale != ONNX:
            return self.requantize(x, ratios(units, params.scale), params, name, twice=twice)
        factors = [float(np.float32(unit) / np.float32(scale)) for unit, scale in _pairs(units, params.scale)]
        return self.requantize_as_binary32(x, factors, params, name)

    def requantize_as_binary32(self, x: Value, factors: Sequence[float], params: QuantParams, name: str) -> Value:
        """Multiply integers by binary32 factors (one, or one per index of axis 1) as ONNX does, plus the zero point."""
        fixed_rescale = find_rescale(factors, params.zero_point[0], params.dtype)
        if not fixed_rescale.equals and len(factors) == 1:
            cast = self.g.add(Cast(out_dtype=F32), x, name=f"{name}:float32")
            scaled = self.g.add(Muls(Scalar.f32(factors[0])), cast, name=f"{name}:scaled")
            return self._even_integers(scaled, params, name)
        mode, offsets = RequantMode.MULTIPLIER_SHIFT, params.zero_point[:1]
        op = requant_int32(fixed_rescale.pairs, mode, params.dtype, offsets, fixed_rescale.rounding)
        return with_quant(self.g.add(op, x, name=name), params)

    def _even_integers(self, x: Value, params: QuantParams, name: str) -> Value:
        """Round FLOAT32 to integers, ties to even, and add the zero point: adding 1.5 * 2^23 removes the fraction bits.

        This is exact below 2^22 in magnitude; beyond, the result saturates.
        """
        shifted = self.g.add(Adds(Scalar.f32(_NO_FRACTION)), x, name=f"{name}:rounded")
        offset = params.zero_point[0] - _NO_FRACTION
        if self.chip is Chip.BM1686:
            mode = RequantFp32Mode.SCALE_ROUND_OFFSET
            op = RequantFp32ToInt(scale_val=1.0, offset_val=offset, mode=mode, out_dtype=params.dtype)
            result = self.g.add(op, shifted, name=name)
        else:
            centred = self.g.add(Adds(Scalar.f32(offset)), shifted, name=f"{name}:centred")
            result = self.g.add(Cast(out_dtype=params.dtype), centred, name=name)
        return with_quant(result, params)

    def widen(self, x: Value, left_shift: int, name: str) -> Value:
        """``(x - zero_point) * 2^left_shift`` as INT32, exactly."""
        offset = -(params_of(x).zero_point[0] << left_shift)
        op = requant_int32([power_of_two(left_shift)], RequantMode.TFLITE_LSHIFT, I32, [offset])
        return self.g.add(op, x, name=name)

    def scale_int32(self, x: Value, factors: Sequence[float], name: str) -> Value:
        """Multiply INT32 by float factors below 1 (one, or one per index of axis 1) and round to INT32."""
        pairs = [multiplier_shift(factor) for factor in factors]
        return self.g.add(requant_int32(pairs, RequantMode.TFLITE_LSHIFT, I32), x, name=name)

    def moves(self, op: Op, *inputs: Value, names: tuple[str, ...]) -> Lowered:
        """Add the operator with integer operands if it is legal on the chip, else decline."""
        types = [value.type for value in inputs]
        verdict = check(op, self.chip, types, op.infer(*types))
        if verdict.status is Status.ILLEGAL:
            return Declined(verdict.reason)
        return self.g.add_all(op, *inputs, names=names)

    def change_params(self, x: Value, params: QuantParams, name: str) -> Value:
        """Requantize a value to other parameters. From 8 bits to 8 bits this is a lookup table."""
        own = params_of(x)
        if params == own:
            return x
        has_one_scale_each = own.axis is None and params.axis is None
        if x.dtype.bits == 8 and params.dtype.bits == 8 and has_one_scale_each:
            return self._look_up(x, params, self._rescaled_entries(own, params), name)
        if not self.rescale and self.chip is Chip.BM1686 and I16 in (x.dtype, params.dtype):
            integers = x if x.dtype is I16 else self.widen(x, 0, f"{name}:centred")
            return self.requantize(integers, ratios(own.scale, params.scale), params, name)
        if self.rescale == TFLITE and self.chip is Chip.BM1686 and has_one_scale_each:
            centred = self.widen(x, 0, f"{name}:centred") if own.zero_point[0] else x
            return self.requantize(centred, [own.scale[0] / params.scale[0]], params, name)
        return self.quantize_float(self._dequantize(x, f"{name}:float32"), params, name)

    def _rescaled_entries(self, own: QuantParams, params: QuantParams) -> Array:
        """Requantized values of all 256 integers, with the rounding of the source format."""
        if self.rescale != TFLITE:
            return self.integers(own.dequantize(_patterns(own.dtype)), params)
        multiplier, exponent = multiplier_shift(own.scale[0] / params.scale[0])
        centred = _patterns(own.dtype).astype(np.int64) - own.zero_point[0]
        return saturate(rescale_two_roundings(centred, multiplier, exponent) + params.zero_point[0], params.dtype)

    def quantize_float(self, x: Value, params: QuantParams, name: str) -> Value:
        """Quantize a float value: multiply by f32(1/scale), or divide exactly if the scales come from a source file."""
        zero_point = params.zero_point[0]
        if self.rescale == ONNX and params.axis is None:
            divided = self.g.add(Divs(Scalar.f32(params.scale[0])), x, name=f"{name}:divided")
            return self._even_integers(divided, params, name)
        factors = tuple(float(np.float32(1.0) / np.float32(scale)) for scale in params.scale)
        if params.axis is not None and (any(params.zero_point) or self.chip is not Chip.BM1686):
            return self._quantize_channels(x, factors, params, name)
        if self.chip is Chip.BM1686:
            if self.rescale:
                x, factors = self.g.add(Divs(Scalar.f32(params.scale[0])), x, name=f"{name}:divided"), (1.0,)
            mode = RequantFp32Mode.SCALE_ROUND_OFFSET
            op = RequantFp32ToInt(**_scales(factors), offset_val=zero_point, mode=mode, out_dtype=params.dtype)
            result = self.g.add(op, x, name=name)
        else:
            scaled = self.g.add(Muls(Scalar.f32(factors[0])), x, name=f"{name}:scaled")
            centred = I16 if zero_point else params.dtype
            result = self.g.add(Cast(out_dtype=centred), scaled, name=f"{name}:centred" if zero_point else name)
            if zero_point:
                result = self.g.add(Adds(Scalar(I16, zero_point), out_dtype=params.dtype), result, name=name)
        return with_quant(result, params)

    def _quantize_channels(self, x: Value, factors: tuple[float, ...], params: QuantParams, name: str) -> Value:
        """Quantize a float value [N, C, ...] with a scale and a zero point per channel."""
        offsets = params.zero_point
        if self.chip is Chip.BM1686:
            mode = RequantFp32Mode.SCALE_ROUND_OFFSET
            vectors = {**_scales(factors), "is_offset_pc": True, "offset_vec": offsets}
            result = self.g.add(RequantFp32ToInt(**vectors, mode=mode, out_dtype=params.dtype), x, name=name)
        else:
            scaled = self.g.add(Mul(), x, self._per_channel(factors, x, f"{name}:factors"), name=f"{name}:scaled")
            if any(offsets):
                centred = self._per_channel(offsets, x, f"{name}:offsets")
                scaled = self.g.add(Add(), scaled, centred, name=f"{name}:centred")
            result = self.g.add(Cast(out_dtype=params.dtype), scaled, name=name)
        return with_quant(result, params)

    def _per_channel(self, values: Sequence[float], like: Value, name: str) -> Value:
        """Add a FLOAT32 constant [1, C, 1, ...] of the rank of a value."""
        shape = (1, len(values), *(1 for _ in range(like.rank - 2)))
        return self.g.constant(np.asarray(values, np.float32).reshape(shape), name)

    def _dequantize(self, x: Value, name: str) -> Value:
        scales, zero_points = params_of(x).scale, params_of(x).zero_point
        if self.chip is Chip.BM1686:
            return self.g.add(DequantIntToFp32(**_scales(scales), **_offsets(zero_points)), x, name=name)
        result = self.g.add(Cast(out_dtype=F32), x, name=f"{name}:cast")
        if len(set(zip(scales, zero_points, strict=True))) > 1:
            if any(zero_points):
                centred = self._per_channel(zero_points, x, f"{name}:zero_points")
                result = self.g.add(Sub(), result, centred, name=f"{name}:centred")
            return self.g.add(Mul(), result, self._per_channel(scales, x, f"{name}:scales"), name=name)
        zero_point = zero_points[0]
        if zero_point:
            result = self.g.add(Subs(Scalar.f32(zero_point)), result, name=f"{name}:centred")
        return self.g.add(Muls(Scalar.f32(scales[0])), result, name=name)


def params_of(value: Value | None) -> QuantParams:
    """Return the quantization parameters of an annotated value."""
    assert value is not None and value.quant is not None, f"{value} is not annotated"
    return value.quant


def with_quant(value: Value, params: QuantParams) -> Value:
    """Annotate a value and return it."""
    value.quant = params
    return value


def int32_params(units: Sequence[float]) -> QuantParams:
    """Parameters of INT32 values with zero point 0 and one scale, or one scale per index of axis 1."""
    return QuantParams(tuple(units), (0,) * len(units), I32, axis=1 if len(units) > 1 else None)


def _scales(scales: tuple[float, ...]) -> dict[str, Any]:
    """Return the attributes of a quantize or dequantize operator for one scale, or for one per channel."""
    return {"scale_val": scales[0]} if len(scales) == 1 else {"is_scale_pc": True, "scale_vec": scales}


def _offsets(zero_points: tuple[int, ...]) -> dict[str, Any]:
    """Return the attributes of a dequantize operator for one zero point, or for one per channel."""
    if len(set(zero_points)) == 1:
        return {"offset_val": zero_points[0]}
    return {"is_offset_pc": True, "offset_vec": zero_points}


def ratios(units: Sequence[float], scales: Sequence[float]) -> list[float]:
    """Return unit / scale for every channel. Both arguments have one element, or one per channel."""
    return [unit / scale for unit, scale in _pairs(units, scales)]


def _pairs(units: Sequence[float], scales: Sequence[float]) -> list[tuple[float, float]]:
    count = max(len(units), len(scales))
    units, scales = (values if len(values) == count else list(values) * count for values in (units, scales))
    return list(zip(units, scales, strict=True))


def requant_int32(
    pairs: Sequence[tuple[int, int]],
    mode: RequantMode,
    dtype: DType,
    offsets: Sequence[int] = (0,),
    rounding: RoundingMode = RoundingMode.HALF_UP,
) -> RequantInt32:
    """Create a requant_int32 with one multiplier, shift and offset, or one of each per channel."""
    per_channel, has_offsets = len(pairs) > 1, len(offsets) > 1 and any(offsets)
    return RequantInt32(
        is_mul_shift_pc=per_channel,
        multiplier_val=1 if per_channel else pairs[0][0],
        shift_val=0 if per_channel else pairs[0][1],
        multiplier_vec=tuple(multiplier for multiplier, _ in pairs) if per_channel else (),
        shift_vec=tuple(shift for _, shift in pairs) if per_channel else (),
        is_offset_pc=has_offsets,
        offset_val=0 if has_offsets else offsets[0],
        offset_vec=tuple(offsets) if has_offsets else (),
        mode=mode,
        round_mode=rounding if mode is RequantMode.MULTIPLIER_SHIFT else RoundingMode.HALF_UP,
        out_dtype=dtype,
    )


def _patterns(dtype: DType) -> Array:
    """All values of an 8-bit type in the order of a lookup table: by their unsigned bit patterns."""
    return np.arange(256, dtype=np.uint8).view(dtype.numpy)


def integer_type(value: Value) -> TensorType:
    """Return the type that a value has after quantization."""
    return TensorType(params_of(value).dtype, value.shape)
