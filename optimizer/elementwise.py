"""Operators that compute every element of their result from one element each of their operands."""

from __future__ import annotations

from tpuconvert.schema.graph import Node
from tpuconvert.schema.ops.activation import Active, ActiveParam
from tpuconvert.schema.ops.arithmetic import Add, Div, Max, Min, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Divs, Maxs, Mins, Muls, Rdivs, Rsubs, Subs
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.compare import Eq, Eqs, Ge, Ges, Gt, Gts, Le, Les, Lt, Lts, Ne, Nes
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.ops.round_to_integer import Ceil, Floor, Round
from tpuconvert.schema.ops.smooth_activation import CompositeActivation
from tpuconvert.schema.ops.trigonometry import Cos, Sin
from tpuconvert.schema.types import I32

UNARY = (
    *(Active, ActiveParam, Adds, Cast, Ceil, Clamp, Copy, Cos, Divs, Eqs, Floor, Ges, Gts, Les, Lts, Maxs, Mins, Muls),
    *(Nes, Rdivs, Round, Rsubs, Sin, Subs, CompositeActivation),
)
BINARY = (Add, Div, Eq, Ge, Gt, Le, Lt, Max, Min, Mul, Ne, Sub)


def may_round_integers(node: Node) -> bool:
    """Return True if a chip computes the node's INT32 in binary32, where even ``x + 0`` rounds beyond 2^24."""
    return node.outputs[0].dtype is I32 and any(
        case.compute == "FLOAT32" for support in node.op.dtypes.values() for case in support.cases
    )
