"""MatMulNBits and GatherBlockQuantized of the domain com.microsoft, as operators with packed weights."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.onnx.grouped_weight import GroupedWeight, group_matmul, grouped_weight, pack_grouped_weight
from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.frontends.onnx.operators.gather import computed_index
from tpuconvert.schema.errors import UNSUPPORTED_ATTRIBUTE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.gather_group_quantized import GatherGroupQuantized
from tpuconvert.schema.ops.matmul_group_quantized import unpack_codes
from tpuconvert.schema.types import Array

DOMAIN = "com.microsoft"


@onnx_op("MatMulNBits", since=1, domain=DOMAIN)
def matmul_n_bits(node: OnnxNode, g: Graph) -> Result:
    """Matmul with a constant weight of 4 or 8 bits, which stays packed; a weight of 2 bits is stored in 4."""
    node.optional_attr("accuracy_level")  # lets a runtime round activations to INT8; computed in float32 here
    node.refuse_attr("weight_prepacked", 0)
    depth, rows = node.required_attr("K", 1), node.required_attr("N", 1)
    bits, block = node.attr("bits", 4), node.required_attr("block_size", 16)
    if bits not in (2, 4, 8) or block < 16 or block % 16 or min(rows, depth) < 1:
        raise node.fail(
            UNSUPPORTED_ATTRIBUTE,
            f"bits={bits}, block_size={block}",
            "supported: 2, 4 and 8 bits in blocks of a multiple of 16",
        )
    if node.shape(0)[-1:] != (depth,):
        raise node.invalid(f"its first input has shape {list(node.shape(0))} for K={depth}")
    blocks = -(-depth // block)
    packed, scale = node.constant(1), node.constant(2).astype(np.float32)
    if packed.size * packed.itemsize != rows * blocks * block * bits // 8 or scale.size != rows * blocks:
        raise node.invalid(
            f"{packed.size * packed.itemsize} bytes of codes and {scale.size} scales for N={rows}, K={depth}, expected "
            f"{rows * blocks * block * bits // 8} and {rows * blocks}"
        )
    node.budget((rows, blocks, block), 1, "unpacked weight")
    codes = unpack_codes(np.ascontiguousarray(packed).view(np.uint8).reshape(rows, -1), bits)
    zero = _zero_points(node, rows, blocks, bits)
    if zero is None and bits == 2:
        zero = np.full((rows, blocks), 2, np.uint8)
    weight = GroupedWeight(codes, scale.reshape(rows, blocks), zero, max(bits, 4), block, depth)
    x = emit.floats(node.input(0))
    if node.has_input(4):
        weight = _sort_by_group(node, weight)
    return node.result(group_matmul(g, x, weight, _bias(node, g, rows)))


def _bias(node: OnnxNode, g: Graph, rows: int) -> Value | None:
    """Return the bias as [N]."""
    if not node.has_input(5):
        return None
    if math.prod(node.shape(5)) != rows:
        raise node.invalid(f"a bias of shape {list(node.shape(5))} for N={rows}")
    return emit.reshape(g, emit.floats(node.input(5)), (rows,))


def _zero_points(node: OnnxNode, rows: int, blocks: int, bits: int) -> Array | None:
    """Return the zero points as [rows, blocks] in UINT8 or float, or None."""
    if not node.has_input(3):
        return None
    zeros = node.constant(3)
    is_float = zeros.dtype.kind == "f"
    length = blocks if is_float else -(-blocks * bits // 8)
    if zeros.size != rows * length or not (is_float or zeros.dtype == np.uint8):
        raise node.invalid(f"{zeros.size} zero points in {zeros.dtype}, expected {rows * length} bytes or floats")
    zeros = np.ascontiguousarray(zeros).reshape(rows, length)
    return zeros if is_float else unpack_codes(zeros, bits)[:, :blocks]


def _sort_by_group(node: OnnxNode, weight: GroupedWeight) -> GroupedWeight:
    """Permute K so that the elements of each group are adjacent, as ``g_idx`` lists the group of each element."""
    index = node.constant(4).reshape(-1).astype(np.int64)
    groups = weight.scale.shape[1]
    if index.size != weight.depth or index.min() < 0 or index.max() >= groups:
        raise node.invalid(f"g_idx has {index.size} elements, expected {weight.depth} in the range 0 to {groups - 1}")
    order = np.argsort(index, kind="stable")
    if np.array_equal(index[order], np.arange(weight.depth) // weight.group):
        if np.array_equal(order, np.arange(weight.depth)):
            return weight
        codes = weight.codes.copy()
        codes[:, : weight.depth] = codes[:, order]
        return weight._replace(codes=codes, order=order)
    raise node.fail(
        UNSUPPORTED_ATTRIBUTE,
        "g_idx with groups of different sizes",
        f"supported: {weight.group} elements in every group but the last",
    )


@onnx_op("GatherBlockQuantized", since=1, domain=DOMAIN)
def gather_block_quantized(node: OnnxNode, g: Graph) -> Result:
    """Gather rows of a constant table of 4 or 8 bits, which stays packed; a table of 2 bits is stored in 4."""
    weight = _table(node)
    group, *operands = pack_grouped_weight(g, weight)
    index = computed_index(node, g, 1, len(weight.codes))
    y = g.add(GatherGroupQuantized(weight.depth, weight.bits, group), index, *operands)
    return node.result(emit.reshape(g, y, (*node.shape(1), weight.depth)))


def _table(node: OnnxNode) -> GroupedWeight:
    """Return the table with a row per index."""
    rank, bits = len(node.shape(0)), node.element(0).bits
    axes = node.axis(node.attr("gather_axis", 0), rank), node.axis(node.attr("quantize_axis", 1), rank)
    block = node.attr("block_size", 128)
    is_packed = node.element(0).name == "uint8"
    if is_packed:
        bits = node.attr("bits", 4)
    else:
        node.optional_attr("bits")
    if (
        rank != 2
        or axes != (0, 1)
        or block < 16
        or block % 16
        or bits not in (2, 4, 8)
        or (bits == 2 and not is_packed)
    ):
        raise node.fail(
            UNSUPPORTED_ATTRIBUTE,
            f"rank {rank}, gather_axis={axes[0]}, quantize_axis={axes[1]}, bits={bits}, block_size={block}",
            "supported: rows of a matrix with 2, 4 or 8 bits in blocks of a multiple of 16 along a row",
        )
    data, scale = node.constant(0), node.constant(2).astype(np.float32)
    zero = node.constant(3) if node.has_input(3) else None
    if not is_packed:
        grouped = grouped_weight(data, bits, scale, zero, 1, block)
        if grouped is None:
            raise node.invalid(f"scales of shape {list(scale.shape)} for a table of shape {list(data.shape)}")
        return grouped
    depth = data.shape[1] * 8 // bits
    blocks = -(-depth // block)
    zero_bytes = -(-blocks * bits // 8)
    if scale.shape != (len(data), blocks):
        raise node.invalid(f"scales of shape {list(scale.shape)} for {len(data)} rows of {blocks} blocks")
    if zero is not None and (zero.shape != (len(data), zero_bytes) or zero.dtype != data.dtype):
        raise node.invalid(
            f"zero points {zero.dtype}{list(zero.shape)}, expected {data.dtype}{[len(data), zero_bytes]}"
        )
    node.budget((len(data), blocks, block), 1, "unpacked table")
    codes = np.zeros((len(data), blocks * block), np.uint8)
    codes[:, :depth] = unpack_codes(np.ascontiguousarray(data), bits)
    zeros = None if zero is None else unpack_codes(np.ascontiguousarray(zero), bits)[:, :blocks]
    if zeros is None and bits == 2:
        zeros = np.full((len(data), blocks), 2, np.uint8)
    return GroupedWeight(codes, scale, zeros, max(bits, 4), block, depth)
