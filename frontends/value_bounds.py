"""Bounds of the elements of a value, derived from the nodes before it, constants and the types of the model's inputs.

They decide whether a cast or a sum of integers can leave its type. A bound of a float value is also valid for its
rounded results, because rounding is monotonic. NaN is not covered.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from tpuconvert.schema.arithmetic.elementwise import Arithmetic
from tpuconvert.schema.definition.op import Op, Trait
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import BinaryArithmetic, Div, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Divs, Muls, ScalarArithmetic
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.bit_logic import ScalarLogic, TensorLogic
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.generation import NumberLike
from tpuconvert.schema.ops.host.unpool import HostMaxPositions
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.ordering import Arg, Argsort, Sort, Topk
from tpuconvert.schema.ops.pad import Pad
from tpuconvert.schema.ops.quantization.round_to_integer import Ceil, Floor
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.selection import ConditionSelect, Select
from tpuconvert.schema.ops.shifts.shift_by_amount import ArithRshifts
from tpuconvert.schema.types import DType

Bounds = tuple[float, float]
"""Lowest and highest element. Integers of up to 32 bits are exact in a float of Python."""

UNKNOWN: Bounds = (-math.inf, math.inf)
_BOOLEAN: Bounds = (0.0, 1.0)
LONGEST_EXTENT = 1 << 20
"""Largest extent that is assumed for a symbolic axis."""

_MOST_NODES = 32
"""Most nodes that are examined for one value, so that the time for a chain of nodes is linear in its length."""

_MOST_ELEMENTS = 1 << 20
"""Largest constant that is read. Larger ones are weights, whose bounds decide nothing."""

_RULES = (
    *(BinaryArithmetic, ScalarArithmetic, ConditionSelect, Select, Clamp, Cast, Floor, Ceil, Active, Reduce),
    *(NumberLike, Arg, Argsort, Topk, Sort, MatrixMul, BatchMatmul, Conv, HostMaxPositions),
    *(ArithRshifts, TensorLogic, ScalarLogic),
)
"""Operators whose results have bounds that follow from the bounds of their operands."""


class ValueBounds:
    """Bounds of the values of a graph. They are stored: values of a graph that grows stay as they are.

    Args:
        graph: its inputs are inputs of the model, or of a subgraph.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._bounds: dict[Value, Bounds] = {}

    def of(self, value: Value) -> Bounds:
        """Bounds of the elements of a value, from stored bounds and at most ``_MOST_NODES`` nodes before the value."""
        pending = [value]
        left = _MOST_NODES
        while pending:
            last = pending[-1]
            missing = [x for x in _operands(last) if x not in self._bounds] if last not in self._bounds else []
            if missing and left > 0:
                left -= 1
                pending += missing
                continue
            if last not in self._bounds:
                self._bounds[last] = self._find(last)
            pending.pop()
        return self._bounds[value]

    def assume(self, value: Value, bounds: Bounds) -> None:
        """Store bounds that are known from the meaning of a value."""
        self._bounds[value] = bounds

    def before_saturation(self, node: Node, result: Value) -> Bounds:
        """Bounds of a result of a node as an exact number, before it saturates to its type."""
        for item in _operands(result):
            self.of(item)
        return self._derive(node, result)

    def _derive(self, node: Node, result: Value) -> Bounds:
        """Derive the bounds of a result from the stored bounds of the operands."""
        if not _has_rule(node.op):
            return UNKNOWN
        bounds = [self._known_or_range(item) for item in node.inputs if item is not None]
        remainder = self._remainder(node)
        low, high = _of_result(node, result, bounds) if remainder is None else remainder
        return UNKNOWN if math.isnan(low) or math.isnan(high) else (low, high)

    def _known_or_range(self, value: Value) -> Bounds:
        return self._bounds.get(value) or (_of_array(value) if value.is_constant else _range(value.dtype))

    def _find(self, value: Value) -> Bounds:
        if value.is_constant:
            return _of_array(value)
        limits = _range(value.dtype)
        if value.producer is None:
            ports = zip(self._graph.inputs, self._graph.input_ports, strict=False)
            if value.quant is not None:
                return limits
            return next((_of_port(port.dtype, value) for item, port in ports if item is value), limits)
        low, high = self._derive(value.producer, value)
        narrowed = (max(low, limits[0]), min(high, limits[1]))
        return narrowed if narrowed[0] <= narrowed[1] else limits

    def _remainder(self, node: Node) -> Bounds | None:
        """Bounds of ``x - y * floor(x / y)``, or of the truncated form: it is smaller than ``y`` in magnitude."""
        multiple = node.inputs[1].producer if isinstance(node.op, Sub) and node.inputs[1] is not None else None
        if multiple is None or not isinstance(multiple.op, (Mul, Muls)):
            return None
        quotient = multiple.inputs[0]
        divisions = {item.producer for item in _rounded(quotient)}
        division = divisions.pop() if len(divisions) == 1 else None
        if division is None or not isinstance(division.op, (Div, Divs)) or division.inputs[0] is not node.inputs[0]:
            return None
        if isinstance(division.op, Divs) and isinstance(multiple.op, Muls) and division.op.scalar == multiple.op.scalar:
            largest = abs(float(division.op.scalar.value))
        elif isinstance(division.op, Div) and isinstance(multiple.op, Mul) and multiple.inputs[1] is division.inputs[1]:
            assert division.inputs[1] is not None
            largest = max(map(abs, self._known_or_range(division.inputs[1])))
        else:
            return None
        return -largest, largest


