"""Integer linear operators with constant weights and their fused epilogue."""

from __future__ import annotations

from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np

from tpuconvert.runtime.native.builder.builder import Builder, Group
from tpuconvert.runtime.native.builder.storage import Buffer, Stored, channels_last, row_major
from tpuconvert.runtime.native.builder.winograd import add_convolution
from tpuconvert.runtime.native.matchers import epilogue as epilogue_kinds
from tpuconvert.runtime.native.matchers.convolution import Geometry, Image, geometry_of, transposed_phases
from tpuconvert.runtime.native.matchers.epilogue import EPILOGUE_OPS, STORED_BIAS, SUMS, Epilogue, bias_of
from tpuconvert.runtime.native.matchers.matcher import Site, ends_with, names_of, operators_of
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Node, Value, static
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.convolution.conv_v2 import ConvV2
from tpuconvert.schema.ops.convolution.deconv import Deconv
from tpuconvert.schema.ops.convolution.deconv_v2 import DeconvV2
from tpuconvert.schema.ops.matmul.fc_int import FcInt
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.matmul.matrix_mul_v2 import MatrixMulV2
from tpuconvert.schema.ops.matmul.quantized_modes import QCalMode
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.types import I8, I32, U8, Array, Chip, DType

BYTES = (I8, U8)
BYTE_DOT_ISAS = ("avxvnni", "avx512vnni", "amx", "dotprod", "i8mm")
"""Instruction sets with dot products of bytes."""


class Residual(NamedTuple):
    """Residual add of a conv; see int8/epilogue/residual.h. Arrays have one element, or one per channel.

    Args:
        other: the other operand, which has the shape of the result.
        factor: multiplier of the stored result of the conv.
        other_factor: multiplier of the other operand.
        offset: constant that is added, including rounding constants and zero points.
        shift: right shift.
        limits: bounds of the stored result.
    """

    other: Value
    factor: Array
    other_factor: Array
    offset: Array
    shift: int
    limits: tuple[int, int]

    def spec(self, builder: Builder, other: Stored) -> Any:
        """Return the spec of the extension. The other operand must be channels-last."""
        image, _, row, pixel = other.strides
        return builder.native.ResidualSpec(
            other=builder.place(other),
            pixel=pixel,
            row=row,
            image=image,
            factor=np.asarray(self.factor, np.int32),
            other_factor=np.asarray(self.other_factor, np.int32),
            offset=np.asarray(self.offset, np.int32),
            shift=self.shift,
            low=self.limits[0],
            high=self.limits[1],
        )


class LinearOp(NamedTuple):
    """An integer linear operator, independent of its operator class.

    Args:
        x: the 8-bit operand.
        zero: zero point of ``x``.
        weights: [out, in of a group, kernel_h, kernel_w], 8 bits.
        weight_zeros: zero points of the weights; one, or one per output channel.
        bias: integers, one per output channel, or None.
        geometry: strides, pads and groups.
        epilogue: epilogue of the operator itself and of the fused operators.
        is_matrix: True for x of shape [..., M, K], False for an image.
        is_transposed: True for a deconv, whose weights are [in, out of a group, kernel_h, kernel_w].
        shape: shape of the accumulators, before a fused reshape.
    """

    x: Value
    zero: int
    weights: Array
    weight_zeros: tuple[int, ...]
    bias: Array | None
    geometry: Geometry
    epilogue: Epilogue
    is_matrix: bool = False
    is_transposed: bool = False
    shape: tuple[int, ...] = ()

    @property
    def stored_zero(self) -> int:
        """Zero point of the stored operand."""
        return self.zero + bias_of(self.x.dtype)

    @property
    def bias32(self) -> Array | None:
        """The bias as INT32."""
        return None if self.bias is None else self.bias.astype(np.int32, copy=False)


@singledispatch
def _form(op: Op, x: Value, w: Value, bias: Array | None, chip: str) -> LinearOp | None:
    """Return the description of an integer linear operator, or None if there is no kernel for it."""
    return None


@_form.register
def _exact_convolution(op: ConvV2 | DeconvV2, x: Value, w: Value, bias: Array | None, chip: str) -> LinearOp | None:
    if not op.is_izp_const or op.out_dtype not in (None, DType.INT32) or not _is_int32(bias):
        return None
    zeros = (op.kzp_val,) if op.is_kzp_const else op.kzp_vec
    is_transposed = isinstance(op, DeconvV2)
    if is_transposed and (op.dh, op.dw) != (1, 1):
        return None
    return LinearOp(x, op.izp_val, w.array, zeros, bias, Geometry.of(op), SUMS, is_transposed=is_transposed)


