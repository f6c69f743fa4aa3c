"""Float operators: linear, element-wise, on images and on rows. Sums are compared within a tolerance."""

import math

import numpy as np

from tests.support.native_cases.draft import Draft, kind
from tests.support.native_cases.elementwise import image
from tests.support.native_cases.linear import Window, window
from tests.support.native_cases.rescaling import some_shape
from tpuconvert.schema.graph.graph import Value
from tpuconvert.schema.ops.activation import Active, ActiveParam, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Max, Min, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Divs, Maxs, Mins, Muls, Rsubs, Subs
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.compare import Eq, Eqs, Ge, Ges, Gt, Gts, Le, Les, Lt, Lts, Ne, Nes
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.convolution.deconv import Deconv
from tpuconvert.schema.ops.gather_group_quantized import GatherGroupQuantized
from tpuconvert.schema.ops.host.detection import BoxCode, DetectionOutput
from tpuconvert.schema.ops.interpolate import Interpolate, InterpolateMode, PlatForm
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.matmul_group_quantized import MatmulGroupQuantized
from tpuconvert.schema.ops.normalization import LayerNorm
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.ops.recurrent.recurrent import Direction, Gru, Lstm, Rnn
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.types import F32, I8, I32, Array, DType, Scalar

FUNCTIONS = (ActiveType.ACTIVE_RELU, ActiveType.ACTIVE_SIGMOID, ActiveType.ACTIVE_TANH, ActiveType.ACTIVE_ABSVAL)


def normal(draft: Draft, *shape: int, scale: float = 1.0) -> Array:
    return (draft.rng.standard_normal(shape) * scale).astype(np.float32)


def add_limit(draft: Draft, x: Value) -> Value:
    """Common epilogues of linear operators."""
    choice = draft.number(0, 3)
    if choice == 0:
        return draft.add(Active(ActiveType.ACTIVE_RELU), x)
    if choice == 1:
        return draft.add(Clamp(Scalar.f32(0.0), Scalar.f32(6.0)), x)
    return x


