"""Gemm, MatMul and Einsum as ``matrix_mul``, which multiplies two-dimensional matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.onnx.expanded_weight import expanded_weight
from tpuconvert.frontends.onnx.grouped_weight import GroupedWeight, group_matmul
from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.frontends.onnx.operators.elementwise import as_float_operand
from tpuconvert.frontends.open_extents import is_one, is_open
from tpuconvert.frontends.registry import Kind
from tpuconvert.frontends.small_integers import as_integers
from tpuconvert.schema.errors import TOO_LARGE, UNSUPPORTED_TYPE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul


def matrix_product(g: Graph, a: Value, b: Value, bias: Value | None = None) -> Value:
    """Add a ``matrix_mul``: [M, K] @ [K, N] + [1, N]."""
    return g.add(MatrixMul(), a, b) if bias is None else g.add(MatrixMul(), a, b, bias)


def _float_operand(node: OnnxNode, g: Graph, index: int) -> Value:
    """An operand of a sum of products; integers are cast to FLOAT32, which is exact below 2^24."""
    return as_float_operand(g, node.input(index))


def _result(node: OnnxNode, g: Graph, y: Value, *, scalar: bool = False) -> Result:
    """Return sums of products in the type of the operands."""
    element = node.element(0)
    return node.result(as_integers(g, y, element.graph) if element.is_integer else y, element, scalar=scalar)


def _packed_weight(node: OnnxNode, g: Graph, axis: int) -> GroupedWeight | None:
    """Return the integers of the second operand, whose inner axis is ``axis``, if it has one scale per group of it."""
    return node.grouped_weight(1, axis) or expanded_weight(node, g, 1, axis)


@onnx_op("Gemm", since=1, kind=Kind.DIRECT)
def gemm(node: OnnxNode, g: Graph) -> Result:
    """``alpha * A' @ B' + beta * C``. Integers are computed in FLOAT32."""
    if node.element(0).is_integer and not all(node.attr(name, 1.0).is_integer() for name in ("alpha", "beta")):
        raise node.fail(UNSUPPORTED_TYPE, f"alpha and beta of {node.element(0)}", "supported: integers")
    return _result(node, g, _gemm(node, g))


def _gemm(node: OnnxNode, g: Graph) -> Value:
    grouped = _packed_weight(node, g, axis=1 if node.attr("transB", 0) else 0)
    if grouped is not None and node.rank(0) == 2 and node.attr("alpha", 1.0) == 1.0:
        return _gemm_of_grouped_weight(node, g, grouped)
    a, b = _float_operand(node, g, 0), _float_operand(node, g, 1)
    if node.rank(1) != 2 or (node.rank(0) != 2 and not (node.version < 7 and node.rank(0) > 2)):
        raise node.invalid(f"operands of rank {node.rank(0)} and {node.rank(1)}")
    if node.rank(0) > 2:  # old exporters omit the Flatten before Gemm
        shape = node.shape(0)
        a = emit.reshape(g, a, (shape[0], math.prod(shape[1:])))
    if node.attr("transA", 0):
        a = emit.permute(g, a, (1, 0))
    if node.attr("transB", 0):
        b = emit.permute(g, b, (1, 0))
    if node.version < 7:
        node.optional_attr("broadcast")  # ignored: the shape of C determines the broadcast
    alpha, beta = node.attr("alpha", 1.0), node.attr("beta", 1.0)
    c = _float_operand(node, g, 2) if node.has_input(2) else None
    if c is not None and beta != 1.0:
        c = _scale(g, c, beta)
    if alpha != 1.0:
        b = _scale(g, b, alpha)
    rows, columns = emit.extents(a)[0], emit.extents(b)[1]
    if c is None or beta == 0.0:
        return matrix_product(g, a, b)
    shape = emit.extents(c)
    if emit.broadcast_shape(shape, (rows, columns)) != (rows, columns):
        raise node.invalid(f"C {list(shape)} does not broadcast to {[rows, columns]}")
    is_row = math.prod(shape[:-1]) == 1 and shape[-1] == columns
    if is_row:
        return matrix_product(g, a, b, emit.reshape(g, c, (1, columns)))
    return emit.add(g, matrix_product(g, a, b), c)


def _gemm_of_grouped_weight(node: OnnxNode, g: Graph, weight: GroupedWeight) -> Value:
    """``A' @ B + beta * C`` for a weight with one scale per block."""
    a, beta = emit.floats(node.input(0)), node.attr("beta", 1.0)
    if node.attr("transA", 0):
        a = emit.permute(g, a, (1, 0))
    if node.shape(0)[0 if node.attr("transA", 0) else 1] != weight.depth:
        raise node.invalid(f"shapes {list(node.shape(0))} and {list(node.shape(1))} do not match")
    c, columns = node.optional(2), len(weight.codes)
    if c is None or beta == 0.0:
        return group_matmul(g, a, weight)
    c = emit.floats(c) if beta == 1.0 else _scale(g, emit.floats(c), beta)
    rows = emit.extents(a)[0]
    if emit.broadcast_shape(emit.extents(c), (rows, columns)) != (rows, columns):
        raise node.invalid(f"C {list(emit.extents(c))} does not broadcast to {[rows, columns]}")
    if c.is_constant and c.array.size == columns and emit.extents(c)[-1] == columns:
        return group_matmul(g, a, weight, emit.reshape(g, c, (columns,)))
    return emit.add(g, group_matmul(g, a, weight), c)


