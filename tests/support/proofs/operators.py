"""Symbolic evaluation of graphs: tensors whose elements are terms.

Data movement and linear operators run their own NumPy reference, on numbers in place of elements or on unit vectors:
their index functions and weights are taken from the operator. The other operators are defined here by their formulas,
and composites by their expansion. ``tests/optimizer/test_prover.py`` compares every definition with the reference.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.support.proofs import terms
from tests.support.proofs.terms import Number, Term, exact
from tpuconvert.schema.arithmetic.elementwise import Arithmetic
from tpuconvert.schema.definition.op import Op, Trait
from tpuconvert.schema.graph.composite import Composite
from tpuconvert.schema.graph.deferred import DeferredOp
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.activation import ActivationFunction, ActiveType
from tpuconvert.schema.ops.arithmetic import BinaryArithmetic
from tpuconvert.schema.ops.arithmetic_with_scalar import Axpy, ScalarArithmetic
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.batch_norm import BatchNorm
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.channel_shift import Clshift, Crshift, Lshift, Rshift
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.compare import Comparison, ScalarComparison, TensorComparison
from tpuconvert.schema.ops.copy import Constdata
from tpuconvert.schema.ops.interpolate import Interpolate
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.ops.quantization.round_to_integer import Rounding
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.ops.upsample import Upsample
from tpuconvert.schema.types import F32, Array, DType, TensorType

_FIRST = 1 << 20
"""Number of the first element in data movement. Padding has smaller numbers."""

_FUNCTIONS: dict[str, Callable[[Term], Term]] = {
    "TANH": functools.partial(terms.function, "tanh"),
    "LN": functools.partial(terms.function, "ln"),
    "SIN": functools.partial(terms.function, "sin"),
    "COS": functools.partial(terms.function, "cos"),
    "SIGMOID": lambda x: terms.reciprocal(terms.number(1) + terms.exponential(-x)),
    "RELU": lambda x: terms.maximum(x, terms.number(0)),
    "EXP": terms.exponential,
    "ELU": lambda x: terms.choose(x, x, terms.exponential(terms.minimum(x, terms.number(0))) - terms.number(1)),
    "SQRT": terms.root,
    "RSQRT": lambda x: terms.reciprocal(terms.root(x)),
    "SQUARE": lambda x: x * x,
    "ABSVAL": lambda x: terms.maximum(x, -x),
    "ROUND": terms.rounded,
    "CEIL": lambda x: -terms.floor(-x),
    "FLOOR": terms.floor,
}
_ARITHMETIC: dict[Arithmetic, Callable[[Term, Term], Term]] = {
    Arithmetic.ADD: Term.__add__,
    Arithmetic.SUB: Term.__sub__,
    Arithmetic.MUL: Term.__mul__,
    Arithmetic.DIV: Term.__truediv__,
    Arithmetic.MAX: terms.maximum,
    Arithmetic.MIN: terms.minimum,
}
_COMPARISONS: dict[Comparison, Callable[[Term], Term]] = {
    Comparison.GT: terms.positive,
    Comparison.GE: lambda x: terms.number(1) - terms.positive(-x),
    Comparison.LT: lambda x: terms.positive(-x),
    Comparison.LE: lambda x: terms.number(1) - terms.positive(x),
    Comparison.EQ: terms.zero,
    Comparison.NE: lambda x: terms.number(1) - terms.zero(x),
}
"""A comparison of two numbers as a property of their difference."""


class CannotInterpretError(Exception):
    """An operator has no symbolic definition for these operands."""


def inputs_of(graph: Graph, extents: dict[str, int]) -> list[Array]:
    """A variable per element of every input. Symbolic extents get numbers."""
    return [
        _variables(value.name, tuple(extents.get(dim, 2) if isinstance(dim, str) else dim for dim in value.shape))
        for value in graph.inputs
    ]


def _variables(name: str, shape: tuple[int, ...]) -> Array:
    result = np.empty(shape, object)
    for place in itertools.product(*map(range, shape)):
        result[place] = terms.symbol(f"{name}[{','.join(map(str, place))}]")
    return result


def run_graph(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of a graph: arrays of terms."""
    known: dict[Value, Array] = dict(zip(graph.inputs, inputs, strict=True))
    for node in graph.sorted_nodes():
        operands = [None if value is None else _operand(value, known) for value in node.inputs]
        results = _results(node, operands)
        known.update((value, array) for value, array in zip(node.outputs, results, strict=False) if array is not None)
    return [_as_terms(_operand(value, known)) for value in graph.outputs]


