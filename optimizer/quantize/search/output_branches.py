"""Branches of the outputs: elements that come from different parts of the network, such as boxes and scores.

An output is taken apart backwards, through data movement, concatenation and element-wise functions with constants, up
to the results of other operators. The elements of one such result are a branch. Boxes of 0 to 320 pixels and scores of
0 to 1 are two branches of one output of a detector; so are the scores of each of its scales. Each branch has its own
power, so that an error of the scores is not hidden by the boxes.

The elements of a branch are compared on the scale on which they decide: values after a sigmoid by the operand of the
sigmoid, probabilities of a softmax and results of an exponential by their logarithm. Both are limited to the range in
which they make a difference.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tpuconvert.optimizer.engine.node_properties import computed_operands
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.definition.extents import data_dependent_names
from tpuconvert.schema.definition.op import Op, Trait
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.types import Array

SMALLEST_SCORE = 0.01
"""Scores of a sigmoid below this one, and above 1 minus this one, are compared as this one: no threshold is there."""

_LARGEST_LOGIT = math.log((1.0 - SMALLEST_SCORE) / SMALLEST_SCORE)

SMALLEST_PROBABILITY = 1e-4
"""Probabilities of a softmax below this one are compared as this one."""

MOST_BRANCHES = 32
"""Outputs of more branches are not taken apart."""

Feed = Mapping[str, Array]


class ErrorScale(enum.Enum):
    """Scale on which the elements of a branch are compared."""

    LINEAR = "linear"
    LOGIT = "logit"
    """Operand of a sigmoid."""
    LOGARITHM = "logarithm"
    """Logarithm of a probability."""
    BOUNDED_LOGIT = "bounded logit"
    """Logit whose sigmoid a program computes. Networks give any large negative number where nothing is."""

    @property
    def is_logit(self) -> bool:
        """Return True for logits of scores."""
        return self in (ErrorScale.LOGIT, ErrorScale.BOUNDED_LOGIT)

    def apply(self, values: Array) -> Array:
        """Return values on this scale."""
        if self is ErrorScale.LINEAR:
            return values
        if self is ErrorScale.LOGARITHM:
            result: Array = np.log(np.maximum(values, SMALLEST_PROBABILITY))
            return result
        if self is ErrorScale.BOUNDED_LOGIT:
            bounded: Array = np.clip(values, -_LARGEST_LOGIT, _LARGEST_LOGIT)
            return bounded
        scores = np.clip(values, SMALLEST_SCORE, 1.0 - SMALLEST_SCORE)
        logits: Array = np.log(scores / (1.0 - scores))
        return logits


@dataclass(frozen=True)
class Branch:
    """Elements of an output that one tensor determines.

    Args:
        tensor: name of the tensor.
        scale: scale on which the elements are compared.
    """

    tensor: str
    scale: ErrorScale = ErrorScale.LINEAR


@dataclass(frozen=True)
class BranchLabels:
    """Branches of an output and the elements of each.

    Args:
        branches: the branches.
        labels: index of the branch of every element, in the shape of the output; None if there is one branch.
    """

    branches: tuple[Branch, ...]
    labels: Array | None = None

    def of_logits(self) -> BranchLabels:
        """Return the branches of an output whose elements are logits of scores."""
        scales = {ErrorScale.LINEAR: ErrorScale.BOUNDED_LOGIT}
        branches = (replace(branch, scale=scales.get(branch.scale, branch.scale)) for branch in self.branches)
        return replace(self, branches=tuple(branches))


@dataclass(frozen=True)
class Places:
    """Places of the elements of an output in the tensors that determine them.

    Args:
        numbers: number of the position, in the shape of the output.
        is_computed: whether an element-wise operator computes the element, in the shape of the output.
        extents: shapes of the tensors by name.
    """

    numbers: Array
    is_computed: Array
    extents: Mapping[str, tuple[int, ...]]


class OutputBranches:
    """Branches of all outputs of a float graph.

    Args:
        graph: the float graph.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._present: dict[str, Array] = {}
        self._shapes: dict[object, dict[Value, tuple[int, ...]]] = {}
        self._values = {port.name: value for value, port in zip(graph.outputs, graph.output_ports, strict=True)}
        self._sources = {name: _sources(value) for name, value in self._values.items()}

    def of(self, output: str, feed: Feed) -> BranchLabels:
        """Return the branches of an output for a feed.

        The elements are found by moving labels instead of values through the network, for which the extents of its
        tensors on the feed have to be known.
        """
        sources, value = self._sources[output], self._values[output]
        if len(sources) == 1 or not self.is_apart(output):
            return BranchLabels((Branch(sources[0].name, _scale_of_chain(value)),))
        shapes, count = self._shapes_on(feed), len(sources)
        # A label is the number of the source, plus the number of the scale times the number of sources.
        start = {
            source: np.full(_shape_of(source, shapes), number + count * _SCALES.index(_scale_of_result(source)), "f4")
            for number, source in enumerate(sources)
        }
        after = lambda op, labels: labels % count + count * _SCALES.index(_scale_of(op))  # noqa: E731
        labels = _Labels(start, shapes, after).of(value)
        # A slice may leave a source out. The first feed determines the branches: feeds of other extents may leave
        # others out, whose elements count to the first branch.
        present = self._present.setdefault(output, np.unique(labels))
        places = np.minimum(np.searchsorted(present, labels), present.size - 1)
        places = np.where(present[places] == labels, places, 0)
        return BranchLabels(tuple(_branch(int(label), sources) for label in present), places)

    def places(self, output: str, feed: Feed, channel_axis: Callable[[Value, tuple[int, ...]], int]) -> Places:
        """Return the places of the elements of an output in the tensors that determine them, for a feed.

        Args:
            output: name of the output.
            feed: the feed.
            channel_axis: returns the axis of the channels of a tensor with some extents; the others are
                positions.
        """
        shapes = self._shapes_on(feed)
        start, extents = {}, {}
        for source in self._sources[output]:
            shape = _shape_of(source, shapes)
            axis = channel_axis(source, shape)
            extents[source.name] = shape
            positions = [1 if index == axis else extent for index, extent in enumerate(shape)]
            numbers = np.arange(math.prod(positions), dtype=np.float32).reshape(positions)
            start[source] = np.broadcast_to(2.0 * numbers, shape).astype(np.float32)
        # An odd label has passed through an element-wise operator.
        moved = _Labels(start, shapes, lambda _, labels: labels - labels % 2 + 1).of(self._values[output])
        labels = moved.astype(np.int64)
        return Places(labels // 2, labels % 2 > 0, extents)

    def is_apart(self, output: str) -> bool:
        """Return True if the branches of an output are known.

        They are not if its extents depend on values, as the number of boxes that a detector selects: two samples, or
        two graphs on the same sample, then have different elements.
        """
        return len(self._sources[output]) <= MOST_BRANCHES and not data_dependent_names(self._values[output].shape)

    def source(self, branch: Branch) -> Value:
        """Return the tensor of a branch."""
        value = self._graph.find(branch.tensor)
        assert value is not None, branch
        return value

    def _shapes_on(self, feed: Feed) -> dict[Value, tuple[int, ...]]:
        key = tuple(sorted((name, np.shape(array)) for name, array in feed.items()))
        if key not in self._shapes:
            shapes: dict[Value, tuple[int, ...]] = {}
            if any(not value.type.is_static for value in self._graph.values):

                def observe(value: Value, array: Array) -> None:
                    shapes[value] = array.shape

                with Session(self._graph, observed=True) as session, np.errstate(all="ignore"):
                    session.run(feed, observe=observe, borrow=True)
            self._shapes[key] = shapes
        return self._shapes[key]


def _sources(output: Value) -> list[Value]:
    """Tensors that determine elements of an output."""
    sources: dict[Value, None] = {}
    seen: set[Value] = set()
    stack = [output]
    while stack:
        value = stack.pop()
        if value in seen:
            continue
        seen.add(value)
        operands = [] if value.producer is None else _operands_of_movement(value.producer)
        if operands:
            stack += reversed(operands)
        else:
            sources[value] = None
    return list(sources)


_SCALES = tuple(ErrorScale)


def _branch(label: int, sources: Sequence[Value]) -> Branch:
    return Branch(sources[label % len(sources)].name, _SCALES[label // len(sources)])


def _scale_of(op: Op) -> ErrorScale:
    if isinstance(op, Active) and op.active_type is ActiveType.ACTIVE_SIGMOID:
        return ErrorScale.LOGIT
    is_exponential = isinstance(op, Active) and op.active_type is ActiveType.ACTIVE_EXP
    return ErrorScale.LOGARITHM if isinstance(op, Softmax) or is_exponential else ErrorScale.LINEAR


def _scale_of_result(value: Value) -> ErrorScale:
    return ErrorScale.LINEAR if value.producer is None else _scale_of(value.producer.op)


def _scale_of_chain(value: Value) -> ErrorScale:
    """Scale of an output of one branch: the scale of the last operator that computes."""
    while value.producer is not None:
        op, operands = value.producer.op, _operands_of_movement(value.producer)
        if not operands or Trait.ELEMENTWISE in op.traits:
            return _scale_of(op)
        value = operands[0]
    return ErrorScale.LINEAR


def _operands_of_movement(node: Node) -> list[Value]:
    """Operands whose elements the result of a node consists of, one by one; empty if it computes its result."""
    operands = [value for value in computed_operands(node) if value.dtype.is_float]
    if isinstance(node.op, Concat):
        return operands if len(operands) == sum(value is not None for value in node.inputs) else []
    if Trait.MOVES_DATA in node.op.traits and Trait.PADS not in node.op.traits:
        return operands[:1] if operands and operands[0] is node.inputs[0] else []
    is_of_one = len(operands) == 1 and len(computed_operands(node)) == 1
    return operands if is_of_one and Trait.ELEMENTWISE in node.op.traits else []


class _Labels:
    """Labels that move through the network instead of values.

    Args:
        start: labels of the sources.
        shapes: extents of tensors on the feed.
        after: labels of the result of an element-wise operator for labels of its operand.
    """

    def __init__(
        self,
        start: Mapping[Value, Array],
        shapes: Mapping[Value, tuple[int, ...]],
        after: Callable[[Op, Array], Array],
    ) -> None:
        self._shapes = shapes
        self._known = dict(start)
        self._after = after

    def of(self, value: Value) -> Array:
        """Labels of the elements of a tensor."""
        if value not in self._known:
            node = value.producer
            assert node is not None, "only sources have no producer"
            self._known.update(zip(node.outputs, self._move(node), strict=True))
        return self._known[value]

    def _move(self, node: Node) -> Sequence[Array]:
        moved = _operands_of_movement(node)
        if Trait.ELEMENTWISE in node.op.traits:
            labels = self._after(node.op, self.of(moved[0]))
            return [np.broadcast_to(labels, _shape_of(node.outputs[0], self._shapes))]
        arrays: list[Array | None] = []
        for value in node.inputs:
            if value is None:
                arrays.append(None)
            elif value.is_constant:
                arrays.append(value.array)
            else:
                is_moved = any(value is operand for operand in moved)
                zeros = np.zeros(_shape_of(value, self._shapes), value.dtype.numpy)
                arrays.append(self.of(value) if is_moved else zeros)
        return node.op.evaluate(*arrays)


def _shape_of(value: Value, shapes: Mapping[Value, tuple[int, ...]]) -> tuple[int, ...]:
    shape = shapes.get(value)
    return value.type.static_shape if shape is None else shape
