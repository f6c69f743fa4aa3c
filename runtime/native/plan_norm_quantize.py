"""Fusion of layer normalization with the residual add before it and the quantization after it."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

from tpuconvert.runtime.native.builder import Builder, Group
from tpuconvert.runtime.native.epilogue import bias_of
from tpuconvert.runtime.native.groups import Site, are_floats, ends_with
from tpuconvert.runtime.native.storage import row_major
from tpuconvert.schema.graph import Node, Value
from tpuconvert.schema.op import Op
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.normalization import LayerNorm
from tpuconvert.schema.ops.requant_fp32_to_int import RequantFp32Mode, RequantFp32ToInt
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.types import Array

_LARGEST_OFFSET = 2**15


class ByteQuantization(NamedTuple):
    """Per-tensor quantization to stored bytes: ``min(max(round(x * scale) + offset, low), high)``."""

    scale: float
    offset: int
    low: int
    high: int

    def spec(self, builder: Builder) -> Any:
        """Return the spec of the extension."""
        return builder.native.ByteQuantization(**self._asdict())


def byte_quantization(requant: Node) -> ByteQuantization | None:
    """Return the parameters of a per-tensor quantization to bytes, or None if kernels do not support them."""
    op, dtype = requant.op, requant.outputs[0].dtype
    assert isinstance(op, RequantFp32ToInt)
    if op.mode is not RequantFp32Mode.SCALE_ROUND_OFFSET or op.is_scale_pc or op.is_offset_pc or dtype.bits != 8:
        return None
    if abs(op.offset_val) > _LARGEST_OFFSET or not 2.0**-10 <= op.scale_val <= 2.0**20:
        return None
    bias = bias_of(dtype)
    return ByteQuantization(op.scale_val, op.offset_val + bias, dtype.min + bias, dtype.max + bias)


@dataclass(frozen=True)
class Norm:
    """Operands of a fused normalization.

    Args:
        op: the normalization.
        x: its operand, or the first operand of the residual add.
        residual: the second operand of the residual add, or None.
        total: result of the residual add, if it has other users.
        normalized: float result of the normalization, if it has other users.
        factor: one scale per element of a row, or None.
        bias: one per element of a row, or None.
        quantization: of the normalized values.
    """

    op: LayerNorm
    x: Value
    residual: Value | None
    total: Value | None
    normalized: Value | None
    factor: Array | None
    bias: Array | None
    quantization: ByteQuantization


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
    """Match a layer normalization with a quantized result, and the residual add before it."""
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
    arrays = [None if factor is None else factor.array.reshape(-1) for factor in (*factors, None, None)[:2]]
    normalized = None if _has_only_users(value, nodes, site) else value

    total: Value | None = x
    residual: Value | None = None
    add = _free_producer(x, site, Add)
    if add is not None and are_floats(add) and all(item is not None and item.shape == x.shape for item in add.inputs):
        nodes.append(add)
        total = None if _has_only_users(x, nodes, site) else x
        x, residual = add.inputs
    kept = [item for item in (normalized, total if residual is not None else None) if item is not None]
    if x is None or not all(_is_used_later(item, node, nodes, site) for item in kept):
        return None
    found = Norm(
        op, x, residual, total if residual is not None else None, normalized, arrays[0], arrays[1], quantization
    )
    return Group(tuple(reversed(nodes)), lambda builder: _emit(builder, found, node.outputs[0]))


def _free_producer(value: Value | None, site: Site, kind: type[Op]) -> Node | None:
    """Return the producer of a value, which may have other users, if it belongs to no group."""
    producer = None if value is None else value.producer
    is_free = producer is not None and producer not in site.taken and isinstance(producer.op, kind)
    return producer if is_free else None


def _has_only_users(value: Value, nodes: list[Node], site: Site) -> bool:
    """Return True if all users of a value are in ``nodes``."""
    return site.graph.is_sole_use(value) and all(user in nodes for user in value.users)


def _is_used_later(value: Value, last: Node, nodes: list[Node], site: Site) -> bool:
    """Return True if all other users of a value run after the step, whose position is that of ``last``."""
    return all(user in nodes or site.places[user] > site.places[last] for user in value.users)


def _emit(builder: Builder, found: Norm, y: Value) -> None:
    order = row_major(found.x.rank)
    x = builder.read(found.x, order)
    count = prod(x.shape[found.op.axis % len(x.shape) :])
    builder.kernel_step(
        "norm_quantize",
        "NormQuantizeSpec",
        {"x": x, "residual": None if found.residual is None else builder.read(found.residual, order)},
        {
            "output": builder.write(y),
            "sum": None if found.total is None else builder.write(found.total),
            "normalized": None if found.normalized is None else builder.write(found.normalized),
        },
        rows=x.size // count,
        count=count,
        epsilon=found.op.epsilon,
        quantization=found.quantization.spec(builder),
        factor=found.factor,
        bias=found.bias,
    )
