"""Key-value caches of a graph that a native plan can keep in place.

An ordinary plan is valid for one length of the caches and copies them in every run. If every cache is used by one
attention operator only, a plan can append to the caches of the session instead: it is valid for all lengths up to their
capacity. ``find_caches`` checks this for a graph with symbolic extents, and ``bind_caches`` gives the extents numbers:

    past tokens + new tokens = capacity.

The keys after the valid ones are hidden by the kernel. Values that depend on the extents must therefore be correct at
the valid positions only: element-wise functions of a mask, positions, and the number of past tokens, which becomes an
input of the plan.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tpuconvert.runtime.native.builder.constants import remove_constdata
from tpuconvert.runtime.native.builder.sampled_masks import recognize_masks
from tpuconvert.schema.definition.op import Op, Trait
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.graph.graph_copy import copy_graph
from tpuconvert.schema.graph.states import FIXED, State, growth
from tpuconvert.schema.ops.attention import Attention
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.generation import ShapeFetch
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.positions import Positions
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.tile import Tile
from tpuconvert.schema.types import F32, I32, Chip, TensorType

_TOKENS = 2
"""Axis of the caches [batch, heads, tokens, size] along which they grow."""


class CacheUse(NamedTuple):
    """A cache and the nodes between it and the attention operator.

    Args:
        output: index of the graph output that is the cache after the run.
        new: the value that is appended.
        nodes: the concat, and the nodes that repeat its heads.
    """

    output: int
    new: Value
    nodes: tuple[Node, ...]


class CachedHeads(NamedTuple):
    """An attention operator with its caches. ``length`` is the number of past tokens, INT32 [1]."""

    node: Node
    keys: CacheUse
    values: CacheUse
    length: Value | None = None

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes, in topological order."""
        return (*self.keys.nodes, *self.values.nodes, self.node)


class Caches(NamedTuple):
    """Result of the analysis of a graph.

    Args:
        graph: the graph, in which masks have a form that is correct at the valid positions.
        heads: attention operators with caches.
        past: symbol of the number of past tokens.
        total: symbol of the number of all tokens.
        lengths: values that are the number of past tokens.
    """

    graph: Graph
    heads: tuple[CachedHeads, ...]
    past: str
    total: str
    lengths: tuple[Value, ...]


def find_caches(graph: Graph, states: Sequence[State], chip: Chip = Chip.BM1686) -> Caches | str:
    """Analyze a graph; return the reason if it needs a plan for every length of its caches.

    If its masks depend on the length in a form that is not correct for caches with room for more tokens, a copy with
    masks that are recognized by their elements is analyzed.
    """
    caches = _analyze(graph, states)
    growing = [state for state in states if state.axis != FIXED]
    if isinstance(caches, Caches) or not growing:
        return caches
    copy = copy_graph(graph)
    cache, axis = copy.inputs[growing[0].input], growing[0].axis
    total = copy.outputs[growing[0].output].shape[axis]
    added = growth(cache.shape[axis], total)
    if added is None or not recognize_masks(copy, cache, axis, str(total), str(added), chip):
        return caches
    return _analyze(copy, states)


def replanning_reason(graph: Graph, states: Sequence[State], caches: Caches | str | None = None) -> str:
    """Reason why every length of the caches needs another plan, with a node; empty if one plan serves all lengths.

    Args:
        graph: the graph.
        states: its states; without one that grows, no run needs another plan.
        caches: result of the analysis, if it is known.
    """
    if not any(state.axis != FIXED for state in states):
        return ""
    dependent = next((value for value in graph.values if any("?" in str(extent) for extent in value.shape)), None)
    if dependent is not None:
        return f"the shape of '{dependent.name}' depends on data"
    result = find_caches(graph, states) if caches is None else caches
    return result if isinstance(result, str) else ""


