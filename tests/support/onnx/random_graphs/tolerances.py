"""Tolerances of float results, measured: each node is computed again with rounding errors added.

A float operator may round its result, and sum its operands in any order, so that an error of a few units in the last
place (2^-24 of the value) enters at each node. What it does to an output depends on the nodes that follow: a division
by a small difference magnifies it. So the nodes are computed one by one with random errors of ``_ERRORS`` at the result
of every node that rounds, and at the operands of every node that sums; the largest deviation of an output in some
trials, times a factor, is its tolerance. An integer or a Boolean that differs between trials has no defined value and
is not compared. The terms of a sum may cancel, among them constants: an error of 2^-22 of the largest result is added
to all its results. Nodes that only move data, and exact functions, get no error: their results must be equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.support.onnx.random_graphs.drawing import F16, F64, Drawing, Step, names, reads

TRIALS = 3
FACTOR = 6.0
"""The rounding errors of a sum of 100 terms are below 1e-6 of its terms; the factor is for trials without the worst."""
_ERRORS = {"float32": 1e-6, "float64": 1e-6, "float16": 2e-3}
"""FLOAT64 is computed in FLOAT32 (docs/reference/onnx.md), which lacks larger numbers;
FLOAT16 rounds at 2^-11, in places that differ between engines."""
_EXACT = names(
    """
    Identity Transpose Reshape Flatten Squeeze Unsqueeze Concat Split Slice Pad Tile Expand DepthToSpace
    SpaceToDepth Gather GatherElements GatherND ReverseSequence Trilu Shape Size ConstantOfShape Range OneHot
    NonZero Compress EyeLike CenterCropPad Relu Abs Neg Floor Ceil Round Sign Max Min Where Clip MaxPool
    GlobalMaxPool TopK ReduceMax ReduceMin Dropout Hardmax Equal Less Greater LessOrEqual GreaterOrEqual IsNaN
    IsInf ArgMax ArgMin Cast CastLike
    """
)
_SUMS = names(
    """
    MatMul Gemm Conv ConvTranspose Einsum CumSum ReduceSum ReduceMean ReduceL1 ReduceL2 ReduceSumSquare
    ReduceLogSum ReduceLogSumExp ReduceProd AveragePool LpPool GlobalAveragePool GlobalLpPool BatchNormalization
    LayerNormalization InstanceNormalization GroupNormalization LRN MeanVarianceNormalization LpNormalization
    Softmax LogSoftmax LSTM GRU RNN Resize Upsample GridSample Sum Mean
    """
)
_COMPARING = names(
    """
    ScatterND ScatterElements Sign ReduceMax ReduceMin Hardmax ArgMax ArgMin TopK MaxPool GlobalMaxPool
    """
)
"""Results of a NaN depend on the order of comparisons; the result of Sign in ONNX Runtime on the element type."""
_RECURRENT = names("LSTM GRU RNN")
_WITH_LIMIT = names("HardSwish Mish Gelu")
"""ONNX Runtime multiplies 0 by minus infinity; the result here is the limit (docs/reference/onnx.md)."""
_APPROXIMATED = names(
    """
    Sigmoid Tanh Erf Softplus Gelu Mish Elu Selu Celu Asinh Acosh Atanh Sinh LSTM GRU RNN HardSwish HardSigmoid Loop If
    Scan
    """
)
"""Rational functions of ONNX Runtime, ``exp(x) - 1``, ``ln(1 + x)`` and ``a * x + b`` have absolute errors."""
_ABSOLUTE = 1e-7
_INTERPOLATED = names(
    """
    GridSample Resize Upsample
    """
)
"""Weights of an interpolation are differences of coordinates: their errors count relative to the largest element."""
_DOUBLE_SMALLEST = 1e-30


def deviations(
    d: Drawing, steps: Sequence[Step], feeds: Mapping[str, Any], expected: Mapping[str, Any], trials: int, seed: int
) -> dict[str, Any]:
    """Largest deviation per element of each expected result; None where a trial has another shape or fails.

    For integers: whether trials differ.
    """
    found: dict[str, Any] = {
        name: np.zeros(np.shape(array), bool if array.dtype.kind != "f" else float) for name, array in expected.items()
    }
    for trial in range(trials):
        results = _replay(d, steps, feeds, np.random.default_rng([seed, trial]))
        for name, array in expected.items():
            other = results.get(name)
            if found[name] is None or other is None or other.shape != array.shape:
                found[name] = None
            elif array.dtype.kind == "f":
                a, b = array.astype(float), other.astype(float)
                with np.errstate(all="ignore"):
                    moved = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
                found[name] = np.maximum(found[name], np.where(np.isnan(moved), np.inf, moved))
            else:
                found[name] |= array != other
    return found


def _replay(d: Drawing, steps: Sequence[Step], feeds: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    known = {name: _perturb(array, rng) if array.dtype == F64 else array for name, array in feeds.items()}
    for step in steps:
        op = step.node.op_type
        operands = {name: known.get(name) for name in reads(step.node) if name not in d.constants}
        if any(array is None for array in operands.values()):
            continue
        if op in _SUMS:
            operands = {name: _perturb(array, rng) for name, array in operands.items()}
        results = step.runner.run(operands)
        # Recurrent kernels also differ in whether infinities of both signs cancel before a saturating function.
        is_defined = np.isfinite if op in _RECURRENT else lambda array: ~np.isnan(array)
        with_nan = any(array.dtype.kind == "f" and not is_defined(array).all() for array in operands.values())
        for name, array in zip(step.runner.names, results or [], strict=False):
            if (op in _SUMS or op in _COMPARING) and with_nan and array.dtype.kind == "f":
                # Which results a NaN reaches depends on the kernel; LogSoftmax of FLOAT64 is wrong beside it.
                known[name] = np.full_like(array, np.nan)
                continue
            if op in _WITH_LIMIT:
                array = np.where(np.isneginf(operands[step.node.input[0]]), 0.0, array).astype(array.dtype)
            offset = _ABSOLUTE if op in _APPROXIMATED else 0.0
            if op in _SUMS and array.dtype.kind == "f":
                finite = array[np.isfinite(array)]
                offset = max(offset, 2e-7 * float(np.abs(finite).max(initial=0.0)))
            if op in _INTERPOLATED:
                offset = 1e-6 * float(np.abs(known.get(step.node.input[0], array)).max(initial=0.0))
            is_exact = op in _EXACT and not (op.startswith("Cast") and array.dtype == F16)
            known[name] = array if is_exact else _perturb(array, rng, offset)
    return known


def _perturb(array: Any, rng: np.random.Generator, offset: float = 0.0) -> Any:
    if array.dtype.kind != "f":
        return array
    error = _ERRORS[array.dtype.name]
    with np.errstate(all="ignore"):
        moved = array * (1 + error * rng.uniform(-1, 1, array.shape))
        if offset:
            moved = moved + max(offset, error if array.dtype == F16 else 0.0) * rng.uniform(-1, 1, array.shape)
        if array.dtype == F64:
            moved = np.where(np.abs(moved) > np.finfo(np.float32).max, np.copysign(np.inf, moved), moved)
    return np.asarray(moved, array.dtype)


def difference(actual: Any, expected: Any, deviation: Any) -> str:
    """Description of the first element that differs by more than the tolerance, or an empty string."""
    if actual.dtype != expected.dtype:
        return f"dtype {actual.dtype}, expected {expected.dtype}"
    if deviation is None:
        return ""
    if actual.shape != expected.shape:
        return f"shape {actual.shape}, expected {expected.shape}"
    if expected.dtype.kind != "f":
        wrong = (actual != expected) & ~deviation
    else:
        a, b = actual.astype(float), expected.astype(float)
        with np.errstate(all="ignore"):
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            rounding = 1e-3 if expected.dtype == F16 else 2e-6
            close = np.abs(a - b) <= FACTOR * deviation + rounding * np.abs(b) + _DOUBLE_SMALLEST
            wrong = ~(same | close | np.isinf(deviation))
    if not wrong.any():
        return ""
    place = tuple(int(k) for k in np.argwhere(wrong)[0])
    return f"{int(wrong.sum())} of {wrong.size} differ, at {place}: {actual[place]!r}, expected {expected[place]!r}"