def _scale(g: Graph, x: Value, factor: float) -> Value:
    if x.is_constant:
        return g.constant(x.array * np.float32(factor), name=x.name)
    return emit.muls(g, x, factor)


@onnx_op("MatMul", since=1, kind=Kind.DIRECT)
def matmul(node: OnnxNode, g: Graph) -> Result:
    """Matrix multiplication with NumPy's rules for ranks. Integers are computed in FLOAT32."""
    grouped = _packed_weight(node, g, axis=0)
    if grouped is not None and node.shape(0)[-1:] == (grouped.depth,):
        return node.result(group_matmul(g, emit.floats(node.input(0)), grouped), node.element(0))
    a, b = _float_operand(node, g, 0), _float_operand(node, g, 1)
    y, shape = matmul_values(node, g, a, node.shape(0), b, node.shape(1))
    return _result(node, g, emit.reshape(g, y, shape or (1,)), scalar=shape == ())


def matmul_values(
    node: OnnxNode, g: Graph, a: Value, shape_a: Sequence[int], b: Value, shape_b: Sequence[int]
) -> tuple[Value, tuple[int, ...]]:
    """Multiply two tensors of any rank; also return the shape of the result in NumPy."""
    if not shape_a or not shape_b:
        raise node.invalid("an operand has rank 0")
    left = tuple(shape_a) if len(shape_a) > 1 else (1, *shape_a)
    right = tuple(shape_b) if len(shape_b) > 1 else (*shape_b, 1)
    if left[-1] != right[-2]:
        raise node.invalid(f"shapes {list(shape_a)} and {list(shape_b)} do not match")
    batch = emit.broadcast_shape(left[:-2], right[:-2])
    y = batched_product(node, g, emit.reshape(g, a, left), emit.reshape(g, b, right))
    shape = batch + ((left[-2],) if len(shape_a) > 1 else ()) + ((right[-1],) if len(shape_b) > 1 else ())
    return y, shape


def check_batch(node: OnnxNode, batch: Sequence[int]) -> None:
    """Check the number of separate matmuls: each matrix of a batch is one TPU operator.

    Raises:
        CannotConvertError: there are more than the limit.
    """
    count = math.prod(batch)
    if not is_open(count) and count > node.limits.max_unrolled_nodes:
        raise node.fail(TOO_LARGE, f"{count} separate matmuls")


def batched_product(node: OnnxNode, g: Graph, a: Value, b: Value) -> Value:
    """Multiply [.., M, K] @ [.., K, N] with broadcast batches; one matmul if the right operand is one matrix."""
    left, right = emit.extents(a), emit.extents(b)
    m, k, n = left[-2], left[-1], right[-1]
    batch = emit.broadcast_shape(left[:-2], right[:-2])
    can_join_rows = sum(map(is_open, left[:-1])) <= 1  # a reshape can restore one symbolic extent
    if can_join_rows and is_one(math.prod(right[:-2])):
        rows = emit.reshape(g, a, (math.prod(left[:-1]), k))
        y = matrix_product(g, rows, emit.reshape(g, b, (k, n)))
        return emit.reshape(g, y, (*batch, m, n))
    check_batch(node, batch)
    rank = len(batch) + 2
    a, b = (emit.reshape(g, x, (1,) * (rank - x.rank) + emit.extents(x)) for x in (a, b))
    return g.add(BatchMatmul(), a, b)


@onnx_op("Einsum", since=12, kind=Kind.DIRECT)
def einsum(node: OnnxNode, g: Graph) -> Result:
    """Sum of products over index letters, two operands at a time: element-wise products and batched matmuls."""
    equation = node.required_attr("equation", "").replace(" ", "")
    terms, result = _parse_einsum(node, equation)
    value = _float_operand(node, g, 0)
    value, term = _diagonal_free(node, g, value, terms[0])
    last = {letter: index for index, letters in enumerate(terms) for letter in letters}
    last.update(dict.fromkeys(result, len(terms)))
    for index in range(1, len(terms)):
        other, other_term = _diagonal_free(node, g, _float_operand(node, g, index), terms[index])
        later = {letter for letter in {*term, *other_term} if last[letter] > index}
        value, term = _contract(node, g, value, term, other, other_term, later)
    summed = tuple(axis for axis, letter in enumerate(term) if letter not in result)
    if summed:
        value = emit.total(g, value, summed, keep_dims=False)
        term = "".join(letter for letter in term if letter in result)
    if term:
        value = emit.permute(g, value, [term.index(letter) for letter in result])
    return _result(node, g, value, scalar=not result)


