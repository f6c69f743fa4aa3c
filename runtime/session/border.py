"""Conversion between the arrays of the caller and the values of the graph.

The operator set has no bool, no 64-bit types and no rank 0, and a quantized source has integer inputs. Ports have the
types that the source declares. All conversions between ports and values are in this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tpuconvert.schema.errors import MissingExtraError, UsageError
from tpuconvert.schema.graph.graph import Port, Value
from tpuconvert.schema.graph.input_types import convert_input
from tpuconvert.schema.types import Array, Dim, Shape, format_shape


class InputShapeError(UsageError):
    """Error: an array does not have the shape of the input; perhaps only the number of samples differs."""


@dataclass(frozen=True)
class TensorInfo:
    """Name, NumPy type name and shape of a model input or output. A string in the shape is a symbolic extent."""

    name: str
    dtype: str
    shape: Shape


def numpy_type(name: str) -> np.dtype[Any]:
    """Return the NumPy type of a port. NumPy lacks bfloat16, which the package ml_dtypes adds.

    Raises:
        MissingExtraError: if ml_dtypes is not installed.
    """
    if name != "bfloat16":
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError as error:
        message = "an input or output of the model is bfloat16, which NumPy does not have"
        raise MissingExtraError(message, hint="pip install ml_dtypes") from error
    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype


def info(port: Port) -> TensorInfo:
    """Return the public description of a port."""
    return TensorInfo(port.name, port.dtype, port.shape)


def to_value(array: Array, port: Port, value: Value, bound: dict[str, int]) -> Array:
    """Convert an array of the caller to a value of the graph.

    Args:
        array: the array of the caller.
        port: the input as the source declares it.
        value: the input of the graph.
        bound: values of the symbolic extents in this run. The function adds the statistics of this array.

    Raises:
        UsageError: for a wrong shape or type (``schema/graph/input_types.py``), or 64-bit integers outside of INT32.
    """
    values = np.asarray(array)
    _check_shape(values.shape, port, bound)
    declared = numpy_type(port.dtype)
    if values.dtype != declared:
        values = convert_input(values, declared, port.name, is_quantized=port.quant is not None)
    dtype = value.dtype.numpy
    if values.dtype == dtype:
        result = values
    elif port.quant is not None and value.dtype.is_float:
        result = port.quant.dequantize(values)
    elif dtype.kind in "iu":
        result = convert_input(values, dtype, port.name)
    else:
        result = values.astype(dtype)
    # Kernels need contiguous and aligned arrays; a field of a packed record is neither.
    return np.require(result.reshape(1) if result.ndim == 0 else result, requirements=("C", "A"))


def from_value(array: Array, port: Port, value: Value) -> Array:
    """Convert a result of the graph to the declared type and rank of the output; without a copy if they are equal."""
    declared = numpy_type(port.dtype)
    result = array
    if result.dtype != declared:
        if declared == np.dtype(bool):
            result = result != 0
        elif port.quant is not None and value.dtype.is_float:
            result = port.quant.quantize(result)
        else:
            with np.errstate(over="ignore"):  # Overflow of a narrower floating-point type gives infinity.
                result = result.astype(declared)
    if port.shape == () and result.shape == (1,):
        result = result.reshape(())
    return result


def _check_shape(shape: tuple[int, ...], port: Port, bound: dict[str, int]) -> None:
    fits = len(shape) == len(port.shape)
    if fits:
        for have, want in zip(shape, port.shape, strict=True):
            fits = fits and have == (bound.setdefault(want, have) if isinstance(want, str) else want)
    if not fits:
        raise InputShapeError(
            f"input '{port.name}' has shape {format_shape(shape)}, the model takes {_explain(port.shape, bound)}"
        )


def _explain(shape: Shape, bound: dict[str, int]) -> str:
    def words(extent: Dim) -> str:
        return f"{extent}={bound[extent]}" if isinstance(extent, str) and extent in bound else str(extent)

    return format_shape(words(extent) for extent in shape)
