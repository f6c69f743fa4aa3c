"""Lowering of interpolate on chips that do not support it, for static sizes.

A resize is linear in the pixels and separable: ``y = R @ x @ C`` with two constant matrices, which are the results of
the operator for unit images. If every result pixel equals one source pixel (nearest), a matrix only selects: this is
upsample if it repeats every pixel, otherwise index_select. In all other cases each axis becomes a matmul.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from tpuconvert.optimizer.engine import Replacement, Skip, rule
from tpuconvert.optimizer.pattern import Match, p
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.interpolate import Interpolate
from tpuconvert.schema.ops.matrix_mul import MatrixMul
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.upsample import Upsample

if TYPE_CHECKING:
    import numpy.typing as npt

    Matrix = npt.NDArray[np.float32]
else:
    Matrix = np.ndarray

_SWAP = (0, 1, 3, 2)


@rule(p(Interpolate, "x", name="op"), stage="chip lowering", formerly="resize_without_interpolate")
def lower_interpolate(graph: Graph, m: Match) -> Replacement:
    """Lower to upsample, index_select or one matmul per axis."""
    x, name = m.x, m.op.outputs[0].name
    if not x.type.is_static or 0 in x.shape:
        return Skip("its size is dynamic")
    height, width = m.op.outputs[0].type.static_shape[2:]
    rows = _matrix(m.op.op, x.type.static_shape[2], height)
    columns = _matrix(m.op.op, x.type.static_shape[3], width)
    picked_rows, picked_columns = _selection(rows), _selection(columns)
    if picked_rows is None or picked_columns is None:
        along = _product(graph, x, columns, f"{name}:columns")
        turned = graph.add(Permute(_SWAP), along, name=f"{name}:turned")
        down = _product(graph, turned, rows, f"{name}:rows")
        return graph.add(Permute(_SWAP), down)
    factor = height // x.type.static_shape[2]
    if (
        factor > 1
        and _repeats(picked_rows, factor)
        and _repeats(picked_columns, factor)
        and width == factor * x.shape[3]
    ):
        return graph.add(Upsample(factor), x)
    along = graph.add(IndexSelect(3), x, graph.constant(picked_columns, f"{name}:columns"), name=f"{name}:along")
    return graph.add(IndexSelect(2), along, graph.constant(picked_rows, f"{name}:rows"))


def _matrix(op: Interpolate, extent: int, result: int) -> Matrix:
    """The [source extent, result extent] matrix of interpolation weights along one axis.

    Row r of the unit image has its pixel in column r. The number of rows stays the same, so that rows are not mixed.
    """
    unit = np.eye(extent, dtype=np.float32).reshape(1, 1, extent, extent)
    (weights,) = dataclasses.replace(op, size=(extent, result), scale_factor=()).reference(unit)
    matrix: Matrix = weights.reshape(extent, result)
    return matrix


def _selection(matrix: Matrix) -> npt.NDArray[np.int32] | None:
    """The source pixel of every result pixel, or None if a result pixel is a mixture."""
    if not ((matrix == 1).sum(axis=0) == 1).all() or not ((matrix != 0).sum(axis=0) == 1).all():
        return None
    picked: npt.NDArray[np.int32] = matrix.argmax(axis=0).astype(np.int32)
    return picked


def _repeats(picked: npt.NDArray[np.int32], factor: int) -> bool:
    return bool(len(picked) % factor == 0 and (picked == np.arange(len(picked)) // factor).all())


def _product(graph: Graph, x: Value, matrix: Matrix, name: str) -> Value:
    """Multiply the last axis of x by a matrix."""
    *front, extent = x.type.static_shape
    flat = graph.add(Reshape((int(np.prod(front)), extent)), x, name=f"{name}.flat")
    mixed = graph.add(MatrixMul(), flat, graph.constant(matrix, f"{name}.weights"), name=f"{name}.mixed")
    return graph.add(Reshape((*front, matrix.shape[1])), mixed, name=name)
