"""REDUCE_WINDOW, and StableHLO reductions and sort, whose function is a subgraph."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tpuconvert.frontends import emit, functions
from tpuconvert.frontends.tflite.lowering import expand, reshape
from tpuconvert.frontends.tflite.node import TfliteNode, tflite_op
from tpuconvert.frontends.tflite.operators.gather import insert_between, pad_or_crop, slice_box
from tpuconvert.frontends.tflite.operators.scatter_update import COMBINATIONS
from tpuconvert.frontends.tflite.subgraph_functions import combination_of, is_descending
from tpuconvert.schema.errors import INVALID_NODE, TOO_LARGE, UNSUPPORTED_ATTRIBUTE
from tpuconvert.schema.graph.graph import Graph, Value, static
from tpuconvert.schema.ops.ordering import Sort
from tpuconvert.schema.types import I32

_LARGEST = float(np.finfo(np.float32).max)
# By ReduceWindowFunction; the last two are ALL and ANY, which are minimum and maximum of Boolean tensors.
_FUNCTIONS = ("", "ADD", "MUL", "MINIMUM", "MAXIMUM", "MINIMUM", "MAXIMUM")


@tflite_op("REDUCE_WINDOW")
def reduce_window(node: TfliteNode, g: Graph) -> Value:
    """Reduce windows of a tensor, starting with an initial value."""
    function = node.option("reduce_function")
    if not 1 <= function < len(_FUNCTIONS):
        raise node.fail(UNSUPPORTED_ATTRIBUTE, f"reduce_function={function}")
    shape, strides, dilations = (node.ints(index) for index in range(2, 5))
    ones, margins = (1,) * len(shape), (0,) * (2 * len(shape))
    return _reduce_windows(node, _FUNCTIONS[function], shape, strides, ones, dilations, margins)


@tflite_op("STABLEHLO_REDUCE_WINDOW", limits="one tensor; a body of one sum, product or extreme")
def stablehlo_reduce_window(node: TfliteNode, g: Graph) -> Value:
    """Reduce windows of a dilated and padded tensor; the function is a subgraph."""
    if node.input_count != 2:
        raise node.fail(UNSUPPORTED_ATTRIBUTE, f"{node.input_count // 2} tensors at once", "supported: one")
    rank = node.rank(0)
    ones = (1,) * rank
    shape = node.option("window_dimensions", ones)
    strides, spreads = node.option("window_strides", ()) or ones, node.option("base_dilations", ()) or ones
    dilations, margins = node.option("window_dilations", ()) or ones, node.option("padding", ()) or (0,) * (2 * rank)
    function = combination_of(node, node.option("body_subgraph_index"))
    return _reduce_windows(node, function, shape, strides, spreads, dilations, margins)


def _reduce_windows(
    node: TfliteNode,
    function: str,
    shape: Sequence[int],
    strides: Sequence[int],
    spreads: Sequence[int],
    dilations: Sequence[int],
    margins: Sequence[int],
) -> Value:
    """Reduce one axis after another, by combining one shifted slice per position in the window."""
    g, rank = node.graph, node.rank(0)
    lists = (shape, strides, spreads, dilations)
    if any(len(numbers) != rank or min(numbers, default=1) < 1 for numbers in lists) or len(margins) != 2 * rank:
        raise node.fail(INVALID_NODE, f"windows {list(shape)}, strides {list(strides)} for {list(node.shape(0))}")
    if sum(shape) > node.tensors.file.limits.max_unrolled_nodes:
        raise node.fail(TOO_LARGE, f"windows {list(shape)} have too many positions")
    first, x = node.scalar(1), node.input(0)
    op = COMBINATIONS[function].op
    x = pad_or_crop(g, insert_between(g, emit.as_float(g, x), spreads, first), margins[::2], margins[1::2], first)
    for axis in range(rank):
        reach = dilations[axis] * (shape[axis] - 1)
        extent = static(x.shape)[axis]
        if extent <= reach:
            raise node.fail(INVALID_NODE, f"a window of {reach + 1} positions over {extent} elements")
        ranges = [range(e) for e in static(x.shape)]
        parts = []
        for position in range(shape[axis]):
            start = position * dilations[axis]
            ranges[axis] = range(start, extent - reach + start, strides[axis])
            parts.append(slice_box(g, x, ranges))
        x = functions.chain(g, op, parts)
    return emit.cast(g, _combine_with_initial(node, function, x), node.input(0).dtype)


def _combine_with_initial(node: TfliteNode, function: str, x: Value) -> Value:
    """Combine the result with the initial value (input 1), unless it is the neutral element."""
    g, dtype, first = node.graph, node.input(0).dtype, node.scalar(1)
    op, neutral, _ = COMBINATIONS[function]
    ends = (float(dtype.min), float(dtype.max)) if dtype.is_integer else (-_LARGEST, _LARGEST)
    if first == neutral or first == {-math.inf: ends[0], math.inf: ends[1]}.get(neutral):
        return x
    return g.add(op, x, expand(node.graph, emit.float_constant(g, first, "first"), static(x.shape)))


@tflite_op("STABLEHLO_REDUCE", limits="one tensor; a body of one sum, product or extreme")
def stablehlo_reduce(node: TfliteNode, g: Graph) -> Value:
    """Sum, product, maximum or minimum over axes, by the single operator in the body."""
    if node.input_count != 2:
        raise node.fail(UNSUPPORTED_ATTRIBUTE, f"{node.input_count // 2} tensors at once", "supported: one")
    function = combination_of(node, node.option("body_subgraph_index"))
    x = node.input(0)
    axes = node.axes(node.option("dimensions", ()), node.rank(0))
    if not axes:
        return x
    reduced = emit.reduce(g, COMBINATIONS[function].method, emit.as_float(g, x), axes, keep_dims=False)
    return emit.cast(g, _combine_with_initial(node, function, reduced), x.dtype)


@tflite_op("STABLEHLO_SORT", limits="one tensor; less or greater")
def stablehlo_sort(node: TfliteNode, g: Graph) -> Value:
    """Sort one tensor along an axis; the comparator is a plain less or greater."""
    node.ignore_option("is_stable")  # equal elements of one tensor are indistinguishable
    if node.input_count != 1:
        raise node.fail(UNSUPPORTED_ATTRIBUTE, f"{node.input_count} tensors sorted together", "supported: one")
    falling = is_descending(node, node.option("comparator_subgraph_index"))
    axis = node.axis(node.option("dimension"), node.rank(0))
    x = node.input(0)
    _, values = g.add_all(
        Sort(dim=axis, descending=falling, index_dtype=I32), emit.as_float(g, x), names=("order", "sorted")
    )
    return reshape(g, emit.cast(g, values, x.dtype), node.shape(0))
