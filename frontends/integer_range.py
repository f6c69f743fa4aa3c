"""Find integers of a source that TPU operators round or saturate, and record them as deviations.

The graph has neither 64-bit integers nor a wrap-around of INT32, BM1682 and BM1684 compute INT32 in FLOAT32, and no
chip compares, selects, gathers or sums INT32: converters cast it to FLOAT32, which is exact below 2^24, and back. A
deviation is recorded unless the bounds of the elements prove that it cannot occur.
"""

from __future__ import annotations

from collections.abc import Iterable

from tpuconvert.frontends.value_bounds import Bounds, ValueBounds, are_within
from tpuconvert.schema.arithmetic.elementwise import Arithmetic
from tpuconvert.schema.definition.op import Trait
from tpuconvert.schema.graph.control_flow import all_graphs
from tpuconvert.schema.graph.graph import Graph, Node, Source, Value
from tpuconvert.schema.ops.arithmetic import BinaryArithmetic, Div
from tpuconvert.schema.ops.arithmetic_with_scalar import ScalarArithmetic
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.compare import ScalarComparison, TensorComparison
from tpuconvert.schema.ops.selection import Where
from tpuconvert.schema.types import EXACT_FLOAT32, F32, I32, Chip

_EXTREMES = (Arithmetic.MAX, Arithmetic.MIN)
_FLOAT_LIMIT = float(EXACT_FLOAT32)
_EXACT_FLOATS: Bounds = (-_FLOAT_LIMIT, _FLOAT_LIMIT)
_BELOW_LIMIT: Bounds = (1 - _FLOAT_LIMIT, _FLOAT_LIMIT - 1)
_INT32: Bounds = (float(I32.min), float(I32.max))

ROUNDED = "integers beyond 2^24 are rounded, {chip} computes them in FLOAT32"
SATURATED = "results beyond 32 bits saturate at the limits of INT32"


def note_inexact_integers(graph: Graph, chip: Chip) -> None:
    """Record the deviations of a graph of a frontend and its subgraphs on a chip."""
    for each in all_graphs(graph):
        if any(value.dtype is I32 and not value.is_constant for value in each.values):
            _Finder(each, chip).run()


