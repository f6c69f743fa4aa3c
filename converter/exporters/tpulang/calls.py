"""Calls of the TPULang API for the operations of the ``tpu`` dialect.

The functions are registered by operation in ``TRANSLATORS``. Operations without a function are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from tpuconvert.exporters.lowerings import NoExactForm
from tpuconvert.exporters.tpu_mlir.dialect import Line, Tensor
from tpuconvert.exporters.tpulang.program import Program, Scalar, Stored, Translator, element_of
from tpuconvert.schema.types import Array

TRANSLATORS: dict[str, Translator] = {}
"""Translators by operation."""

_REQUANT_MODES = ("TFLite_LShift", "TFLite", "MultiplierShift")
"""Requantization modes of the dialect, in the order of the API's numbers."""


def translates(*operations: str) -> Callable[[Translator], Translator]:
    """Register the decorated function for operations of the dialect."""

    def register(function: Translator) -> Translator:
        for operation in operations:
            assert operation not in TRANSLATORS, f"two translators of {operation}"
            TRANSLATORS[operation] = function
        return function

    return register


def snake_case(name: str) -> str:
    """Return a name of the dialect, such as ``HalfUp``, as the API writes it: ``half_up``."""
    return re.sub(r"(?<=.)(?=[A-Z])", "_", name).lower()


def check_width(tensor: Tensor, function: str, *widths: str) -> None:
    """Check the type of an operand.

    Raises:
        NoExactForm: the API function does not take the type.
    """
    dtype = element_of(tensor).dtype
    if dtype not in widths:
        raise NoExactForm(f"operand '{tensor.location}' has type {dtype}, {function} takes {', '.join(widths)}")


def constant_array(p: Program, tensor: Tensor | None) -> Array:
    """Return the array of a weight."""
    assert tensor is not None
    array = p.module.array(tensor)
    assert array is not None
    return array


def requantize(p: Program, result: Tensor, x: Tensor, table: Array, mode: str, round_mode: str) -> None:
    """Add a requantization.

    Args:
        p: the program.
        result: the result.
        x: INT32 operand.
        table: integers [channels, 3]: multipliers, shifts (negative values shift to the right), zero points.
        mode: attribute ``rq_mode`` of the dialect.
        round_mode: rounding of the right shift.
    """
    dtype, _, _ = element_of(result)
    multipliers, shifts, zero_points = table.T
    if np.ptp(zero_points) > 0:
        raise NoExactForm("zero points per channel, expected one per tensor")
    zero_point = int(zero_points[0])
    if dtype == "int32" and zero_point:
        raise NoExactForm(f"the zero point of an int32 result is {zero_point}, expected 0")
    name = result.location
    p.add(
        result,
        "requant_int",
        x,
        Stored(f"{name}_multiplier", multipliers, is_list=True),
        Stored(f"{name}_shift", shifts, is_list=True),
        None if dtype == "int32" else zero_point,
        _REQUANT_MODES.index(mode),
        dtype,
        round_mode=snake_case(round_mode),
    )


@translates("tpu.RequantIntAxis")
def requant_int(line: Line, p: Program) -> None:
    """Add a requantization with one multiplier and shift per channel."""
    x, table = line.operands
    assert x is not None
    attributes = line.attributes
    words = constant_array(p, table).reshape(-1, 3)
    requantize(p, line.result, x, words, attributes["quant_mode"], attributes["round_mode"])


@translates("tpu.Conv2D", "tpu.Deconv")
def convolution(line: Line, p: Program) -> None:
    """Add a convolution and its fused requantization.

    The API subtracts the zero point of the operand times the sum of the weights, which the dialect's bias contains.
    """
    x, weights, bias = line.operands
    assert x is not None and weights is not None and bias is not None
    attributes, result = line.attributes, line.result
    kernel = constant_array(p, weights)
    zero_point = element_of(x).zero_point
    sums = kernel.reshape(kernel.shape[0], -1).astype(np.int64).sum(axis=1)
    total = constant_array(p, bias).reshape(-1) + zero_point * sums
    if np.abs(total).max(initial=0) >= 2**31:
        raise NoExactForm("bias without the zero point exceeds 32 bits")
    multipliers = attributes.get("multiplier")
    name = result.location
    accumulator = result
    if multipliers is not None:
        accumulator = Tensor(result.shape, "si32", p.module.unique(f"{name}_sum"))
    p.add(
        accumulator,
        "conv_int" if line.operation == "tpu.Conv2D" else "deconv_int",
        x,
        weights,
        Stored(bias.location, total.astype(np.int32)),
        stride=attributes["strides"],
        dilation=attributes["dilations"],
        pad=attributes["pads"],
        group=attributes["group"],
        input_zp=zero_point,
        weight_zp=0,
        out_dtype="int32",
    )
    if multipliers is not None:
        shifts = -np.array(attributes["rshift"])
        table = np.stack([np.array(multipliers), shifts, np.zeros_like(shifts)], axis=1)
        requantize(p, result, accumulator, table, attributes["quant_mode"], attributes["round_mode"])


@translates("tpu.BinaryShift")
def binary_shift(line: Line, p: Program) -> None:
    """Add a saturating sum, difference or product of integers with a shift."""
    attributes = line.attributes
    a, b = line.operands
    assert a is not None and b is not None
    p.add(
        line.result,
        f"{attributes['mode'].lower()}_shift",
        a,
        b,
        attributes["shift"],
        element_of(line.result).dtype,
        round_mode=snake_case(attributes["round_mode"]),
        is_saturate=attributes["saturation"],
    )