def _parse_einsum(node: OnnxNode, equation: str) -> tuple[list[str], str]:
    """Parse the equation: the ellipsis is replaced by new letters."""
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(node.inputs) or right.count(".") not in (0, 3):
        raise node.invalid(f"equation '{equation}' for {len(node.inputs)} inputs")
    hidden = 0
    for index, term in enumerate(terms):
        if "..." in term:
            hidden = max(hidden, node.rank(index) - len(term) + 3)
    letters = "".join(chr(0x3B1 + k) for k in range(hidden))
    for index, term in enumerate(terms):
        if "..." in term:
            count = node.rank(index) - len(term) + 3
            terms[index] = term.replace("...", letters[hidden - count :])
        if len(terms[index]) != node.rank(index) or (not terms[index].replace(letters, "").isalpha() and terms[index]):
            raise node.invalid(f"equation '{equation}': term {index} for rank {node.rank(index)}")
    joined = "".join(terms)
    if not arrow:
        right = letters + "".join(sorted(x for x in set(joined) - set(letters) if joined.count(x) == 1))
    right = right.replace("...", letters)
    if len(set(right)) != len(right) or not set(right) <= set(joined):
        raise node.invalid(f"equation '{equation}': its result")
    return terms, right


def _diagonal_free(node: OnnxNode, g: Graph, value: Value, term: str) -> tuple[Value, str]:
    """Remove repeated letters of an operand: two axes with the same letter select the diagonal."""
    for letter in [x for x in dict.fromkeys(term) if term.count(x) > 1]:
        while term.count(letter) > 1:
            first = term.index(letter)
            second = term.index(letter, first + 1)
            shape = emit.extents(value)
            extent = shape[first]
            if shape[second] != extent:
                raise node.invalid(f"index '{letter}' has extents {extent} and {shape[second]}")
            rest = [k for k in range(len(shape)) if k not in (first, second)]
            square = emit.permute(g, value, [*rest, first, second])
            flat = emit.reshape(g, square, (*(shape[k] for k in rest), extent * extent))
            value = emit.slice_axis(g, flat, len(rest), 0, extent * extent, extent + 1)
            term = "".join(term[k] for k in rest) + letter
    return value, term


def _contract(
    node: OnnxNode, g: Graph, a: Value, a_term: str, b: Value, b_term: str, later: set[str]
) -> tuple[Value, str]:
    """Multiply two operands, and sum over the letters that are not used later."""
    a, a_term = _sum_lonely(g, a, a_term, set(b_term) | later)
    b, b_term = _sum_lonely(g, b, b_term, set(a_term) | later)
    shared = [letter for letter in a_term if letter in b_term]
    batch = [letter for letter in shared if letter in later]
    inner = [letter for letter in shared if letter not in later]
    rows = [letter for letter in a_term if letter not in shared]
    columns = [letter for letter in b_term if letter not in shared]
    sizes = _sizes_of(b, b_term)
    for letter, extent in _sizes_of(a, a_term).items():
        (sizes[letter],) = emit.broadcast_shape((extent,), (sizes.get(letter, 1),))
    a = _arrange_axes(g, a, a_term, [*batch, *rows, *inner], sizes)
    b = _arrange_axes(g, b, b_term, [*batch, *inner, *columns], sizes)

    def extent_of(letters: Sequence[str]) -> int:
        return math.prod(sizes[letter] for letter in letters)

    order = [*batch, *rows, *columns]
    shape = tuple(sizes[letter] for letter in order) or (1,)
    lead = tuple(sizes[letter] for letter in batch)
    if not inner and not (rows and columns):  # nothing is summed: a matmul per element would be far slower
        if columns:
            a = emit.reshape(g, a, (*lead, *(1 for _ in columns)))
        if rows:
            b = emit.reshape(g, b, (*lead, *(1 for _ in rows)))
        return emit.reshape(g, emit.mul(g, a, b), shape), "".join(order)
    left = emit.reshape(g, a, (*lead, extent_of(rows), extent_of(inner)))
    right = emit.reshape(g, b, (*lead, extent_of(inner), extent_of(columns)))
    y = batched_product(node, g, left, right)
    return emit.reshape(g, y, shape), "".join(order)


def _sizes_of(x: Value, term: str) -> dict[str, int]:
    """Extents by letter. A scalar has no letter, and the shape (1,)."""
    return dict(zip(term, emit.extents(x), strict=True)) if term else {}


def _sum_lonely(g: Graph, x: Value, term: str, needed: set[str]) -> tuple[Value, str]:
    axes = tuple(axis for axis, letter in enumerate(term) if letter not in needed)
    if not axes:
        return x, term
    return emit.total(g, x, axes, keep_dims=False), "".join(letter for letter in term if letter in needed)


def _arrange_axes(g: Graph, x: Value, term: str, order: Sequence[str], sizes: dict[str, int]) -> Value:
    """Permute the axes of ``x`` to the given order, and broadcast to full extents."""
    if not term:
        return x
    moved = emit.permute(g, x, [term.index(letter) for letter in order])
    return emit.expand(g, moved, [sizes[letter] for letter in order])
