"""cast: convert to another data type; ties round away from zero and integers saturate."""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.arithmetic.fixed_point import rhaz, saturate
from tpuconvert.schema.definition.op import Case, Trait, UnaryOp, case, limited_local, on, tpu_op
from tpuconvert.schema.types import F16, F32, I8, I16, I32, U8, U16, Array, Chip, DType, TensorType


def _pairs(*pairs: tuple[tuple[DType, ...], tuple[DType, ...]]) -> tuple[Case, ...]:
    return tuple(case({"tensor_i": sources, "tensor_o": results}) for sources, results in pairs)


_BM1684 = _pairs(
    ((F32,), (I32,)),
    ((I32,), (F32,)),
    ((I16, U16), (F32,)),
    ((F32,), (I16, U16)),
    ((I8, U8), (F32,)),
    ((F32,), (I8, U8)),
    ((I16, U16), (I8, U8)),
    ((I8, U8), (I16, U16)),
    ((I16,), (U16,)),
    ((U16,), (I16,)),
    ((I8,), (U8,)),
    ((U8,), (I8,)),
)
_HALF = _pairs(((F16,), (F32, I32, I8, U8, I16, U16)), ((F32, I32, I8, U8, I16, U16), (F16,)))


def _is_local(op: Cast, ins: tuple[TensorType, ...], outs: tuple[TensorType, ...], chip: Chip) -> bool:
    pair = (ins[0].dtype, outs[0].dtype)
    return pair == (F32, I32) if chip is Chip.BM1682 else pair != (I32, F32)


def _nearest(x: Array) -> Array:

    rounded = rhaz(x)
    rounded[np.isnan(rounded)] = 0
    return rounded


@tpu_op("cast")
class Cast(UnaryOp):
    """``y = x`` as ``out_dtype``.

    Float to integer: ties round away from zero, results saturate, and NaN gives 0. Integer to integer: results
    saturate. To float: ties round to even; an integer is converted to FLOAT16 through binary32.
    """

    out_dtype: DType

    dtypes = on(bm1682=_pairs(((F32,), (I32, I8, U8)), ((I32, I8, U8), (F32,))), bm1684=_BM1684, bm1686=_BM1684 + _HALF)
    locality = limited_local(
        _is_local, "on BM1682 only FLOAT32 to INT32 is local; on the others everything but INT32 to FLOAT32"
    )
    traits = Trait.UNARY

    def reference(self, x: Array) -> tuple[Array]:
        """Round and saturate once."""
        if self.out_dtype.is_integer:
            return (saturate(_nearest(x) if x.dtype.kind == "f" else x.astype(np.int64), self.out_dtype),)
        with np.errstate(over="ignore"):
            wide = x.astype(np.float32) if x.dtype.kind in "iu" else x
            return (wide.astype(self.out_dtype.numpy),)
