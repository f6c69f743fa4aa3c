"""Kernel fusion: matchers select the nodes that one native step computes.

A matcher gets a node and returns the group that ends with it, or None. A group may absorb producers whose result has a
single use. A node that no matcher accepts runs its NumPy reference as a step of the plan.

Matchers are not called for tensors without elements: empty results need no step, and other nodes with an empty operand
run their reference, unless a matcher is registered with ``takes_empty``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, wraps
from typing import Any, TypeVar, get_args, get_type_hints

from tpuconvert.runtime.native.builder.builder import Builder, Group
from tpuconvert.runtime.native.builder.cache_analysis import CachedHeads
from tpuconvert.runtime.native.builder.storage import Order, row_major
from tpuconvert.schema.definition.op import Op, OpKind, loaded_ops
from tpuconvert.schema.discovery import import_modules
from tpuconvert.schema.graph.control_flow import ControlFlowOp
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.types import F32, DType

MOST_FOLLOWERS = 64
"""Maximum number of operators that a kernel absorbs after its linear operator. It keeps the search from walking up a
chain of thousands of operators for each of them."""


@dataclass(frozen=True)
class Site:
    """The context of a matcher: the graph, the chip, and the nodes that may be absorbed.

    Args:
        graph: the graph.
        chip: name of the chip whose arithmetic is computed.
        isa: the instruction set.
        taken: nodes that belong to the group of a later node.
        precise: float nodes whose results are converted to integers later. Their kernels sum in float64.
        is_observed: True if every value is reported to an observer, so that no node may be absorbed.
        caches: attention operators whose keys and values are caches of the session, by result.
        chains: descriptions of linear operators with their epilogues, by nodes.
        matches: results of ``remember_match``.
    """

    graph: Graph
    chip: str
    isa: str
    taken: set[Node]
    precise: set[Node]
    is_observed: bool = False
    caches: Mapping[Value, CachedHeads] = field(default_factory=dict)
    chains: dict[tuple[Node, ...], Any] = field(default_factory=dict, init=False)
    matches: dict[tuple[object, Node], tuple[int, Any]] = field(default_factory=dict, init=False)

    def forget_matches(self) -> None:
        """Forget the results of analyses, which refer to arrays of constants."""
        self.chains.clear()
        self.matches.clear()
        self.__dict__.pop("alone", None)

    @cached_property
    def alone(self) -> Site:
        """The context in which no node can be absorbed."""
        if len(self.taken) == len(self.graph):
            return self
        return replace(self, taken=set(self.graph.nodes))

    @cached_property
    def places(self) -> dict[Node, int]:
        """Position of every node in topological order."""
        return {node: index for index, node in enumerate(self.graph.sorted_nodes())}

    def absorbable(self, value: Value | None, *kinds: type[Op]) -> Node | None:
        """Return the producer of a single-use value if it has one of these operators and is in no group, else None."""
        if self.is_observed or value is None or value.producer is None or value.producer in self.taken:
            return None
        producer = value.producer
        if kinds and not isinstance(producer.op, kinds):
            return None
        return producer if len(producer.outputs) == 1 and self.graph.is_sole_use(value) else None

    def chain(self, node: Node, followers: tuple[type[Op], ...], sources: tuple[type[Op], ...]) -> list[Node]:
        """Return the chain from one of ``sources`` through ``followers`` to a node.

        It is empty if there is none, or if it has more than ``MOST_FOLLOWERS`` followers.
        """
        nodes = [node]
        while isinstance(nodes[-1].op, followers):
            if len(nodes) > MOST_FOLLOWERS:
                return []
            producer = self.absorbable(nodes[-1].inputs[0], *followers, *sources)
            if producer is None:
                return []
            nodes.append(producer)
        return nodes[::-1]

    def only_first_is_used(self, node: Node) -> bool:
        """Return True if all results except the first one are unused."""
        return not any(value.uses or self.graph.is_output(value) for value in node.outputs[1:])


Matcher = Callable[[Node, Site], Group | None]

Found = TypeVar("Found")


def remember_match(find: Callable[[Node, Site], Found]) -> Callable[[Node, Site], Found]:
    """Cache the results of an analysis that several matchers call for the same node.

    A result depends on the nodes that are taken, of which there are only ever more.
    """

    @wraps(find)
    def find_once(node: Node, site: Site) -> Found:
        cached = site.matches.get((find, node))
        if cached is None or cached[0] != len(site.taken):
            cached = site.matches[find, node] = len(site.taken), find(node, site)
        result: Found = cached[1]
        return result

    return find_once


def operators_of(function: Any) -> tuple[type[Op], ...]:
    """The operator classes for which a ``functools.singledispatch`` function is implemented."""
    return tuple(kind for kind in function.registry if kind not in (object, Op))


def names_of(*kinds: type[Op]) -> tuple[str, ...]:
    """The names of the operators that are, or are derived from, these classes; sorted."""
    return tuple(sorted(op.name for op in loaded_ops() if issubclass(op, kinds)))


@dataclass(frozen=True)
class MatcherEntry:
    """A registered matcher, which is one row of the table of kernels.

    Args:
        function: the matcher.
        operators: names of the operators with which its groups end.
        kernels: names of the kernels of the groups' steps, except for copies that change a memory order.
        dtypes: types of the operands, for the documentation.
        conditions: conditions under which it matches, for the documentation.
        priority: matchers with higher priority are tried first.
        takes_empty: True if operands may be empty, as long as the results are not.
    """

    function: Matcher
    operators: tuple[str, ...]
    kernels: tuple[str, ...]
    dtypes: str
    conditions: str
    priority: int
    takes_empty: bool


_ENTRIES: list[MatcherEntry] = []


def ends_with(
    *operators: str,
    kernels: Sequence[str],
    dtypes: str,
    conditions: str,
    priority: int = 0,
    takes_empty: bool = False,
) -> Callable[[Matcher], Matcher]:
    """Register a matcher for groups that end with one of these operators; see ``MatcherEntry``."""

    def register(matcher: Matcher) -> Matcher:
        _ENTRIES.append(MatcherEntry(matcher, operators, tuple(kernels), dtypes, conditions, priority, takes_empty))
        return matcher

    return register


Emit = Callable[[Builder, Node, Any], None]
"""Function that adds the steps of one node; the last argument is the node's operator."""


