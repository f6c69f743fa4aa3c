"""Lowerings of lookups in tables by computed indices, and of constants as tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from tpuconvert.exporters.lowerings import NoExactForm
from tpuconvert.exporters.tpu_mlir.dialect import Tensor
from tpuconvert.exporters.tpu_mlir.lowering import Lowering, static_shape
from tpuconvert.exporters.tpu_mlir.registry import lowers, lowers_bm1684
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.copy import Constdata
from tpuconvert.schema.ops.gather_group_quantized import GatherGroupQuantized
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.matmul_group_quantized import MatmulGroupQuantized
from tpuconvert.schema.types import Chip, DType


@lowers(Constdata)
def constdata(op: Constdata, node: Node, d: Lowering) -> None:
    """Lower a constant as a tensor."""
    data = node.inputs[0]
    assert data is not None
    if not data.is_constant or data.dtype is not DType.FLOAT32:
        raise NoExactForm(f"a constant of {data.dtype.name} as a tensor, expected FLOAT32")
    d.define(node.output, d.module.float_weight(data.array, "f32", node.output.name))


@lowers(IndexSelect)
@lowers_bm1684(IndexSelect)
def index_select(op: IndexSelect, node: Node, d: Lowering) -> None:
    """Lower a selection of slices.

    The elements of a table of rank 1 may be cast to integers: the table stays FLOAT32, and the compiler takes a column.
    """
    table, index = node.inputs
    y = node.output
    assert table is not None and index is not None
    if d.target.chip is Chip.BM1684 and _constant_of(table).is_constant:
        raise NoExactForm("the compiler aborts on lookups in a constant")
    indices = d.module.weight(index.array, "si32", f"{y.name}_index") if index.is_constant else d.tensor(index)
    if table.dtype is not DType.FLOAT32:
        rows = d.tensor(table)
    else:
        rows = d.floats(_constant_of(table), "f32" if table.rank == 1 else "")
    if table.rank > 1:
        axis = op.dim % table.rank
        d.define(y, _gathered(d, rows, indices, static_shape(y), y.name, axis, d.element(y)))
        return
    column = d.reshape(rows, (*static_shape(table), 1), f"{table.name}_column")
    count = static_shape(y)[0]
    chosen = _gathered(d, column, indices, (count, 1), f"{y.name}_column")
    d.define(y, d.reshape(chosen, (count,), y.name))


def _constant_of(table: Value) -> Value:
    """Return the constant that a table is, so that the program has it in the type of the module."""
    if table.producer is not None and isinstance(table.producer.op, Constdata):
        data = table.producer.inputs[0]
        assert data is not None
        return data
    return table


def _gathered(
    d: Lowering, table: Tensor, index: Tensor, shape: tuple[int, ...], location: str, axis: int = 0, element: str = ""
) -> Tensor:
    return d.module.add("tpu.Gather", [table, index], shape, element or table.element, location, axis=axis)


@lowers(GatherGroupQuantized)
def gather_group_quantized(op: GatherGroupQuantized, node: Node, d: Lowering) -> None:
    """Lower a selection of rows of a packed table: the rows are dequantized in FLOAT32.

    The vendor's own operation compiles a kernel on the user's machine.
    """
    index, codes, scale, zero_point = (*node.inputs, None)[:4]
    assert index is not None and codes is not None and scale is not None
    if not all(value is None or value.is_constant for value in node.inputs[1:]):
        raise NoExactForm("its table is computed, expected a constant")
    y, ids, (count,) = node.output, d.tensor(index), static_shape(index)
    table = MatmulGroupQuantized(op.bits, op.group)
    zero_points = table.zero_points(scale.array, None if zero_point is None else zero_point.array)
    groups = scale.array.shape[1]
    shape = (count, groups, op.group)

    def rows(array: object, element: str, word: str) -> Tensor:
        weight = d.module.weight(np.asarray(array), element, f"{y.name}_{word}_table")
        return _gathered(d, weight, ids, (count, weight.shape[1]), f"{y.name}_{word}")

    packed = rows(codes.array, "ui8", "codes")
    numbers = d.module.add("tpu.Cast", [packed], packed.shape, "f32", f"{y.name}_numbers", with_scale=False)
    numbers = d.reshape(_unpacked(d, numbers, op.bits, y.name), shape, f"{y.name}_groups")
    if (zero_points == zero_points[0, 0]).all():
        numbers = d.module.add(
            "tpu.AddConst", [numbers], shape, "f32", f"{y.name}_centered", const_val=-float(zero_points[0, 0])
        )
    else:
        offsets = d.reshape(rows(zero_points, "f32", "offsets"), (count, groups, 1), f"{y.name}_offset")
        numbers = d.module.add("tpu.Sub", [numbers, offsets], shape, "f32", f"{y.name}_centered")
    scales = d.reshape(rows(scale.array, "f32", "scales"), (count, groups, 1), f"{y.name}_scale")
    result = d.module.add("tpu.Mul", [numbers, scales], shape, "f32", f"{y.name}_dequantized")
    result = d.reshape(result, (count, groups * op.group), f"{y.name}_wide")
    if groups * op.group != op.depth:
        bounds: dict[str, Any] = {"offset": [0, 0], "ends": [count, op.depth], "steps": [1, 1]}
        result = d.module.add("tpu.Slice", [result], (count, op.depth), "f32", f"{y.name}_columns", **bounds)
    d.define(y, d.as_kind(result, d.kind))


def _unpacked(d: Lowering, packed: Tensor, bits: int, name: str) -> Tensor:
    """Append the separation of the two codes of a byte, in FLOAT32, in which it is exact."""
    if bits == 8:
        return packed
    count, length = packed.shape

    def step(operation: str, operands: list[Tensor], word: str, **attributes: Any) -> Tensor:
        return d.module.add(operation, operands, packed.shape, "f32", f"{name}_{word}", **attributes)

    high = step("tpu.Active", [step("tpu.MulConst", [packed], "sixteenths", const_val=1 / 16)], "high", mode="FLOOR")
    low = step("tpu.Sub", [packed, step("tpu.MulConst", [high], "high_part", const_val=16.0)], "low")
    parts = [d.reshape(part, (count, length, 1), f"{part.location}_column") for part in (low, high)]
    pairs = d.module.add("tpu.Concat", parts, (count, length, 2), "f32", f"{name}_pairs", axis=2)
    return d.reshape(pairs, (count, 2 * length), f"{name}_unpacked")
