"""MatMulNBits of the domain com.microsoft, as ``matmul_group_quantized``."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.onnx.grouped_weight import GroupedWeight, group_matmul
from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.schema.errors import UNSUPPORTED_ATTRIBUTE
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.ops.index_select import IndexSelect
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
        x, weight = _sort_by_group(node, g, x, weight)
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
    given = node.constant(3)
    is_float = given.dtype.kind == "f"
    length = blocks if is_float else -(-blocks * bits // 8)
    if given.size != rows * length or not (is_float or given.dtype == np.uint8):
        raise node.invalid(f"{given.size} zero points in {given.dtype}, expected {rows * length} bytes or floats")
    given = np.ascontiguousarray(given).reshape(rows, length)
    return given if is_float else unpack_codes(given, bits)[:, :blocks]


def _sort_by_group(node: OnnxNode, g: Graph, x: Value, weight: GroupedWeight) -> tuple[Value, GroupedWeight]:
    """Permute K so that the elements of each group are adjacent, as ``g_idx`` lists the group of each element."""
    index = node.constant(4).reshape(-1).astype(np.int64)
    groups = weight.scale.shape[1]
    if index.size != weight.depth or index.min() < 0 or index.max() >= groups:
        raise node.invalid(f"g_idx has {index.size} elements, expected {weight.depth} in the range 0 to {groups - 1}")
    order = np.argsort(index, kind="stable")
    if np.array_equal(index[order], np.arange(weight.depth) // weight.group):
        if np.array_equal(order, np.arange(weight.depth)):
            return x, weight
        codes = weight.codes.copy()
        codes[:, : weight.depth] = codes[:, order]
        positions = g.constant(order.astype(np.int32), "g_idx")
        return g.add(IndexSelect(dim=x.rank - 1), x, positions), weight._replace(codes=codes)
    raise node.fail(
        UNSUPPORTED_ATTRIBUTE,
        "g_idx with groups of different sizes",
        f"supported: {weight.group} elements in every group but the last",
    )
