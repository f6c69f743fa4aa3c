"""Evaluating nodes whose operands are all constant, under a byte cap."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.schema.graph import Graph, Node
from tpuconvert.schema.op import OpKind

MOST_BYTES = 64 << 20
"""A folded result larger than this would make the file larger than what it saves; the node stays."""


def fold_constants(graph: Graph, most_bytes: int = MOST_BYTES) -> tuple[int, list[str]]:
    """Replace nodes of constants by their results.

    Args:
        graph: changed in place.
        most_bytes: cap per result.

    Returns:
        The number of nodes folded, and one line for every node that was left because of the cap.
    """
    folded = 0
    left = []
    for node in graph.sorted_nodes():
        if not _is_foldable(graph, node):
            continue
        size = sum(math.prod(value.type.static_shape) * value.dtype.bits // 8 for value in node.outputs)
        if size > most_bytes:
            left.append(f"'{node.name}' would be a constant of {size} bytes, the cap is {most_bytes}")
            continue
        with np.errstate(all="ignore"):
            results = node.op.evaluate(*(None if value is None else value.array for value in node.inputs))
        names = [value.name for value in node.outputs]
        constants = [graph.constant(np.ascontiguousarray(array)) for array in results]
        for old, new in zip(node.outputs, constants, strict=True):
            new.quant = None
            graph.replace_uses(old, new)
        graph.remove(node)
        for name, new in zip(names, constants, strict=True):
            graph.rename(new, name)
        folded += 1
    return folded, left


def _is_foldable(graph: Graph, node: Node) -> bool:
    return (
        node.op.kind is OpKind.TPU
        and bool(node.inputs)
        and all(value is None or value.is_constant for value in node.inputs)
        and all(value.quant is None for value in node.outputs)
        and all(value.type.is_static and not graph.is_output(value) for value in node.outputs)
    )
