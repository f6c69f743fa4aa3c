"""Expansion of composite operators into TPU operators."""

from __future__ import annotations

from collections.abc import Callable

from tpuconvert.optimizer.engine.node_properties import operands
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.graph.composite import Composite, expansion
from tpuconvert.schema.graph.graph import Graph, Node
from tpuconvert.schema.graph.legality import Status, check_use
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.types import Chip


def expand_composites(graph: Graph, only: Callable[[Node], bool] | None = None) -> int:
    """Replace composite nodes by their expansions, in place.

    The results keep their names and annotations. The new nodes get the sources of the composite; the values between
    them are named after the first result of the composite.

    Args:
        graph: any graph.
        only: returns True for the composite nodes to replace; by default all are replaced.

    Returns:
        The number of composite nodes that were replaced.

    Raises:
        ShapeError: an expansion depends on a symbolic extent (see ``is_expandable``).
    """
    expanded = 0
    # The expansion of a plugin's composite may contain composites.
    while composites := [
        node for node in graph.nodes if isinstance(node.op, Composite) and (only is None or only(node))
    ]:
        for node in composites:
            _expand(graph, node)
        expanded += len(composites)
    if expanded:
        graph.prune()
        graph.sort()
    return expanded


def is_expandable(node: Node) -> bool:
    """Return True if a node is composite and can be expanded for the types of its operands."""
    return isinstance(node.op, Composite) and not why_not_expandable(node)


def why_not_expandable(node: Node) -> str:
    """Return the reason why a composite node cannot be expanded for the types of its operands, or an empty string."""
    assert isinstance(node.op, Composite)
    types = [None if value is None else value.type for value in node.inputs]
    try:
        expansion(node.op, types, [value is not None and value.is_constant for value in node.inputs])
    except ShapeError as error:
        return str(error)
    return ""


def expand_where_illegal(graph: Graph, chip: Chip) -> int:
    """Expand the composites that the chip cannot run, so that the operators of the expansion can be lowered."""
    return expand_composites(graph, lambda node: check_use(node, chip).status is Status.ILLEGAL and is_expandable(node))


def _expand(graph: Graph, node: Node) -> None:
    assert isinstance(node.op, Composite)
    before = len(graph)
    with graph.derived_from(node):
        results = [graph.add(Copy(), new) if new in node.inputs else new for new in node.op.expand(graph, *node.inputs)]
    added = graph.latest(len(graph) - before)
    names = [value.name for value in node.outputs]
    for old, new in zip(node.outputs, results, strict=True):
        new.quant = old.quant
        graph.replace_uses(old, new)
    graph.remove(node)
    for name, new in zip(names, results, strict=True):
        graph.rename(new, name)
    values = dict.fromkeys(value for item in added for value in (*operands(item), *item.outputs))
    for value in values:
        if value not in node.inputs and value not in results:
            graph.rename(value, graph.unique(f"{names[0]}:{value.name.split('.')[0]}"))
