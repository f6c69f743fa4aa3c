"""Fourier transforms as matmuls by constant matrices, and the weight matrix of the Mel scale.

The last axis has the real and the imaginary part. It is flattened together with the transformed axis, so that each
transform is one matmul.
"""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.onnx.file.element_types import ELEMENTS, FLOAT
from tpuconvert.frontends.onnx.node import Folded, OnnxNode, Result, folds, onnx_op
from tpuconvert.frontends.onnx.operators.data_movement import gather_slices
from tpuconvert.frontends.onnx.operators.matmul import matrix_product
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import UNSUPPORTED_ATTRIBUTE, UNSUPPORTED_TYPE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.types import Array


def _matrix(extent: int, parts: int, length: int, bins: int, sign: int) -> Array:
    """Matrix [extent * parts, bins * 2] of ``sum(x exp(sign 2 pi i k n / length))``, cropped to ``length``."""
    angle = sign * 2 * np.pi / length * np.outer(np.arange(min(extent, length)), np.arange(bins))
    matrix = np.zeros((extent, parts, bins, 2))
    matrix[: len(angle), 0] = np.stack((np.cos(angle), np.sin(angle)), -1)
    if parts == 2:
        matrix[: len(angle), 1] = np.stack((-np.sin(angle), np.cos(angle)), -1)
    return matrix.reshape(extent * parts, bins * 2)


