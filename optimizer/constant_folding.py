"""Constant folding: evaluation of nodes whose operands are all constant, up to a size limit.

Nodes are evaluated with the arithmetic of the target chip, so that folding a node and running it give the same bytes.
Frontends have folded shape arithmetic already, in 64-bit integers as the source defines it.

A constant that the source file quantizes keeps its integers: it is folded only through data movement operators, which
are applied to the integers as well as to the floats.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np

from tpuconvert.optimizer.engine.node_properties import operand, operands
from tpuconvert.schema.definition.op import Op, OpKind, Trait
from tpuconvert.schema.errors import TpuConvertError
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.system.limits import current_limits
from tpuconvert.schema.types import Array, Chip, QuantParams, Shape


def fold_constants(graph: Graph, *, chip: Chip = Chip.BM1686) -> tuple[int, list[str]]:
    """Replace nodes whose operands are all constant by their results.

    Args:
        graph: changed in place. A node whose result is a graph output is not folded.
        chip: the target, whose arithmetic is used.

    Returns:
        The number of folded nodes, and one line for every node that stays because of the limit, because its operand is
        quantized, or because its evaluation fails.
    """
    folded = 0
    left = []
    most_bytes = current_limits().max_folded_bytes  # A larger result costs the file more than the node is worth.
    for node in graph.sorted_nodes():
        if not _is_candidate(graph, node):
            continue
        size = sum(math.prod(value.type.static_shape) * value.dtype.bits // 8 for value in node.outputs)
        if size > most_bytes:
            left.append(f"'{node.name}' would be a constant of {size} bytes, the cap is {most_bytes}")
            continue
        if graph.budget is not None and not graph.budget.allows(size):
            left.append(f"'{node.name}' would be a constant of {size} bytes, more than all constants may still have")
            continue
        results = _evaluate(node, chip) if not _is_annotated(node) or _has_integers(node) else _move(node)
        if isinstance(results, str):
            left.append(f"'{node.name}' {results}")
            continue
        _replace(graph, node, results)
        folded += 1
    return folded, left


class _Result(NamedTuple):
    data: Array
    quant: QuantParams | None = None
    stored: Array | None = None


def _is_candidate(graph: Graph, node: Node) -> bool:
    for value in node.inputs:
        if value is not None and value.data is None:  # Nearly all nodes return here.
            return False
    return (
        node.op.kind in (OpKind.TPU, OpKind.COMPOSITE)
        and node.op.is_pure
        and bool(node.inputs)
        and all(value.type.is_static and not graph.is_output(value) for value in node.outputs)
    )


def _is_annotated(node: Node) -> bool:
    return any(value.quant is not None for value in (*operands(node), *node.outputs))


def _has_integers(node: Node) -> bool:
    """Return True if the data of every quantized value of the node are its integers, as after legalization.

    False for data movement: ``_move`` folds it, and the result keeps the quantization of the operand.
    """
    if Trait.REARRANGES in node.op.traits:
        return False
    values = [value for value in (*operands(node), *node.outputs) if value.quant is not None]
    return all(value.dtype.is_integer and value.stored is None for value in values)


def _evaluate(node: Node, chip: Chip) -> list[_Result] | str:
    try:
        with np.errstate(all="ignore"):
            arrays = node.op.evaluate(*(None if value is None else value.array for value in node.inputs), chip=chip)
    except TpuConvertError as error:
        return f"cannot be evaluated: {error}"
    if any(array.dtype != value.dtype.numpy for array, value in zip(arrays, node.outputs, strict=True)):
        return f"({node.op.name}) has operands of types that no chip takes"  # which is reported later
    values = zip(arrays, node.outputs, strict=True)
    return [_Result(np.ascontiguousarray(array), value.quant) for array, value in values]


def _move(node: Node) -> list[_Result] | str:
    """Fold data movement of one operand. Return the result with its integers, or the reason why it is not folded."""
    if Trait.REARRANGES not in node.op.traits:
        return f"({node.op.name}) would lose the quantization of its operand or result"
    x = operand(node)
    quant = None if x.quant is None else _move_params(node.op, x.quant, x, node.outputs[0].shape)
    if isinstance(quant, str):
        return quant
    if node.outputs[0].quant not in (None, quant):
        return "changes the quantization of its operand"
    (data,) = node.op.evaluate(x.array)
    (stored,) = (None,) if x.stored is None else node.op.evaluate(x.stored)
    return [_Result(np.ascontiguousarray(data), quant, None if stored is None else np.ascontiguousarray(stored))]


def _move_params(op: Op, quant: QuantParams, x: Value, shape: Shape) -> QuantParams | str:
    axis = quant.axis
    if axis is None or isinstance(op, Copy):
        return quant
    if isinstance(op, Permute):
        return dataclasses.replace(quant, axis=op.order.index(axis))
    before = math.prod(x.type.static_shape[:axis])
    for new, extent in enumerate(shape):
        if extent == x.shape[axis] and math.prod(int(e) for e in shape[:new]) == before:
            return dataclasses.replace(quant, axis=new)
    return f"({op.name}) mixes the axis that has one scale per index"


def _replace(graph: Graph, node: Node, results: list[_Result]) -> None:
    names = [value.name for value in node.outputs]
    constants = [graph.constant(item.data, quant=item.quant, stored=item.stored) for item in results]
    for old, new in zip(node.outputs, constants, strict=True):
        graph.replace_uses(old, new)
    graph.remove(node)
    for value in dict.fromkeys(operands(node)):
        graph.discard(value)
    for name, new in zip(names, constants, strict=True):
        graph.rename(new, name)
