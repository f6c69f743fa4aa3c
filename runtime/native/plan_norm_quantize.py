"""Layer normalization whose result is quantized, with the residual sum in front of it: one step."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

from tpuconvert.runtime.native.builder import Builder
from tpuconvert.runtime.native.epilogue import bias_of
from tpuconvert.runtime.native.groups import Group, Site, ends_with
from tpuconvert.runtime.native.storage import row_major
from tpuconvert.schema.graph import Node, Value
from tpuconvert.schema.op import Op
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.normalization import LayerNorm
from tpuconvert.schema.ops.requant_fp32_to_int import RequantFp32Mode, RequantFp32ToInt
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.types import F32, Array

_LARGEST_OFFSET = 2**15


class ByteQuantization(NamedTuple):
    """Per-tensor quantization to stored bytes: ``min(max(round(x * scale) + offset, low), high)``."""

    scale: float
    offset: int
    low: int
    high: int

    def compiled(self, builder: Builder) -> Any:
        """Return the spec of the extension."""
        return builder.native.ByteQuantization(**self._asdict())


def byte_quantization(requant: Node) -> ByteQuantization | None:
    """Parameters of a per-tensor quantization of floats to bytes, or None for parameters that kernels do not cover."""
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
    """What one step computes.

    Args:
        op: the normalization.
        x: what is normalized, or one summand of it.
        residual: the other summand, or None.
        total: their sum, if others read it.
        reals: the normalized numbers, if others read them.
        factor: one number per element of a row, or None.
        bias: the same.
        quantization: of the normalized values.
    """

    op: LayerNorm
    x: Value
    residual: Value | None
    total: Value | None
    reals: Value | None
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
    """Layer normalization of a tensor or of a sum of two, whose bytes are all or part of what is read."""
    quantization, nodes = byte_quantization(node), [node]
    if quantization is None or site.is_observed:
        return None
    value = node.inputs[0]
    while (reshape := site.absorbable(value, Reshape)) is not None:
        nodes.append(reshape)
        value = reshape.inputs[0]
    norm = _free_producer(value, site, LayerNorm)
    if norm is None or value is None or not _is_float(norm):
        return None
    x, *factors = norm.inputs
    op = norm.op
    assert isinstance(op, LayerNorm) and x is not None
    if any(factor is not None and not factor.is_constant for factor in factors):
        return None
    nodes.append(norm)
    arrays = [None if factor is None else factor.array.reshape(-1) for factor in (*factors, None, None)[:2]]
    reals = None if _is_read_by_these(value, nodes, site) else value

    total: Value | None = x
    residual: Value | None = None
    add = _free_producer(x, site, Add)
    if add is not None and _is_float(add) and all(item is not None and item.shape == x.shape for item in add.inputs):
        nodes.append(add)
        total = None if _is_read_by_these(x, nodes, site) else x
        x, residual = add.inputs
    kept = [item for item in (reals, total if residual is not None else None) if item is not None]
    if x is None or not all(_is_read_later(item, node, nodes, site) for item in kept):
        return None
    found = Norm(op, x, residual, total if residual is not None else None, reals, arrays[0], arrays[1], quantization)
    return Group(tuple(reversed(nodes)), lambda builder: _emit(builder, found, node.outputs[0]))


def _free_producer(value: Value | None, site: Site, kind: type[Op]) -> Node | None:
    """The producer of a value that others may read too."""
    producer = None if value is None else value.producer
    is_free = producer is not None and producer not in site.taken and isinstance(producer.op, kind)
    return producer if is_free else None


def _is_float(node: Node) -> bool:
    values = [value for value in (*node.inputs, *node.outputs) if value is not None]
    return all(value.dtype is F32 and 0 not in value.type.static_shape for value in values)


def _is_read_by_these(value: Value, nodes: list[Node], site: Site) -> bool:
    """Whether nobody else reads a value."""
    return site.graph.is_sole_use(value) and all(user in nodes for user in value.users)


def _is_read_later(value: Value, last: Node, nodes: list[Node], site: Site) -> bool:
    """Whether everybody else reads a value after the step, which runs where its last node stands."""
    return all(user in nodes or site.places[user] > site.places[last] for user in value.users)


def _emit(builder: Builder, found: Norm, y: Value) -> None:
    rank = found.x.rank
    order = row_major(rank)
    sources = [builder.read(value, order) for value in (found.x, found.residual) if value is not None]
    count = prod(builder.shape(found.x)[found.op.axis % rank :])
    bytes_ = builder.write(y)
    total = None if found.total is None else builder.write(found.total)
    reals = None if found.reals is None else builder.write(found.reals)
    spec = builder.native.NormQuantizeSpec(
        x=builder.place(sources[0]),
        output=builder.place(bytes_),
        rows=sources[0].size // count,
        count=count,
        epsilon=found.op.epsilon,
        quantization=found.quantization.compiled(builder),
        residual=builder.place(sources[1]) if len(sources) > 1 else None,
        sum=None if total is None else builder.place(total),
        normalized=None if reals is None else builder.place(reals),
        factor=found.factor,
        bias=found.bias,
    )
    builder.step("norm_quantize", spec, sources, [item for item in (bytes_, total, reals) if item is not None])