def _one_sided_inverse(extent: int, length: int) -> Array:
    """Inverse matrix [extent * 2, length] for a one-sided spectrum; the signal has no imaginary part."""
    bins = min(extent, length // 2 + 1)
    k = np.arange(bins)
    angle = 2 * np.pi / length * np.outer(k, np.arange(length))
    both = np.where((k == 0) | (2 * k == length), 1.0, 2.0)[:, None]  # 2 for bins with a conjugate that is not stored
    matrix = np.zeros((extent, 2, length))
    matrix[:bins, 0], matrix[:bins, 1] = both * np.cos(angle), -both * np.sin(angle)
    return matrix.reshape(extent * 2, length) / length


def transform_axis(
    node: OnnxNode, g: Graph, x: Value, axis: int, length: int, *, is_inverse: bool, is_one_sided: bool
) -> Value:
    """Transform one axis; the last axis of ``x`` has the real part, or both parts."""
    shape = emit.extents(x)
    parts, extent = shape[-1], shape[axis]
    if parts not in (1, 2) or length < 1:
        raise node.invalid(f"a signal {list(shape)} with a length of {length}")
    node.budget((extent * parts, 2 * length), 8, "matrix of the transform")
    if is_inverse and is_one_sided:
        if parts != 2:
            raise node.invalid("the inverse of a one-sided transform needs a complex input")
        matrix = _one_sided_inverse(extent, length)
    elif is_inverse:
        matrix = _matrix(extent, parts, length, length, 1) / length
    else:
        if is_one_sided and parts == 2:
            raise node.invalid("a one-sided transform of a complex input")
        matrix = _matrix(extent, parts, length, length // 2 + 1 if is_one_sided else length, -1)
    results = 1 if is_inverse and is_one_sided else 2
    rest = [k for k in range(len(shape) - 1) if k != axis]
    order = [*rest, axis, len(shape) - 1]
    flat = emit.reshape(g, emit.permute(g, x, order), (math.prod(shape[k] for k in rest), extent * parts))
    y = matrix_product(g, flat, emit.float_constant(g, matrix, "transform"))
    y = emit.reshape(g, y, (*(shape[k] for k in rest), matrix.shape[1] // results, results))
    return emit.permute(g, y, [order.index(k) for k in range(len(shape))])


@onnx_op("DFT", since=20, kind=Kind.DIRECT)
def dft(node: OnnxNode, g: Graph) -> Result:
    """Discrete Fourier transform along an axis that is an input."""
    return _dft(node, g, int(node.scalar(2)) if node.has_input(2) else -2)


@onnx_op("DFT", since=17, kind=Kind.DIRECT)
def dft_axis_attribute(node: OnnxNode, g: Graph) -> Result:
    """DFT of opset 17: the axis is an attribute."""
    return _dft(node, g, node.attr("axis", 1))


def _dft(node: OnnxNode, g: Graph, axis: int) -> Result:
    rank = node.rank(0)
    axis = node.axis(axis, rank)
    if axis == rank - 1:
        raise node.invalid("its axis is the axis of real and imaginary part")
    is_inverse, is_one_sided = bool(node.attr("inverse", 0)), bool(node.attr("onesided", 0))
    extent = node.shape(0)[axis]
    default = 2 * (extent - 1) if is_inverse and is_one_sided else extent
    length = int(node.scalar(1)) if node.has_input(1) else default
    x = emit.floats(node.input(0))
    return node.result(transform_axis(node, g, x, axis, length, is_inverse=is_inverse, is_one_sided=is_one_sided))


@onnx_op("STFT", since=17)
def stft(node: OnnxNode, g: Graph) -> Result:
    """Short-time Fourier transform: transform frames of the signal at regular offsets."""
    x = emit.floats(node.input(0))
    if node.rank(0) == 2:
        x = emit.reshape(g, x, (*node.shape(0), 1))
    batch, extent, parts = emit.extents(x)
    step = int(node.scalar(1))
    length = extent
    if node.has_input(3):
        length = int(node.scalar(3))
    elif node.has_input(2):
        length = node.shape(2)[0]
    if step < 1 or not 1 <= length <= extent or (node.has_input(2) and node.shape(2) != (length,)):
        raise node.invalid(f"frames of {length} every {step} elements of {extent}")
    frames = (extent - length) // step + 1
    node.budget((frames, length), 8, "frames")
    index = (np.arange(frames)[:, None] * step + np.arange(length)).reshape(-1)
    x = emit.reshape(g, gather_slices(g, x, 1, index), (batch, frames, length, parts))
    if node.has_input(2):
        x = emit.mul(g, x, emit.reshape(g, emit.floats(node.input(2)), (length, 1)))
    is_one_sided = bool(node.attr("onesided", 1))
    return node.result(transform_axis(node, g, x, 2, length, is_inverse=False, is_one_sided=is_one_sided))


def _mel(hertz: float) -> float:
    return 2595 * math.log10(1 + hertz / 700)


@folds("MelWeightMatrix", since=17)
def mel_weight_matrix(node: OnnxNode, _: Graph) -> Folded:
    """Triangular weights that sum the bins of a spectrum into bands of the Mel scale."""
    bands, length, rate = (int(node.scalar(index)) for index in range(3))
    lower, upper = (float(node.scalar(index)) for index in (3, 4))
    element = ELEMENTS.get(node.attr("output_datatype", FLOAT.code))
    if element is None or not (element.is_float or element.is_integer):
        raise node.fail(UNSUPPORTED_TYPE, "its output_datatype", "supported: numbers")
    if bands < 1 or length < 1 or rate < 1 or lower < 0:
        raise node.fail(UNSUPPORTED_ATTRIBUTE, f"{bands} bands of {length} samples at {rate} Hz from {lower} Hz on")
    bins = length // 2 + 1
    node.budget((bins, bands), 8)
    mels = _mel(lower) + np.arange(bands + 2) * ((_mel(upper) - _mel(lower)) / (bands + 2))
    edges = ((length + 1) * (700 * (10 ** (mels / 2595) - 1)) // rate).astype(np.int64)
    weights = np.zeros((bins, bands))
    indices = np.arange(bins)
    for band in range(bands):
        first, middle, last = (int(edge) for edge in edges[band : band + 3])
        column = weights[:, band]
        if first == middle:
            column[middle : middle + 1] = 1
        else:
            rising = (indices >= first) & (indices <= middle)
            column[rising] = (indices[rising] - first) / (middle - first)
        if last > middle:
            falling = (indices >= middle) & (indices < last)
            column[falling] = (last - indices[falling]) / (last - middle)
    return Folded(weights.astype(element.numpy), element)