def _analyze(graph: Graph, states: Sequence[State]) -> Caches | str:
    """Analyze a graph with its own masks."""
    uses: dict[tuple[Node, int], CacheUse] = {}
    unused = _shape_only_nodes(graph)
    past = total = ""
    for state in states:
        value = graph.inputs[state.input]
        if state.axis != _TOKENS or value.rank != 4 or value.dtype is not F32:
            return f"'{value.name}' is not a cache [batch, heads, tokens, size] in float32"
        first, last = value.shape[_TOKENS], graph.outputs[state.output].shape[_TOKENS]
        if (past or first, total or last) != (first, last):
            return "the caches have different lengths"
        past, total = str(first), str(last)
        use_or_reason = _use_of(graph, value, state, unused)
        if isinstance(use_or_reason, str):
            return use_or_reason
        index, use = use_or_reason
        uses[index] = use
    heads = []
    for node in {node: None for node, _ in uses}:
        pair = uses.get((node, 1)), uses.get((node, 2))
        if pair[0] is None or pair[1] is None or node.inputs[0] is None or node.inputs[0].rank != 4:
            return f"'{node.name}' has a cache for keys or values only"
        mask = node.inputs[3] if len(node.inputs) > 3 else None
        if mask is not None and (mask.rank != 4 or mask.shape[-1] != total):
            return f"the mask of '{node.name}' does not have an entry for every token"
        heads.append(CachedHeads(node, pair[0], pair[1]))
    lengths = _check_others(graph, heads, (past, total), unused)
    return lengths if isinstance(lengths, str) else Caches(graph, tuple(heads), past, total, tuple(lengths))


def _shape_only_nodes(graph: Graph) -> set[Node]:
    """Nodes of which only the shapes of the results matter, or also the shapes of the operands."""
    nodes: set[Node] = set()
    for node in reversed(graph.sorted_nodes()):
        users = [user for value in node.outputs for user in value.users]
        is_output = any(graph.is_output(value) for value in node.outputs)
        if Trait.SHAPE_ONLY in node.op.traits or (users and not is_output and nodes.issuperset(users)):
            nodes.add(node)
    return nodes


def _use_of(graph: Graph, past: Value, state: State, unused: set[Node]) -> tuple[tuple[Node, int], CacheUse] | str:
    """Find the attention operator that uses a cache, and its operand index; users in ``unused`` do not count."""
    uses = [(node, index) for node, index in past.uses if node not in unused]
    if len(uses) != 1 or graph.is_output(past):
        others = [node for node, _ in uses if not isinstance(node.op, Concat)]
        return (
            _other_use(past, others[0]) if others else f"'{past.name}' is used {len(uses)} times, not by one attention"
        )
    ((concat, index),) = uses
    present = graph.outputs[state.output]
    is_append = isinstance(concat.op, Concat) and concat.op.axis % 4 == _TOKENS and index == 0
    if not is_append or len(concat.inputs) != 2 or concat.output is not present:
        return f"'{past.name}' is not appended to by a concat: {_described(concat)} uses it"
    new = concat.inputs[1]
    if new is None or graph.outputs.count(present) != 1 or new.dtype is not F32:
        return f"the result of {_described(concat)} is several outputs, or not in float32"
    nodes, value = [concat], present
    while len(further := [use for use in value.uses if use[0] not in unused]) == 1:
        ((node, index),) = further
        if isinstance(node.op, Attention) and index in (1, 2):
            heads = node.inputs[0].shape[1] if node.inputs[0] is not None and node.inputs[0].rank == 4 else 0
            if isinstance(heads, int) and _repeats_heads(nodes[1:], past, heads):
                return (node, index), CacheUse(state.output, new, tuple(nodes))
            return f"the heads of '{past.name}' are rearranged before the attention {_described(node)}"
        if not _moves_tokens(node.op) or (value is not present and graph.is_output(value)):
            return _other_use(past, node)
        nodes.append(node)
        value = node.output
    return _other_use(past, further[-1][0]) if further else f"no attention uses '{present.name}'"


def _other_use(past: Value, node: Node) -> str:
    return f"'{past.name}' is used by {_described(node)}, and not by one attention only"


def _described(node: Node) -> str:
    return f"'{node.name}' ({node.op.name})"


