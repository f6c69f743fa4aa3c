"""Common subexpression elimination: merging of equal constants and of equal nodes.

The operands of commutative operators count as equal in either order: add, mul, equality, bitwise logic, and maxima and
minima of integers. A float maximum of -0 and +0 depends on the order.
"""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.definition.op import Op, OpKind, Trait
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.system.mapped_pages import WORTH_IT, forget_pages
from tpuconvert.schema.types import Array


def share_constants(graph: Graph) -> int:
    """Merge equal constants. Return the number of removed constants.

    Two constants are equal if their types, bytes and annotations are equal. Only constants at the same operand of the
    same operator are merged, because quantization chooses one scale of a weight for all its users.
    """
    leaving = set(map(id, graph.outputs))
    by_sample: dict[bytes, list[Value]] = {}
    for value in graph.values:
        if value.data is not None and value.uses and id(value) not in leaving:
            by_sample.setdefault(_sample(value.data), []).append(value)
    return sum(_share_among(graph, values) for values in by_sample.values() if len(values) > 1)


def _share_among(graph: Graph, values: list[Value]) -> int:
    """Merge equal constants among values whose samples of bytes are equal."""
    groups: dict[object, list[Value]] = {}
    merged = 0
    for value in values:
        uses = frozenset([(type(node.op), index) for node, index in value.uses])
        alike = groups.setdefault((value.type, value.quant, value.stored is None, uses), [])
        first = next((other for other in alike if _same_bytes(other, value)), None)
        if first is None:
            alike.append(value)
            continue
        graph.replace_uses(value, first)
        graph.discard(value)
        merged += 1
    return merged


def share_nodes(graph: Graph) -> int:
    """Merge nodes that compute the same results. Return the number of removed nodes.

    A node whose result is a graph output stays: every output is a separate value.
    """
    groups: dict[tuple[type[Op], tuple[int, ...]], _Alike] = {}
    merged = 0
    for node in graph.sorted_nodes():
        if node.op.kind not in (OpKind.TPU, OpKind.COMPOSITE) or not node.op.is_pure or not node.inputs:
            continue
        operands = [0 if value is None else id(value) for value in node.inputs]
        if commutes(node):
            operands.sort()
        key = type(node.op), tuple(operands)
        alike = groups.get(key)
        if alike is None:
            groups[key] = _Alike(node)
            continue
        first = alike.first_with_op_of(node)
        if first is node or not _same_results(graph, first, node):
            continue
        for old, new in zip(node.outputs, first.outputs, strict=True):
            graph.replace_uses(old, new)
        first.sources = tuple(dict.fromkeys((*first.sources, *node.sources)))
        first.rules = tuple(dict.fromkeys((*first.rules, *node.rules)))
        graph.remove(node)
        merged += 1
    return merged


def commutes(node: Node) -> bool:
    """Return True if the order of the operands does not matter."""
    traits = node.op.traits
    return Trait.COMMUTATIVE in traits or (Trait.COMMUTATIVE_INTEGERS in traits and node.outputs[0].dtype.is_integer)


class _Alike:
    """Nodes with one operator class and the same operands, by their attributes.

    Attributes are compared as text, because equality is not enough: -0.0 == 0.0, but they differ. Most nodes are the
    only ones of their operands, and need no text.
    """

    def __init__(self, node: Node) -> None:
        self._only = node
        self._by_attributes: dict[str, Node] = {}

    def first_with_op_of(self, node: Node) -> Node:
        """Return the first node whose attributes are identical, which is ``node`` itself if there is no other."""
        if not self._by_attributes:
            self._by_attributes[repr(self._only.op)] = self._only
        return self._by_attributes.setdefault(repr(node.op), node)


def _same_results(graph: Graph, first: Node, second: Node) -> bool:
    pairs = list(zip(first.outputs, second.outputs, strict=True))
    # Equal parameters may be computed by different kernels of a quantized source.
    ways = [(a.quant.arithmetic, b.quant.arithmetic) for a, b in pairs if a.quant is not None and b.quant is not None]
    if any(one is not other for one, other in ways):
        return False
    return all(a.type == b.type and a.quant == b.quant and not graph.is_output(b) for a, b in pairs)


def _sample(data: Array) -> bytes:
    if data.size <= 16:
        return data.tobytes()
    flat = data.reshape(-1)
    sample = flat[:8].tobytes() + flat[flat.size // 2 : flat.size // 2 + 8].tobytes()
    if data.nbytes >= WORTH_IT:
        forget_pages(data)  # The system may have mapped megabytes around the sampled bytes.
    return sample


def _same_bytes(first: Value, second: Value) -> bool:
    pairs = [(first.data, second.data)]
    if first.stored is not None and second.stored is not None:
        pairs.append((first.stored, second.stored))
    return all(a is b or np.array_equal(_bytes(a), _bytes(b)) for a, b in pairs)


def _bytes(array: Array | None) -> Array:
    assert array is not None
    return np.ascontiguousarray(array).view(np.uint8)
