"""Named conditions on the combination of data types of a node, which definitions list in their ``dtypes`` tables.

Names and texts are copied from the contract of the operator set.
"""

from __future__ import annotations

from collections.abc import Iterator

from tpuconvert.schema.definition.op import ALL_SAME, Assignment, Op, Rule
from tpuconvert.schema.types import I16, U16, DType

__all__ = [
    "ADDSHIFT_SIGN",
    "ALL_SAME",
    "INPUTS_SAME_WIDTH",
    "IO_SAME",
    "IO_SAME_SIGN",
    "MULSHIFT_SIGN",
    "OUT_SIGNED",
    "PADVAL_SAME",
    "POOL_INT_SAME",
    "SCALAR_SAME_OUT",
    "SHIFT_NOT_WIDER",
    "TABLE_SAME_OUT",
    "U16_OUT_NO_I16_IN",
    "ZP_ALL_ZERO",
    "ZP_IN_RANGE",
    "ZP_IN_RANGE_V2",
]

IO_SAME = Rule("io_same", "tensor_i and the output have the same dtype", lambda a: a.d["tensor_i"] is a.outs[0])

IO_SAME_SIGN = Rule(
    "io_same_sign",
    "tensor_i and the output are both signed or both unsigned",
    lambda a: a.d["tensor_i"].is_signed == a.outs[0].is_signed,
)

U16_OUT_NO_I16_IN = Rule(
    "u16_out_no_i16_in",
    "a UINT16 result excludes INT16 inputs",
    lambda a: a.outs[0] is not U16 or I16 not in a.ins,
)

OUT_SIGNED = Rule("out_signed", "the result must be signed", lambda a: a.outs[0].is_signed)

MULSHIFT_SIGN = Rule(
    "mulshift_sign",
    "with a 16-bit first operand and any signed operand the result must be signed",
    lambda a: not (a.ins[0].bits == 16 and _any_signed(a.ins)) or a.outs[0].is_signed,
)

ADDSHIFT_SIGN = Rule(
    "addshift_sign",
    "all 16 bit and any signed input: the result must be signed",
    lambda a: not (all(t.bits == 16 for t in a.ins + a.outs) and _any_signed(a.ins)) or a.outs[0].is_signed,
)

TABLE_SAME_OUT = Rule("table_same_out", "table and result share the dtype", lambda a: a.d["table"] is a.outs[0])

SCALAR_SAME_OUT = Rule("scalar_same_out", "scalar and result share the dtype", lambda a: a.d["scalar_i"] is a.outs[0])

PADVAL_SAME = Rule("padval_same", "pad value and tensor share the dtype", lambda a: a.d["pad_val"] is a.outs[0])

POOL_INT_SAME = Rule(
    "pool_int_same",
    "tensor_i and tensor_o share the dtype (decision D-POOL-1)",
    lambda a: a.d["tensor_i"] is a.outs[0],
)

INPUTS_SAME_WIDTH = Rule(
    "inputs_same_width",
    "both inputs have the same width",
    lambda a: len({a.d[name].bits for name in ("input0", "input1") if name in a.d}) <= 1,
)

SHIFT_NOT_WIDER = Rule(
    "shift_not_wider",
    "the shift tensor is not wider than the data",
    lambda a: a.d["tensor_shift"].bits <= a.d["tensor_i"].bits,
)

_ZERO_POINTS = ("left_zero_point", "right_zero_point", "output_zero_point")

ZP_ALL_ZERO = Rule(
    "zp_all_zero", "all zero points are 0", lambda a: all(getattr(a.op, name, 0) == 0 for name in _ZERO_POINTS)
)

ZP_IN_RANGE = Rule(
    "zp_in_range",
    "each zero point is in the range of the dtype it belongs to",
    lambda a: all(
        _representable(getattr(a.op, name, 0), dtype)
        for name, dtype in zip(_ZERO_POINTS, (a.ins[0], a.ins[1], a.outs[0]), strict=True)
    ),
)

ZP_IN_RANGE_V2 = Rule(
    "zp_in_range_v2",
    "each zero point is in the range of the dtype it belongs to",
    lambda a: all(
        _representable(zero_point, dtype)
        for prefixes, dtype in ((("izp", "lzp"), a.ins[0]), (("kzp", "rzp"), a.ins[1]))
        for prefix in prefixes
        for zero_point in _zero_points_of(a, prefix)
    ),
)


def _any_signed(dtypes: tuple[DType, ...]) -> bool:
    return any(dtype.is_signed for dtype in dtypes)


def _representable(zero_point: int, dtype: DType) -> bool:
    return zero_point == 0 if dtype.is_float else dtype.holds(zero_point)


def _zero_points_of(a: Assignment, prefix: str) -> Iterator[int]:
    """Zero points of one operand: of the scalar and of the vector parameter, if the operator has them."""
    op: Op = a.op
    yield getattr(op, f"{prefix}_val", 0)
    yield from getattr(op, f"{prefix}_vec", ())