@translates("tpu.Cast")
def cast(line: Line, p: Program) -> None:
    """Add a quantization of floats or a dequantization to floats."""
    (x,) = line.operands
    assert x is not None
    dtype, scale, zero_point = element_of(line.result)
    if dtype == "float32":
        _, scale, zero_point = element_of(x)
        p.add(line.result, "dequant_int_to_fp", x, scale, zero_point)
    else:
        p.add(line.result, "requant_fp_to_int", x, scale, zero_point, 0, dtype)


@translates("tpu.Lut")
def lut(line: Line, p: Program) -> None:
    """Add a lookup table."""
    x, table = line.operands
    assert x is not None and table is not None
    p.add(line.result, "lut", x, table)


@translates("tpu.Pool2D")
def max_pool(line: Line, p: Program) -> None:
    """Add a maximum pooling."""
    (x,) = line.operands
    assert x is not None
    check_width(x, "maxpool2d", "int8", "uint8", "float32")
    kernel, stride, pads = (line.attributes[name] for name in ("kernel_shape", "strides", "pads"))
    p.add(line.result, "maxpool2d", x, kernel=kernel, stride=stride, pad=pads)


@translates("tpu.Max", "tpu.Min")
def extremum(line: Line, p: Program) -> None:
    """Add an element-wise maximum or minimum."""
    a, b = line.operands
    assert a is not None and b is not None
    function = "max" if line.operation == "tpu.Max" else "min"
    p.add(line.result, function, a, b, out_dtype=element_of(line.result).dtype)


@translates("tpu.MaxConst")
def lower_limit(line: Line, p: Program) -> None:
    """Add a maximum with a constant."""
    (x,) = line.operands
    assert x is not None
    p.add(line.result, "max", x, int(line.attributes["const_val"]), out_dtype=element_of(line.result).dtype)


@translates("tpu.MinConst")
def upper_limit(line: Line, p: Program) -> None:
    """Add a minimum with a constant."""
    (x,) = line.operands
    assert x is not None
    p.add(line.result, "min", x, int(line.attributes["const_val"]), out_dtype=element_of(line.result).dtype)


@translates("tpu.Reshape")
def reshape(line: Line, p: Program) -> None:
    """Add a reshape. The compiler would merge consecutive ones and rename the result: each reads the first operand."""
    x = line.operands[0]
    assert x is not None
    x = p.unshaped[line.result] = p.unshaped.get(x, x)
    p.add(line.result, "reshape", x, line.attributes["shape"])


@translates("tpu.Permute")
def permute(line: Line, p: Program) -> None:
    """Add a permutation of axes."""
    x = line.operands[0]
    assert x is not None
    p.add(line.result, "permute", x, line.attributes["order"])


@translates("tpu.Slice")
def strided_slice(line: Line, p: Program) -> None:
    """Add a slice with steps."""
    x = line.operands[0]
    assert x is not None
    attributes = line.attributes
    p.add(line.result, "slice", x, attributes["offset"], attributes["ends"], attributes["steps"])


@translates("tpu.Concat")
def concat(line: Line, p: Program) -> None:
    """Add a concatenation."""
    tensors = [tensor for tensor in line.operands if tensor is not None]
    p.add(line.result, "concat", tensors, axis=line.attributes["axis"], dtype=element_of(line.result).dtype)


@translates("tpu.Pad")
def pad(line: Line, p: Program) -> None:
    """Add padding. The compiler fuses it into a convolution, which pads with the zero point of the operand's type."""
    x = line.operands[0]
    assert x is not None
    check_width(x, "pad", "float32", "int8", "uint8", "int16", "uint16")
    attributes = line.attributes
    zero_point = element_of(x).zero_point
    if attributes["mode"] == "constant" and attributes["val"] != zero_point:
        raise NoExactForm(f"padding with {attributes['val']:g}, expected the zero point {zero_point} of '{x.location}'")
    p.add(line.result, "pad", x, attributes["mode"], Scalar(attributes["val"]), attributes["paddings"])


@translates("tpu.Tile")
def tile(line: Line, p: Program) -> None:
    """Add a repetition along axes."""
    x = line.operands[0]
    assert x is not None
    check_width(x, "tile", "float32", "int8", "uint8", "int16", "uint16")
    p.add(line.result, "tile", x, line.attributes["tile"])


@translates("tpu.Upsample")
def upsample(line: Line, p: Program) -> None:
    """Add a nearest upsampling."""
    x = line.operands[0]
    assert x is not None
    check_width(x, "upsample", "float32", "int8")
    p.add(line.result, "upsample", x, line.attributes["scale_h"])


@translates("tpu.Softmax")
def softmax(line: Line, p: Program) -> None:
    """Add a float softmax. The API computes the table of an integer one itself."""
    x, table = line.operands[:2]
    assert x is not None
    if table is not None:
        raise NoExactForm("softmax_int of TPULang computes its own table of exponentials")
    p.add(line.result, "softmax", x, line.attributes["axis"])


@translates("tpu.Active")
def activation(line: Line, p: Program) -> None:
    """Add a float activation function."""
    (x,) = line.operands
    assert x is not None
    p.add(line.result, line.attributes["mode"].lower(), x)
