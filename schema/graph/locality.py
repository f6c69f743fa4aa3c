"""Locality of nodes: decide if the tiles of a node may stay in on-chip memory, and report the reason.

It is derived from the ``locality`` of the operator's definition. The grouping planner queries it for every node when
shapes and data types are known.

Source: docs/inside/semantics.md, section 18.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tpuconvert.schema.definition.op import LocalityKind, Op, OpKind
from tpuconvert.schema.graph.graph import Node
from tpuconvert.schema.types import Chip, TensorType


class NodeLocality(NamedTuple):
    """LOCAL or GLOBAL, never LIMITED_LOCAL, with the reason."""

    kind: LocalityKind
    reason: str

    @property
    def is_local(self) -> bool:
        """True if input and output tiles may stay in on-chip memory."""
        return self.kind is LocalityKind.LOCAL


def locality_of(node: Node, chip: Chip) -> NodeLocality:
    """Return the locality of one node on a chip."""
    inputs = [None if value is None else value.type for value in node.inputs]
    return locality_of_use(node.op, chip, inputs, [value.type for value in node.outputs])


def locality_of_use(
    op: Op, chip: Chip, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]
) -> NodeLocality:
    """Return the locality of an operator for its parameters and types.

    Args:
        op: the operator with its parameters.
        chip: the target.
        inputs: operand types in declaration order, None for absent ones.
        outputs: result types.

    """
    if op.kind in (OpKind.HOST, OpKind.CUSTOM):
        return NodeLocality(LocalityKind.GLOBAL, f"{op.name} runs on the host")
    locality = op.locality
    if locality.kind is not LocalityKind.LIMITED_LOCAL or locality.condition is None:
        always = f"{op.name} is always {locality.kind.value}"
        return NodeLocality(locality.kind, f"{always}: {locality.text}" if locality.text else always)
    present = tuple(item for item in inputs if item is not None)
    try:
        holds = locality.condition(op, present, tuple(outputs), chip)
    except IndexError:
        reason = f"{op} on {_join(present)} lacks an axis of the condition: {locality.text}"
        return NodeLocality(LocalityKind.GLOBAL, reason)
    if holds:
        return NodeLocality(LocalityKind.LOCAL, f"{op} meets the condition: {locality.text}")
    return NodeLocality(LocalityKind.GLOBAL, f"{op} on {_join(present)} does not meet the condition: {locality.text}")


def _join(types: Sequence[TensorType]) -> str:
    return " and ".join(str(item) for item in types) or "a use without operands"