def _rounded(value: Value | None) -> list[Value]:
    """Values that a floor, or the floor and ceil of a truncation, round; none for other values."""
    node = None if value is None else value.producer
    if node is not None and isinstance(node.op, ConditionSelect):
        nodes = [item.producer for item in node.inputs[1:] if item is not None]
    else:
        nodes = [node]
    if not all(each is not None and isinstance(each.op, (Floor, Ceil)) for each in nodes):
        return []
    return [item for each in nodes if each is not None for item in each.inputs if item is not None]


def _operands(value: Value) -> list[Value]:
    """Operands of the node that computes a value, if bounds of the value follow from theirs."""
    node = value.producer
    return [] if node is None or not _has_rule(node.op) else [x for x in node.inputs if x is not None]


def _has_rule(op: Op) -> bool:
    has_trait = bool(op.traits & (Trait.SHAPE_ONLY | Trait.MOVES_DATA))
    return isinstance(op, _RULES) or op.is_non_negative() or op.keeps_sign() or has_trait


def are_within(bounds: Bounds, limits: Bounds) -> bool:
    """Return True if the bounds are inside other bounds."""
    return limits[0] <= bounds[0] and bounds[1] <= limits[1]


def _of_port(dtype: str, value: Value) -> Bounds:
    if dtype == "bool":
        return _BOOLEAN
    low, high = _range(value.dtype)
    return (max(low, 0.0) if dtype.startswith("uint") else low), high


def _range(dtype: DType) -> Bounds:
    return (float(dtype.min), float(dtype.max)) if dtype.is_integer else UNKNOWN


def _of_array(value: Value) -> Bounds:
    numbers = value.array
    if numbers.size > _MOST_ELEMENTS:
        return _range(value.dtype)
    if not numbers.size or (numbers.dtype.kind == "f" and np.isnan(numbers).any()):
        return UNKNOWN
    return float(numbers.min()), float(numbers.max())


def _union(bounds: Iterable[Bounds]) -> Bounds:
    lows, highs = zip(*bounds, strict=True)
    return min(lows), max(highs)


