"""A graph prepared for matching: operands and users as indices, and labels of nodes with increasing tolerance."""

from __future__ import annotations

import functools
import re
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpuconvert.optimizer.cse import commutes
from tpuconvert.optimizer.engine.node_properties import computed_operands
from tpuconvert.schema.definition.op import Op, Trait
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.system.content_digest import digest_of
from tpuconvert.schema.types import Scalar

_RESCALING = re.compile(
    r"(multiplier|shift|rshift|offset|offset_fp|scale)(_val|_vec)?|(left|right|output)?_?zero_point|[iklr]zp_(val|vec)"
    r"|is_(scale|offset|mul_shift)_pc|is_[iklr]zp_const"
)
"""Names of the parameters with which operators on integers rescale."""

_LOWERED = re.compile(r"_(v2|int|shift)$")
"""Suffixes of integer operators that otherwise have the names of the float operators."""

TYPE_PARAMETER = "out_dtype"
"""The parameter that is compared as the data type of the result, because None means the type of the operand."""


@dataclass(frozen=True)
class Edge:
    """A computed operand of a node.

    Args:
        slot: index of the operand; 0 for all operands of a commutative operator.
        source: index of the node that computes it, or ``-1 - i`` for graph input ``i``.
        result: index of the result of that node.

    """

    slot: int
    source: int
    result: int


