"""Inference of the result types of operators, with the checks that all operators share."""

from __future__ import annotations

import functools
import itertools

from tpuconvert.schema.array_fields import LONG, has_arrays
from tpuconvert.schema.definition.op import Op, operands_given
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.types import MAX_RANK, TensorType, format_shape

OperandTypes = tuple[TensorType | None, ...]
"""Types of the operands of a node; None for an absent optional one."""

_REMEMBERED = 1 << 12
"""Size of the two caches of inferred types: per graph by the identity of the operator, and globally by its value.

Passes that copy or check a node infer its types again, and equal nodes mostly share one operator object.
"""


class TypeInference:
    """Type inference of one graph, with a cache."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Op, OperandTypes, tuple[TensorType, ...]]] = {}

    def infer(self, op: Op, types: OperandTypes) -> tuple[TensorType, ...]:
        """Return the types of the results.

        Raises:
            ShapeError: the operator does not accept operands of these types.
        """
        cached = self._known.get(id(op))
        if cached is not None and cached[0] is op:
            if cached[1] == types:
                return cached[2]
        elif has_arrays(op) or op.has_subgraphs:
            return _infer(op, types)  # comparing thousands of values takes longer; a cache would keep subgraphs alive
        else:
            for item in op.__dict__.values():
                if isinstance(item, tuple) and len(item) > LONG:
                    return _infer(op, types)
        try:
            result_types = _infer_cached(op, types)
        except TypeError:  # an unhashable parameter; any other TypeError is raised again by the next line
            return _infer(op, types)
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[id(op)] = op, types, result_types
        return result_types


def _infer(op: Op, types: OperandTypes) -> tuple[TensorType, ...]:
    _check_operands(op, types)
    return op.infer(*types)


_infer_cached = functools.lru_cache(_REMEMBERED)(_infer)


def _check_operands(op: Op, types: OperandTypes) -> None:
    """Check number, presence and ranks of the operands before ``infer`` is called."""
    operands = operands_given(op.inputs, max(len(types), len(op.inputs)))
    if len(types) > len(operands):
        raise ShapeError(f"{op.name} takes {len(operands)} operands, got {len(types)}")
    for operand, type_ in itertools.zip_longest(operands, types):
        if type_ is None:
            if not operand.optional:
                raise ShapeError(f"{op.name} lacks its operand {operand.name}")
        elif not 1 <= type_.rank <= MAX_RANK or (operand.ranks and type_.rank not in operand.ranks):
            ranks = " or ".join(map(str, operand.ranks)) or f"1 to {MAX_RANK}"
            raise ShapeError(f"{op.name}: {operand.name} {format_shape(type_.shape)} must have rank {ranks}")


def may_be_same_type(first: TensorType, second: TensorType) -> bool:
    """Return True if both types can describe the same tensor: a symbolic extent matches any extent."""
    if first.dtype is not second.dtype or first.rank != second.rank:
        return False
    pairs = zip(first.shape, second.shape, strict=True)
    return all(a == b or isinstance(a, str) or isinstance(b, str) for a, b in pairs)
