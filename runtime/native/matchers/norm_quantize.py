"""Fusion of layer normalization with the residual add before it and the quantization after it."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from tpuconvert.runtime.native.builder.builder import Builder, Group
from tpuconvert.runtime.native.builder.storage import row_major
from tpuconvert.runtime.native.matchers.epilogue import bias_of
from tpuconvert.runtime.native.matchers.matcher import Site, are_floats, ends_with, operands_of
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.normalization import LayerNorm
from tpuconvert.schema.ops.quantization.requant_fp32_to_int import RequantFp32Mode, RequantFp32ToInt
from tpuconvert.schema.ops.shape_change import Reshape

_LARGEST_OFFSET = 2**15


class ByteQuantization(NamedTuple):
    """Per-tensor quantization to stored bytes: ``min(max(round(x * scale) + offset, low), high)``."""

    scale: float
    offset: int
    low: int
    high: int


def byte_quantization(requant: Node) -> ByteQuantization | None:
    """Return the parameters of a per-tensor quantization to bytes, or None if the kernel does not support them."""
    op, dtype = requant.op, requant.outputs[0].dtype
    assert isinstance(op, RequantFp32ToInt)
    if op.mode is not RequantFp32Mode.SCALE_ROUND_OFFSET or op.is_scale_pc or op.is_offset_pc or dtype.bits != 8:
        return None
    if abs(op.offset_val) > _LARGEST_OFFSET or not 2.0**-10 <= op.scale_val <= 2.0**20:
        return None
    bias = bias_of(dtype)
    return ByteQuantization(op.scale_val, op.offset_val + bias, dtype.min + bias, dtype.max + bias)


@ends_with(
    RequantFp32ToInt.name,
    kernels=("norm_quantize",),
    dtypes="FLOAT32 to INT8, UINT8",
    conditions=(
        "layer_norm with constant scale and bias, optionally after a residual add; per-tensor scale in 2^-10..2^20"
    ),
    priority=8,
)
def norm_quantize(node: Node, site: Site) -> Group | None:
    """Match a layer normalization with a quantized result, together with a residual add before it."""
    quantization, nodes = byte_quantization(node), [node]
    if quantization is None or site.is_observed:
        return None
    value = node.inputs[0]
    while (reshape := site.absorbable(value, Reshape)) is not None:
        nodes.append(reshape)
        value = reshape.inputs[0]
    norm = _free_producer(value, site, LayerNorm)
    if norm is None or value is None or not are_floats(norm):
        return None
    x, *factors = norm.inputs
    op = norm.op
    assert isinstance(op, LayerNorm) and x is not None
    if any(factor is not None and not factor.is_constant for factor in factors):
        return None
    nodes.append(norm)
    factor, bias = [None if item is None else item.array.reshape(-1) for item in (*factors, None, None)[:2]]
    normalized = None if _has_only_users(value, nodes, site) else value

    total: Value | None = None
    residual: Value | None = None
    add = _free_producer(x, site, Add)
    if add is not None and are_floats(add) and all(item is not None and item.shape == x.shape for item in add.inputs):
        nodes.append(add)
        total = None if _has_only_users(x, nodes, site) else x
        x, residual = operands_of(add)
    if not all(_is_used_later(item, node, nodes, site) for item in (normalized, total) if item is not None):
        return None
    first, order, count = x, row_major(x.rank), prod(x.type.static_shape[op.axis % x.rank :])

    def emit(builder: Builder) -> None:
        source = builder.read(first, order)
        builder.kernel_step(
            "norm_quantize",
            "NormQuantizeSpec",
            {"x": source, "residual": None if residual is None else builder.read(residual, order)},
            {
                "output": builder.write(node.output),
                "sum": None if total is None else builder.write(total),
                "normalized": None if normalized is None else builder.write(normalized),
            },
            rows=source.size // count,
            count=count,
            epsilon=op.epsilon,
            quantization=builder.native.ByteQuantization(**quantization._asdict()),
            factor=factor,
            bias=bias,
        )

    return Group(tuple(reversed(nodes)), emit)


def _free_producer(value: Value | None, site: Site, kind: type[Op]) -> Node | None:
    """Return the producer of a value if it has this operator and is in no group. Other users are allowed."""
    producer = None if value is None else value.producer
    is_free = producer is not None and producer not in site.taken and isinstance(producer.op, kind)
    return producer if is_free else None


def _has_only_users(value: Value, nodes: list[Node], site: Site) -> bool:
    """Return True if all users of a value are in ``nodes``."""
    return site.graph.is_sole_use(value) and all(user in nodes for user in value.users)


def _is_used_later(value: Value, last: Node, nodes: list[Node], site: Site) -> bool:
    """Return True if all users outside of ``nodes`` run after ``last``, which is where the fused step runs."""
    return all(user in nodes or site.places[user] > site.places[last] for user in value.users)
