"""Results of TensorFlow Lite's reference kernels of unary operators, for every integer.

The kernels use three methods: a lookup table computed in binary32 (``evaluate_table``), fixed-point rescales (ReLU,
leaky ReLU, ABS, RSQRT, hard swish), and for 16 bits a table of 512 points with interpolation (``interpolate_table``).
The 16-bit logistic function and tanh have a separate table.

Source: tflite/kernels/{activations,elementwise}.cc and tflite/kernels/internal/reference of LiteRT 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tpuconvert.schema.arithmetic.fixed_point import (
    high_product,
    multiplier_shift,
    rescale_two_roundings,
    rhaz,
    saturate,
    shift_half_away,
)
from tpuconvert.schema.types import Array, DType, QuantParams

Function = Callable[[Array], Array]
Integers = npt.NDArray[np.int64]


def every_integer(dtype: DType) -> Integers:
    """All values of an integer dtype, ascending."""
    return np.arange(dtype.min, dtype.max + 1, dtype=np.int64)


def rescale(x: Array, factor: float) -> Integers:
    """Multiply integers by a factor with two roundings, as the kernels do."""
    return rescale_two_roundings(x, *multiplier_shift(factor))


def subtract_zero_point(x: QuantParams) -> Integers:
    """Every integer minus the zero point."""
    return every_integer(x.dtype) - x.zero_point[0]


_single = np.float32

# --- rescales in fixed point ------------------------------------------------------------------------------------------


def relu(x: QuantParams, y: QuantParams, low: float, high: float) -> Array:
    """RELU, RELU6 and similar: rescale, then clamp to quantized limits."""
    zero, scale = y.zero_point[0], _single(y.scale[0])
    bottom = max(y.dtype.min, zero + int(rhaz(_single(low) / scale)))
    top = y.dtype.max if math.isinf(high) else min(y.dtype.max, zero + int(rhaz(_single(high) / scale)))
    return np.clip(rescale(subtract_zero_point(x), _ratio(x, y)) + zero, bottom, top).astype(y.dtype.numpy)


def _ratio(x: QuantParams, y: QuantParams) -> float:
    """Ratio of two binary32 scales in binary32, as the kernels compute it."""
    return float(_single(x.scale[0]) / _single(y.scale[0]))


def leaky_relu(x: QuantParams, y: QuantParams, alpha: float) -> Array:
    """LEAKY_RELU: one rescale per sign. A negative slope rescales by its magnitude, then negates."""
    slope = float(_single(x.scale[0]) * _single(alpha) / _single(y.scale[0]))
    values = subtract_zero_point(x)
    multiplier, exponent = multiplier_shift(abs(slope))
    falling = rescale_two_roundings(values, multiplier if slope >= 0 else -multiplier, exponent)
    result = np.where(values >= 0, rescale(values, _ratio(x, y)), falling)
    return saturate(result + y.zero_point[0], y.dtype)


def absolute(x: QuantParams, y: QuantParams) -> Array:
    """ABS. With equal scales, only the zero point of the operand is replaced by the zero point of the result."""
    values = np.abs(subtract_zero_point(x))
    result = values if x.scale == y.scale else rescale(values, _ratio(x, y))
    return saturate(result + y.zero_point[0], y.dtype)


def negate(x: QuantParams) -> Array:
    """NEG. The kernel negates the integers, without scale and zero point; the lowest integer wraps to itself."""
    return (-every_integer(x.dtype)).astype(x.dtype.numpy)


def requantize(x: QuantParams, y: QuantParams) -> Array:
    """QUANTIZE of integers. The factor is the ratio of the scales in binary64."""
    return saturate(rescale(subtract_zero_point(x), x.scale[0] / y.scale[0]) + y.zero_point[0], y.dtype)


def requantize_concat_operand(x: QuantParams, y: QuantParams) -> Array:
    """UINT8 operand of CONCATENATION, requantized to the scale of the result in binary32."""
    inverse = _single(1) / _single(y.scale[0])
    factor = _single(x.scale[0]) * inverse
    bias = _single(-x.zero_point[0]) * factor
    moved = rhaz((every_integer(x.dtype).astype(np.float32) * factor + bias).astype(np.float32))
    return saturate(moved.astype(np.int64) + y.zero_point[0], y.dtype)


def reciprocal_root(x: QuantParams, y: QuantParams) -> Array:
    """RSQRT of 8 bits. The result is the largest integer for 0, and for negative inputs, which the kernel rejects."""
    values = subtract_zero_point(x)
    scale = 1.0 / (math.sqrt(_single(x.scale[0])) * _single(y.scale[0]))
    multiplier, exponent = multiplier_shift(float(scale))
    result = np.full(values.shape, y.dtype.max, dtype=np.int64)
    for index in np.flatnonzero(values > 0):
        inverse, shift = inverse_root(int(values[index]))
        fine = rescale_two_roundings(np.ones(1, np.int64), inverse, shift + _ROOT_SHIFT)
        result[index] = rescale_two_roundings(fine, multiplier, exponent - _ROOT_SHIFT)[0] + y.zero_point[0]
    return saturate(result, y.dtype)


def square_root(x: QuantParams, y: QuantParams) -> Array:
    """SQRT in binary32. The kernel truncates the quotient, and rejects negative inputs, for which this is sqrt(0)."""
    real = _single(x.scale[0]) * np.maximum(subtract_zero_point(x), 0).astype(np.float32)
    steps = np.trunc(np.sqrt(real) / _single(y.scale[0])).astype(np.int64)
    return saturate(steps + y.zero_point[0], y.dtype)


_ROOT_SHIFT = 20


def inverse_root(x: int) -> tuple[int, int]:
    """Multiplier and exponent of 1 / sqrt(x) for a positive INT32, by Newton's iteration in Q3.28."""
    if x <= 1:
        return 2**31 - 1, 0
    shift = 11
    while x >= 1 << 29:
        x //= 4
        shift += 1
    pairs = (31 - x.bit_length()) // 2 - 1
    shift -= pairs
    x <<= 2 * pairs
    value = x >> 1
    half = (value + 1) >> 1
    root = 1 << 28
    for _ in range(5):
        cube = _saturate(high_product(high_product(root, root), root) << 6)
        root = _saturate((high_product(_ONE_AND_A_HALF, root) - high_product(half, cube)) << 3)
    root = high_product(root, _ROOT_OF_HALF)
    if shift < 0:
        root <<= -shift
        shift = 0
    return root, -shift


