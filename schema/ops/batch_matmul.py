"""batch_matmul: a composite of one matmul per batch."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tpuconvert.schema.definition.extents import broadcast_shapes
from tpuconvert.schema.definition.op import Extents, Operand, OpKind, tpu_op
from tpuconvert.schema.definition.shape_checks import check_extent, format_types
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.graph.composite import Composite, check_float
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas as f
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.types import F32, Array, Dim, Shape, TensorType

_RANKS = tuple(range(2, 9))


@tpu_op("batch_matmul", OpKind.COMPOSITE)
class BatchMatmul(Composite):
    """``y[b] = left[b] @ right[b]``: one matmul per batch, with optional transposition of the last two axes.

    Shapes: left [..., M, K], right [..., K, N], y [..., M, N]. ``left_transpose`` means left [..., K, M],
    ``right_transpose`` right [..., N, K]. The other axes are aligned on the right and broadcast.
    Source: ONNX MatMul-13 without its rules for rank 1.
    """

    left_transpose: bool = False
    right_transpose: bool = False

    inputs = (Operand("matrix_left", _RANKS, coeff=True), Operand("matrix_right", _RANKS, coeff=True))
    outputs = (Operand("matrix_result", _RANKS),)
    rewrite_weight = 8

    def count_macs(self, operands: Sequence[Extents], results: Sequence[Extents]) -> int:
        """One MAC per element of a left row for each element of the result."""
        return math.prod(results[0]) * operands[0][-2 if self.left_transpose else -1]

    def infer(self, left: TensorType, right: TensorType) -> tuple[TensorType]:
        """Shapes: both operands have the same K; the batch axes broadcast."""
        check_float(self, left, right)
        if min(left.rank, right.rank) < 2:
            raise ShapeError(f"{self.name} needs matrices, got {format_types((left, right))}")
        rows, inner = _matrix(left.shape, self.left_transpose)
        depth, columns = _matrix(right.shape, self.right_transpose)
        check_extent(self, "the number of rows of matrix_right", depth, inner, left, right)
        return (TensorType(F32, (*self._batch(left.shape, right.shape), rows, columns)),)

    def reference(self, left: Array, right: Array) -> tuple[Array]:
        """Accumulate in binary64 and round once."""
        a = left.swapaxes(-1, -2) if self.left_transpose else left
        b = right.swapaxes(-1, -2) if self.right_transpose else right
        with np.errstate(all="ignore"):
            return (np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.float32),)

    def expand(self, g: Graph, left: Value, right: Value) -> tuple[Value]:
        """One matmul if all batches share the right matrix, else one matmul per batch and a concat."""
        a = _swap_last_axes(g, left) if self.left_transpose else left
        b = _swap_last_axes(g, right) if self.right_transpose else right
        shape_a, shape_b = f.extents(self, a), f.extents(self, b)
        batch = tuple(int(extent) for extent in self._batch(shape_a, shape_b))
        (rows, inner), columns = shape_a[-2:], shape_b[-1]
        result = (*batch, rows, columns)
        if math.prod(shape_b[:-2]) == 1:
            flat = f.reshape(g, a, (math.prod(shape_a[:-1]), inner))
            return (f.reshape(g, g.add(MatrixMul(), flat, f.reshape(g, b, (inner, columns))), result),)
        if math.prod(batch) == 0:
            raise ShapeError(
                f"{self.name} of no matrices cannot be expanded, got {format_types((left.type, right.type))}"
            )
        pairs = zip(_matrices(g, a, batch), _matrices(g, b, batch), strict=True)
        products = [g.add(MatrixMul(), x, y) for x, y in pairs]
        joined = products[0] if len(products) == 1 else g.add(Concat(0), *products)
        return (f.reshape(g, joined, result),)

    def _batch(self, left: Shape, right: Shape) -> Shape:
        rank = max(len(left), len(right))
        first, second = (TensorType(F32, (1,) * (rank - len(shape)) + shape[:-2]) for shape in (left, right))
        return broadcast_shapes(self.name, first, second)


def _matrix(shape: Shape, is_transposed: bool) -> tuple[Dim, Dim]:
    rows, columns = shape[-2:]
    return (columns, rows) if is_transposed else (rows, columns)


def _swap_last_axes(g: Graph, x: Value) -> Value:
    return f.permute(g, x, (*range(x.rank - 2), x.rank - 1, x.rank - 2))


def _matrices(g: Graph, x: Value, batch: tuple[int, ...]) -> list[Value]:
    """Return the matrix for each index of the broadcast batch. A matrix that is used repeatedly is extracted once."""
    shape = x.type.static_shape
    own, matrix = shape[:-2], shape[-2:]
    flat = f.reshape(g, x, (math.prod(own), *matrix))
    aligned = np.arange(math.prod(own)).reshape((1,) * (len(batch) - len(own)) + own)
    order = np.broadcast_to(aligned, batch).reshape(-1).tolist()
    matrices = {k: f.reshape(g, f.slice_axis(g, flat, 0, k, k + 1), matrix) for k in dict.fromkeys(order)}
    return [matrices[position] for position in order]