def _operand(value: Value, known: dict[Value, Array]) -> Array:
    return value.array if value.is_constant else known[value]


def _results(node: Node, operands: list[Array | None]) -> tuple[Array | None, ...]:
    op = node.op
    if Trait.MOVES_DATA in op.traits or isinstance(op, (Upsample, Clshift, Crshift, Lshift, Rshift)):
        return _move(op, operands)
    if is_defined(op):
        return (define(op, node, *operands),)
    if isinstance(op, Composite) and not isinstance(op, DeferredOp):
        return _expand(op, operands)
    return _probe(op, operands)


def is_defined(op: Op) -> bool:
    """Return True if an operator is defined by a formula here."""
    if isinstance(op, Pool):
        return op.pooling_type is PoolType.MAX
    return define.dispatch(type(op)) is not define.dispatch(object)


def _as_terms(array: Array) -> Array:
    return array if array.dtype == object else _TO_TERM(array)


def _to_term(value: Any) -> Term:
    if isinstance(value, np.integer):
        return terms.number(int(value))
    if math.isinf(value):
        return terms.INFINITY if value > 0 else -terms.INFINITY
    return terms.number(exact(float(value)))


def _vectorized(function: Callable[..., Term], count: int) -> Callable[..., Array]:
    """Apply a function to arrays that broadcast. NumPy returns a bare object for arrays without axes."""
    ufunc = np.frompyfunc(function, count, 1)
    return lambda *arrays: _boxed(ufunc(*arrays))


def _boxed(item: Any) -> Array:
    if isinstance(item, np.ndarray):
        return item
    result = np.empty((), object)
    result[()] = item
    return result


_TO_TERM = _vectorized(_to_term, 1)


def _move(op: Op, operands: list[Array | None]) -> tuple[Array, ...]:
    """Move the numbers of elements with the operator's reference, and look up the elements."""
    table: list[Term] = []
    arrays: list[Array | None] = []
    for index, operand in enumerate(operands):
        if operand is None or (index and operand.dtype.kind in "iu"):  # the second kind are indices
            arrays.append(operand)
            continue
        arrays.append((np.arange(operand.size) + _FIRST + len(table)).astype(np.float32).reshape(operand.shape))
        table += list(_as_terms(operand).reshape(-1))

    def element(value: float) -> Term:
        return table[int(value) - _FIRST] if value >= _FIRST else terms.number(float(value))

    return tuple(_vectorized(element, 1)(result) for result in op.evaluate(*arrays))


def _expand(op: Composite, operands: list[Array | None]) -> tuple[Array, ...]:
    graph = Graph(op.name)
    values: list[Value | None] = []
    for index, operand in enumerate(operands):
        if operand is None:
            values.append(None)
        elif operand.dtype == object:
            values.append(graph.input(f"operand_{index}", TensorType(F32, operand.shape)))
        else:
            values.append(graph.constant(operand))
    for value in op.expand(graph, *values):
        graph.output(value)
    return tuple(run_graph(graph, [item for item in operands if item is not None and item.dtype == object]))


Row = tuple[Number, list[tuple[int, Number]]]
"""An element of an affine map: its bias, and the coefficients of the elements of the operands."""


def _probe(op: Op, operands: list[Array | None]) -> tuple[Array | None, ...]:
    """Evaluate an operator that is affine in the operands that are not constant: find its matrix with unit vectors."""
    is_affine = Trait.LINEAR in op.traits or isinstance(op, (BatchNorm, Pool, Interpolate, DeferredOp))
    if not is_affine or (Trait.LINEAR in op.traits and operands[1] is not None and operands[1].dtype == object):
        raise CannotInterpretError(f"{op} has no symbolic definition for these operands")
    known = tuple(
        None if item is None else (item.shape, None if item.dtype == object else item.tobytes()) for item in operands
    )
    shape, rows = _matrix(op, known)
    elements = [term for item in operands if item is not None and item.dtype == object for term in item.reshape(-1)]
    result = np.empty(len(rows), object)
    for index, (bias, factors) in enumerate(rows):
        result[index] = terms.combine([(1, terms.number(bias)), *((factor, elements[k]) for k, factor in factors)])
    return (result.reshape(shape), *([None] * (len(op.outputs) - 1)))