def _of_result(node: Node, result: Value, bounds: list[Bounds]) -> Bounds:
    op = node.op
    if Trait.COMPARISON in op.traits:
        return _BOOLEAN
    if isinstance(op, Mul) and node.inputs[0] is node.inputs[1]:
        return _of_activation(ActiveType.ACTIVE_SQUARE, bounds[0])
    if isinstance(op, BinaryArithmetic):
        return arithmetic_bounds(op.arithmetic, bounds[0], bounds[1])
    if isinstance(op, ScalarArithmetic):
        number = (float(op.scalar.value),) * 2
        return arithmetic_bounds(op.arithmetic, *((number, bounds[0]) if op.scalar_first else (bounds[0], number)))
    if Trait.MOVES_DATA in op.traits:
        return _union([*_moved(node, bounds), *([(float(op.pad_val.value),) * 2] if isinstance(op, Pad) else [])])
    if isinstance(op, (ConditionSelect, Select)):
        return _union(bounds[-2:])
    if isinstance(op, Clamp):
        low, high = bounds[0]
        return min(max(low, op.min.value), op.max.value), max(min(high, op.max.value), op.min.value)
    return _of_function(op, node, result, bounds)


def _moved(node: Node, bounds: list[Bounds]) -> list[Bounds]:
    """Bounds of the operands whose elements are moved; the other operands are indices or shapes."""
    decides = node.op.decides_by
    names = [declared.name for declared in node.op.inputs]
    moved = [item for k, item in enumerate(bounds) if k >= len(names) or names[k] not in decides]
    return moved or bounds


def _nearest(number: float) -> float:
    """Round to the nearest integer, ties away from zero."""
    return math.copysign(math.floor(abs(number) + 0.5), number) if math.isfinite(number) else number


def _of_function(op: Op, node: Node, result: Value, bounds: list[Bounds]) -> Bounds:
    if isinstance(op, Cast):
        low, high = bounds[0]
        if not op.out_dtype.is_integer or node.inputs[0].dtype.is_integer:  # type: ignore[union-attr]  # not optional
            return low, high
        return math.floor(low + 0.5) if math.isfinite(low) else low, math.ceil(high - 0.5) if math.isfinite(
            high
        ) else high
    if isinstance(op, (Floor, Ceil)):
        function = math.floor if isinstance(op, Floor) else math.ceil
        low, high = bounds[0]
        return (function(low) if math.isfinite(low) else low), (function(high) if math.isfinite(high) else high)
    if isinstance(op, Active):
        return _of_activation(op.active_type, bounds[0])
    if isinstance(op, Reduce):
        return _of_reduction(op, node, bounds[0])
    if isinstance(op, NumberLike):
        return (float(op.scalar_i.value),) * 2
    if isinstance(op, (Arg, Argsort)) or (isinstance(op, (Topk, Sort)) and result.dtype is DType.INT32):
        axis = op.axis if isinstance(op, (Arg, Topk)) else op.dim
        return 0.0, float(max(_extent(node.inputs[0], axis) - 1, 0))
    if isinstance(op, (Topk, Sort)):
        return bounds[0]
    if isinstance(op, HostMaxPositions):
        return 0.0, float(max(math.prod(_extent(node.inputs[0], axis) for axis in range(result.rank)) - 1, 0))
    if Trait.SHAPE_ONLY in op.traits:  # extents and positions
        return 0.0, float(max([LONGEST_EXTENT, *(d for d in node.inputs[0].shape if isinstance(d, int))]))  # type: ignore[union-attr]  # not optional
    if isinstance(op, Conv):  # padding adds products that are 0
        return _of_products(math.prod(_extent(node.inputs[1], axis) for axis in (1, 2, 3)), bounds)
    if isinstance(op, (MatrixMul, BatchMatmul)):
        is_transposed = isinstance(op, BatchMatmul) and op.left_transpose
        return _of_products(_extent(node.inputs[0], -2 if is_transposed else -1), bounds)
    return _of_bits(op, bounds)