def convolution(draft: Draft, made: Window, *, transposed: bool = False) -> Value:
    groups = made.parameters["groups"]
    first, second = (made.shape[1], made.channels) if transposed else (made.channels, made.shape[1])
    x = draft.input(F32, made.shape, normal(draft, *made.shape))
    w = draft.constant(normal(draft, first, second // groups, *made.kernel, scale=0.3))
    operands = [x, w]
    if draft.chance(0.7):
        operands.append(draft.constant(normal(draft, 1, made.channels, 1, 1)))
    return draft.add((Deconv if transposed else Conv)(**made.parameters), *operands)


@kind(700)
def float_products(draft: Draft) -> None:
    """Convolutions of all kinds and matmuls, with clamps after them."""
    choice = draft.number(0, 5)
    if choice < 4:
        style = draft.pick("dense", "grouped", "depthwise")
        transposed = choice == 3
        y = convolution(draft, window(draft, style=style, transposed=transposed), transposed=transposed)
    elif choice == 4:
        m, k, n = draft.small(40), draft.small(300), draft.small(150)
        operands = [draft.input(F32, (m, k), normal(draft, m, k)), draft.constant(normal(draft, k, n))]
        operands += [draft.constant(normal(draft, 1, n))] if draft.chance(0.6) else []
        y = draft.add(MatrixMul(), *operands)
    else:
        batch = tuple(draft.number(1, 3) for _ in range(draft.number(1, 2)))
        m, k, n = draft.small(40), draft.small(60), draft.small(40)
        left, right = draft.chance(0.3), draft.chance(0.5)
        a = (*batch, *((k, m) if left else (m, k)))
        b = (*batch, *((n, k) if right else (k, n)))
        operands = [draft.input(F32, shape, normal(draft, *shape)) for shape in (a, b)]
        y = draft.add(BatchMatmul(left_transpose=left, right_transpose=right), *operands)
    add_limit(draft, y)


@kind(400)
def float_group_products(draft: Draft) -> None:
    """Matmuls with packed weights, with clamps after them."""
    add_group_product(draft, F32)


@kind(400)
def integer_group_products(draft: Draft) -> None:
    """Matmuls with packed weights and activations that are quantized to INT8."""
    add_group_product(draft, I8)


def add_group_product(draft: Draft, activation_type: DType) -> None:
    op = MatmulGroupQuantized(draft.pick(4, 8), draft.pick(16, 32, 64, 128, 256), activation_type)
    rows, depth, columns = draft.small(20), draft.small(300), draft.small(150)
    operands: list[Value | None] = [draft.input(F32, (rows, depth), normal(draft, rows, depth))]
    operands += packed_rows(draft, op.bits, op.group, columns, depth)
    operands.append(draft.constant(normal(draft, columns)) if draft.chance(0.5) else None)
    add_limit(draft, draft.add(op, *operands))


def packed_rows(draft: Draft, bits: int, group: int, rows: int, depth: int) -> list[Value | None]:
    """Add codes, scales, and zero points of one of three kinds."""
    groups = -(-depth // group)
    operands: list[Value | None] = [
        draft.constant(draft.rng.integers(0, 256, (rows, groups * group * bits // 8), np.uint8)),
        draft.constant(normal(draft, rows, groups, scale=0.1)),
    ]
    zero = draft.pick("none", "integer", "float")
    if zero == "integer":
        operands.append(draft.constant(draft.rng.integers(0, 256, (rows, -(-groups * bits // 8)), np.uint8)))
    else:
        operands.append(draft.constant(normal(draft, rows, groups) + 8) if zero == "float" else None)
    return operands


@kind(300)
def packed_lookups(draft: Draft) -> None:
    """Rows of packed tables, with clamps after them."""
    bits, group = draft.pick(4, 8), draft.pick(16, 32, 64, 128, 256)
    rows, depth, count = draft.small(40), draft.small(300), draft.small(20)
    index = draft.input(I32, (count,), draft.rng.integers(0, rows, count, np.int32))
    op = GatherGroupQuantized(depth, bits, group)
    add_limit(draft, draft.add(op, index, *packed_rows(draft, bits, group, rows, depth)))


@kind(300)
def float_recurrent_layers(draft: Draft) -> None:
    """LSTM, GRU and RNN layers in all directions."""
    definition = draft.pick(Lstm, Gru, Rnn)
    op = definition(draft.pick(*Direction), clip=draft.pick(0.0, 0.7))
    steps, batch, size, units = draft.small(8), draft.small(4), draft.small(40), draft.small(40)
    count, rows = op.directions, op.gates * units
    operands: list[Value | None] = [draft.input(F32, (steps, batch, size), normal(draft, steps, batch, size))]
    operands.append(draft.constant(normal(draft, count, rows, size, scale=size**-0.5)))
    operands.append(draft.constant(normal(draft, count, rows, units, scale=units**-0.5)))
    operands.append(draft.constant(normal(draft, count, 2 * rows)) if draft.chance(0.6) else None)
    lengths = draft.rng.integers(0, steps, batch, np.int32, endpoint=True)
    operands.append(draft.input(I32, (batch,), lengths) if draft.chance(0.5) else None)
    draft.add_all(op, *operands)


@kind(500)
def float_elements(draft: Draft) -> None:
    """Chains of element-wise operators, with operands that broadcast."""
    shape = some_shape(draft)
    x = image(draft, F32, shape)
    for _ in range(draft.number(1, 6)):
        choice = draft.number(0, 3)
        if choice == 0:
            other = tuple(1 if draft.chance(0.3) else extent for extent in shape)
            second = draft.constant(normal(draft, *other)) if draft.chance(0.5) else draft.input(F32, other)
            x = draft.add(draft.pick(Add(), Sub(), Mul(), Max(), Min()), *draft.pick((x, second), (second, x)))
            shape = x.type.static_shape
        elif choice == 1:
            op = draft.pick(Adds, Subs, Rsubs, Muls, Divs, Maxs, Mins)
            x = draft.add(op(Scalar.f32(draft.pick(0.5, -2.0, 3.0, 1.0))), x)
        elif choice == 2:
            x = draft.add(Active(draft.pick(*FUNCTIONS)), x)
        else:
            x = draft.add(ActiveParam(ActiveType.ACTIVE_LEAKY_RELU, (draft.pick(0.1, 0.5, 0.0),)), x)


@kind(500)
def float_relations(draft: Draft) -> None:
    """Comparisons and selects between numbers that are often equal, signed zeros, infinite or NaN."""
    shape = some_shape(draft)
    few = np.array([-np.inf, -1.5, -0.0, 0.0, 1e-42, 0.5, 1.5, np.inf, np.nan], np.float32)

    def tensor(extents: tuple[int, ...]) -> Value:
        return draft.input(F32, extents, draft.rng.choice(few, extents))

    x = tensor(shape)
    for _ in range(draft.number(1, 4)):
        choice = draft.number(0, 3)
        number = Scalar.f32(float(draft.pick(*few)))
        if choice == 0:
            other = tensor(tuple(1 if draft.chance(0.2) else extent for extent in shape))
            x = draft.add(draft.pick(Gt, Ge, Lt, Le, Eq, Ne)(), *draft.pick((x, other), (other, x)))
        elif choice == 1:
            x = draft.add(draft.pick(Gts, Ges, Lts, Les, Eqs, Nes)(number), x)
        elif choice == 2:
            x = draft.add(draft.pick(Adds, Muls)(number), x)
        else:
            extents = draft.pick((1,), (1,) * len(shape))
            numbers = [draft.constant(draft.rng.choice(few, extents)) for _ in range(2)]
            chosen, other = draft.pick(numbers, [tensor(shape), numbers[1]], [numbers[0], tensor(shape)])
            x = draft.add(ConditionSelect(), x, chosen, other)
    if draft.chance(0.1):
        draft.declines()
        draft.add(ConditionSelect(), x, tensor(shape), tensor(shape))


@kind(400)
def detections(draft: Draft) -> None:
    """SSD post-processing: few distinct scores, overlapping boxes, every box encoding and limit."""
    batch, priors, classes = draft.pick(1, 1, 2), draft.small(200), draft.number(1, 4)
    shares, in_target = draft.chance(0.6), draft.chance(0.3)
    corners = np.sort(draft.rng.integers(0, 9, (priors, 2, 2)), axis=1).reshape(priors, 4) / np.float32(8)
    if draft.chance(0.2):
        corners = corners[:, [2, 3, 0, 1]]
    rows = [corners] if in_target else [corners, draft.rng.choice([0.1, 0.2, 1.0], (priors, 4))]
    prior = np.stack(rows).reshape(1, len(rows), priors * 4).astype(np.float32)
    loc = normal(draft, batch, priors * 4 * (1 if shares else classes), scale=draft.pick(0.0, 0.05, 1.0))
    levels = draft.pick(np.arange(5) / 4, np.arange(1000) / 999, [0.3], [0.0, 0.5, np.nan, np.inf])
    op = DetectionOutput(
        num_classes=classes,
        share_location=shares,
        background_label_id=draft.pick(0, 0, -1, 1, 9),
        nms_threshold=draft.pick(0.3, 0.45, 0.0, 0.7, 1.5),
        nms_top_k=draft.pick(-1, -1, 1, 10, 400),
        nms_eta=draft.pick(1.0, 1.0, 0.9),
        code_type=draft.pick(*BoxCode),
        keep_top_k=draft.pick(-1, 1, 7, 200),
        variance_encoded_in_target=in_target,
        confidence_threshold=draft.pick(-math.inf, 0.1, 0.5, 0.25),
    )
    conf = draft.input(F32, (batch, priors * classes), draft.rng.choice(np.float32(levels), (batch, priors * classes)))
    found = draft.add(op, draft.input(F32, loc.shape, loc), conf, draft.constant(prior))
    draft.declines(0 in found.type.static_shape)


@kind(500)
def float_images(draft: Draft) -> None:
    """Pools and bilinear resizing."""
    shape = (draft.pick(1, 2), draft.small(40), draft.small(14), draft.small(14))
    x = image(draft, F32, shape)
    if draft.chance(0.35):
        flags = draft.pick({}, {"align_corners": True}, {"half_pixel_centers": True})
        platform = PlatForm.TENSORFLOW if flags or draft.chance(0.5) else PlatForm.OPENCV
        size = (draft.small(20), draft.small(20))
        draft.add(Interpolate(size=size, platform=platform, method=InterpolateMode.BILINEAR, **flags), x)
        return
    kernels = [draft.small(min(extent, 5)) for extent in shape[2:]]
    pads = [draft.number(0, kernel // 2) for kernel in kernels]
    op = Pool(
        stride_h=draft.number(1, 3),
        stride_w=draft.number(1, 3),
        pad_h=pads[0],
        pad_w=pads[1],
        kernel_h=kernels[0],
        kernel_w=kernels[1],
        pooling_type=draft.pick(PoolType.MAX, PoolType.AVE),
        is_global_pooling=draft.chance(0.2),
        is_ceil_mode=draft.chance(0.3),
        is_ave_count_zero_pad=draft.chance(0.5),
    )
    draft.add(op, x)


@kind(500)
def float_rows(draft: Draft) -> None:
    """Softmax, layer normalization, reductions along any axes."""
    shape = some_shape(draft)
    x = draft.input(F32, shape, normal(draft, *shape, scale=draft.pick(0.1, 1, 20)))
    choice, rank = draft.number(0, 2), len(shape)
    if choice == 0:
        draft.add(Softmax(draft.number(-rank, rank - 1)), x)
    elif choice == 1:
        axis = draft.number(0, rank - 1)
        width = shape[axis:]
        parameters = [draft.constant(normal(draft, *width)) for _ in range(2)]
        draft.add(LayerNorm(axis=draft.pick(axis, axis - rank)), x, *parameters)
    else:
        axes = tuple(sorted(draft.rng.permutation(rank)[: draft.number(1, rank)].tolist()))
        methods = [ReduceMethodType.REDUCE_MEAN, ReduceMethodType.REDUCE_SUM, ReduceMethodType.REDUCE_MAX]
        draft.add(Reduce(axes, draft.pick(*methods), keep_dims=draft.chance(0.5)), x)
