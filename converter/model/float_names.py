"""Options and names that keep nodes of a quantized model in float."""

from __future__ import annotations

from collections.abc import Iterable

from tpuconvert.schema.definition.op import Trait
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.types import I32

KEEP_FLOAT = "--keep-float"
"""Option of ``convert`` that keeps a node in float."""

_ACCUMULATOR = ":int32"
"""Suffix of the name of an accumulator; the name without it belongs to the linear node."""


def keep_float_options(names: Iterable[str]) -> str:
    """Return the options that keep nodes in float, quoted for a shell."""
    return " ".join(f"{KEEP_FLOAT} {_quote(name)}" for name in names)


def rule_options(rules: Iterable[str], names: Iterable[str]) -> str:
    """Return the options with precision rules, and those that keep nodes in float, quoted for a shell."""
    return " ".join([*(f"--precision {_quote(rule)}" for rule in rules), *filter(None, [keep_float_options(names)])])


def float_names(graph: Graph) -> dict[int, str]:
    """Return the name by which ``--keep-float`` and precision rules select each integer node, by its index.

    It is the name of the float node that the integer node computes, so that several nodes can have the same. A node
    that only moves data or quantizes has none: it has the precision of the nodes around it.
    """
    names = ((index, _float_name(node)) for index, node in enumerate(graph.nodes))
    return {index: name for index, name in names if name is not None}


def _float_name(node: Node) -> str | None:
    result = node.outputs[0]
    operands = [value for value in node.inputs if value is not None and not value.is_constant]
    if not result.dtype.is_integer or result.quant is None or Trait.MOVES_INTEGERS in node.op.traits:
        return None
    if not any(value.quant is not None and value.dtype.is_integer for value in operands):
        return None  # it quantizes a float tensor
    if result.name.endswith(_ACCUMULATOR):
        return result.name.removesuffix(_ACCUMULATOR)
    if len(operands) == 1 and _is_accumulator(operands[0]):
        return operands[0].name.removesuffix(_ACCUMULATOR)
    return result.name


def _is_accumulator(value: Value) -> bool:
    return value.dtype is I32 and value.name.endswith(_ACCUMULATOR)


def _quote(name: str) -> str:
    return "'" + name.replace("'", "'\\''") + "'"