def _repeats_heads(nodes: Sequence[Node], cache: Value, heads: int) -> bool:
    """Return True if nodes repeat each head of a cache for consecutive query heads: run them on numbered heads."""
    batch, own, _, size = cache.shape
    if not (isinstance(batch, int) and isinstance(own, int) and isinstance(size, int)) or not own or heads % own:
        return False
    x = np.broadcast_to(np.arange(batch * own, dtype=np.float32).reshape(batch, own, 1, 1), (batch, own, 3, size))
    y = x + np.linspace(0, 0.5, 3 * size, dtype=np.float32).reshape(3, size)
    expected = y.repeat(heads // own, axis=1)
    try:
        for node in nodes:
            (y,) = node.op.reference(y)
    except Exception:  # an operator of any kind may refuse these numbers; the cache is then not recognized
        return False
    return np.array_equal(y, expected)


def _check_others(
    graph: Graph, heads: Sequence[CachedHeads], symbols: tuple[str, str], unused: set[Node]
) -> list[Value] | str:
    """Check other values whose extents contain the number of past tokens; return the values that are this number."""
    past, total = symbols
    inside = {node for head in heads for node in head.nodes}
    lengths: list[Value] = []
    for node in graph.sorted_nodes():
        is_output = any(graph.is_output(value) for value in node.outputs)
        if node in inside or not any(_contains(value, past) for value in (*node.inputs, *node.outputs)):
            continue
        if node in unused and Trait.SHAPE_ONLY not in node.op.traits:
            continue
        if isinstance(node.op, ShapeFetch):
            if not _fetches(node, past):
                return f"'{node.name}' reads the number of tokens"
            lengths.append(node.output)
        elif not _is_local(node, past, total):
            return f"'{node.name}' ({node.op.name}) depends on the number of past tokens"
        elif is_output:
            return f"the output '{node.output.name}' has an entry for every token"
    return lengths


def _contains(value: Value | None, symbol: str) -> bool:
    """Return True if an extent of a value contains the symbol."""
    return value is not None and any(_has(extent, symbol) for extent in value.shape)


def _fetches(node: Node, past: str) -> bool:
    """Return True if a node is the number of past tokens."""
    (x,) = node.inputs
    assert isinstance(node.op, ShapeFetch) and x is not None
    return node.output.shape == (1,) and x.shape[node.op.begin_axis] == past


def _is_local(node: Node, past: str, total: str) -> bool:
    """Return True if a node computes the entry of a token from the entries of this token, or is a sum over a mask."""
    op, values = node.op, [value for value in node.inputs if value is not None]
    if isinstance(op, Positions):
        return node.output.shape == (total,)
    if isinstance(op, Reduce):
        return op.method is ReduceMethodType.REDUCE_SUM and _is_mask(values[0])
    extents = {extent for value in (*values, *node.outputs) for extent in value.shape if _has(extent, past)}
    if extents != {total}:
        return False
    return Trait.ELEMENTWISE in op.traits or _moves_tokens(op) or isinstance(op, (Cast, Permute))


def _moves_tokens(op: Op) -> bool:
    """Return True if the operator repeats its operand or changes only its shape."""
    return Trait.RESHAPES in op.traits or isinstance(op, Tile)


def _has(extent: int | str, symbol: str) -> bool:
    return isinstance(extent, str) and symbol in re.findall(r"\w+", extent)


def _is_mask(value: Value) -> bool:
    """Return True if a value is a mask of the caller: it is 0 after the last token."""
    while value.producer is not None:
        node = value.producer
        if not isinstance(node.op, Cast) and Trait.RESHAPES not in node.op.traits:
            return False
        assert node.inputs[0] is not None  # others give the shape
        value = node.inputs[0]
    return not value.is_constant


def bind_caches(extents: Mapping[str, int], caches: Caches) -> tuple[Graph, dict[Value, CachedHeads]]:
    """Copy the analyzed graph with numbers for its extents.

    The last input of the copy is the number of past tokens, INT32 [1].

    Args:
        extents: numbers of all symbolic extents.
        caches: result of the analysis.

    Returns:
        The copy, and its attention operators by result.
    """
    copy = remove_constdata(copy_graph(caches.graph, extents))
    length = copy.input(copy.unique("past_tokens"), TensorType(I32, (1,)))

    def twin(value: Value) -> Value:
        twin_value = copy.find(value.name)
        assert twin_value is not None
        return twin_value

    def twin_node(node: Node) -> Node:
        producer = twin(node.output).producer
        assert producer is not None
        return producer

    def twin_use(use: CacheUse) -> CacheUse:
        return CacheUse(use.output, twin(use.new), tuple(map(twin_node, use.nodes)))

    heads = [
        CachedHeads(twin_node(head.node), twin_use(head.keys), twin_use(head.values), length) for head in caches.heads
    ]
    for value in caches.lengths:
        copy.replace_uses(twin(value), length)
    copy.prune()
    return copy, {head.node.output: head for head in heads}
