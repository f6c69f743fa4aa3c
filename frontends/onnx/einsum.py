"""Einsum as batched matmuls of two operands at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tpuconvert.frontends import emit
from tpuconvert.frontends.onnx.matmul import batched_product
from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph import Graph, Value


@onnx_op("Einsum", since=12, kind=Kind.DIRECT)
def einsum(node: OnnxNode, g: Graph) -> Result:
    """Sum of products over index letters, as batched matmuls of two operands at a time."""
    equation = node.required_attr("equation", "").replace(" ", "")
    terms, result = _parse_einsum(node, equation)
    value = emit.floats(node.input(0))
    value, term = _diagonal_free(node, g, value, terms[0])
    for index in range(1, len(terms)):
        other, other_term = _diagonal_free(node, g, emit.floats(node.input(index)), terms[index])
        later = set("".join(terms[index + 1 :])) | set(result)
        value, term = _contract(node, g, value, term, other, other_term, later)
    summed = tuple(axis for axis, letter in enumerate(term) if letter not in result)
    if summed:
        value = emit.total(g, value, summed, keep_dims=False)
        term = "".join(letter for letter in term if letter in result)
    if term:
        value = emit.permute(g, value, [term.index(letter) for letter in result])
    return node.result(value, node.element(0), scalar=not result)


def _parse_einsum(node: OnnxNode, equation: str) -> tuple[list[str], str]:
    """Parse the equation: the ellipsis is replaced by new letters."""
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(node.inputs) or right.count(".") not in (0, 3):
        raise node.fail(INVALID_NODE, f"equation '{equation}' for {len(node.inputs)} inputs")
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
            raise node.fail(INVALID_NODE, f"equation '{equation}': term {index} for rank {node.rank(index)}")
    joined = "".join(terms)
    if not arrow:
        right = letters + "".join(sorted(x for x in set(joined) - set(letters) if joined.count(x) == 1))
    right = right.replace("...", letters)
    if len(set(right)) != len(right) or not set(right) <= set(joined):
        raise node.fail(INVALID_NODE, f"equation '{equation}': its result")
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
                raise node.fail(INVALID_NODE, f"index '{letter}' has extents {extent} and {shape[second]}")
            rest = [k for k in range(len(shape)) if k not in (first, second)]
            square = emit.permute(g, value, [*rest, first, second])
            flat = emit.reshape(g, square, (*(shape[k] for k in rest), extent * extent))
            value = emit.cut(g, flat, len(rest), 0, extent * extent, extent + 1)
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
    sizes = dict(zip(b_term, emit.extents(b), strict=True))
    for letter, extent in zip(a_term, emit.extents(a), strict=True):
        (sizes[letter],) = emit.broadcast_shape((extent,), (sizes.get(letter, 1),))
    a = _arrange_axes(g, a, a_term, [*batch, *rows, *inner], sizes)
    b = _arrange_axes(g, b, b_term, [*batch, *inner, *columns], sizes)

    def extent_of(letters: Sequence[str]) -> int:
        return math.prod(sizes[letter] for letter in letters)

    lead = tuple(sizes[letter] for letter in batch)
    left = emit.reshape(g, a, (*lead, extent_of(rows), extent_of(inner)))
    right = emit.reshape(g, b, (*lead, extent_of(inner), extent_of(columns)))
    y = batched_product(node, g, left, right)
    order = [*batch, *rows, *columns]
    return emit.reshape(g, y, tuple(sizes[letter] for letter in order) or (1,)), "".join(order)


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