@_form.register
def _exact_matrix(op: FcInt | MatrixMulV2, x: Value, w: Value, bias: Array | None, chip: str) -> LinearOp | None:
    if isinstance(op, FcInt):
        izp, kzp, transposed = "izp", "kzp", op.weight_trans
    else:
        izp, kzp, transposed = "lzp", "rzp", op.is_right_trans
        if op.is_left_trans or w.rank != 2:
            return None
    if not getattr(op, f"is_{izp}_const") or op.out_dtype not in (None, DType.INT32) or not _is_int32(bias):
        return None
    weights = w.array if transposed else w.array.T
    zeros = (getattr(op, f"{kzp}_val"),) if getattr(op, f"is_{kzp}_const") else getattr(op, f"{kzp}_vec")
    return LinearOp(
        x,
        getattr(op, f"{izp}_val"),
        weights.reshape(*weights.shape, 1, 1),
        zeros,
        bias,
        Geometry(),
        SUMS,
        is_matrix=True,
    )


@_form.register
def _calculation_mode(
    op: Conv | Deconv | MatrixMul, x: Value, w: Value, bias: Array | None, chip: str
) -> LinearOp | None:
    out = op.out_dtype or x.dtype
    if out.is_float or out.bits > 16:
        return None
    is_matrix, is_transposed = isinstance(op, MatrixMul), isinstance(op, Deconv)
    scale = np.float32(op.scale)
    weights = w.array.T.reshape(*w.array.T.shape, 1, 1) if is_matrix else w.array
    geometry = Geometry() if isinstance(op, MatrixMul) else Geometry.of(op)
    if is_transposed and (geometry.dilations != (1, 1) or op.mode != QCalMode.LowPrecisionSymmetric):
        return None
    channels = len(weights)
    is_depthwise = isinstance(op, Conv) and geometry.groups == channels == static(x.shape)[1]
    limits = {"scale": float(scale), "offset": (bias_of(out),)}
    is_early = bias is not None and bias.dtype in (np.int16, np.uint16)
    linear_op = LinearOp(x, 0, weights, (0,), None, geometry, Epilogue.of(out), is_matrix, is_transposed)
    if is_depthwise and chip == Chip.BM1684.name and op.mode != QCalMode.LowPrecisionSymmetric:
        if bias is not None and bias.dtype == np.float32:
            return None
        limits["offset"] = (bias_of(out) + op.output_zero_point,)
        return linear_op._replace(
            zero=op.left_zero_point,
            weight_zeros=(op.right_zero_point,),
            bias=bias,
            epilogue=Epilogue.of(out, rescale=epilogue_kinds.FLOAT, **limits),
        )
    if op.mode == QCalMode.LowPrecisionSymmetric:
        if bias is not None and bias.dtype.kind == "f":
            return None
        return linear_op._replace(
            bias=bias,
            epilogue=Epilogue.of(out, rescale=epilogue_kinds.LOW_PRECISION, narrow=(out.min, out.max), **limits),
        )
    if op.mode == QCalMode.HighPrecisionSymmetric:
        late = () if bias is None or is_early else tuple((bias.astype(np.float32) * scale).tolist())
        return linear_op._replace(
            bias=bias if is_early else None,
            epilogue=Epilogue.of(out, rescale=epilogue_kinds.HIGH_SYMMETRIC, late_bias=late, **limits),
        )
    return None


def _is_int32(bias: Array | None) -> bool:
    return bias is None or bias.dtype == np.int32


LINEAR_OPS = operators_of(_form)
_FUSED: tuple[type[Op], ...] = (*EPILOGUE_OPS, Reshape)


@ends_with(
    *names_of(*LINEAR_OPS, *EPILOGUE_OPS),
    kernels=("conv_int8", "conv_int8_winograd", "batch_matmul_int8"),
    dtypes="INT8, UINT8",
    conditions=(
        "conv, deconv or matmul with constant weights, then at most one requantization, clamps, a lookup "
        "table and a dequantization; conv_int8_winograd for 3x3 windows with stride 1 where its estimated cost is lower"
    ),
    priority=10,
)
def linear(node: Node, site: Site) -> Group | None:
    """Match a linear operator followed by at most one requantization, clamps and a lookup table."""
    nodes_and_op = linear_op_ending_at(node, site)
    if nodes_and_op is None:
        return None
    nodes, complete = nodes_and_op
    return Group(nodes, lambda builder: _emit(builder, complete, node.outputs[0]))


