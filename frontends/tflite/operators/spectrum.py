"""RFFT2D as matmuls with constant matrices, and operators on complex numbers: REAL, IMAG, COMPLEX_ABS.

TPU operators have no complex numbers: a complex tensor is a pair of values, which only these operators accept.
"""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.registry import Kind
from tpuconvert.frontends.tflite.lowering import reshape
from tpuconvert.frontends.tflite.node import TfliteNode, tflite_op
from tpuconvert.frontends.tflite.operators.gather import pad_or_crop
from tpuconvert.frontends.tflite.tensors import ComplexPair
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.concat import Split
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.types import Array


@tflite_op("RFFT2D", limits="only REAL, IMAG and COMPLEX_ABS read it")
def rfft2d(node: TfliteNode, g: Graph) -> ComplexPair:
    """Discrete Fourier transform of the last two axes; the last one has only the bins from 0 to ``length / 2``."""
    lengths, shape = node.ints(1), node.shape(0)
    if len(lengths) != 2 or len(shape) < 2 or min(lengths) < 1:
        raise node.fail(INVALID_NODE, f"lengths {list(lengths)} for {list(shape)}")
    height, width = lengths
    bins = width // 2 + 1
    node.check_size([max(2 * height, width), max(2 * height, 2 * bins)])
    none = [0] * (len(shape) - 2)
    x = pad_or_crop(g, node.input(0), [*none, 0, 0], [*none, height - shape[-2], width - shape[-1]], 0.0)
    count = math.prod(shape[:-2])
    rows = reshape(g, x, (count * height, width))
    across = g.add(MatrixMul(), rows, emit.float_constant(g, _row_matrix(width, bins), "across"))  # [.., bins, part]
    columns = g.add(Permute(order=(0, 2, 1, 3)), reshape(g, across, (count, height, bins, 2)))
    flat = reshape(g, columns, (count * bins, height * 2))
    down = g.add(MatrixMul(), flat, emit.float_constant(g, _column_matrix(height), "down"))
    planes = g.add(Permute(order=(3, 0, 2, 1)), reshape(g, down, (count, bins, height, 2)))
    parts = g.add_all(Split(axis=0, num=2), planes, names=("real", "imaginary"))
    real, imaginary = (reshape(g, part, (*shape[:-2], height, bins)) for part in parts)
    return ComplexPair(real, imaginary)


def _row_matrix(length: int, bins: int) -> Array:
    """Matrix [length, bins * 2] with the real and imaginary parts of ``exp(-2 pi i k n / length)``."""
    angle = 2 * np.pi / length * np.outer(np.arange(length), np.arange(bins))
    return np.stack((np.cos(angle), -np.sin(angle)), -1).reshape(length, bins * 2)


def _column_matrix(length: int) -> Array:
    """Matrix [length * 2, length * 2] of the complex transform; real and imaginary parts alternate on both axes."""
    angle = 2 * np.pi / length * np.outer(np.arange(length), np.arange(length))
    matrix = np.empty((length, 2, length, 2))
    matrix[:, 0] = np.stack((np.cos(angle), -np.sin(angle)), -1)
    matrix[:, 1] = np.stack((np.sin(angle), np.cos(angle)), -1)
    return matrix.reshape(length * 2, length * 2)


@tflite_op("REAL", "IMAG", kind=Kind.FOLDED)
def part_of_complex(node: TfliteNode, g: Graph) -> Value:
    """Real or imaginary part."""
    return node.complex(0).real if node.op_type == "REAL" else node.complex(0).imaginary


@tflite_op("COMPLEX_ABS", limits="reads RFFT2D only")
def complex_abs(node: TfliteNode, g: Graph) -> Value:
    """Magnitude: ``sqrt(real ** 2 + imaginary ** 2)``."""
    pair = node.complex(0)
    squares = (formulas.square(g, part) for part in (pair.real, pair.imaginary))
    return formulas.sqrt(g, g.add(Add(), *squares))
