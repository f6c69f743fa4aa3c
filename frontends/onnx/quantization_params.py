"""Convert scale and zero point of ONNX to quantization parameters."""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.types import Array, DType, QuantParams


def params_from(scale: Array, zero_point: Array, axis: int | None) -> QuantParams | None:
    """Return parameters for 8- and 16-bit integers, or None for other types.

    Per-channel scales stay per-channel if all are equal.

    Raises:
        ValueError: the lengths differ, or a scale is not positive and finite.
    """
    if zero_point.dtype.kind not in "iu" or zero_point.itemsize > 4:
        return None
    scales = tuple(float(item) for item in scale.astype(np.float64).reshape(-1))
    zeros = tuple(int(item) for item in zero_point.reshape(-1))
    if len(zeros) == 1 and len(scales) > 1:
        zeros *= len(scales)
    return QuantParams(scales, zeros, DType.of(zero_point.dtype), axis if len(scales) > 1 else None)