def _of_bits(op: Op, bounds: list[Bounds]) -> Bounds:
    if isinstance(op, ArithRshifts):
        amount = min(int(op.scalar_num.value), 32)
        low, high = bounds[0]
        return (low // 2**amount, high // 2**amount) if amount >= 0 else UNKNOWN
    if isinstance(op, (TensorLogic, ScalarLogic)):
        numbers = [*bounds, *([(float(op.scalar_i.value),) * 2] if isinstance(op, ScalarLogic) else [])]
        if op.logic is np.bitwise_and:
            highs = [high for low, high in numbers if low >= 0]
            return (0.0, min(highs)) if highs else UNKNOWN
        low, high = _union(numbers)
        return (0.0, float((1 << int(high).bit_length()) - 1)) if low >= 0 and high < 1 << 31 else UNKNOWN
    is_non_negative = op.is_non_negative() or (op.keeps_sign() and all(low >= 0 for low, _ in bounds))
    return (0.0, math.inf) if is_non_negative else UNKNOWN


def arithmetic_bounds(arithmetic: Arithmetic, a: Bounds, b: Bounds) -> Bounds:
    """Bounds of ``a OP b`` as an exact number; NaN where infinite bounds cancel."""
    if arithmetic is Arithmetic.ADD:
        return a[0] + b[0], a[1] + b[1]
    if arithmetic is Arithmetic.SUB:
        return a[0] - b[1], a[1] - b[0]
    if arithmetic is Arithmetic.MAX:
        return max(a[0], b[0]), max(a[1], b[1])
    if arithmetic is Arithmetic.MIN:
        return min(a[0], b[0]), min(a[1], b[1])
    if arithmetic is Arithmetic.MUL:
        return _corners([x * y for x in a for y in b])
    if b[0] > 0 or b[1] < 0:
        return _corners([x / y for x in a for y in b])
    return UNKNOWN


def _corners(products: list[float]) -> Bounds:
    """Extremes of the products of bounds; ``0 * inf`` is unknown."""
    return UNKNOWN if any(map(math.isnan, products)) else (min(products), max(products))


def _of_activation(kind: ActiveType, bounds: Bounds) -> Bounds:
    low, high = bounds
    if kind is ActiveType.ACTIVE_RELU:
        return max(low, 0.0), max(high, 0.0)
    if kind is ActiveType.ACTIVE_ABSVAL:
        return (0.0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))
    if kind is ActiveType.ACTIVE_SQUARE:
        return 0.0, max(low * low, high * high)
    if kind is ActiveType.ACTIVE_SQRT and low >= 0:
        return math.sqrt(low), math.sqrt(high)
    if kind is ActiveType.ACTIVE_SIGMOID:
        return _BOOLEAN
    if kind in (ActiveType.ACTIVE_TANH, ActiveType.ACTIVE_SIN, ActiveType.ACTIVE_COS):
        return -1.0, 1.0
    return (0.0, math.inf) if kind in (ActiveType.ACTIVE_EXP, ActiveType.ACTIVE_RSQRT) else UNKNOWN


def _extent(value: Value | None, axis: int) -> int:
    assert value is not None
    extent = value.shape[axis]
    return extent if isinstance(extent, int) else LONGEST_EXTENT


def _of_reduction(op: Reduce, node: Node, bounds: Bounds) -> Bounds:
    low, high = bounds
    count = math.prod(_extent(node.inputs[0], axis) for axis in op.axis_list[: op.axis_num])
    if op.method is ReduceMethodType.REDUCE_SUM:
        return (low * count if count else 0.0), (high * count if count else 0.0)
    if op.method is ReduceMethodType.REDUCE_PROD:
        peak = max(abs(low), abs(high))
        largest = peak if peak <= 1 else math.inf if count * math.log2(peak) > 1000 else float(peak**count)
        return (0.0 if low >= 0 else -max(largest, 1.0)), max(largest, 1.0)
    return low, high


def _of_products(depth: float, bounds: list[Bounds]) -> Bounds:
    """Bounds of a sum of ``depth`` products or less, plus an optional bias."""
    low, high = arithmetic_bounds(Arithmetic.MUL, bounds[0], bounds[1])
    low, high = min(low, 0.0) * depth, max(high, 0.0) * depth
    if len(bounds) > 2:
        low, high = low + bounds[2][0], high + bounds[2][1]
    return low, high
