"""Framework for lowering an annotated float graph to the integer operators of one chip.

A new graph is built. Every value of the old graph has up to two forms in it: float (FLOAT32) and quantized (integers
with the parameters of its annotation). The lowering of a node computes one form; a conversion node computes the other
at its first use.

Lowerings register per operator and chip. A lowering that does not support a node returns ``Declined`` with the reason;
the node then stays float.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tpuconvert.optimizer.quantize.binary32_rescale import find_rescale
from tpuconvert.schema.fixed_point import RoundingMode, multiplier_shift, rescale_two_roundings, saturate
from tpuconvert.schema.graph import Graph, Node, Value
from tpuconvert.schema.legality import Status, check
from tpuconvert.schema.op import Op, Trait
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Divs, Muls, Subs
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.dequant_int_to_fp32 import DequantIntToFp32
from tpuconvert.schema.ops.lut import Lut
from tpuconvert.schema.ops.requant_fp32_to_int import RequantFp32Mode, RequantFp32ToInt
from tpuconvert.schema.ops.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.types import F32, I8, I16, I32, U8, Array, Chip, DType, QuantParams, Scalar, TensorType

_NO_FRACTION = 3 << 22
"""1.5 * 2^23: binary32 numbers near it are integers."""


@dataclass(frozen=True)
class Declined:
    """Reason for which a node is not lowered to integers."""

    reason: str


@dataclass(frozen=True)
class Product:
    """Float counterpart of an integer linear operator.

    Args:
        name: name of the float value that its accumulator approximates.
        exact: its weights divided by their scales, before rounding.
    """

    name: str
    exact: Array


Lowered = tuple[Value, ...] | Declined
LoweringFunction = Callable[[Node, "Lowering"], Lowered]

ONNX = "onnx"
"""``Graph.rescale`` of ONNX sources: binary32, rounded once, ties to even."""

TFLITE = "tflite"
"""``Graph.rescale`` of TFLite sources, whose reference kernels round twice."""

_LOWERINGS: dict[tuple[str | Trait, Chip], LoweringFunction] = {}


def lowers(*operators: str | Trait, chips: tuple[Chip, ...]) -> Callable[[LoweringFunction], LoweringFunction]:
    """Register the integer form of operators on chips, by name or by trait. Two for the same pair are an error."""

    def register(function: LoweringFunction) -> LoweringFunction:
        for key in itertools.product(operators, chips):
            if key in _LOWERINGS:
                raise ValueError(f"two lowerings of {key[0]} for {key[1].value}")
            _LOWERINGS[key] = function
        return function

    return register


def find_lowering(op: type[Op], chip: Chip) -> LoweringFunction | None:
    """Lowering of an operator on a chip, or None: looked up by name, then by trait."""
    traits = (trait for trait, known in _LOWERINGS if known is chip and isinstance(trait, Trait) and trait in op.traits)
    return _LOWERINGS.get((op.name, chip)) or next((_LOWERINGS[trait, chip] for trait in traits), None)


class Lowering:
    """The new graph, with the float and quantized forms of the old graph's values.

    ``products`` maps the result of every integer linear operator to its float counterpart. Their names may differ: the
    result can have the name of a clamp that needed no operator.
    """

    def __init__(self, old: Graph, chip: Chip) -> None:
        self.old = old
        self.chip = chip
        self.g = Graph(old.name, old.file)
        self.g.notes = list(old.notes)
        self.rescale = old.rescale
        self.products: dict[Value, Product] = {}
        self._real: dict[Value, Value] = {}
        self._quantized: dict[Value, Value] = {}

    # Forms of a value

    def set_real(self, old: Value, new: Value) -> None:
        """Set the FLOAT32 form of a value."""
        self._real[old] = new

    def set_quantized(self, old: Value, new: Value) -> None:
        """Set the integer form of a value."""
        new.quant = old.quant if new.quant is None else new.quant
        assert new.quant == old.quant, f"'{old.name}' is annotated {old.quant}, and lowered as {new.quant}"
        self._quantized[old] = new

    def real(self, old: Value) -> Value:
        """FLOAT32 form of a value; dequantized at the first use."""
        if old not in self._real:
            if old.is_constant:
                self._real[old] = self.g.constant(old.array, old.name)
            else:
                self._real[old] = self._dequantize(self._quantized[old], f"{old.name}:float32")
        return self._real[old]

    def quantized(self, old: Value, params: QuantParams | None = None) -> Value:
        """Integer form of a value.

        Args:
            old: an annotated value, or a constant, which is quantized to symmetric INT8 if it has no annotation.
            params: parameters to use instead of the annotation; costs a table.
        """
        if old.is_constant:
            return self._quantized_constant(old, params)
        if old not in self._quantized:
            assert old.quant is not None, f"'{old.name}' is not annotated"
            name = f"{old.name}:{old.quant.dtype.value.lower()}"
            self.set_quantized(old, self._quantize(self._real[old], old.quant, name))
        new = self._quantized[old]
        return new if params is None else self.rescaled(new, params, f"{old.name}:rescaled")

    def integers(self, real: Array, params: QuantParams) -> Array:
        """Quantize floats with the rounding of the source format: ONNX divides in binary32, ties to even."""
        if self.rescale != ONNX or params.axis is not None:
            return params.quantize(real)
        with np.errstate(all="ignore"):
            steps = np.rint(real.astype(np.float32) / np.float32(params.scale[0])).astype(np.float64)
        return saturate(np.nan_to_num(steps) + params.zero_point[0], params.dtype)

    def _quantized_constant(self, old: Value, params: QuantParams | None) -> Value:
        wanted = params or old.quant
        if wanted is None:
            largest = float(np.abs(old.array).max(initial=0.0)) or 1.0
            wanted = QuantParams.per_tensor(float(np.float32(largest / 127)), 0, I8)
        if old.stored is not None and wanted == old.quant:
            return self.g.constant(old.stored, old.name, wanted)
        return self.g.constant(self.integers(old.array, wanted), old.name, wanted)

    def saturate_real(self, old: Value) -> None:
        """Saturate the FLOAT32 form of an annotated value to the range of its integers.

        A quantized source relies on saturation where a float model has an activation function.
        """
        params = old.quant
        assert params is not None
        if self.chip is Chip.BM1682:
            low, high = (
                float(params.dequantize(np.asarray(end, params.dtype.numpy).reshape(1))[0])
                for end in (params.dtype.min, params.dtype.max)
            )
            op = Clamp(min=Scalar.f32(low), max=Scalar.f32(high))
            self._real[old] = self.g.add(op, self._real[old], name=f"{old.name}:saturated")
        else:
            self.quantized(old)
            del self._real[old]

    # Building blocks

    def table(self, x: Value, params: QuantParams, function: Callable[[Array], Array], name: str) -> Value:
        """Lower a unary function of 8-bit integers to a lookup table: entry = quantize(function(dequantize(index))).

        The entries are ordered by the unsigned bit pattern of the operand.
        """
        assert x.quant is not None
        return self._look_up(x, params, self.integers(function(x.quant.dequantize(_patterns(x.dtype))), params), name)

    def _look_up(self, x: Value, params: QuantParams, entries: Array, name: str) -> Value:
        result = self.g.add(Lut(), x, self.g.constant(entries, f"{name}:table"), name=name)
        result.quant = params
        return result

    def requantize(
        self, x: Value, factors: Sequence[float], params: QuantParams, name: str, *, twice: bool | None = None
    ) -> Value:
        """Multiply integers by float factors (one, or one per index of axis 1) and add the zero point.

        A TFLite source rounds twice (mode 0) unless ``twice`` is False, everything else once (mode 2), ONNX with ties
        to even. Mode 0 has no unsigned 8-bit result: it goes through INT16, which saturates to the same value. Between
        calibrated scales, multipliers have the 24 bits of binary32: the engine then needs one multiplier, not two.
        """
        tflite = self.rescale == "tflite" if twice is None else twice
        if not self.rescale:
            factors = [float(np.float32(factor)) for factor in factors]
        pairs = [multiplier_shift(factor) for factor in factors]
        if not tflite:
            pairs = [(multiplier, shift - 31) for multiplier, shift in pairs]
        mode = RequantMode.TFLITE_LSHIFT if tflite else RequantMode.MULTIPLIER_SHIFT
        narrow = tflite and params.dtype is U8
        rounding = RoundingMode.HALF_TO_EVEN if self.rescale == ONNX else RoundingMode.HALF_UP
        op = _rescale(pairs, params.zero_point[0], mode, I16 if narrow else params.dtype, rounding)
        result = self.g.add(op, x, name=f"{name}:int16" if narrow else name)
        if narrow:
            result = self.g.add(Cast(out_dtype=U8), result, name=name)
        result.quant = params
        return result

    def requantize_product(
        self, x: Value, units: Sequence[float], params: QuantParams, name: str, *, twice: bool | None = None
    ) -> Value:
        """Requantize an accumulator with the given scales (one, or one per index of axis 1), as ``requantize``.

        For an ONNX source the result is that of binary32. A single factor without an exact integer form is applied in
        binary32. Among several factors, those without one are applied to the exact product with one rounding, because
        a float result would cost every channel four operators.
        """
        if self.rescale != ONNX:
            return self.requantize(x, ratios(units, params.scale), params, name, twice=twice)
        factors = [float(np.float32(unit) / np.float32(scale)) for unit, scale in _pairs(units, params.scale)]
        return self.requantize_as_binary32(x, factors, params, name)

    def requantize_as_binary32(self, x: Value, factors: Sequence[float], params: QuantParams, name: str) -> Value:
        """Multiply integers by binary32 factors (one, or one per index of axis 1) as ONNX does, plus the zero point."""
        found = find_rescale(factors, params.zero_point[0], params.dtype)
        if not found.equals and len(factors) == 1:
            real = self.g.add(Cast(out_dtype=F32), x, name=f"{name}:float32")
            scaled = self.g.add(Muls(Scalar.f32(factors[0])), real, name=f"{name}:scaled")
            return self._even_integers(scaled, params, name)
        offset = params.zero_point[0]
        op = _rescale(list(found.pairs), offset, RequantMode.MULTIPLIER_SHIFT, params.dtype, found.rounding)
        result = self.g.add(op, x, name=name)
        result.quant = params
        return result

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
        result.quant = params
        return result

    def widen(self, x: Value, left_shift: int, name: str) -> Value:
        """``(x - zero_point) * 2^left_shift`` as INT32, exactly."""
        assert x.quant is not None
        op = RequantInt32(
            multiplier_val=1 << 30,
            shift_val=left_shift + 1,
            offset_val=-(x.quant.zero_point[0] << left_shift),
            mode=RequantMode.TFLITE_LSHIFT,
            out_dtype=I32,
        )
        return self.g.add(op, x, name=name)

    def scale_int32(self, x: Value, factors: Sequence[float], name: str) -> Value:
        """Multiply INT32 by float factors below one (one, or one per index of axis 1) and round to INT32."""
        pairs = [multiplier_shift(factor) for factor in factors]
        return self.g.add(_rescale(pairs, 0, RequantMode.TFLITE_LSHIFT, I32), x, name=name)

    def moves(self, op: Op, *inputs: Value, names: tuple[str, ...]) -> Lowered:
        """Add the operator on integers if it is legal on the chip, else decline."""
        types = [value.type for value in inputs]
        verdict = check(op, self.chip, types, op.infer(*types))
        if verdict.status is Status.ILLEGAL:
            return Declined(verdict.reason)
        return self.g.add_all(op, *inputs, names=names)

    def rescaled(self, x: Value, params: QuantParams, name: str) -> Value:
        """Requantize to other parameters: with a lookup table for 8 bits."""
        if params == x.quant:
            return x
        assert x.quant is not None
        if x.dtype.bits == 8 and params.dtype.bits == 8 and x.quant.axis is None and params.axis is None:
            return self._look_up(x, params, self._rescaled_entries(x, params), name)
        if self.rescale == TFLITE and self.chip is Chip.BM1686 and x.quant.axis is None and params.axis is None:
            centred = self.widen(x, 0, f"{name}:centred") if x.quant.zero_point[0] else x
            return self.requantize(centred, [x.quant.scale[0] / params.scale[0]], params, name)
        return self._quantize(self._dequantize(x, f"{name}:float32"), params, name)

    def _rescaled_entries(self, x: Value, params: QuantParams) -> Array:
        """Requantized values of all 256 integers, rounded as the source format rounds."""
        assert x.quant is not None
        if self.rescale != TFLITE:
            return self.integers(x.quant.dequantize(_patterns(x.dtype)), params)
        multiplier, exponent = multiplier_shift(x.quant.scale[0] / params.scale[0])
        centred = _patterns(x.dtype).astype(np.int64) - x.quant.zero_point[0]
        return saturate(rescale_two_roundings(centred, multiplier, exponent) + params.zero_point[0], params.dtype)

    def _quantize(self, x: Value, params: QuantParams, name: str) -> Value:
        """Float to integer: multiplied by f32(1/scale); exact division where a source file's scales are kept."""
        zero_point = params.zero_point[0]
        if self.rescale == ONNX and params.axis is None:
            divided = self.g.add(Divs(Scalar.f32(params.scale[0])), x, name=f"{name}:divided")
            return self._even_integers(divided, params, name)
        factors = tuple(float(np.float32(1.0) / np.float32(scale)) for scale in params.scale)
        if self.chip is Chip.BM1686:
            if self.rescale:
                x, factors = self.g.add(Divs(Scalar.f32(params.scale[0])), x, name=f"{name}:divided"), (1.0,)
            op = RequantFp32ToInt(
                is_scale_pc=len(factors) > 1,
                scale_val=1.0 if len(factors) > 1 else factors[0],
                scale_vec=factors if len(factors) > 1 else (),
                offset_val=zero_point,
                mode=RequantFp32Mode.SCALE_ROUND_OFFSET,
                out_dtype=params.dtype,
            )
            result = self.g.add(op, x, name=name)
        else:
            scaled = self.g.add(Muls(Scalar.f32(factors[0])), x, name=f"{name}:scaled")
            centred = I16 if zero_point else params.dtype
            result = self.g.add(Cast(out_dtype=centred), scaled, name=f"{name}:centred" if zero_point else name)
            if zero_point:
                result = self.g.add(Adds(Scalar(I16, zero_point), out_dtype=params.dtype), result, name=name)
        result.quant = params
        return result

    def _dequantize(self, x: Value, name: str) -> Value:
        assert x.quant is not None
        scales, zero_point = x.quant.scale, x.quant.zero_point[0]
        if self.chip is Chip.BM1686:
            op = DequantIntToFp32(
                is_scale_pc=len(scales) > 1,
                scale_val=1.0 if len(scales) > 1 else scales[0],
                scale_vec=scales if len(scales) > 1 else (),
                offset_val=zero_point,
            )
            return self.g.add(op, x, name=name)
        real = self.g.add(Cast(out_dtype=F32), x, name=f"{name}:cast")
        if zero_point:
            real = self.g.add(Subs(Scalar.f32(zero_point)), real, name=f"{name}:centred")
        return self.g.add(Muls(Scalar.f32(scales[0])), real, name=name)


