"""Quantization of floats to bytes, including the conversion from NCHW to channels-last."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tpuconvert.runtime.native.builder.builder import Builder, Group
from tpuconvert.runtime.native.builder.storage import EXTERNAL, channels_last, row_major
from tpuconvert.runtime.native.matchers.epilogue import bias_of
from tpuconvert.runtime.native.matchers.matcher import Site, ends_with, first_operand
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Divs, Muls
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.quantization.requant_fp32_to_int import RequantFp32Mode, RequantFp32ToInt
from tpuconvert.schema.types import F32, I16

_LARGEST_OFFSET = 2**23


@dataclass(frozen=True)
class _Quantization:
    """``round(x / divisor * scale) + offset``, saturated. Ties round away from zero."""

    x: Value
    scale: tuple[float, ...] = (1.0,)
    offset: tuple[int, ...] = (0,)
    divisor: float = 1.0


@ends_with(
    "requant_fp32_to_int",
    "cast",
    "adds",
    kernels=("quantize",),
    dtypes="FLOAT32 to INT8, UINT8",
    conditions="quantization as one operator, or as cast(x * scale) + offset",
    priority=5,
)
def quantize(node: Node, site: Site) -> Group | None:
    """Match a quantization to bytes, as one operator or as the sequence that older chips need."""
    y, nodes = node.outputs[0], [node]
    if y.dtype.bits != 8:
        return None
    rescale = _rescale(node, site, nodes) if isinstance(node.op, RequantFp32ToInt) else _casts(node, site, nodes)
    if rescale is None or rescale.x.dtype is not F32 or max(map(abs, rescale.offset)) > _LARGEST_OFFSET:
        return None
    return Group(tuple(reversed(nodes)), lambda builder: _emit(builder, rescale, y))


def _rescale(node: Node, site: Site, nodes: list[Node]) -> _Quantization | None:
    op, x = node.op, node.inputs[0]
    assert isinstance(op, RequantFp32ToInt) and x is not None
    if op.mode is not RequantFp32Mode.SCALE_ROUND_OFFSET:
        return None
    scale = op.scale_vec if op.is_scale_pc else (op.scale_val,)
    offset = op.offset_vec if op.is_offset_pc else (op.offset_val,)
    producer = site.absorbable(x, Divs)
    if producer is None or x.dtype is not F32:
        return _Quantization(x, scale, offset)
    assert isinstance(producer.op, Divs)
    nodes.append(producer)
    return _Quantization(first_operand(producer), scale, offset, float(producer.op.scalar.value))


def _casts(node: Node, site: Site, nodes: list[Node]) -> _Quantization | None:
    """Match ``cast(x * scale)`` or ``adds(cast(x * scale, INT16))``. INT16 saturates only what bytes saturate too."""
    offset, cast = 0, node
    if isinstance(node.op, Adds):
        producer = site.absorbable(node.inputs[0], Cast)
        if producer is None or producer.outputs[0].dtype is not I16 or abs(node.op.scalar.value) > 255:
            return None
        offset, cast = int(node.op.scalar.value), producer
        nodes.append(producer)
    x = first_operand(cast)
    if x.dtype is not F32:
        return None
    producer = site.absorbable(x, Muls)
    if producer is None:
        return _Quantization(x, offset=(offset,))
    assert isinstance(producer.op, Muls)
    nodes.append(producer)
    return _Quantization(first_operand(producer), (float(producer.op.scalar.value),), (offset,))


def _emit(builder: Builder, quantization: _Quantization, y: Value) -> None:
    source, shape = builder.memory_of(quantization.x), builder.shape(y)
    is_per_channel = len(quantization.scale) > 1 or len(quantization.offset) > 1
    is_image = y.rank == 4 and source.has_order(row_major(4)) and shape[1] > 1 and prod(shape[2:]) > 1
    if is_per_channel or is_image:
        if not source.has_order(row_major(y.rank)) or not source.is_dense:
            source = builder.read(quantization.x, row_major(y.rank))
        images, channels, pixels = shape[0], shape[1], prod(shape[2:])
        target = builder.write(y, channels_last(y.rank))
    else:
        if not source.is_dense:
            source = builder.read(quantization.x)
        images, channels, pixels = 1, 1, prod(shape)
        target = builder.write(y, source.order)
    assert source.buffer.kind != EXTERNAL or source.is_dense
    builder.kernel_step(
        "quantize",
        "QuantizeSpec",
        {"source": source},
        {"target": target},
        images=images,
        channels=channels,
        pixels=pixels,
        divisor=quantization.divisor,
        scale=quantization.scale,
        offset=[value + bias_of(y.dtype) for value in quantization.offset],
    )
