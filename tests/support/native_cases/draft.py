"""A graph under construction together with its values, and the registry of the kinds of cases."""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.types import F32, Array, Chip, DType, TensorType


@dataclass
class NativeCase:
    """A graph, its operands, the results of the references, and whether kernels must compute every node."""

    kind: str
    seed: int
    graph: Graph
    chip: Chip
    feeds: list[Array]
    expected: list[Array]
    has_kernels: bool
    """True if every node must be computed by a compiled kernel."""

    def __str__(self) -> str:
        ops = ", ".join(str(node.op) for node in self.graph.nodes)
        shapes = ", ".join(str(value.type) for value in self.graph.inputs)
        return f"native_cases.make({self.kind!r}, {self.seed}) on {self.chip.value}: [{shapes}] -> {ops}"


Builder = Callable[["Draft"], None]


@dataclass(frozen=True)
class Kind:
    """Function that builds the cases of a kind.

    Args:
        build: adds nodes and outputs to a draft.
        count: cases in the full run.
        has_kernels: whether these cases must not run references, unless a case says ``draft.declines``.
    """

    build: Builder
    count: int
    has_kernels: bool


KINDS: dict[str, Kind] = {}


def kind(count: int, *, has_kernels: bool = True) -> Callable[[Builder], Builder]:
    """Register a kind under the function's name."""

    def register(build: Builder) -> Builder:
        name = build.__name__
        assert name not in KINDS, f"two kinds are called {name}"
        KINDS[name] = Kind(build, count, has_kernels)
        return build

    return register


def make(name: str, seed: int) -> NativeCase:
    """The case of that kind and seed; the same every time."""
    draft = Draft(np.random.default_rng([zlib.crc32(name.encode()), seed]))
    KINDS[name].build(draft)
    graph = draft.graph
    if not graph.outputs:
        for value in graph.values:
            if not value.uses and value.producer is not None:
                graph.output(value)
    return NativeCase(
        name,
        seed,
        graph,
        draft.chip,
        [draft.arrays[value] for value in graph.inputs],
        [draft.arrays[value] for value in graph.outputs],
        KINDS[name].has_kernels and not draft.may_decline,
    )


@dataclass
class Draft:
    """A random graph under construction, as the function of a kind uses it."""

    rng: np.random.Generator
    chip: Chip = Chip.BM1686
    graph: Graph = field(default_factory=lambda: Graph("case"))
    arrays: dict[Value, Array] = field(default_factory=dict)
    may_decline: bool = False

    def declines(self, condition: bool = True) -> None:
        """Allow the engine to run references for this case if the condition is true."""
        self.may_decline |= condition

    # Choices

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def pick(self, *options):
        return options[int(self.rng.integers(len(options)))]

    def number(self, low: int, high: int) -> int:
        """Draw an integer from low to high, both included."""
        return int(self.rng.integers(low, high, endpoint=True))

    def small(self, high: int) -> int:
        """Draw an integer from 1 to high, small ones more often."""
        return max(1, round(high ** float(self.rng.random())))

    # Values

    def data(self, dtype: DType, shape: Sequence[int]) -> Array:
        """Draw elements of a type: from its whole range, its ends, one value, or near zero."""
        shape = tuple(shape)
        if dtype is F32:
            return (self.rng.standard_normal(shape) * self.pick(0.1, 1, 10, 300)).astype(np.float32)
        style = self.number(0, 9)
        if style == 0:
            return np.full(shape, dtype.max, dtype.numpy)
        if style == 1:
            return np.full(shape, dtype.min, dtype.numpy)
        if style == 2:
            return self.rng.choice(np.array([dtype.min, dtype.max], dtype.numpy), shape)
        if style == 3:
            low, high = max(dtype.min, -3), min(dtype.max, 3)
            return self.rng.integers(low, high, shape, endpoint=True).astype(dtype.numpy)
        return self.rng.integers(dtype.min, dtype.max, shape, endpoint=True).astype(dtype.numpy)

    def input(self, dtype: DType, shape: Sequence[int], array: Array | None = None) -> Value:
        value = self.graph.input(f"x{len(self.graph.inputs)}", TensorType(dtype, tuple(shape)))
        self.arrays[value] = self.data(dtype, shape) if array is None else array
        return value

    def constant(self, array: Array) -> Value:
        value = self.graph.constant(array)
        self.arrays[value] = value.array
        return value

    def add(self, op: Op, *inputs: Value | None) -> Value:
        (value,) = self.add_all(op, *inputs)
        return value

    def add_all(self, op: Op, *inputs: Value | None) -> tuple[Value, ...]:
        """Add a node and evaluate its reference."""
        values = self.graph.add_all(op, *inputs)
        operands = [None if value is None else self.arrays[value] for value in inputs]
        with np.errstate(all="ignore"):
            results = op.evaluate(*operands, chip=self.chip)
        for value, array in zip(values, results, strict=True):
            self.arrays[value] = array
        return values
