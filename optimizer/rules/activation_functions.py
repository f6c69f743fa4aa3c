"""Recognition of decomposed activations: silu, hard_swish, gelu, softplus, mish.

There are too many forms to list: GELU alone is x/2 * (1 + erf(x/sqrt(2))), x * (1 + erf) / 2, x * (erf/2 + 1/2), each
with divisions or multiplies, and erf is a polynomial of sixteen operators with three orders of operands. All of them
are element-wise functions y = f(x) of one value x. The functions are compared, not their forms:

- A cone is a node together with element-wise nodes before it, down to the one value x that everything else in it
  depends on. The cones of a node are tried from the smallest to the largest.
- f is compared with the known activations at many points: ``optimizer.known_activations``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tpuconvert.optimizer.engine.annotations import rounds
from tpuconvert.optimizer.engine.engine import Replacement, Skip, rule
from tpuconvert.optimizer.engine.node_properties import computed_operands, operand, operands
from tpuconvert.optimizer.engine.pattern import Match, OperatorSet, p
from tpuconvert.optimizer.rules.known_activations import activation_of
from tpuconvert.schema.definition.op import Trait
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, BinaryArithmetic, Div, Mul
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Divs, Muls
from tpuconvert.schema.types import F32, TensorType

FUNCTIONS = OperatorSet(Trait.UNARY, Trait.BINARY)

_MOST_NODES = 32
"""Maximum number of nodes of a cone. The longest known form, GELU with the polynomial of erf, has 22."""


class _Cone(NamedTuple):
    """Nodes of a cone in topological order, and the value x that the last one is a function of."""

    x: Value
    nodes: tuple[Node, ...]


def _ends_a_cone(node: Node) -> bool:
    """Return True if the node ends a cone. The trace does not report other nodes."""
    return _may_end_an_activation(node) and next(_cones(node), None) is not None


def _may_end_an_activation(node: Node) -> bool:
    """Return True if the operator can end a known form: binary, a scalar after a multiply, or a logarithm."""
    if node.outputs[0].dtype is not F32:
        return False
    if isinstance(node.op, BinaryArithmetic):
        return not any(value.is_constant for value in operands(node))
    before = operand(node).producer
    if isinstance(node.op, Active):
        return node.op.active_type == ActiveType.ACTIVE_LN and before is not None and isinstance(before.op, Adds)
    return before is not None and isinstance(before.op, Mul)


@rule(
    p((Mul, Add, Div), name="op", reads=FUNCTIONS, where=_ends_a_cone),
    p((Muls, Divs), name="op", reads=Mul, where=_ends_a_cone),
    p(Active, name="op", reads=Adds, where=_ends_a_cone),
    stage="canonicalize",
    sees_annotations=True,
)
def recognize_activation(graph: Graph, m: Match) -> Replacement:
    """Replace a cone that computes a known activation by this activation."""
    reason = "no known function of one value"
    for cone in _cones(m.op):
        activation = activation_of(cone.x, cone.nodes)
        if activation is None:
            continue
        inner = cone.nodes[:-1]
        if any(rounds(node) for node in inner):
            reason = "the source file quantizes an inner value"
        elif any(graph.is_output(node.outputs[0]) or set(node.outputs[0].users) - set(cone.nodes) for node in inner):
            reason = "an inner value has other users"
        else:
            sources = tuple(dict.fromkeys(source for node in cone.nodes for source in node.sources))
            return graph.add(activation, cone.x, sources=sources)
    return Skip(reason)


def _cones(root: Node) -> Iterator[_Cone]:
    """Yield all cones that end in a node, the smallest first."""
    order = _elementwise_ancestors(root)
    frontier: dict[Value, None] = dict.fromkeys(root.outputs)
    for position in range(len(order) - 1, -1, -1):
        node = order[position]
        frontier.pop(node.outputs[0])
        frontier.update(dict.fromkeys(computed_operands(node)))
        if len(frontier) == 1 and position < len(order) - 1:
            (x,) = frontier
            if x.type == root.outputs[0].type:
                yield _Cone(x, tuple(order[position:]))


def _elementwise_ancestors(root: Node) -> list[Node]:
    """The nearest element-wise nodes from a node upwards, in topological order; none if all are sums and products."""
    ancestors: dict[Node, None] = {root: None}
    level = [root]
    while level and len(ancestors) < _MOST_NODES:
        above = [value.producer for node in level for value in node.inputs if value is not None]
        level = [node for node in dict.fromkeys(above) if node is not None and node not in ancestors]
        level = [node for node in level if _is_elementwise(node, root.outputs[0].type)][: _MOST_NODES - len(ancestors)]
        ancestors.update(dict.fromkeys(level))
    if all(Trait.AFFINE in node.op.traits for node in ancestors):
        return []  # sums and products compute polynomials, which are not activation functions
    order: dict[Node, None] = {}
    _visit(root, ancestors, order)
    return list(order)


def _is_elementwise(node: Node, type_: TensorType) -> bool:
    """Return True if a node is element-wise on values of one type, with scalars as its only constants."""
    if node.op not in FUNCTIONS:
        return False
    for value in (*node.inputs, node.outputs[0]):
        if value is None:
            continue
        # Most values have the same type object, so that comparing its fields is rarely needed.
        if value.array.size != 1 if value.is_constant else value.type is not type_ and value.type != type_:
            return False
    return True


def _visit(node: Node, chosen: dict[Node, None], order: dict[Node, None]) -> None:
    """Add a node to ``order`` after the wanted nodes that it depends on."""
    for value in operands(node):
        if value.producer in chosen and value.producer not in order:
            _visit(value.producer, chosen, order)
    order[node] = None