_ONE_AND_A_HALF = (1 << 28) + (1 << 27)
_ROOT_OF_HALF = 1518500250  # sqrt(2) / 2 in Q0.31


def _saturate(x: int) -> int:
    return max(-(2**31), min(2**31 - 1, x))


# --- hard swish -------------------------------------------------------------------------------------------------------


def hard_swish(x: QuantParams, y: QuantParams) -> Array:
    """HARD_SWISH in 16-bit fixed point."""
    fine = _single(1 / 128) * _single(x.scale[0])
    multiplier, exponent = _short_multiplier(float(fine / _single(y.scale[0])))
    gate_multiplier, gate_exponent = _short_multiplier(float(fine / _single(3.0 / 32768.0)))
    value = subtract_zero_point(x) << 7
    scaled = _short_product(value, multiplier)
    gate = value
    if gate_exponent > 0:
        gate = saturate(gate << (gate_exponent - 1), DType.INT16).astype(np.int64)
    gate = _short_product(gate, gate_multiplier)
    if gate_exponent > 0:
        gate = saturate(gate << 1, DType.INT16).astype(np.int64)
    elif gate_exponent < 0:
        gate = shift_half_away(gate, -gate_exponent)
    gate = (gate + (1 << 15)) >> 1
    product = np.trunc(gate * scaled / 2.0**15).astype(np.int64)
    return saturate(shift_half_away(product, -exponent) + y.zero_point[0], y.dtype)


def _short_multiplier(factor: float) -> tuple[int, int]:
    multiplier, exponent = multiplier_shift(factor)
    return min((multiplier + (1 << 15)) >> 16, 2**15 - 1), exponent


def _short_product(a: Integers, b: int) -> Integers:
    return (a * b + (1 << 14)) >> 15


def near(function: Function) -> Function:
    """Return a function on binary32 arrays that evaluates the given function in binary64 and rounds once."""

    def evaluate(x: Array) -> Array:
        result: Array = function(x.astype(np.float64)).astype(x.dtype)
        return result

    return evaluate


_error_function = np.vectorize(math.erf, otypes=[np.float64])


def gelu_by_erf(x: Array) -> Array:
    """``x / 2 * (1 + erf(x / sqrt(2)))`` in binary32, with the cancellation of the kernel for negative x."""
    x = x.astype(np.float32)
    result: Array = _single(0.5) * x * (_single(1) + near(_error_function)(x * _single(math.sqrt(0.5))))
    return result


def gelu_by_tanh(x: Array) -> Array:
    """``x / 2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x^3)))`` in binary32."""
    x = x.astype(np.float32)
    inner = _single(math.sqrt(2 / math.pi)) * (x + _single(0.044715) * x * x * x)
    result: Array = _single(0.5) * x * (_single(1) + near(np.tanh)(inner))
    return result


# --- tables of float functions ----------------------------------------------------------------------------------------


def evaluate_table(x: QuantParams, y: QuantParams, function: Function) -> Array:
    """Results of an 8-bit function for all integers, computed in binary32 throughout."""
    inverse = _single(1) / _single(y.scale[0])
    real = _single(x.scale[0]) * subtract_zero_point(x).astype(np.float32)
    with np.errstate(all="ignore"):
        steps = rhaz((function(real).astype(np.float32) * inverse).astype(np.float32)).astype(np.float32)
    moved = np.nan_to_num(steps + _single(y.zero_point[0]), nan=0.0)
    return saturate(moved.astype(np.float64), y.dtype)


