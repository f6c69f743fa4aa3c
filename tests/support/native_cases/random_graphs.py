"""Small random graphs, run on the native engine and on the references, for every instruction set and thread count."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tpuconvert.runtime.native.builder.loader import available_isas, extension
from tpuconvert.runtime.native.plan import NativePlan
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.types import I8, I16, I32, U8, U16, Array, Chip, DType, TensorType

needs_extension = pytest.mark.skipif(extension() is None, reason="the native engine was not built")
THREADS = (1, 2, 4)


def evaluate(chip: Chip) -> Callable[[Node, list[Array | None]], tuple[Array, ...]]:
    """Function that evaluates the reference of a node."""
    return lambda node, arrays: node.op.evaluate(*arrays, chip=chip)


def expect_outputs(graph: Graph, chip: Chip, feeds: Sequence[Array]) -> list[Array]:
    """Results of the references."""
    arrays = dict(zip(graph.inputs, feeds, strict=True))
    arrays |= {value: value.array for value in graph.values if value.is_constant}
    for node in graph.sorted_nodes():
        given = [None if value is None else arrays[value] for value in node.inputs]
        arrays |= dict(zip(node.outputs, evaluate(chip)(node, given), strict=True))
    return [arrays[value] for value in graph.outputs]


def check(graph: Graph, feeds: Sequence[Array], *, chip: Chip = Chip.BM1686, reference: Sequence[str] = ()) -> None:
    """Compare bytes for every instruction set, the best with every number of threads.

    Args:
        graph: the graph.
        feeds: one array per input.
        chip: chip whose arithmetic is computed.
        reference: operators without a kernel, in topological order.
    """
    wanted = expect_outputs(graph, chip, feeds)
    best = available_isas()[-1]
    for index, isa in enumerate(available_isas()):
        for threads in THREADS if isa == best else THREADS[index % 2 : index % 2 + 1]:
            plan = NativePlan(graph, chip.value, isa, threads)
            assert [node.op.name for node in plan.reference_nodes] == list(reference), "operators without a kernel"
            got = plan.run([np.ascontiguousarray(feed) for feed in feeds], evaluate(chip))
            for number, (left, right) in enumerate(zip(got, wanted, strict=True)):
                if problem := _difference(left, right):
                    value = graph.outputs[number]
                    pytest.fail(f"output {number} ({value.type}) on {isa}, {threads} threads: {problem}\n{graph.nodes}")


def _difference(left: Array, right: Array) -> str:
    """Return a description of the first difference, or an empty string for equal bytes."""
    if (left.dtype, left.shape) != (right.dtype, right.shape):
        return f"{left.dtype}{left.shape} for {right.dtype}{right.shape}"
    if left.tobytes() == right.tobytes():  # tobytes ignores the memory order
        return ""
    places = np.argwhere((left != right) & ~((left != left) & (right != right)))
    if not len(places):
        return "signs of zeros or NaN differ"
    first = tuple(places[0])
    return f"{len(places)} differ, first at {first}: {left[first]!r} for {right[first]!r}"


def integers(rng: np.random.Generator, dtype: DType, shape: Sequence[int]) -> Array:
    """Integers over the whole range of a type, with its limits among them."""
    info = np.iinfo(dtype.numpy)
    values = rng.integers(info.min, info.max, shape, dtype.numpy, endpoint=True)
    flat = values.reshape(-1)
    if flat.size > 3:
        flat[rng.integers(flat.size)], flat[rng.integers(flat.size)] = info.min, info.max
    return values


def reals(rng: np.random.Generator, shape: Sequence[int], scale: float = 50.0) -> Array:
    """Random floats with ties, infinities and NaN."""
    values = rng.normal(0, scale, shape).astype(np.float32)
    flat = values.reshape(-1)
    for special in (0.5, -0.5, 1.5, -2.5, np.inf, -np.inf, np.nan, -0.0, 1e-40, 3e38):
        flat[rng.integers(flat.size)] = special
    return values


def data(rng: np.random.Generator, dtype: DType, shape: Sequence[int]) -> Array:
    """Random elements of any type."""
    with np.errstate(over="ignore"):
        return integers(rng, dtype, shape) if dtype.is_integer else reals(rng, shape).astype(dtype.numpy)


class Drawing:
    """A graph under construction with random feeds."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.graph = Graph(f"seed {seed}")
        self.feeds: list[Array] = []

    def input(self, dtype: DType, shape: Sequence[int]) -> Value:
        """A graph input with random elements."""
        self.feeds.append(data(self.rng, dtype, shape))
        return self.graph.input("x", TensorType(dtype, tuple(shape)))

    def constant(self, dtype: DType, shape: Sequence[int]) -> Value:
        """A constant with random elements."""
        return self.graph.constant(data(self.rng, dtype, shape))

    def channels_last(self, dtype: DType, shape: Sequence[int]) -> Value:
        """A channels-last tensor: a permuted input."""
        rank = len(shape)
        outside = (shape[0], *shape[2:], shape[1])
        return self.graph.add(Permute((0, rank - 1, *range(1, rank - 1))), self.input(dtype, outside))

    def tensor(self, dtype: DType, shape: Sequence[int]) -> Value:
        """An input in either order."""
        return (self.channels_last if self.rng.integers(2) else self.input)(dtype, shape)

    def shape(self, rank: int, most: int = 9) -> tuple[int, ...]:
        """Extents, odd ones and 1 among them."""
        return tuple(int(extent) for extent in self.rng.integers(1, most, rank, endpoint=True))

    def check(self, *outputs: Value, chip: Chip = Chip.BM1686, reference: Sequence[str] = ()) -> None:
        """Compare the values."""
        for value in outputs:
            self.graph.output(value)
        check(self.graph, self.feeds, chip=chip, reference=reference)


SMALL = (I8, U8, I16, U16)
INTEGERS = (*SMALL, I32)