@functools.lru_cache(maxsize=64)
def _matrix(op: Op, operands: tuple[Any, ...]) -> tuple[tuple[int, ...], list[Row]]:
    arrays = [
        None
        if item is None
        else np.zeros(item[0], np.float32)
        if item[1] is None
        else np.frombuffer(item[1], np.float32).reshape(item[0])
        for item in operands
    ]
    bias = op.evaluate(*arrays)[0]
    columns: list[list[tuple[int, Number]]] = [[] for _ in range(bias.size)]
    position = 0
    for array, item in zip(arrays, operands, strict=True):
        if item is None or item[1] is not None:
            continue
        for place in range(array.size):
            array.reshape(-1)[place] = 1
            difference = (op.evaluate(*arrays)[0].astype(np.float64) - bias).reshape(-1)
            for row in np.flatnonzero(difference):
                columns[row].append((position, exact(float(np.float32(difference[row])))))
            array.reshape(-1)[place] = 0
            position += 1
    numbers = [exact(float(value)) for value in bias.reshape(-1)]
    return bias.shape, list(zip(numbers, columns, strict=True))


@functools.singledispatch
def define(op: Any, node: Node, *operands: Array) -> Array:
    """The result of an operator, from its formula."""
    raise CannotInterpretError(f"{op} has no symbolic definition")


def _saturated(dtype: DType, array: Array) -> Array:
    if dtype.is_float:
        return array
    low, high = terms.number(int(dtype.min)), terms.number(int(dtype.max))
    return _vectorized(lambda x: terms.maximum(low, terms.minimum(high, x)), 1)(array)


@define.register
def _(op: BinaryArithmetic, node: Node, a: Array, b: Array) -> Array:
    result = _vectorized(_ARITHMETIC[op.arithmetic], 2)(_as_terms(a), _as_terms(b))
    return _saturated(node.output.dtype, result)


@define.register
def _(op: ScalarArithmetic, node: Node, x: Array) -> Array:
    scalar = _to_term(op.scalar.array[()])
    compute = _ARITHMETIC[op.arithmetic]
    first = op.scalar_first
    result = _vectorized(lambda item: compute(scalar, item) if first else compute(item, scalar), 1)(_as_terms(x))
    return _saturated(node.output.dtype, result)


@define.register
def _(op: Axpy, node: Node, x: Array, previous: Array) -> Array:
    factor = _to_term(op.scalar.array[()])
    return _vectorized(lambda a, b: factor * a + b, 2)(_as_terms(x), _as_terms(previous))


@define.register
def _(op: TensorComparison, node: Node, a: Array, b: Array) -> Array:
    holds = _COMPARISONS[op.comparison]
    return _vectorized(lambda one, two: holds(one - two), 2)(_as_terms(a), _as_terms(b))


@define.register
def _(op: ScalarComparison, node: Node, x: Array) -> Array:
    holds, scalar = _COMPARISONS[op.comparison], _to_term(op.scalar_i1.array[()])
    return _vectorized(lambda item: holds(item - scalar), 1)(_as_terms(x))


@define.register
def _(op: ConditionSelect, node: Node, condition: Array, one: Array, other: Array) -> Array:
    choices = (item.reshape(()) if item.size == 1 else item for item in (_as_terms(one), _as_terms(other)))
    return _vectorized(terms.choose, 3)(_as_terms(condition), *choices)


@define.register
def _(op: ActivationFunction, node: Node, x: Array) -> Array:
    if op.active_type is ActiveType.ACTIVE_LEAKY_RELU:
        slope = terms.number(float(np.float32(getattr(op, "params", (0,))[0])))
        return _vectorized(lambda item: terms.choose(item, item, slope * item), 1)(x)
    return _vectorized(_FUNCTIONS[op.active_type.name.removeprefix("ACTIVE_")], 1)(_as_terms(x))


@define.register
def _(op: Rounding, node: Node, x: Array) -> Array:
    return _vectorized(_FUNCTIONS[op.name.upper()], 1)(_as_terms(x))


@define.register
def _(op: Clamp, node: Node, x: Array) -> Array:
    low, high = _to_term(op.min.array[()]), _to_term(op.max.array[()])
    return _vectorized(lambda item: terms.minimum(terms.maximum(item, low), high), 1)(_as_terms(x))


