"""Matrix products that the fast kernels decline: vectors of zero points, modes, run-time operands, FLOAT16."""

from tests.support.native_cases.draft import Draft, kind
from tests.support.native_cases.general_conv import given, zero_points
from tpuconvert.schema.ops.matmul.fc_int import FcInt
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul, QCalMode
from tpuconvert.schema.ops.matmul.matrix_mul_v2 import MatrixMulV2
from tpuconvert.schema.types import F16, F32, I8, I16, I32, U8, U16, U32


@kind(400)
def exact_matmul_any(draft: Draft) -> None:
    """matrix_mul_v2 and fc_int."""
    is_layer = draft.chance(0.3)
    rows, depth, columns = draft.small(70), draft.small(200), draft.small(40)
    batch = (draft.small(3),) if is_layer else tuple(draft.small(3) for _ in range(draft.number(0, 2)))
    x_type, w_type = draft.pick(I8, U8), draft.pick(I8, U8)
    has_bias = draft.chance(0.6)
    names = ("izp", "kzp") if is_layer else ("lzp", "rzp")
    further = zero_points(draft, names[0], x_type, rows) | zero_points(draft, names[1], w_type, columns)
    further |= {"has_bias": has_bias, "out_dtype": draft.pick(I32, I32, U32)}
    swaps = [draft.chance(0.3) and not is_layer, draft.chance(0.4)]
    left = draft.input(x_type, (*batch, *((depth, rows) if swaps[0] else (rows, depth))))
    shape = (columns, depth) if swaps[1] else (depth, columns)
    right = given(draft, w_type, shape if is_layer else (*batch, *shape), constant=draft.chance(0.5))
    if is_layer:
        op = FcInt(weight_trans=swaps[1], **further)
    else:
        op = MatrixMulV2(is_left_trans=swaps[0], is_right_trans=swaps[1], **further)
    operands = [left, right]
    if has_bias:
        operands.append(given(draft, I32, (columns,), constant=draft.chance(0.5)))
    draft.add(op, *operands)


@kind(300)
def matmul_of_modes(draft: Draft) -> None:
    rows, depth, columns = draft.small(70), draft.small(200), draft.small(40)
    mode = QCalMode(draft.pick(0, 1, 2, 2))
    x_type, w_type = draft.pick(I8, U8), draft.pick(I8, U8)
    further: dict[str, object] = {}
    if mode == QCalMode.HighPrecisionAsymmetric:
        further = {
            "left_zero_point": draft.pick(0, draft.number(x_type.min, x_type.max)),
            "right_zero_point": draft.pick(0, draft.number(w_type.min, w_type.max)),
            "output_zero_point": draft.number(0, 9),
        }
    scale = float(2.0 ** -draft.number(0, 18) * draft.pick(1.0, draft.rng.uniform(0.5, 1.0), 3.0))
    out = draft.pick(I8, U8) if mode == QCalMode.LowPrecisionSymmetric else draft.pick(I8, U8, I16, U16)
    op = MatrixMul(scale=scale, mode=mode, out_dtype=out, **further)
    is_constant = mode == QCalMode.HighPrecisionAsymmetric or draft.chance(0.3)
    operands = [draft.input(x_type, (rows, depth)), given(draft, w_type, (depth, columns), constant=is_constant)]
    if draft.chance(0.6):
        dtype = draft.pick(I16, U16, *(() if mode == QCalMode.LowPrecisionSymmetric else (I32,)))
        operands.append(given(draft, dtype, (1, columns), constant=draft.chance(0.5)))
    draft.add(op, *operands)


@kind(150)
def float_matmul_any(draft: Draft) -> None:
    """FLOAT16, and FLOAT32 with a bias computed at run time."""
    rows, depth, columns = draft.small(70), draft.small(200), draft.small(40)
    dtype = draft.pick(F16, F32)
    shapes = ((rows, depth), (depth, columns), (1, columns))
    draft.add(MatrixMul(), *(given(draft, dtype, shape, constant=False) for shape in shapes[: draft.pick(2, 3)]))
