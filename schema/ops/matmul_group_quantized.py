"""matmul_group_quantized: matmul with packed weights of 4 or 8 bits and one scale per group of the inner axis.

With INT8 activations, each group of a row of x is quantized as well, and its products are summed in integers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tpuconvert.schema.arithmetic.fixed_point import rhaz
from tpuconvert.schema.definition.op import Extents, Operand, OpKind, case, on, tpu_op
from tpuconvert.schema.definition.shape_checks import check_bias, check_extent, check_ranks, format_types, number
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.graph.composite import Composite
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas as f
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.pad import Pad
from tpuconvert.schema.ops.reduce import ReduceMethodType
from tpuconvert.schema.types import F32, I8, U8, Array, DType, Scalar, TensorType

BITS = (4, 8)
GROUPS = (16, 32, 64, 128, 256)

STEP = np.float32(1) / np.float32(127)
"""Step of INT8 activations, relative to the largest magnitude of their group."""


def unpack_codes(packed: Array, bits: int) -> Array:
    """Unpack codes of ``bits`` bits along the last axis; the first code of a byte is in the low-order bits."""
    if bits == 8:
        return packed
    shifts = np.arange(8 // bits, dtype=np.uint8) * np.uint8(bits)
    codes: Array = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return codes.reshape(*packed.shape[:-1], packed.shape[-1] * (8 // bits))


def pack_codes(codes: Array, bits: int) -> Array:
    """Pack codes below ``2 ** bits`` along the last axis, the first of a byte in the low-order bits, padded with 0."""
    if bits == 8:
        return codes.astype(np.uint8)
    per_byte = 8 // bits
    padding = -codes.shape[-1] % per_byte
    padded = np.pad(codes.astype(np.uint8), [(0, 0)] * (codes.ndim - 1) + [(0, padding)])
    parts = padded.reshape(*codes.shape[:-1], -1, per_byte)
    packed = parts[..., 0].copy()
    for index in range(1, per_byte):
        packed |= parts[..., index] << np.uint8(index * bits)
    return packed


@tpu_op("matmul_group_quantized", OpKind.COMPOSITE)
class MatmulGroupQuantized(Composite):
    """``y = x @ w^T + bias`` with ``w[n, k] = (code[n, k] - zero_point[n, g]) * scale[n, g]`` for ``g = k // group``.

    With ``activation_type`` FLOAT32, the weight w is computed in float32, with one rounding for the product and, for a
    float zero point, one for the difference. The sum is accumulated in float64 and rounded once;
    docs/inside/engine.md describes the native engine.

    With ``activation_type`` INT8, each group of a row is quantized: ``step = max(max(|x|) * (1 / 127), 2^-126)``,
    ``q = x / step`` rounded with ties away from zero. The sum starts with the bias and adds, for g = 0, 1, ...,
    ``(sum of q * code - zero_point[n, g] * sum of q) * (step * scale[n, g])``. The sums of a group are integers below
    2^24; every other operation is rounded to float32. A group with NaN or infinity gives NaN.

    Shapes: x [..., K], codes [N, G * group * bits / 8] with G = ceil(K / group), scale [N, G], zero_point
    [N, ceil(G * bits / 8)] as packed integers or [N, G] as FLOAT32, bias [N], y [..., N].
    Units: ``bits`` is 4 or 8, ``group`` is 16, 32, 64, 128 or 256. Of the codes in a byte, the first is in the
    low-order bits; codes for k >= K are ignored. Without zero_point it is ``2 ** (bits - 1)``.
    Source: MatMulNBits of the domain com.microsoft.
    """

    bits: int = 4
    group: int = 32
    activation_type: DType = F32

    half_operands = (2,)
    inputs = (
        Operand("tensor_i", tuple(range(2, 9))),
        Operand("codes", (2,), coeff=True),
        Operand("scale", (2,), coeff=True),
        Operand("zero_point", (2,), coeff=True, optional=True),
        Operand("bias", (1,), coeff=True, optional=True),
    )
    dtypes = on(
        case(
            {
                "tensor_i": (F32,),
                "codes": (U8,),
                "scale": (F32,),
                "zero_point": (F32, U8),
                "bias": (F32,),
                "tensor_o": (F32,),
            }
        )
    )

    def __post_init__(self) -> None:
        if self.bits not in BITS:
            raise ValueError(f"{self.name}: bits is {self.bits}, expected 4 or 8")
        if self.group not in GROUPS:
            raise ValueError(f"{self.name}: group is {self.group}, expected 16, 32, 64, 128 or 256")
        if self.activation_type not in (F32, I8):
            raise ValueError(f"{self.name}: activation_type is {self.activation_type}, expected FLOAT32 or INT8")

    def count_macs(self, operands: Sequence[Extents], results: Sequence[Extents]) -> int:
        """One MAC per element of a row of x for each element of the result."""
        return math.prod(results[0]) * operands[0][-1]

    def infer(
        self,
        x: TensorType,
        codes: TensorType,
        scale: TensorType,
        zero_point: TensorType | None = None,
        bias: TensorType | None = None,
    ) -> tuple[TensorType]:
        types = (x, codes, scale, zero_point, bias)
        check_ranks(self, *types)
        allowed = ((F32,), (U8,), (F32,), (F32, U8), (F32,))
        if any(
            operand_type is not None and operand_type.dtype not in pair
            for operand_type, pair in zip(types, allowed, strict=True)
        ):
            raise ShapeError(
                f"{self.name} takes x, scale and bias in FLOAT32, codes in UINT8 and zero_point in UINT8 or FLOAT32, "
                f"got {format_types(types)}"
            )
        depth = number(self, "the last extent of x", x.shape[-1], *types)
        rows = number(self, "the number of rows of codes", codes.shape[0], *types)
        groups = -(-depth // self.group)
        check_extent(self, "the length of a row of codes", codes.shape[1], groups * self.group * self.bits // 8, *types)
        check_extent(self, "the number of rows of scale", scale.shape[0], rows, *types)
        check_extent(self, "the length of a row of scale", scale.shape[1], groups, *types)
        if zero_point is not None:
            length = groups if zero_point.dtype is F32 else -(-groups * self.bits // 8)
            check_extent(self, "the number of rows of zero_point", zero_point.shape[0], rows, *types)
            check_extent(self, "the length of a row of zero_point", zero_point.shape[1], length, *types)
        check_bias(self, bias, (rows,), *types)
        return (TensorType(F32, (*x.shape[:-1], rows)),)

    def zero_points(self, scale: Array, zero_point: Array | None) -> Array:
        """Return the zero points as FLOAT32 [N, G]."""
        if zero_point is None:
            return np.full(scale.shape, 1 << (self.bits - 1), np.float32)
        if zero_point.dtype == np.float32:
            return zero_point
        return unpack_codes(zero_point, self.bits)[:, : scale.shape[1]].astype(np.float32)

    def weights(self, codes: Array, scale: Array, zero_point: Array | None, depth: int) -> Array:
        """Return the dequantized weights as FLOAT32 [N, K]."""
        wide = unpack_codes(codes, self.bits).reshape(*scale.shape, self.group).astype(np.float32)
        with np.errstate(all="ignore"):
            wide -= self.zero_points(scale, zero_point)[:, :, None]
            wide *= scale[:, :, None]
        return wide.reshape(len(scale), scale.shape[1] * self.group)[:, :depth]

    def reference(
        self, x: Array, codes: Array, scale: Array, zero_point: Array | None = None, bias: Array | None = None
    ) -> tuple[Array]:
        """FLOAT32: accumulate in binary64 and round once. INT8: see the class."""
        if self.activation_type is I8:
            return (self._integer_reference(x, codes, scale, zero_point, bias),)
        weights = self.weights(codes, scale, zero_point, x.shape[-1]).astype(np.float64)
        with np.errstate(all="ignore"):
            y = np.matmul(x.reshape(-1, x.shape[-1]).astype(np.float64), weights.T)
            y = y if bias is None else y + bias
            return (y.astype(np.float32).reshape(*x.shape[:-1], len(scale)),)

    def _integer_reference(
        self, x: Array, codes: Array, scale: Array, zero_point: Array | None, bias: Array | None
    ) -> Array:
        """Sum integers in float32: they are below 2^24."""
        q, steps = self.quantize_rows(x.reshape(-1, x.shape[-1]))
        wide = unpack_codes(codes, self.bits).reshape(*scale.shape, self.group).astype(np.float32)
        zero = self.zero_points(scale, zero_point)
        y = np.zeros((len(q), len(scale)), np.float32)
        with np.errstate(all="ignore"):
            y += 0 if bias is None else bias
            for group in range(scale.shape[1]):
                products = np.matmul(q[:, group], wide[:, group].T)
                products -= zero[:, group] * q[:, group].sum(axis=1, keepdims=True)
                y += products * (steps[:, group, None] * scale[:, group])
        return y.reshape(*x.shape[:-1], len(scale))

    def quantize_rows(self, x: Array) -> tuple[Array, Array]:
        """Return integers of -127 to 127 as FLOAT32 [rows, G, group], and their steps [rows, G]."""
        groups = -(-x.shape[1] // self.group)
        parts = np.zeros((len(x), groups * self.group), np.float32)
        parts[:, : x.shape[1]] = x
        parts = parts.reshape(len(x), groups, self.group)
        with np.errstate(all="ignore"):
            steps = np.maximum(np.abs(parts).max(axis=2) * STEP, np.finfo(np.float32).tiny)
            steps = np.where(np.isfinite(steps), steps, np.float32(np.nan))
            q = rhaz(parts / steps[:, :, None]).astype(np.float32)
        return np.where(np.isfinite(steps)[:, :, None], q, np.float32(0)), steps

    def expand(
        self,
        g: Graph,
        x: Value,
        codes: Value,
        scale: Value,
        zero_point: Value | None = None,
        bias: Value | None = None,
    ) -> tuple[Value]:
        """Dequantize the weight in float32, then a matmul. If the weight is constant, only the matmul remains.

        INT8 activations are quantized and dequantized before the matmul.
        """
        rows, groups = f.extents(self, scale)
        depth = f.extents(self, x)[-1]
        if self.activation_type is I8:
            x = self._expand_rounding(g, x, groups)
        wide = self.expand_weights(g, codes, scale, zero_point, depth)
        (y,) = BatchMatmul(right_transpose=True).expand(g, x, wide)
        return (y if bias is None else f.add(g, y, f.reshape(g, bias, (*(1,) * (x.rank - 1), rows))),)

    def expand_weights(self, g: Graph, codes: Value, scale: Value, zero_point: Value | None, depth: int) -> Value:
        """Dequantize the weight, [N, K]."""
        rows, groups = f.extents(self, scale)
        wide = self._unpack(g, codes)
        wide = f.reshape(g, wide, (rows, groups, self.group))
        if zero_point is None:
            wide = f.adds(g, wide, -float(1 << (self.bits - 1)))
        else:
            zero = zero_point
            if zero.dtype is U8:
                zero = self._unpack(g, zero_point)
                zero = f.slice_axis(g, zero, 1, 0, groups) if f.extents(self, zero)[1] != groups else zero
            wide = f.sub(g, wide, f.reshape(g, zero, (rows, groups, 1)))
        wide = f.mul(g, wide, f.reshape(g, scale, (rows, groups, 1)))
        wide = f.reshape(g, wide, (rows, groups * self.group))
        wide = f.slice_axis(g, wide, 1, 0, depth) if depth != groups * self.group else wide
        return wide

    def _expand_rounding(self, g: Graph, x: Value, groups: int) -> Value:
        """Quantize the groups of each row to INT8, and dequantize them."""
        *outer, depth = f.extents(self, x)
        padding = groups * self.group - depth
        if padding:
            x = g.add(Pad(Scalar(F32, 0.0), (*(0, 0) * len(outer), 0, padding)), x)
        parts = f.reshape(g, x, (math.prod(outer), groups, self.group))
        peak = f.reduce(g, ReduceMethodType.REDUCE_MAX, f.absolute(g, parts), (2,))
        steps = f.clamp(g, f.muls(g, peak, float(STEP)), float(np.finfo(np.float32).tiny), math.inf)
        q = g.add(Cast(F32), g.add(Cast(I8), f.div(g, parts, steps)))
        wide = f.reshape(g, f.mul(g, q, steps), (*outer, groups * self.group))
        return f.slice_axis(g, wide, len(outer), 0, depth) if padding else wide

    def _unpack(self, g: Graph, packed: Value) -> Value:
        """Codes as FLOAT32, in which their arithmetic is exact."""
        wide = g.add(Cast(F32), packed)
        if self.bits == 8:
            return wide
        rows, length = f.extents(self, packed)
        # floor(code / 16), because a conversion to integers rounds to nearest; BM1682 has no floor
        high = g.add(Cast(F32), g.add(Cast(U8), f.muls(g, f.adds(g, wide, -7.5), 1 / 16)))
        low = f.sub(g, wide, f.muls(g, high, 16.0))
        parts = [f.reshape(g, part, (rows, length, 1)) for part in (low, high)]
        return f.reshape(g, g.add(Concat(2), *parts), (rows, 2 * length))