class Network:
    """A graph with its nodes in topological order.

    Args:
        graph: the graph. It must not change afterwards.

    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes = graph.sorted_nodes()
        self.names = [node.name for node in self.nodes]
        self._positions: dict[int, tuple[int, int]] = {}
        for position, value in enumerate(graph.inputs):
            self._positions[id(value)] = (-1 - position, 0)
        for position, node in enumerate(self.nodes):
            for result, value in enumerate(node.outputs):
                self._positions[id(value)] = (position, result)
        self.edges = [tuple(self._edges(node)) for node in self.nodes]
        self.outputs: dict[int, list[tuple[int, int]]] = {}
        for position, value in enumerate(graph.outputs):
            source, result = self._positions.get(id(value), (None, 0))
            if source is not None:
                self.outputs.setdefault(source, []).append((result, position))

    def _edges(self, node: Node) -> list[Edge]:
        is_free = commutes(node)
        edges = []
        for slot, value in enumerate(node.inputs):
            if value is not None and not value.is_constant:
                source, result = self._positions[id(value)]
                edges.append(Edge(0 if is_free else slot, source, result))
        return edges

    def position_of(self, value: Value) -> tuple[int, int] | None:
        """Return node (or ``-1 - i`` for input ``i``) and result that a value is; None for a constant."""
        return self._positions.get(id(value))

    @functools.cached_property
    def users(self) -> list[list[int]]:
        """Indices of the users of each node."""
        users: list[list[int]] = [[] for _ in self.nodes]
        for position, edges in enumerate(self.edges):
            for edge in edges:
                if edge.source >= 0 and position not in users[edge.source][-1:]:
                    users[edge.source].append(position)
        return users

    @functools.cached_property
    def exact_labels(self) -> list[Hashable]:
        """Everything about each node except names: operator, parameters, constants, types and quantization."""
        digests: dict[int, bytes] = {}
        return [
            (repr(node.op), tuple(_constants(node, digests)), tuple((v.type, v.quant) for v in node.outputs))
            for node in self.nodes
        ]

    @functools.cached_property
    def structure_labels(self) -> list[Hashable]:
        """Operator, parameters without quantization, types of constants and of results."""
        return [
            (label, tuple(value.type for value in node.outputs))
            for label, node in zip(self.shapeless_labels, self.nodes, strict=True)
        ]

    @functools.cached_property
    def shapeless_labels(self) -> list[Hashable]:
        """The same without the types of results."""
        return [
            (
                node.op.name,
                tuple((name, repr(value)) for name, value in plain_parameters(node).items()),
                tuple((slot, value.type) for slot, value in constant_operands(node)),
            )
            for node in self.nodes
        ]

    @functools.cached_property
    def operator_labels(self) -> list[Hashable]:
        """Names of the operators."""
        return [node.op.name for node in self.nodes]

    @functools.cached_property
    def family_labels(self) -> list[Hashable]:
        """Operator without the suffix of its form on integers."""
        return [family(node.op) for node in self.nodes]


class Skeleton:
    """The nodes of a network that are not auxiliary, connected through the auxiliary ones.

    Quantization adds auxiliary nodes (requantization, conversions) and removes others (ReLU, which becomes a limit of
    the integers), so that a float graph and its integer form have similar skeletons.
    """

    def __init__(self, network: Network) -> None:
        self.is_auxiliary = [is_auxiliary(node) for node in network.nodes]
        self.edges: list[tuple[Edge, ...]] = []
        self.outputs: dict[int, list[tuple[int, int]]] = {}
        origins: list[tuple[int, int]] = []  # per node: node and result of the skeleton that compute its value
        for position, edges in enumerate(network.edges):
            resolved = [
                Edge(edge.slot, *_resolve(edge.source, edge.result, self.is_auxiliary, origins)) for edge in edges
            ]
            self.edges.append(tuple(resolved))
            origins.append((resolved[0].source, resolved[0].result) if self.is_auxiliary[position] else (position, 0))
        for source, leaving in network.outputs.items():
            for result, position in leaving:
                origin, number = _resolve(source, result, self.is_auxiliary, origins)
                self.outputs.setdefault(origin, []).append((number, position))


def _resolve(source: int, result: int, is_auxiliary: list[bool], origins: list[tuple[int, int]]) -> tuple[int, int]:
    return origins[source] if source >= 0 and is_auxiliary[source] else (source, result)


def is_auxiliary(node: Node) -> bool:
    """Return True for a conversion, a rescaling, a clamp, or another affine function of one tensor."""
    if len(node.outputs) != 1 or len(computed_operands(node)) != 1:
        return False
    op = node.op
    is_affine = Trait.AFFINE in op.traits and Trait.LINEAR not in op.traits and Trait.MOVES_DATA not in op.traits
    return is_conversion(op) or is_affine or op.clamp_range() is not None or _is_rescaling(op)


def is_conversion(op: Op) -> bool:
    """Return True if the operator converts between data types or scales and does nothing else."""
    return op.name == "cast" or "quant" in op.name


def _is_rescaling(op: Op) -> bool:
    """Return True for an arithmetic operator on integers with a shift: scalar or per-channel operands rescale."""
    return op.name.endswith("_shift") and hasattr(op, "shift")


def family(op: Op) -> str:
    """Return the name of an operator without the suffix of its form on integers."""
    return _LOWERED.sub("", op.name)


def computes_in_integers(node: Node) -> bool:
    """Return True if every result has an integer type."""
    return all(value.dtype.is_integer for value in node.outputs)


def plain_parameters(node: Node) -> dict[str, Any]:
    """Return the parameters that quantization does not choose, without the type of the result."""
    return _split_parameters(node)[0]


def rescaling_parameters(node: Node) -> dict[str, Any]:
    """Return the parameters that quantization chooses: multipliers, shifts and zero points."""
    return _split_parameters(node)[1]


def _split_parameters(node: Node) -> tuple[dict[str, Any], dict[str, Any]]:
    has_integers = any(v is not None and v.dtype.is_integer for v in (*node.inputs, *node.outputs))
    plain: dict[str, Any] = {}
    rescaling: dict[str, Any] = {}
    for name, value in node.op.attributes().items():
        if name != TYPE_PARAMETER:
            is_chosen = (has_integers or isinstance(value, Scalar)) and _is_rescaling_parameter(
                node, name, value, has_integers=has_integers
            )
            (rescaling if is_chosen else plain)[name] = value
    return plain, rescaling


def _is_rescaling_parameter(node: Node, name: str, value: object, *, has_integers: bool) -> bool:
    if isinstance(value, Scalar):
        return (has_integers and hasattr(node.op, "shift")) or _scales_integers(node)
    if name == "scale" and not (isinstance(value, float) or hasattr(node.op, "rshift")):
        return False
    return _RESCALING.fullmatch(name) is not None


def _scales_integers(node: Node) -> bool:
    """Return True if a node multiplies floats that were integers before, or become integers next."""
    if len(node.outputs) != 1 or len(node.inputs) != 1 or node.inputs[0] is None:
        return False
    before = node.inputs[0].producer
    if before is not None and is_conversion(before.op) and _has_integer_operand(before):
        return True
    users = node.outputs[0].users
    return bool(users) and all(is_conversion(user.op) and computes_in_integers(user) for user in users)


def _has_integer_operand(node: Node) -> bool:
    return any(value is not None and value.dtype.is_integer for value in node.inputs)


def _constants(node: Node, digests: dict[int, bytes]) -> list[Hashable]:
    """Return slot, type, quantization and digest of every constant operand."""
    constants: list[Hashable] = []
    for slot, value in constant_operands(node):
        if id(value) not in digests:
            digests[id(value)] = data_digest(value)
        constants.append((slot, value.type, value.quant, digests[id(value)]))
    return constants


def constant_operands(node: Node) -> list[tuple[int, Value]]:
    """Return index and value of the constant operands. Operands of a commutative operator are counted from 0."""
    operands = [(slot, value) for slot, value in enumerate(node.inputs) if value is not None and value.is_constant]
    return [(position, value) for position, (_, value) in enumerate(operands)] if commutes(node) else operands


def data_digest(value: Value) -> bytes:
    """Digest of the elements of a constant."""
    array = np.ascontiguousarray(value.array)
    return digest_of(array.reshape(-1).view(np.uint8).data) if array.size else b""