def interpolate_table(x: QuantParams, y: QuantParams, function: Function) -> Array:
    """Results of a 16-bit function, interpolated in 512 steps. A bias halves the error in the middle of each step."""
    table = points(
        float(_single(x.scale[0])), x.zero_point[0], float(_single(y.scale[0])), y.zero_point[0], function, np.float32
    )
    return between_points(table)


def between_points(table: Integers) -> Array:
    """Interpolate a table of 513 points at every 16-bit integer."""
    values = every_integer(DType.INT16)
    index = 256 + (values >> 7)
    slope = table[index + 1] - table[index]
    result: Array = (table[index] + ((slope * (values & 0x7F) + 64) >> 7)).astype(np.int16)
    return result


def points(
    x_scale: float, x_zero: int, y_scale: float, y_zero: int, function: Function, real: type[np.floating]
) -> Integers:
    """Compute the 513 points of a 16-bit table in the float type ``real``."""
    low, high = -(2**15), 2**15 - 1
    first, last = real(x_scale) * real(low - x_zero), real(x_scale) * real(high - x_zero)
    bottom, top = real(y_scale) * real(low - y_zero), real(y_scale) * real(high - y_zero)
    step = (last - first) / real(512)
    half = step / real(2)
    inverse = real(high - low + 1) / (top - bottom)
    steps = np.arange(512).astype(real)
    with np.errstate(all="ignore"):
        value = function(first + steps * step).astype(real)
        middle = function(first + steps * step + half).astype(real)
        following = function(first + (steps + real(1)) * step).astype(real)
        end = function(np.asarray([last], dtype=real)).astype(real)
        sample = rhaz(value * inverse).astype(real)
        between = rhaz((following * inverse + sample) / real(2)).astype(real)
        bias = rhaz((between - rhaz(middle * inverse).astype(real)) / real(2)).astype(real)
        numbers = np.concatenate([sample - bias, rhaz(end * inverse).astype(real)])
    entries: Integers = np.clip(np.nan_to_num(numbers, nan=0.0), low, high).astype(np.int64)
    return entries


# --- logistic function and tanh of 16 bits ----------------------------------------------------------------------------


def _sigmoid_points() -> Integers:
    """The logistic function from 0 to 10.6 in steps of 1/24, in units of 2^-16.

    Every point but the last is moved by half of the error that linear interpolation has in the middle of its step.
    """
    at = np.arange(256, dtype=np.float64)

    def value(x: Array) -> Array:
        result: Array = 65536.0 / (1.0 + np.exp(-x / 24.0))
        return result

    error = value(at + 0.5) - (value(at) + value(at + 1)) / 2
    entries: Integers = np.rint(value(at) + error / 2).astype(np.int64)
    entries[-1] = 65535
    return entries


_SIGMOID = _sigmoid_points()


def logistic_16(x: QuantParams, _y: QuantParams) -> Array:
    """LOGISTIC of 16 bits: the table, interpolated; negative inputs by symmetry."""
    value = _table_units(x, (0,))
    magnitude = np.abs(value)
    result = _between(magnitude, 9, 0x7FFF << 10)
    result = np.where(value >= 0, result + (1 << 9), (1 << 25) - result + (1 << 9) - 1)
    return (result >> 10).astype(np.int16)


def tanh_16(x: QuantParams, _y: QuantParams) -> Array:
    """TANH of 16 bits: 2 logistic(2x) - 1 from the same table."""
    value = _table_units(x, (0, 1))
    result = _between(np.abs(value), 8, 0xFFFF << 8)
    result = np.where(value >= 0, result - (1 << 23) + (1 << 7), -result + (1 << 23) + (1 << 7) - 1)
    return (result >> 8).astype(np.int16)


def _between(magnitude: Integers, bits: int, last: int) -> Integers:
    index = magnitude >> bits
    inside = np.minimum(index, 254)
    low, high = _SIGMOID[inside], _SIGMOID[inside + 1]
    value = (low << bits) + (magnitude & ((1 << bits) - 1)) * (high - low)
    return np.where(index >= 255, last, value)


_NEAR_POWER = 1e-3
"""Distance of the binary logarithm of a scale from an integer below which the kernels take it for a power of two."""


def _table_units(x: QuantParams, plain_shifts: tuple[int, ...]) -> Integers:
    """Inputs in units of 2^-12 / 3: exact for scales near a few powers of two, else by a multiplier of 15 bits."""
    values = every_integer(x.dtype)
    scale = float(_single(x.scale[0]))
    exponent = round(math.log2(scale))
    plain = 12 + exponent
    if abs(math.log2(scale) - exponent) < _NEAR_POWER and plain in plain_shifts:
        return values * (3 << plain)
    multiplier, shift = scale * 4096.0 * 3.0, 0
    while multiplier <= 32767.0 / 2.0 and shift <= 30:
        shift, multiplier = shift + 1, multiplier * 2.0
    return (values * int(multiplier) + ((1 << shift) >> 1)) >> shift
