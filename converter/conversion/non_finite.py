"""Find NaN and meaningless infinities in the constants of a network, and name them as the source file does.

``find_non_finite`` decides from the trait ``Op.infinity`` whether an infinity is legitimate. It is in these cases:

- an operand or parameter of an operator that compares, selects, saturates or normalizes;
- in a sum or difference: a constant of zeros and infinities of one sign (a mask), or any before a softmax;
- in a constant that is only moved or cast: if it is legitimate for every user of the result.

Every other infinity makes results infinite or NaN. NaN is never legitimate.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tpuconvert.frontends.origins import Origin
from tpuconvert.schema.arithmetic.finite import InfinityUse, is_finite
from tpuconvert.schema.definition.op import Trait, non_finite_parameters
from tpuconvert.schema.errors import NOT_FINITE, ProblemList
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.types import Array, format_shape
from tpuconvert.text.text_format import several

OPTIMIZER = "the optimizer"
"""``NonFinite.made_by`` of constants that an optimizer rule computed from finite constants."""

OPTIMIZER_HINT = (
    "check the constants that it is computed from; --disable-rule leaves a rule out; "
    "tpuconvert convert --trace lists the rules"
)
HINT = "export or train the model again; --allow-non-finite converts it as it is, in float only"

_SUFFIXES = re.compile(r"(:nchw|:reshaped|:permuted|\.\d+)+$")
"""Suffixes that this package adds to the names of source tensors."""


@dataclass(frozen=True)
class NonFinite:
    """A constant with NaN or with an infinity that has no meaning.

    Args:
        name: name of the tensor, or ``operator.parameter`` for a parameter.
        node: node that reads the constant.
        shape: shape of the tensor; () for a parameter.
        index: index of the first element that is not finite.
        value: that element.
        count: number of such elements.
        made_by: computation whose result it is, if the source file contains only finite constants; else empty.
        made_into: constant that was computed from it and that the node reads instead; else empty.

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


def describe_non_finite(name: str, node: Node, array: Array) -> NonFinite:
    """Describe the non-finite elements of an array."""
    bad = ~np.isfinite(array)
    index = tuple(int(position) for position in np.argwhere(bad)[0])
    return NonFinite(name, node, array.shape, index, float(array[index]), int(np.count_nonzero(bad)))


def find_non_finite(graph: Graph) -> list[NonFinite]:
    """Find the constants and parameters with NaN or meaningless infinities, in the order of their users."""
    findings: list[NonFinite] = []
    seen: set[Value] = set()
    for node in graph.sorted_nodes():
        for value in node.inputs:
            if value is None or value.data is None or value in seen or is_finite(value.data):
                continue
            if np.isnan(value.array).any() or not _has_meaning(graph, node, value, value.array):
                seen.add(value)
                findings.append(describe_non_finite(value.name, node, value.array))
        for parameter, array in non_finite_parameters(node.op):
            if np.isnan(array).any() or (np.isinf(array).any() and node.op.infinity is not InfinityUse.DEFINED):
                findings.append(replace(describe_non_finite(f"{node.op.name}.{parameter}", node, array), shape=()))
    return findings


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
    """Return True if an operator that defines infinities (softmax, where) uses the result, perhaps indirectly."""
    seen.add(node)
    for user in (user for value in node.outputs for user in value.users):
        if user.op.infinity is InfinityUse.DEFINED:
            return True
        carries = user.op.infinity is InfinityUse.ADDED or _moves_numbers(user)
        if carries and user not in seen and _reaches_softmax(user, seen):
            return True
    return False


def trace_to_source(findings: list[NonFinite], find_origin: Callable[[str], Origin | None]) -> list[NonFinite]:
    """Name the tensors of the source file that make constants not finite.

    Args:
        findings: findings in the graph of a frontend, which may have folded, moved and renamed constants.
        find_origin: looks a name up in the source file.

    """
    traced = []
    for item in findings:
        # A parameter has no name of a tensor: look up the result of its node instead.
        name = source_name(item.name if item.shape else item.node.name)
        origin = find_origin(name)
        if origin is not None and origin.array is not None:
            into = name if item.shape and origin.maker else ""
            traced.append(replace(describe_non_finite(origin.name, item.node, origin.array), made_into=into))
        elif item.shape:
            traced.append(replace(item, name=name, made_by="" if origin is None else origin.maker))
        else:
            traced.append(item)
    return traced


def source_name(name: str) -> str:
    """Remove the suffixes that this package adds from the name of a constant."""
    return _SUFFIXES.sub("", name)


def problems_of(graph: Graph, findings: list[NonFinite]) -> ProblemList:
    """Convert the findings to problems, grouped by source operator and node."""
    problems = ProblemList(graph.file)
    for item in findings:
        sources = item.node.sources
        op, node = (sources[-1].op, sources[-1].node) if sources else (item.node.op.name, item.node.name)
        hint = OPTIMIZER_HINT if item.made_by == OPTIMIZER else HINT
        problems.add(NOT_FINITE, op, node, item.text, hint)
    return problems