def linear_op_ending_at(node: Node, site: Site) -> tuple[tuple[Node, ...], LinearOp] | None:
    """Return the nodes and the description of a linear operator whose epilogue ends with ``node``."""
    nodes = tuple(site.chain(node, _FUSED, LINEAR_OPS))
    if not nodes:
        return None
    if nodes not in site.chains:  # several matchers, also of later nodes, examine the same chain
        site.chains[nodes] = _linear_op_of_chain(nodes, site.chip)
    linear_op: LinearOp | None = site.chains[nodes]
    return None if linear_op is None else (nodes, linear_op)


def _linear_op_of_chain(nodes: tuple[Node, ...], chip: str) -> LinearOp | None:
    """Return the description of a linear operator with the operators that follow it, or None without a kernel."""
    source, *chain = nodes
    linear_op = linear_op_of(source, chip)
    if linear_op is None or not (linear_op.is_matrix or _allows_reshapes(source, chain)):
        return None
    epilogue: Epilogue | None = linear_op.epilogue
    for follower in chain:
        if isinstance(follower.op, RequantInt32) and not _is_per_column(follower, linear_op):
            return None
        if not isinstance(follower.op, Reshape):
            epilogue = epilogue.followed_by(follower) if epilogue is not None else None
    if epilogue is None or nodes[-1].outputs[0].dtype is not epilogue.dtype:
        return None
    return linear_op._replace(epilogue=epilogue, shape=static(source.outputs[0].shape))


def _allows_reshapes(source: Node, chain: list[Node]) -> bool:
    """Return True if reshapes of a channels-last image need no copy and no per-channel parameters follow them."""
    reshapes = [index for index, item in enumerate(chain) if isinstance(item.op, Reshape)]
    if not reshapes:
        return True
    image = _channels_last(Buffer(0, "", 0), source.outputs[0].dtype, static(source.outputs[0].shape))
    vectors = ("is_mul_shift_pc", "is_offset_pc", "is_scale_pc")
    return (
        not isinstance(source.op, (Deconv, DeconvV2))
        and image.reshape(static(chain[-1].outputs[0].shape)) is not None
        and not any(getattr(item.op, name, False) for item in chain[reshapes[0] :] for name in vectors)
    )


def _channels_last(buffer: Buffer, dtype: DType, shape: tuple[int, ...]) -> Stored:
    return Stored(buffer, dtype, shape, channels_last(len(shape)))


def temporary_image(builder: Builder, dtype: DType, shape: tuple[int, ...]) -> Stored:
    """Return a channels-last buffer for the steps of the current group."""
    return _channels_last(builder.temporary(dtype, shape).buffer, dtype, shape)


def _is_per_column(requant: Node, layer: LinearOp) -> bool:
    """Return True if the parameters are per-tensor, or apply to the last axis in memory."""
    op = requant.op
    assert isinstance(op, RequantInt32)
    per_channel = op.is_mul_shift_pc or op.is_offset_pc
    shape = static(requant.outputs[0].shape)
    return not per_channel or not layer.is_matrix or (len(shape) == 2 and shape[1] == len(layer.weights))


def emit_convolution(builder: Builder, layer: LinearOp, result: Value, residual: Residual | None = None) -> None:
    """Add the step of a conv, with an optional residual add."""
    x = builder.read(layer.x, channels_last(4), dense=False)
    shape, is_reshaped = layer.shape, layer.shape != builder.shape(result)
    if not is_reshaped:
        y = builder.write(result, channels_last(4), dense=False)
    else:
        y = temporary_image(builder, result.dtype, shape)
    convolve(builder, layer, Image.of(x), Image.of(y), layer.weights, layer.geometry, residual)
    if is_reshaped:
        reshaped = y.reshape(builder.shape(result))
        assert reshaped is not None, "checked by the matcher"
        builder.alias(result, reshaped)


def _emit(builder: Builder, layer: LinearOp, result: Value) -> None:
    if layer.is_matrix:
        # The result may be reshaped, so that its rows differ from the rows of the matrix.
        x = Image.of_matrix(builder.read(layer.x, row_major(layer.x.rank)), layer.weights.shape[1])
        y = Image.of_matrix(builder.write(result), len(layer.weights))
        if _corrects_zero_point(builder, layer, x.shape[3]):
            _emit_matmul(builder, layer, x, y)
        else:
            convolve(builder, layer, x, y, layer.weights, layer.geometry)
    elif layer.is_transposed:
        x = Image.of(builder.read(layer.x, channels_last(4), dense=False))
        y = Image.of(builder.write(result, channels_last(4), dense=False))
        for phase in transposed_phases(x, y, layer.weights, layer.geometry, layer.weight_zeros):
            convolve(builder, layer, *phase)
    else:
        emit_convolution(builder, layer, result)