def computes(
    *kernels: str,
    dtypes: Sequence[DType] = (),
    conditions: str = "always",
    when: Callable[[Any, Node, Site], bool] = lambda op, node, site: True,
    takes_empty: bool = False,
) -> Callable[[Emit], Emit]:
    """Register a function that adds the steps of a single node.

    The annotation of its parameter ``op`` names the operators, as for ``functools.singledispatch``.

    Args:
        kernels: see ``MatcherEntry``.
        dtypes: supported types of the operands; empty for any.
        conditions: the condition that ``when`` checks, for the documentation.
        when: further condition on an operator and its node.
        takes_empty: see ``MatcherEntry``.
    """

    def register(emit: Emit) -> Emit:
        kind = get_type_hints(emit)["op"]

        @wraps(emit)
        def match(node: Node, site: Site) -> Group | None:
            has_types = not dtypes or all(value is None or value.dtype in dtypes for value in node.inputs)
            is_match = has_types and when(node.op, node, site)
            return Group((node,), lambda builder: emit(builder, node, node.op)) if is_match else None

        names = names_of(*(get_args(kind) or (kind,)))
        types = ", ".join(dtype.name for dtype in dtypes) or "all"
        ends_with(*names, kernels=kernels, dtypes=types, conditions=conditions, takes_empty=takes_empty)(match)
        return emit

    return register