class _Finder:
    def __init__(self, graph: Graph, chip: Chip) -> None:
        self._graph = graph
        self._chip = chip
        self._bounds = ValueBounds(graph)
        self._through_float: set[Value] = set()  # integers of a source that a converter has cast to FLOAT32
        self._limited: set[Node] = set()

    def run(self) -> None:
        groups: dict[tuple[Source, ...], list[Node]] = {}
        nodes = self._graph.sorted_nodes()
        self._find_limited([node for node in nodes if _is_extreme(node)])
        for node in nodes:
            groups.setdefault(node.sources, []).append(node)
        for sources, nodes in groups.items():
            if any(
                value is not None and value.dtype is I32 for node in nodes for value in (*node.inputs, *node.outputs)
            ):
                for text in self._texts(nodes):
                    with self._graph.source(*(sources or (self._unknown_source(nodes),))):
                        self._graph.note_deviation(text.format(chip=self._chip.value.upper()))

    def _unknown_source(self, nodes: list[Node]) -> Source:
        """Source of nodes without a source node, such as the conversion of an output: their last result."""
        return Source(self._graph.file, nodes[-1].outputs[0].name, nodes[-1].op.name)

    def _texts(self, nodes: list[Node]) -> list[str]:
        """Deviations of the nodes of one source node."""
        members = set(nodes)
        results = [value for node in nodes for value in node.outputs if self._leaves(value, members)]
        are_integers = any(value.dtype.is_integer for value in results)
        texts = (self._text(node, members, are_integers) for node in _data_nodes(nodes, results))
        return list(dict.fromkeys(text for text in texts if text))

    def _leaves(self, value: Value, members: set[Node]) -> bool:
        return self._graph.is_output(value) or any(user not in members for user, _ in value.uses)

    def _text(self, node: Node, members: set[Node], are_integers: bool) -> str:
        op, result = node.op, node.outputs[0]
        operands = [value for value in node.inputs if value is not None]
        if isinstance(op, Cast) and operands[0].dtype.is_integer and result.dtype is F32:
            if self._leaves(result, members):
                return ""  # a cast of the source, which rounds too
            self._through_float.add(result)
            is_exact = are_within(self._bounds.of(operands[0]), _EXACT_FLOATS) or self._only_decides_exactly(result)
            decides = any(user.op.decides_by for user, _ in result.uses)
            return "" if is_exact or not (are_integers or decides) else ROUNDED
        is_arithmetic = isinstance(op, (BinaryArithmetic, ScalarArithmetic))
        if result.dtype is I32 and (is_arithmetic or isinstance(op, Clamp)):
            return self._text_of_arithmetic(node, operands)
        if result.dtype is F32 and Trait.COMPARISON not in op.traits and not self._through_float.isdisjoint(operands):
            self._through_float.add(result)
            if isinstance(op, Div) and operands[0] in self._through_float:  # an integer divisor is 1 or more
                largest = max(map(abs, self._bounds.of(operands[0])))
                self._bounds.assume(result, (-largest, largest))
                return ""
            exact = self._bounds.before_saturation(node, result)
            return "" if not are_integers or are_within(exact, _EXACT_FLOATS) else ROUNDED
        return ""

    def _text_of_arithmetic(self, node: Node, values: Iterable[Value]) -> str:
        op = node.op
        numbers = [op.scalar] if isinstance(op, ScalarArithmetic) else [op.min, op.max] if isinstance(op, Clamp) else []
        operands = [*(self._bounds.of(value) for value in values), *((float(n.value),) * 2 for n in numbers)]
        if isinstance(op, Clamp):  # bounds below 2^24 remove what was rounded
            is_exact = are_within(operands[0], _EXACT_FLOATS) or all(are_within(b, _BELOW_LIMIT) for b in operands[1:])
            return "" if is_exact else ROUNDED
        exact = self._bounds.before_saturation(node, node.outputs[0])
        is_exact = all(are_within(b, _EXACT_FLOATS) for b in (*operands, exact)) or node in self._limited
        if self._chip is not Chip.BM1686 and not is_exact:
            return ROUNDED
        return "" if are_within(exact, _INT32) else SATURATED

    def _find_limited(self, extremes: list[Node]) -> None:
        """Find maxima and minima of INT32 after which others remove everything that was rounded."""
        bounds = [self._bounds.of(node.outputs[0]) for node in extremes]
        for node, bound in zip(reversed(extremes), reversed(bounds), strict=True):
            result = node.outputs[0]
            is_inner = bool(result.uses) and not self._graph.is_output(result)
            if are_within(bound, _BELOW_LIMIT) or (is_inner and all(user in self._limited for user, _ in result.uses)):
                self._limited.add(node)

    def _only_decides_exactly(self, value: Value) -> bool:
        """Return True if a value is only compared with numbers below 2^24: rounding does not change the relation."""
        return all(self._compares_exactly(user, index) for user, index in value.uses)

    def _compares_exactly(self, user: Node, index: int) -> bool:
        if isinstance(user.op, Where):  # positions of elements that are not 0
            return True
        if isinstance(user.op, ScalarComparison):
            return abs(user.op.scalar_i1.value) < _FLOAT_LIMIT
        if not isinstance(user.op, TensorComparison) or (other := user.inputs[1 - index]) is None:
            return False
        return are_within(self._bounds.of(other), _BELOW_LIMIT)


def _is_extreme(node: Node) -> bool:
    op = node.op
    if not isinstance(op, (BinaryArithmetic, ScalarArithmetic)):
        return False
    return op.arithmetic in _EXTREMES and node.outputs[0].dtype is I32


def _data_nodes(nodes: list[Node], results: Iterable[Value]) -> list[Node]:
    """Nodes of a list whose results reach ``results`` as data, not only as an index that an operator gathers by."""
    reached = {value.producer for value in results}
    data_nodes = []
    for node in reversed(nodes):
        if node not in reached:
            continue
        data_nodes.append(node)
        for index, (value, declared) in enumerate(zip(node.inputs, _declared(node), strict=False)):
            is_index = index > 0 and declared in node.op.decides_by and not node.op.decides_elements
            if value is not None and value.producer is not None and not is_index:
                reached.add(value.producer)
    return data_nodes[::-1]


def _declared(node: Node) -> list[str]:
    names = [operand.name for operand in node.op.inputs]
    return names + names[-1:] * (len(node.inputs) - len(names))  # the last one may be variadic