def convolve(
    builder: Builder,
    layer: LinearOp,
    x: Image,
    y: Image,
    weights: Array,
    geometry: Geometry,
    residual: Residual | None = None,
) -> None:
    """Add one convolution step; weights are [out, in of a group, kernel_h, kernel_w]."""
    spec, extents, other = convolution_spec(builder, layer, x, y, weights, geometry, residual)
    add_convolution(builder, spec, extents, (x.stored,) if other is None else (x.stored, other), (y.stored,))


def convolution_spec(
    builder: Builder,
    layer: LinearOp,
    x: Image,
    y: Image,
    weights: Array,
    geometry: Geometry,
    residual: Residual | None = None,
) -> tuple[Any, Any, Stored | None]:
    """Return the spec of a convolution, its ``ConvGeometry``, and the memory of the residual's other operand."""
    other = None if residual is None else builder.read(residual.other, channels_last(4), dense=False)
    extents = geometry_of(builder, x, y, weights.shape[2:], geometry)
    spec = builder.native.ConvInt8Spec(
        input=builder.place(x.stored),
        output=builder.place(y.stored),
        geometry=extents,
        weights=np.ascontiguousarray(weights) if layer.is_transposed else weights,
        epilogue=layer.epilogue.compile(y.shape[1]),
        weight_zero=np.asarray(layer.weight_zeros, np.int32),
        bias=layer.bias32,
        input_zero=layer.stored_zero,
        residual=None if residual is None or other is None else residual.spec(builder, other),
    )
    return spec, extents, other


def _corrects_zero_point(builder: Builder, layer: LinearOp, rows: int) -> bool:
    """Return True if correcting the accumulators for the zero point of the weights is cheaper than subtracting it.

    Weights minus a zero point have more than 8 bits, which requires two dot products of bytes. The correction stores
    the accumulators and packs the weights in every run, which is worthwhile for many long rows.
    """
    depth = layer.weights.shape[1]
    if builder.isa not in BYTE_DOT_ISAS or depth < 512 or rows < 32 or len(set(layer.weight_zeros)) != 1:
        return False
    zero, dtype = layer.weight_zeros[0], DType.of(layer.weights.dtype)
    if zero + bias_of(dtype) == STORED_BIAS or not layer.weights.size:
        return False
    if int(layer.weights.min()) - zero >= -128 and int(layer.weights.max()) - zero <= 127:
        return False
    farthest = [max(stored, 255 - stored) for stored in (layer.stored_zero, zero + bias_of(dtype))]
    largest_bias = 0 if layer.bias is None else int(np.abs(layer.bias.astype(np.int64)).max())
    return 0 <= zero + bias_of(dtype) <= 255 and depth * farthest[0] * farthest[1] + largest_bias <= I32.max


def _emit_matmul(builder: Builder, layer: LinearOp, x: Image, y: Image) -> None:
    """Add the step of a matmul kernel for two operands. The right one is the constant weights."""
    columns, depth = layer.weights.shape[:2]
    dtype = DType.of(layer.weights.dtype)
    stored = layer.weights.reshape(columns, depth).view(np.uint8) ^ np.uint8(bias_of(dtype))
    is_by_rows = stored.strides[0] == 1
    builder.kernel_step(
        "batch_matmul_int8",
        "MatmulInt8Spec",
        {"left": x.stored, "right": builder.constant(stored.T if is_by_rows else stored)},
        {"output": y.stored},
        batch=(),
        left_batch=(),
        right_batch=(),
        output_batch=(),
        rows=x.shape[3],
        depth=depth,
        columns=columns,
        left_row=depth,
        right_row=columns if is_by_rows else 1,
        right_column=1 if is_by_rows else depth,
        output_row=y.strides[2],
        epilogue=layer.epilogue.compile(columns),
        left_zero=layer.stored_zero,
        right_zero=layer.weight_zeros[0] + bias_of(dtype),
        bias=layer.bias32,
    )


def linear_op_of(node: Node, chip: str) -> LinearOp | None:
    """Return the description of an integer linear operator with constant weights, or None without a kernel for it."""
    x, w, *rest = node.inputs
    if x is None or w is None or x.dtype not in BYTES or w.dtype not in BYTES or not w.is_constant:
        return None
    bias = rest[0] if rest else None
    if bias is not None and not bias.is_constant:
        return None
    linear_op = _form(node.op, x, w, None if bias is None else bias.array.reshape(-1), chip)
    if linear_op is None or not 0 <= linear_op.stored_zero <= 255:
        return None
    return linear_op
