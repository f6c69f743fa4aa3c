"""FLOAT16 form of float nodes: the operator with scalars and result in FLOAT16.

A FLOAT16 operator computes in FLOAT32 and rounds its result once, so that only operands, constants and results must be
FLOAT16 numbers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection

import numpy as np

from tpuconvert.optimizer.engine.node_properties import computed_operands, operands
from tpuconvert.optimizer.quantize.traits import keeps_scale
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.graph.legality import Status, check
from tpuconvert.schema.ops.arithmetic_with_scalar import Maxs, Mins
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.types import F16, F32, Chip, DType, Scalar, TensorType

LARGEST = float(np.finfo(np.float16).max)
"""Largest FLOAT16 number, 65504."""


def float16_form(op: Op) -> tuple[Op, ...]:
    """Return the operator in FLOAT16. A clamp, which has no FLOAT16 form, becomes a maximum and a minimum."""
    if isinstance(op, Clamp):
        low, high = _rounded(op.min), _rounded(op.max)
        limits: list[Op] = [Maxs(low)] if math.isfinite(low.value) else []
        return (*limits, Mins(high)) if math.isfinite(high.value) or not limits else tuple(limits)
    changes: dict[str, Scalar | DType] = {
        name: _rounded(scalar) for name, scalar in op.scalars().items() if scalar.dtype is F32
    }
    if getattr(op, "out_dtype", None) is F32:
        changes["out_dtype"] = F16
    return (dataclasses.replace(op, **changes) if changes else op,)


def why_no_float16(node: Node, chip: Chip) -> str:
    """Reason why a node has no FLOAT16 form on a chip, or an empty string."""
    if chip is not Chip.BM1686:
        return f"{chip.value} has no FLOAT16 arithmetic"
    types = [None if value is None else _half(value.type) for value in node.inputs]
    constants = [value is not None and value.is_constant for value in node.inputs]
    for op in float16_form(node.op):
        try:
            results = op.infer(*types)
        except ShapeError as error:  # composite operators accept FLOAT32 only
            return str(error)
        verdict = check(op, chip, types, results, constants)
        if verdict.status is Status.ILLEGAL:
            return verdict.reason
        if not all(result.dtype is F16 for result in results):
            return f"{op.name} has results of {results[0].dtype.value}"
        types, constants = list(results), [False] * len(results)
    return ""


def with_exact_users(graph: Graph, nodes: Collection[Node], excluded: Collection[Node], chip: Chip) -> list[Node]:
    """Add the nodes that compute the same in FLOAT16 as in FLOAT32 because their operands are FLOAT16 numbers.

    These are data movement and clamps. Without them, a cast to FLOAT32 and one back would enclose them.

    Args:
        graph: float graph.
        nodes: nodes that compute in FLOAT16.
        excluded: nodes that are not added.
        chip: the target.
    """
    selected = []
    half: set[Value] = set()
    for node in graph.sorted_nodes():
        inputs = computed_operands(node)
        if node in nodes or (
            inputs
            and half.issuperset(inputs)
            and node not in excluded
            and _is_exact(node)
            and not why_no_float16(node, chip)
        ):
            selected.append(node)
            half.update(node.outputs)
    return selected


def _is_exact(node: Node) -> bool:
    """Return True for data movement and clamps whose constants are FLOAT16 numbers."""
    bounds = node.op.clamp_range()
    if bounds is not None:
        return all(math.isinf(bound) or F16.holds(bound) for bound in bounds)
    scalars = all(F16.holds(scalar.value) for scalar in node.op.scalars().values())
    return keeps_scale(node.op) and scalars and len(computed_operands(node)) == len(operands(node))


def _rounded(scalar: Scalar) -> Scalar:
    """Nearest FLOAT16 scalar; beyond the largest one, infinity."""
    with np.errstate(over="ignore"):
        return Scalar(F16, float(np.float16(scalar.value)))


def _half(type_: TensorType) -> TensorType:
    return dataclasses.replace(type_, dtype=F16) if type_.dtype is F32 else type_
