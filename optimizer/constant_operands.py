"""Conversion of constants to tensors at operands that do not accept a constant.

Nodes whose operands are all constant are folded. Other constants are converted by ``constdata``, which costs nothing at
run time. ``constdata`` does not support FLOAT16, and only FLOAT32 on BM1682: there a cast follows it, if float32
represents all values of the constant.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from tpuconvert.optimizer.constant_folding import fold_constants
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Graph, Source, Value
from tpuconvert.schema.graph.legality import Status, check, constants_refused_by
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.copy import Constdata
from tpuconvert.schema.types import F32, Chip, TensorType


def provide_tensors(graph: Graph, chip: Chip, disabled: Collection[str] = ()) -> int:
    """Replace constants by tensors at operands that do not accept a constant, in place.

    Args:
        graph: any graph.
        chip: the target.
        disabled: names of passes that do not run; ``fold_constants`` among them switches off folding.

    Returns:
        The number of changed operands. A constant that the chip cannot convert to a tensor stays; ``schema.legality``
        reports it.
    """
    refused = [(node, index) for node in graph.nodes for index in constants_refused_by(node)]
    if refused and "fold_constants" not in disabled:
        fold_constants(graph, chip=chip)
        refused = [(node, index) for node in graph.nodes for index in constants_refused_by(node)]
    tensors: dict[Value, Value | None] = {}
    changed = 0
    for node, index in refused:
        constant = node.inputs[index]
        assert constant is not None
        if constant not in tensors:
            tensors[constant] = _tensor(graph, constant, chip, node.sources)
        tensor = tensors[constant]
        if tensor is not None:
            graph.set_input(node, index, tensor)
            changed += 1
    if changed:
        graph.sort()
    return changed


def _tensor(graph: Graph, constant: Value, chip: Chip, sources: tuple[Source, ...]) -> Value | None:
    """Convert a constant to a tensor. Return None if the chip has no operators for it."""
    name = graph.unique(f"{constant.name}:tensor")
    if _has(Constdata(), chip, constant.type, constant.type):
        tensor = graph.add(Constdata(), constant, name=name, sources=sources)
    else:
        single = TensorType(F32, constant.shape)
        cast = Cast(constant.dtype)
        if not (_has(Constdata(), chip, single, single) and _has(cast, chip, single, constant.type)):
            return None
        data = constant.array.astype(np.float32)
        if not np.array_equal(data.astype(np.float64), constant.array.astype(np.float64), equal_nan=True):
            return None
        carrier = graph.add(Constdata(), graph.constant(data, constant.name), sources=sources)
        tensor = graph.add(cast, carrier, name=name, sources=sources)
    tensor.quant = constant.quant
    return tensor


def _has(op: Op, chip: Chip, x: TensorType, y: TensorType) -> bool:
    is_constant = isinstance(op, Constdata)
    return check(op, chip, [x], [y], [is_constant]).status is not Status.ILLEGAL
