"""Element types that an input accepts: the policy of sessions, the command line, calibration and fixed inputs.

An array is accepted if its conversion to the input's type keeps every value, up to float rounding:

- a float input accepts every float type, bool, and integers that its type represents exactly, except uint8;
- an integer input accepts bool and integers in its range, also of 2 and 4 bits; a quantized 8-bit input does not
  accept the other 8-bit type;
- a bool input accepts bool.

uint8 is the type of decoded images. A float input expects preprocessed values, so that an array of uint8 most often
means that the preprocessing was forgotten, which would give wrong results without an error.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.types import Array

_PIXELS = np.dtype(np.uint8)
_EIGHT_BITS = (np.dtype(np.int8), np.dtype(np.uint8))


def convert_input(array: Array, dtype: np.dtype[Any], name: str, *, is_quantized: bool = False) -> Array:
    """Convert an array to the type of an input.

    Args:
        array: any array.
        dtype: type of the input.
        name: name of the input, for messages.
        is_quantized: True if the input has quantization parameters.

    Raises:
        UsageError: the policy of this module does not allow the conversion.
    """
    have = array.dtype
    if have == dtype:
        return array
    if dtype.kind in "iu" and have.kind in "iub":
        if is_quantized and have in _EIGHT_BITS:
            hint = "give images to Session.run_images, or quantize the values with the input's scale and zero point"
            raise _wrong(name, have, dtype, hint)
        return _integers(array, dtype, name)
    if dtype.kind in "iu" and have.kind == "V" and np.can_cast(have, dtype, "safe"):
        return array.astype(dtype)  # 2- and 4-bit integers are extension types
    if dtype.kind not in "iub":  # float; bfloat16 is an extension type of kind V
        if have == _PIXELS:
            hint = (
                "images need the model's preprocessing: Session.run_images, or --preprocess on the command line\n"
                f"values that are preprocessed already: array.astype('{dtype}')"
            )
            raise _wrong(name, have, dtype, hint)
        if have.kind in "bfiu" or np.can_cast(have, dtype, "same_kind"):
            return _floats(array, dtype, name)
    rounded = "numpy.rint(array)" if dtype.kind in "iu" and have.kind == "f" else "array"
    hint = "array != 0" if dtype.kind == "b" else f"{rounded}.astype('{dtype}')"
    raise _wrong(name, have, dtype, f"convert the array first, for example {hint}")


def _wrong(name: str, have: np.dtype[Any], dtype: np.dtype[Any], hint: str) -> UsageError:
    return UsageError(f"input '{name}' has type {have}, the model takes {dtype}", hint=hint)


def _integers(array: Array, dtype: np.dtype[Any], name: str) -> Array:
    limits = np.iinfo(dtype)
    if array.size and (int(array.min()) < limits.min or int(array.max()) > limits.max):
        raise UsageError(
            f"input '{name}' has values outside {dtype}: from {array.min()} to {array.max()}, "
            f"expected {limits.min} to {limits.max}"
        )
    return array.astype(dtype)


def _floats(array: Array, dtype: np.dtype[Any], name: str) -> Array:
    with np.errstate(over="ignore"):
        result = array.astype(dtype)
    if array.dtype.kind in "iu":
        if (result.astype(np.longdouble) != array.astype(np.longdouble)).any():
            hint = f"convert the array first if rounding is meant: array.astype('{dtype}')"
            raise UsageError(f"input '{name}' has {array.dtype} values that {dtype} does not represent", hint=hint)
    elif (
        array.dtype.kind == "f"
        and array.dtype.itemsize > dtype.itemsize
        and (np.isinf(result) & np.isfinite(array)).any()
    ):
        largest = np.abs(array[np.isfinite(array)]).max()
        raise UsageError(f"input '{name}' has values up to {largest:.6g}, more than {dtype} holds")
    return result