@define.register
def _(op: Cast, node: Node, x: Array) -> Array:
    source = node.inputs[0]
    assert source is not None
    if op.out_dtype.is_float:
        return x
    nearest = _vectorized(terms.rounded, 1)(_as_terms(x)) if source.dtype.is_float else x
    return _saturated(op.out_dtype, nearest)


@define.register
def _(op: Constdata, node: Node, x: Array) -> Array:
    return x


@define.register
def _(op: Reduce, node: Node, x: Array) -> Array:
    axes = sorted({axis % x.ndim for axis in op.axis_list[: op.axis_num]})
    rest = [axis for axis in range(x.ndim) if axis not in axes]
    count = math.prod(x.shape[axis] for axis in axes)
    rows = _as_terms(x).transpose(*rest, *axes).reshape(-1, count)
    result = np.empty(len(rows), object)
    for index, row in enumerate(rows):
        result[index] = _REDUCTIONS[op.method](list(row))
    return result.reshape(op.infer(TensorType(F32, x.shape))[0].static_shape)


def _mean(items: list[Term]) -> Term:
    return _sum(items) / terms.number(len(items))


def _sum(items: list[Term]) -> Term:
    return terms.combine((1, item) for item in items)


_REDUCTIONS: dict[ReduceMethodType, Callable[[list[Term]], Term]] = {
    ReduceMethodType.REDUCE_MEAN: _mean,
    ReduceMethodType.REDUCE_SUM: _sum,
    ReduceMethodType.REDUCE_MAX: lambda items: terms.maximum(*items),
    ReduceMethodType.REDUCE_MIN: lambda items: terms.minimum(*items),
    ReduceMethodType.REDUCE_PROD: lambda items: functools.reduce(Term.__mul__, items),
}


@define.register
def _(op: Softmax, node: Node, x: Array) -> Array:
    powers = np.moveaxis(_vectorized(terms.exponential, 1)(_as_terms(x)), op.axis, -1)
    result = np.empty_like(powers)
    for place in np.ndindex(*powers.shape[:-1]):
        total = terms.reciprocal(_sum(list(powers[place])))
        for index, power in enumerate(powers[place]):
            result[(*place, index)] = power * total
    return np.moveaxis(result, -1, op.axis)


@define.register
def _(op: MatrixMul, node: Node, left: Array, right: Array, bias: Array | None = None) -> Array:
    product = _matmul(left, right)
    return product if bias is None else _vectorized(Term.__add__, 2)(product, _as_terms(bias))


@define.register
def _(op: BatchMatmul, node: Node, left: Array, right: Array) -> Array:
    a = left.swapaxes(-1, -2) if op.left_transpose else left
    b = right.swapaxes(-1, -2) if op.right_transpose else right
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    result = np.empty((*batch, a.shape[-2], b.shape[-1]), object)
    a, b = (np.broadcast_to(item, batch + item.shape[-2:]) for item in (a, b))
    for place in np.ndindex(*batch):
        result[place] = _matmul(a[place], b[place])
    return result


def _matmul(a: Array, b: Array) -> Array:
    result = np.empty((len(a), b.shape[1]), object)
    if b.dtype != object:
        factors = [[exact(float(value)) for value in column] for column in b.T]
        for row, column in np.ndindex(*result.shape):
            result[row, column] = terms.combine(zip(factors[column], _as_terms(a[row]), strict=True))
        return result
    a = _as_terms(a)
    for row, column in np.ndindex(*result.shape):
        result[row, column] = _sum([x * y for x, y in zip(a[row], b[:, column], strict=True)])
    return result


@define.register
def _(op: Pool, node: Node, x: Array) -> Array:
    """Maximum pooling: unit vectors find the elements of each window."""
    below = np.full(x.shape, -1, np.float32)
    outside = op.evaluate(below)[0]
    if not (outside == -1).all():
        raise CannotInterpretError(f"{op}: a window has no element of the image")
    windows: list[list[Term]] = [[] for _ in range(outside.size)]
    for place, term in enumerate(x.reshape(-1)):
        below.reshape(-1)[place] = 1
        for window in np.flatnonzero(op.evaluate(below)[0] == 1):
            windows[window].append(term)
        below.reshape(-1)[place] = -1
    result = np.empty(len(windows), object)
    for index, window in enumerate(windows):
        result[index] = terms.maximum(*window)
    return result.reshape(outside.shape)
