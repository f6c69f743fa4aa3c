"""attention: a composite of two batched matmuls with a softmax between them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tpuconvert.schema.arithmetic.finite import InfinityUse
from tpuconvert.schema.definition.extents import broadcast_shapes, may_equal
from tpuconvert.schema.definition.op import Extents, Operand, OpKind, tpu_op
from tpuconvert.schema.definition.shape_checks import check_extent, format_types, number
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.graph.composite import Composite, check_float
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas as f
from tpuconvert.schema.ops.arithmetic_with_scalar import Maxs
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.compare import Eqs
from tpuconvert.schema.ops.reduce import ReduceMethodType
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.types import F32, Array, Scalar, TensorType

_RANKS = tuple(range(2, 9))
_LOWEST = float(np.finfo(np.float32).min)


@tpu_op("attention", OpKind.COMPOSITE)
class Attention(Composite):
    """``y = softmax(query @ key^T * scale + mask) @ value``: scaled dot-product attention per batch and head.

    If the mask sets all scores of a row to minus infinity, this row of y is 0. The softmax of a source model may give
    NaN instead. The converter fuses such a subgraph only if the mask is computed at run time, or is a constant without
    a row of minus infinities.

    Shapes: query [..., M, D], key [..., N, D], value [..., N, V], mask of the same rank broadcasts to [..., M, N],
    y [..., M, V]; the other axes broadcast.
    With ``is_causal`` the last query is at the position of the last key, and a query does not attend to later keys: the
    scores of row i with the keys after i + N - M are minus infinity. The mask is added too.
    Units: ``scale`` None means 1 / sqrt(D).
    Source: Vaswani et al., Attention Is All You Need; ONNX Attention-23.
    """

    scale: float | None = None
    is_causal: bool = False

    infinity = InfinityUse.DEFINED
    inputs = (
        Operand("query", _RANKS),
        Operand("key", _RANKS),
        Operand("value", _RANKS),
        Operand("mask", _RANKS, coeff=True, optional=True),
    )

    def count_macs(self, operands: Sequence[Extents], results: Sequence[Extents]) -> int:
        """MACs of both matmuls: the scores, and the weighted sums of the rows of value."""
        query, key = operands[:2]
        return math.prod(results[0][:-1]) * key[-2] * (query[-1] + results[0][-1])

    def infer(
        self, query: TensorType, key: TensorType, value: TensorType, mask: TensorType | None = None
    ) -> tuple[TensorType]:
        types = (query, key, value, mask)
        check_float(self, *types)
        if (
            any(operand_type is not None and operand_type.rank != query.rank for operand_type in types)
            or query.rank < 2
        ):
            raise ShapeError(f"{self.name} needs operands of one rank, at least 2, got {format_types(types)}")
        check_extent(self, "the number of rows of value", value.shape[-2], key.shape[-2], *types)
        if self.scale is None:
            number(self, "the size of a query", query.shape[-1], *types)
        (scores,) = BatchMatmul(right_transpose=True).infer(query, key)
        if mask is not None:
            merged = broadcast_shapes(self.name, scores, mask)
            if not all(map(may_equal, merged, scores.shape)):
                raise ShapeError(f"{self.name}: the mask does not broadcast to {scores}, got {format_types(types)}")
        return BatchMatmul().infer(scores, value)

    def reference(self, query: Array, key: Array, value: Array, mask: Array | None = None) -> tuple[Array]:
        """Evaluate in binary64 and round once."""
        q, k, v = (x.astype(np.float64) for x in (query, key, value))
        with np.errstate(all="ignore"):
            scores = np.matmul(q, k.swapaxes(-1, -2)) * self._factor(query.shape[-1])
            scores = scores if mask is None else scores + mask
            scores = scores + causal_mask(*scores.shape[-2:]) if self.is_causal else scores
            largest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
            is_guarded = mask is not None or self.is_causal
            powers = np.exp(scores - (np.maximum(largest, _LOWEST) if is_guarded else largest))
            sums = powers.sum(axis=-1, keepdims=True)
            weights = powers / (sums + (sums == 0) if is_guarded else sums)
            return (np.matmul(weights, v).astype(np.float32),)

    def expand(self, g: Graph, query: Value, key: Value, value: Value, mask: Value | None = None) -> tuple[Value]:
        """Two batched matmuls and a softmax. With a mask, the softmax supports rows of minus infinities."""
        factor = self._factor(f.extents(self, query)[-1])
        (scores,) = BatchMatmul(right_transpose=True).expand(g, f.muls(g, query, factor), key)
        if mask is not None:
            scores = f.add(g, scores, mask)
        if self.is_causal:
            rows, columns = f.extents(self, scores)[-2:]
            hidden = causal_mask(rows, columns).reshape((1,) * (scores.rank - 2) + (rows, columns))
            scores = f.add(g, scores, g.constant(hidden))
        if mask is None and not self.is_causal:
            weights = g.add(Softmax(scores.rank - 1), scores)
        else:
            weights = _guarded_softmax(g, scores)
        return BatchMatmul().expand(g, weights, value)

    def _factor(self, size: int) -> float:
        return 1 / math.sqrt(size) if self.scale is None else self.scale


_MOST_MASKED = 1 << 28


def causal_mask(rows: int, columns: int) -> Array:
    """Mask [rows, columns]: minus infinity where a key is after the query; the last query is at the last key.

    Raises:
        ShapeError: the mask would have more than 2^28 elements.
    """
    if rows * columns > _MOST_MASKED:
        raise ShapeError(f"a mask for {rows} queries and {columns} keys, more than {_MOST_MASKED} elements")
    ahead = np.arange(columns)[None, :] - np.arange(rows)[:, None] - (columns - rows)
    return np.where(ahead > 0, np.float32(-np.inf), np.float32(0))


def _guarded_softmax(g: Graph, x: Value) -> Value:
    """Softmax along the last axis in which a row of minus infinities becomes zeros."""
    axis = (x.rank - 1,)
    largest = g.add(Maxs(Scalar(F32, _LOWEST)), f.reduce(g, ReduceMethodType.REDUCE_MAX, x, axis))
    powers = f.exp(g, f.sub(g, x, largest))
    sums = f.total(g, powers, axis)
    return f.div(g, powers, f.add(g, sums, g.add(Eqs(Scalar.f32(0)), sums)))