def ratios(units: Sequence[float], scales: Sequence[float]) -> list[float]:
    """Factors from units to scales, each of them one or one per channel."""
    return [unit / scale for unit, scale in _pairs(units, scales)]


def _pairs(units: Sequence[float], scales: Sequence[float]) -> list[tuple[float, float]]:
    count = max(len(units), len(scales))
    units, scales = (values if len(values) == count else list(values) * count for values in (units, scales))
    return list(zip(units, scales, strict=True))


def _rescale(
    pairs: list[tuple[int, int]],
    offset: int,
    mode: RequantMode,
    dtype: DType,
    rounding: RoundingMode = RoundingMode.HALF_UP,
) -> RequantInt32:
    """requant_int32 with one multiplier and shift, or one pair per channel."""
    per_channel = len(pairs) > 1
    return RequantInt32(
        is_mul_shift_pc=per_channel,
        multiplier_val=1 if per_channel else pairs[0][0],
        shift_val=0 if per_channel else pairs[0][1],
        multiplier_vec=tuple(multiplier for multiplier, _ in pairs) if per_channel else (),
        shift_vec=tuple(shift for _, shift in pairs) if per_channel else (),
        offset_val=offset,
        mode=mode,
        round_mode=rounding if mode is RequantMode.MULTIPLIER_SHIFT else RoundingMode.HALF_UP,
        out_dtype=dtype,
    )


def _patterns(dtype: DType) -> Array:
    """All values of an 8-bit type in the order of their unsigned bit patterns, which is the order of a table."""
    return np.arange(256, dtype=np.uint8).view(dtype.numpy)


def integer_type(value: Value) -> TensorType:
    """The type a value has once it is quantized."""
    assert value.quant is not None
    return TensorType(value.quant.dtype, value.shape)
