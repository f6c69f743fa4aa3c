"""Moving of regions of operators across a reshape, if this leaves fewer reshapes.

A fully connected layer expects rows [M, C], but the tensors of the source are [N, S, C] with M = N * S. Between the
layers of a transformer there are adds, normalizations and activations of rank 3, with a reshape before and after each
layer. For a reshape r, and for element-wise operators and operators that work along an axis that r keeps,

    r(f(x)) = f'(r(x)),    r(f(x, y)) = f'(r(x), r(y)),

with f' working along the corresponding axis. So a whole region of such operators can be computed in the shape after r.
Every value that enters the region must then be reshaped, unless it results from a reshape of the wanted shape. Every
value that is used outside must be reshaped back, unless its users are reshapes to the new shape. The rule fires if
fewer reshapes remain.

Chains of unary operators between two reshapes are handled by ``reshape_pairs``, which needs fewer conditions on the
shapes. Data movement operators are handled by ``data_movement``: a region does not start at one of these.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from tpuconvert.optimizer.engine.annotations import rounds
from tpuconvert.optimizer.engine.engine import Replacement, Skip, rule
from tpuconvert.optimizer.engine.node_properties import operand, operands
from tpuconvert.optimizer.engine.pattern import Match, p
from tpuconvert.optimizer.rules.reshape_axes import INDIFFERENT, Extents, Regrouping
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.concat import Split
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.normalization import LayerNorm, RmsNorm
from tpuconvert.schema.ops.shape_change import Reshape

_LARGEST = 256
"""Maximum number of nodes of a region. Larger regions are processed in parts, with reshapes between the parts."""


def _regroups(node: Node) -> bool:
    x, y = operand(node), node.output
    return x.shape != y.shape and x.type.is_static and y.type.is_static and 0 not in y.shape


def _may_start_region(node: Node) -> bool:
    """Return True for ``INDIFFERENT`` operators other than slices and splits, which a region may only contain."""
    return node.op in INDIFFERENT and not isinstance(node.op, (Extract, Split))


@rule(p(Reshape, "x", name="reshape", where=_regroups, next_to=INDIFFERENT), stage="fuse", sees_annotations=True)
def move_region_across_reshape(graph: Graph, m: Match) -> Replacement:
    """Compute a region of operators in the shape on the other side of a reshape, if fewer reshapes remain."""
    y: Value = m.reshape.output
    for start, other in ((m.x, y), (y, m.x)):
        neighbors = start.users if start is y else [start.producer]
        if not any(node is not None and _may_start_region(node) for node in neighbors):
            continue
        regrouping = Regrouping.of(start.type.static_shape, other.type.static_shape)
        if regrouping is None or (regrouping, start) in m.memory:
            continue
        region = _Region(graph, regrouping, start)
        if region.members and region.saved > 0:
            return region.rebuild()
        m.memory.update(((regrouping, value), None) for value in region.values)
    return Skip("the number of reshapes would not decrease")


class _Region:
    """The nodes around a value that can be computed after the reshape, and the number of reshapes this saves.

    ``members`` maps each node to its operator after the reshape. ``values`` maps each operand and result of these nodes
    to its shape after the reshape.
    """

    def __init__(self, graph: Graph, regrouping: Regrouping, start: Value) -> None:
        self._graph = graph
        self._regrouping = regrouping
        self.members: dict[Node, Op] = {}
        self.values: dict[Value, Extents] = {}
        self._grow(start)
        self.saved = sum(map(self._saved_at, self.values))

    def _grow(self, start: Value) -> None:
        shape = self._shape_after(start)
        if shape is None:
            return
        self.values[start] = shape
        queue = deque([start])
        while queue and len(self.members) < _LARGEST:
            value = queue.popleft()
            for node in (*([value.producer] if value.producer is not None else []), *value.users):
                op = self._operator_after(node) if node not in self.members else None
                if op is None:
                    continue
                self.members[node] = op
                for other in (*_operands(node), *node.outputs):
                    other_shape = None if other.is_constant or other in self.values else self._shape_after(other)
                    if other_shape is not None:
                        self.values[other] = other_shape
                        queue.append(other)

    def _operator_after(self, node: Node) -> Op | None:
        """Return the operator that a node becomes after the reshape, or None if there is no equivalent."""
        if node.op not in INDIFFERENT:
            return None
        values = (*_operands(node), *node.outputs)
        return None if any(self._shape_after(value) is None for value in values) else self._regrouping.operator(node)

    def _shape_after(self, value: Value) -> Extents | None:
        shape = self.values.get(value)
        if shape is not None:
            return shape
        if not value.type.is_static or 0 in value.shape or (value.quant is not None and value.quant.axis is not None):
            return None
        return self._regrouping.shape(value.type.static_shape)

    def _saved_at(self, value: Value) -> int:
        """Return the number of reshapes that are saved at one value; negative if one is added."""
        if value.producer not in self.members:
            return self._saved_before(value)
        inner, back = self._outside_users(value)
        same = sum(node.output.shape == self.values[value] for node in inner)
        return same - bool(back)

    def _saved_before(self, value: Value) -> int:
        if self._existing_reshape(value) is not None:
            return 0
        above = _reshape_above(value)
        if above is None:
            return -1
        goes = not self._graph.is_output(value) and all(node in self.members for node, _ in value.uses)
        return int(goes) - (above.shape != self.values[value])

    def _existing_reshape(self, value: Value) -> Value | None:
        """Return an existing reshape of this value to the wanted shape for a user outside the region, or None."""
        results = (node.output for node in value.users if node not in self.members and _is_plain_reshape(node))
        return next((y for y in results if y.shape == self.values[value] and y.quant == value.quant), None)

    def _outside_users(self, value: Value) -> tuple[list[Node], bool]:
        """Return the reshapes outside the region that use a value, and True if it has other users outside."""
        outside = [node for node in value.users if node not in self.members]
        reshapes = [node for node in outside if _is_plain_reshape(node) and node.output.quant == value.quant]
        return reshapes, len(reshapes) < len(outside) or self._graph.is_output(value)

    def rebuild(self) -> dict[Value, Value]:
        """Compute the region in the new shape. Return the replacement of each value that is used outside."""
        rebuilt: dict[Value, Value] = {}
        results: dict[Value, Value] = {}
        for value in self.values:
            if value.producer not in self.members:
                rebuilt[value] = self._entering(value)
        for node in self._in_order():
            taken = len(_operands(node))
            operands = [
                self._operand(value, rebuilt) if value in node.inputs[:taken] else value for value in node.inputs
            ]
            names = [_name_after(value) for value in node.outputs]
            with self._graph.derived_from(node):
                new = self._graph.add_all(self.members[node], *operands, names=names)
            for old, value in zip(node.outputs, new, strict=True):
                value.quant = old.quant
                rebuilt[old] = value
        for value in [value for value in self.values if value.producer in self.members]:
            reshapes, back = self._outside_users(value)
            for node in reshapes:
                is_same = node.output.shape == rebuilt[value].shape
                results[node.output] = rebuilt[value] if is_same else self._reshape(rebuilt[value], node.output, node)
            if back:
                results[value] = self._reshape(rebuilt[value], value)
        return results

    def _reshape(self, x: Value, like: Value, node: Node | None = None) -> Value:
        producer = node or like.producer
        sources = producer.sources if producer is not None else None
        return self._graph.add(Reshape(like.type.static_shape), x, name=like.name, sources=sources)

    def _entering(self, value: Value) -> Value:
        already = self._existing_reshape(value)
        if already is not None:
            return already
        x = _reshape_above(value) or value
        if x.shape == self.values[value]:
            return x
        reshaped = self._graph.add(Reshape(self.values[value]), x, name=_name_after(value))
        reshaped.quant = value.quant
        return reshaped

    def _operand(self, value: Value | None, reshaped: dict[Value, Value]) -> Value | None:
        if value is None or not value.is_constant:
            return None if value is None else reshaped[value]
        shape = self._regrouping.shape(value.type.static_shape)
        assert shape is not None
        stored = None if value.stored is None else value.stored.reshape(shape)
        return self._graph.constant(np.reshape(value.array, shape), value.name, value.quant, stored)

    def _in_order(self) -> list[Node]:
        """Return the members in topological order."""
        missing = {node: sum(value.producer in self.members for value in set(_operands(node))) for node in self.members}
        ready = deque(node for node, count in missing.items() if not count)
        order = []
        while ready:
            node = ready.popleft()
            order.append(node)
            for user in (user for value in node.outputs for user in value.users if user in missing):
                missing[user] -= 1
                if not missing[user]:
                    ready.append(user)
        return order


def _operands(node: Node) -> list[Value]:
    """Return the operands that have the axes of the result. The scale of a normalization does not."""
    return operands(node)[:1] if isinstance(node.op, (LayerNorm, RmsNorm)) else operands(node)


def _is_plain_reshape(node: Node) -> bool:
    return isinstance(node.op, Reshape) and node.output.type.is_static and not rounds(node)


def _reshape_above(value: Value) -> Value | None:
    """Return the operand of the reshape that computes a value, or None."""
    node = value.producer
    if node is None or not _is_plain_reshape(node):
        return None
    x = operand(node)
    return x if x.quant == value.quant else None


def _name_after(value: Value) -> str:
    return value.name if value.name.endswith(":reshaped") else f"{value.name}:reshaped"
