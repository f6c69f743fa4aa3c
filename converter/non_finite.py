"""NaN and meaningless infinities in the constants of a network, with the names that the source file has for them.

Which infinities are legitimate is decided here, in ``find_non_finite``, from the trait ``Op.infinity``:

- an operand or parameter of an operator that compares, selects, saturates or normalizes;
- in a sum or difference: a constant of zeros and infinities of one sign (a mask), or any before a softmax;
- in a constant that is only moved or cast: as the users of the result decide.

Every other infinity makes results infinite or NaN. NaN is never legitimate.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tpuconvert.frontends.origins import Origin
from tpuconvert.schema.errors import NOT_FINITE, ProblemList
from tpuconvert.schema.finite import InfinityUse, is_finite
from tpuconvert.schema.graph import Graph, Node, Value
from tpuconvert.schema.op import Trait, non_finite_parameters
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.types import Array, format_shape
from tpuconvert.text_format import several

OPTIMIZER = "the optimizer"
"""``NonFinite.made_by`` for constants that a rule makes from finite ones."""

OPTIMIZER_HINT = "check the constants that it is computed from; --disable-rule leaves a rule out, --trace lists them"
HINT = "export or train the model again; --allow-non-finite converts it as it is, in float only"

_SUFFIXES = re.compile(r"(:nchw|:reshaped|:permuted|\.\d+)+$")
"""Suffixes that this package adds to the names of source tensors."""


@dataclass(frozen=True)
class NonFinite:
    """A constant that is not finite although it should be.

    Args:
        name: of the tensor, or ``node: parameter``.
        node: that reads it.
        shape: of the tensor; () for a parameter.
        index: of the first element that is not finite.
        value: that element.
        count: number of such elements.
        made_by: computation that makes it from finite constants, if it is not in the file.
        made_into: constant that was computed from it, if it is not read itself.

    """

    name: str
    node: Node
    shape: tuple[int, ...]
    index: tuple[int, ...]
    value: float
    count: int
    made_by: str = ""
    made_into: str = ""

    @property
    def text(self) -> str:
        """The finding as text."""
        what = "NaN" if np.isnan(self.value) else "infinity" if self.value > 0 else "-infinity"
        text = f"'{self.name}' is {what}"
        if self.shape:
            size = int(np.prod(self.shape))
            text = (
                f"'{self.name}' {format_shape(self.shape)} has {what} at {list(self.index)}, "
                f"{self.count:,} of {several(size, 'element')} {'is' if self.count == 1 else 'are'} not finite"
            )
        text += f", computed by {self.made_by} from finite constants" * bool(self.made_by)
        return text + f", which becomes '{self.made_into}'" * bool(self.made_into)


def described(name: str, node: Node, array: Array) -> NonFinite:
    """Describe an array that is not finite."""
    bad = ~np.isfinite(array)
    index = tuple(int(position) for position in np.argwhere(bad)[0])
    return NonFinite(name, node, array.shape, index, float(array[index]), int(np.count_nonzero(bad)))


def find_non_finite(graph: Graph) -> list[NonFinite]:
    """Find the constants and parameters that are not finite without a meaning, in the order of their users."""
    found: list[NonFinite] = []
    seen: set[Value] = set()
    for node in graph.sorted_nodes():
        for value in node.inputs:
            if value is None or value.data is None or value in seen or is_finite(value.data):
                continue
            if np.isnan(value.array).any() or not _has_meaning(graph, node, value, value.array):
                seen.add(value)
                found.append(described(value.name, node, value.array))
        for parameter, array in non_finite_parameters(node.op):
            if np.isnan(array).any() or (np.isinf(array).any() and node.op.infinity is not InfinityUse.DEFINED):
                found.append(replace(described(f"{node.op.name}.{parameter}", node, array), shape=()))
    return found


def _has_meaning(graph: Graph, node: Node, value: Value, array: Array) -> bool:
    """Return True if the infinities of a constant are legitimate where a node reads it."""
    use = node.op.infinity
    if use is InfinityUse.NONE and _moves_numbers(node):
        return _readers_give_meaning(graph, node, array)
    if use is not InfinityUse.ADDED:
        return use is InfinityUse.DEFINED
    numbers = set(np.unique(array).tolist())
    return numbers <= {0.0, float("inf")} or numbers <= {0.0, float("-inf")} or _reaches_softmax(node, set())


def _moves_numbers(node: Node) -> bool:
    return Trait.MOVES_DATA in node.op.traits or isinstance(node.op, Cast)


def _readers_give_meaning(graph: Graph, node: Node, array: Array) -> bool:
    result = node.outputs[0]
    return not graph.is_output(result) and all(_has_meaning(graph, user, result, array) for user in result.users)


def _reaches_softmax(node: Node, seen: set[Node]) -> bool:
    """Return True if a softmax or a selection reads the result, perhaps after sums and movements."""
    seen.add(node)
    for user in (user for value in node.outputs for user in value.users):
        if user.op.infinity is InfinityUse.DEFINED:
            return True
        carries = user.op.infinity is InfinityUse.ADDED or _moves_numbers(user)
        if carries and user not in seen and _reaches_softmax(user, seen):
            return True
    return False


def trace_to_source(found: list[NonFinite], find_origin: Callable[[str], Origin | None]) -> list[NonFinite]:
    """Name the tensors of the source file that make constants not finite.

    Args:
        found: findings in the graph of a frontend, which may have folded, moved and renamed constants.
        find_origin: looks a name up in the source file.

    """
    traced = []
    for item in found:
        # A parameter has no name in the file: it is an operand of the node that makes this result.
        name = source_name(item.name if item.shape else item.node.name)
        origin = find_origin(name)
        if origin is not None and origin.array is not None:
            into = name if item.shape and origin.maker else ""
            traced.append(replace(described(origin.name, item.node, origin.array), made_into=into))
        elif item.shape:
            traced.append(replace(item, name=name, made_by="" if origin is None else origin.maker))
        else:
            traced.append(item)
    return traced


def source_name(name: str) -> str:
    """The name of a constant without our additions."""
    return _SUFFIXES.sub("", name)


def problems_of(graph: Graph, found: list[NonFinite], detail: str = "") -> ProblemList:
    """The findings as problems of the source file, by source operator and node."""
    problems = ProblemList(graph.file, detail)
    for item in found:
        sources = item.node.sources
        op, node = (sources[-1].op, sources[-1].node) if sources else (item.node.op.name, item.node.name)
        hint = OPTIMIZER_HINT if item.made_by == OPTIMIZER else HINT
        problems.add(NOT_FINITE, op, node, item.text, hint)
    return problems