@cache
def matchers() -> tuple[MatcherEntry, ...]:
    """Import all modules of this package and return their matchers, higher priorities first."""
    import_modules(__package__ or "")
    return tuple(sorted(_ENTRIES, key=lambda entry: (-entry.priority, entry.function.__module__)))


GENERAL = -1
"""Priority of matchers that take a single node which the kernels of other matchers decline."""


@cache
def matchers_of(operator: str, highest: int | None = None) -> tuple[Matcher, ...]:
    """The matchers to try for a node with this operator, higher priorities first, at most the priority ``highest``."""
    return tuple(
        entry.function
        for entry in matchers()
        if operator in entry.operators and (highest is None or entry.priority <= highest)
    )


@cache
def _takes_empty(operator: str) -> bool:
    """Return True if a matcher of the operator accepts operands without elements."""
    return any(entry.takes_empty for entry in matchers() if operator in entry.operators)


def group_nodes(site: Site) -> list[Group | Node]:
    """Partition the graph into groups, and single nodes without a kernel, in topological order."""
    groups: list[Group | Node] = []
    nodes = site.graph.sorted_nodes()
    empty = {node: item for node in nodes if (item := _without_elements(node)) is not None}
    site.taken.update(empty)
    for node in reversed(nodes):
        if node in empty:
            groups.append(empty[node])
            continue
        if node in site.taken:
            continue
        group = next(filter(None, (matcher(node, site) for matcher in matchers_of(node.op.name))), None)
        if group is None:
            groups.append(node)
        else:
            site.taken.update(group.nodes)
            groups.append(group)
    return groups[::-1]


def alternative_group(node: Node, is_general: bool, *, site: Site) -> Group | None:
    """Return the group of a node alone for which the kernel of another group declined.

    Args:
        node: the node.
        site: its context.
        is_general: True for the matchers with the priority ``GENERAL`` only.
    """
    chosen = matchers_of(node.op.name, GENERAL if is_general else None)
    return next(filter(None, (matcher(node, site.alone) for matcher in chosen)), None)


def _without_elements(node: Node) -> Group | Node | None:
    """Return a group without steps if all results are empty, the node if it must run its reference, else None."""
    results = [0 in value.shape for value in node.outputs]
    if results and all(results) and node.op.kind is not OpKind.CUSTOM:

        def emit(builder: Builder) -> None:
            for value in node.outputs:
                builder.write(value)

        return Group((node,), emit)
    if any(results):
        return node
    is_empty = any(value is not None and 0 in value.shape for value in node.inputs)
    return node if is_empty and not _takes_empty(node.op.name) else None


def reason_without_kernel(node: Node) -> str:
    """Return the reason why no matcher takes a node: its operator, the types, or the conditions of the matchers."""
    if any(value is not None and 0 in value.shape for value in (*node.inputs, *node.outputs)):
        return "a tensor without elements"
    if node.op.kind is OpKind.CUSTOM:
        return "a function of a plugin"
    if isinstance(node.op, ControlFlowOp):
        return "its bodies are graphs with plans of their own"
    if not matchers_of(node.op.name):
        return "no kernel for this operator"
    return "its kernels do not take these types or parameters"


def first_operand(node: Node) -> Value:
    """Return the first operand of a node, which must exist."""
    x = node.inputs[0]
    assert x is not None
    return x


def operands_of(node: Node) -> list[Value]:
    """Return the operands that are present."""
    return [value for value in node.inputs if value is not None]


def are_floats(node: Node) -> bool:
    """Return True if all operands and results are FLOAT32."""
    return all(value.dtype is F32 for value in (*operands_of(node), *node.outputs))


def order_for_permute(y: Value, graph: Graph) -> Order:
    """Return the order that makes the result row-major after the permute that is its sole user; else row-major."""
    users = y.users
    if len(users) == 1 and isinstance(users[0].op, Permute) and graph.is_sole_use(y):
        order = users[0].op.order
        if order[-1] == y.rank - 1:
            return order
    return row_major(y.rank)
