"""Draw a random ONNX graph: ONNX Runtime computes each node when it is added, so that only valid nodes stay.

Every value has an array per binding. In a graph with symbolic axes the bindings have different extents, and an axis is
symbolic exactly where they differ. A node that ONNX Runtime refuses for one of the bindings is not added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from tests.support.onnx.random_graphs.runtime import NodeRunner, Operand

BINDINGS = 2
MOST_ELEMENTS = 3000
MOST_MAGNITUDE = 1e12
F32, F16, F64 = np.dtype("float32"), np.dtype("float16"), np.dtype("float64")
I64, I32, BOOL = np.dtype("int64"), np.dtype("int32"), np.dtype("bool")
FLOATS = (F32, F16, F64)
INTEGERS = tuple(np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64))
NUMBERS = (*FLOATS, *INTEGERS)
ANY = (*NUMBERS, BOOL)

Shapes = Sequence[tuple[int, ...]]


def names(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


_WITH_ZEROS = names(
    """
    Conv ConvTranspose CumSum Resize Upsample GridSample ArgMax ArgMin TopK ReduceMax ReduceMin Hardmax MaxPool
    GlobalMaxPool Max Min Clip PRelu
    """
)
"""Not drawn with infinities and NaN: products with weights that are zero because of the form that is chosen for them,
and selections of the largest element, for which ONNX defines no order of NaN.
"""


class Declined(Exception):
    """The step does not apply to the values of the graph."""


@dataclass(eq=False)
class Value:
    """A tensor: its name, an array per binding, and whether it is a constant of the model."""

    name: str
    arrays: list[Any]
    is_constant: bool = False

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.arrays[0].dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.arrays[0].shape

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [array.shape for array in self.arrays]

    @property
    def rank(self) -> int:
        return self.arrays[0].ndim

    @property
    def operand(self) -> Operand:
        """Name, type and rank; with the extent of a list, for which ONNX Runtime infers shapes."""
        extents = self.shape if self.rank == 1 and self.is_static else (None,) * self.rank
        return self.name, self.dtype, extents

    @property
    def is_static(self) -> bool:
        return len(set(self.shapes)) == 1


@dataclass
class Step:
    """A node with the runner that computes it alone."""

    node: NodeProto
    runner: NodeRunner


@dataclass
class Input:
    """An input of the graph and the function that samples it."""

    value: Value
    sample: Callable[[np.random.Generator, tuple[int, ...]], Any]


@dataclass(frozen=True)
class Settings:
    """Limits of the graphs of a campaign: ``is_calm`` leaves out NaN, infinities and types that INT8 cannot keep."""

    is_calm: bool = False
    steps: int = 8


@dataclass
class Drawing:
    """A graph under construction."""

    seed: int
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.opset = int(self.rng.integers(9, 22))
        self.is_symbolic = self.chance(0.4)
        self.is_hostile = not self.settings.is_calm and self.chance(0.15)
        self.main = F32 if self.settings.is_calm else self.choose([F32] * 17 + [F16, F64])
        self.names = 0
        self.inputs: list[Input] = []
        self.constants: dict[str, Value] = {}
        self.values: list[Value] = []
        self.steps: list[Step] = []
        extents = [self.choose([(2, 3), (1, 2), (3, 1), (2, 4)]), self.choose([(5, 7), (6, 4), (8, 11)])]
        self.symbols = extents if self.is_symbolic else []

    # random choices

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def choose(self, items: Iterable[Any]) -> Any:
        options = list(items)
        if not options:
            raise Declined
        return options[int(self.rng.integers(len(options)))]

    def integer(self, low: int, high: int) -> int:
        """A number from low to high, both included."""
        if high < low:
            raise Declined
        return int(self.rng.integers(low, high + 1))

    def axis(self, rank: int) -> int:
        return self.integer(-rank, rank - 1)

    def permutation(self, count: int) -> list[int]:
        return [int(k) for k in self.rng.permutation(count)]

    def subset(self, items: Sequence[int], low: int = 0) -> list[int]:
        """Some of the items, in their order."""
        count = self.integer(low, len(items))
        return [items[k] for k in sorted(self.permutation(len(items))[:count])]

    def name(self, prefix: str = "t") -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    # values

    def fresh_shapes(self, rank: int | None = None, low: int = 1, high: int = 6) -> list[tuple[int, ...]]:
        """A shape per binding."""
        rank = self.choose([0, 1, 1, 2, 2, 3, 3, 4, 4, 4, 5]) if rank is None else rank
        axes = [(extent,) * BINDINGS for extent in self.rng.integers(low, high + 1, rank).tolist()]
        if not self.settings.is_calm and axes and self.chance(0.015):
            axes[self.integer(0, rank - 1)] = (0,) * BINDINGS
        if self.is_symbolic and axes:
            for k in range(rank):
                if self.chance(0.6 if k == 0 else 0.2):
                    axes[k] = self.symbols[0 if k == 0 or self.chance(0.2) else 1]
        return [tuple(axis[b] for axis in axes) for b in range(BINDINGS)]

    def input(self, dtype: np.dtype[Any], shapes: Shapes, sample: Callable[..., Any] | None = None) -> Value:
        sample = sample or self.sampler(dtype, shapes[0])
        value = Value(self.name("x"), [sample(self.rng, tuple(shape)) for shape in shapes])
        self.inputs.append(Input(value, sample))
        self.values.append(value)
        return value

    def constant(self, array: Any) -> Value:
        value = Value(self.name("c"), [np.asarray(array)] * BINDINGS, is_constant=True)
        self.constants[value.name] = value
        return value

    def numbers(self, items: Sequence[int]) -> Value:
        """A constant list of INT64, for axes, shapes, bounds."""
        return self.constant(np.array(items, np.int64))

    def fresh(self, dtype: np.dtype[Any], shapes: Shapes, constant: bool | None = None) -> Value:
        """A new constant or input. A shape that differs between the bindings needs an input."""
        is_static = len({tuple(shape) for shape in shapes}) == 1
        if is_static and (self.chance(0.5) if constant is None else constant):
            sample = self.sampler(dtype, shapes[0], may_be_special=self.chance(0.05))
            value = self.constant(sample(self.rng, tuple(shapes[0])))
            if self.chance(0.1):
                self.values.append(value)
            return value
        return self.input(dtype, shapes)

    def value(self, dtypes: Sequence[Any] = FLOATS, accept: Callable[[Value], bool] = lambda value: True) -> Value:
        """A value of the graph, most often one of the last ones. A new input if none fits."""
        fitting = [value for value in self.values if value.dtype in dtypes and accept(value)]
        if not fitting or (len(fitting) < 2 and self.chance(0.1)):
            raise Declined
        return fitting[-1 - min(int(self.rng.geometric(0.4)) - 1, len(fitting) - 1)]

    def of_rank(self, *ranks: int, dtypes: Sequence[Any] = FLOATS) -> Value:
        """A value with elements and one of the ranks."""

        def fits(value: Value) -> bool:
            return value.rank in ranks and (self.is_hostile or all(0 not in shape for shape in value.shapes))

        try:
            return self.value(dtypes, fits)
        except Declined:
            dtype = self.main if self.main in dtypes else self.choose(dtypes)
            return self.input(dtype, self.fresh_shapes(self.choose(ranks), 1, 7))

    def partner(self, x: Value, dtype: np.dtype[Any] | None = None) -> Value:
        """A second operand that x can be broadcast with."""
        dtype = dtype or x.dtype
        if self.chance(0.35):
            names = [v for v in self.values if v.dtype == dtype and _is_broadcastable(v, x)]
            if names:
                return self.choose(names)
        shapes = [list(shape) for shape in x.shapes]
        kind = self.integer(0, 5)
        for k in range(x.rank):
            if kind == 1 or (kind == 2 and k != max(x.rank - 3, 0)) or (kind == 3 and self.chance(0.5)):
                for shape in shapes:
                    shape[k] = 1
        if kind == 4:
            drop = self.integer(0, x.rank)
            shapes = [shape[drop:] for shape in shapes]
        if kind == 5 and x.rank < 5:
            shapes = [[2, *shape] for shape in shapes]
        return self.fresh(dtype, [tuple(shape) for shape in shapes])

    def sampler(
        self, dtype: np.dtype[Any], shape: tuple[int, ...], *, may_be_special: bool = True
    ) -> Callable[..., Any]:
        """A function of a generator and a shape: one distribution, drawn here."""
        if dtype == BOOL:
            return lambda rng, shape: rng.random(shape) < 0.5
        if dtype.kind in "iu":
            low, high = (0 if dtype.kind == "u" else -9), 10
            return lambda rng, shape: rng.integers(low, high, shape).astype(dtype)
        kind = self.choose(
            ["normal"] * 5 + ["uniform"] * 3 + ["positive", "negative", "halves", "channels", "wide", "tiny", "huge"]
        )
        if dtype == F16 and kind in ("tiny", "huge", "channels", "wide"):
            kind = "normal"
        if self.settings.is_calm and kind in ("halves", "wide"):
            kind = "normal"
        scales = 10.0 ** self.rng.uniform(-2, 2, shape[1] if len(shape) > 1 else 1)
        special = may_be_special and self.is_hostile and self.chance(0.2)

        def sample(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
            x = np.asarray(rng.standard_normal(shape))
            if kind == "uniform":
                x = np.asarray(rng.uniform(-3, 3, shape))
            elif kind == "positive":
                x = np.abs(x) + 0.1
            elif kind == "negative":
                x = -np.abs(x) - 0.1
            elif kind == "halves":
                x = np.asarray(rng.integers(-6, 7, shape) / 2)
            elif kind == "channels" and len(shape) > 1 and shape[1] == len(scales):
                x = x * scales.reshape(-1, *[1] * (len(shape) - 2))
            elif kind == "wide":
                x = x * 10.0 ** rng.uniform(-4, 4, shape)
            elif kind in ("tiny", "huge"):
                x = x * (1e-6 if kind == "tiny" else 1e6)
            if special and x.size:
                x = x.copy()
                x.reshape(-1)[rng.integers(x.size)] = rng.choice([np.nan, np.inf, -np.inf, -0.0])
            return np.asarray(x, dtype)

        return sample

    # nodes

    def emit(self, op: str, inputs: Sequence[Value | None], outputs: int = 1, **attributes: Any) -> list[Value]:
        """Add a node, with an output per count. Declines if ONNX Runtime refuses it or its result is of no use."""
        names = [self.name() for _ in range(outputs)]
        attributes = {key: value for key, value in attributes.items() if value != []}  # an empty list has no type
        node = helper.make_node(op, [v.name if v else "" for v in inputs], names, name=self.name("n"), **attributes)
        return self.add(node, [v for v in inputs if v])

    def add(self, node: NodeProto, operands: Sequence[Value]) -> list[Value]:
        constants = {v.name: v.arrays[0] for v in operands if v.is_constant}
        computed = list({v.name: v for v in operands if not v.is_constant}.values())
        runner = NodeRunner.of(node, [v.operand for v in computed], constants, self.opset)
        if runner is None:
            raise Declined
        if node.op_type in _WITH_ZEROS and any(
            not np.isfinite(a).all() for v in operands for a in v.arrays if a.dtype.kind == "f"
        ):
            raise Declined
        results = [runner.run({v.name: v.arrays[b] for v in computed}) for b in range(BINDINGS)]
        if any(arrays is None for arrays in results):
            raise Declined
        added = []
        names = [name for name in node.output if name]
        for k, name in enumerate(names):
            value = Value(name, [arrays[k] for arrays in results])
            self._check(value, operands)
            added.append(value)
        self.steps.append(Step(node, runner))
        self.values.extend(added)
        return added

    def drop_last(self) -> None:
        """Remove the node that was added last."""
        names = set(self.steps.pop().node.output)
        self.values = [value for value in self.values if value.name not in names]

    def try_step(self, function: Callable[[Drawing], object]) -> None:
        """Apply a step; if it declines, nothing that it added stays."""
        steps, values, inputs, constants = len(self.steps), len(self.values), len(self.inputs), dict(self.constants)
        try:
            function(self)
        except (Declined, IndexError, ValueError, ZeroDivisionError):  # of an empty choice, rank 0 or an empty axis
            del self.steps[steps:], self.values[values:], self.inputs[inputs:]
            self.constants = constants

    def _check(self, value: Value, operands: Sequence[Value]) -> None:
        if not value.arrays[0].size and all(v.arrays[0].size for v in operands) and self.chance(0.8):
            raise Declined
        for array in value.arrays:
            if not isinstance(array, np.ndarray) or array.dtype not in ANY or array.size > MOST_ELEMENTS:
                raise Declined
            if array.dtype.kind == "f":
                if not self.is_hostile and not np.isfinite(array).all():
                    raise Declined
                size = np.abs(array[np.isfinite(array)].astype(float))
                if size.size and size.max() > (3e4 if array.dtype == F16 else MOST_MAGNITUDE):
                    raise Declined
            # docs/reference/onnx.md: 64-bit integers have 32 bits inside of the model
            elif array.size and (int(array.max()) > 2**31 - 1 or int(array.min()) < -(2**31)):
                raise Declined

    # the model

    def model(self, outputs: Sequence[str] | None = None) -> onnx.ModelProto:
        """The model, with the given outputs, or with those that ``outputs_of`` draws."""
        names = list(outputs) if outputs is not None else self.output_names()
        by_name = {v.name: v for v in (*self.values, *self.constants.values())}
        used = {name for step in self.steps for name in _reads(step.node)} | set(names)
        nodes, tensors = [], []
        style = np.random.default_rng([self.seed, 1])
        for name, value in self.constants.items():
            if name in used:
                tensor = numpy_helper.from_array(value.arrays[0], name)
                if style.random() < 0.2 and name not in names:
                    nodes.append(helper.make_node("Constant", [], [name], value=tensor))
                else:
                    tensors.append(tensor)
        nodes += [step.node for step in self.steps]
        inputs = [self.declare(entry.value) for entry in self.inputs if entry.value.name in used]
        graph = helper.make_graph(
            nodes, "random", inputs, [self.declare(by_name[name], style.random() < 0.5) for name in names], tensors
        )
        imports = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=imports, ir_version=10 if self.opset > 18 else 8)

    def declare(self, value: Value, with_shape: bool = True) -> onnx.ValueInfoProto:
        kind = helper.np_dtype_to_tensor_dtype(value.dtype)
        ranks = {len(shape) for shape in value.shapes}
        if not with_shape or len(ranks) > 1:
            return helper.make_tensor_value_info(value.name, kind, None)
        # an input with a declared extent of 0 is read as one with an unknown extent
        axes = [pair[0] if len({*pair, 0}) == 2 else _symbol(pair) for pair in zip(*value.shapes, strict=True)]
        return helper.make_tensor_value_info(value.name, kind, axes)

    def output_names(self) -> list[str]:
        """All results that no node reads, some others, and rarely an input or a constant."""
        style = np.random.default_rng([self.seed, 2])
        read = {name for step in self.steps for name in _reads(step.node)}
        results = [name for step in self.steps for name in step.node.output if name]
        names = [name for name in results if name not in read or style.random() < 0.1]
        used_inputs = [entry.value.name for entry in self.inputs]
        if used_inputs and style.random() < 0.03:
            names.append(used_inputs[0])
        if self.constants and style.random() < 0.03:
            names.append(next(iter(self.constants)))
        style.shuffle(names)
        return names[:5] if len(names) > 5 else names

    def feeds(self, model: onnx.ModelProto, binding: int) -> dict[str, Any]:
        names = {value.name for value in model.graph.input}
        return {e.value.name: e.value.arrays[binding] for e in self.inputs if e.value.name in names}

    def further_feeds(self, model: onnx.ModelProto, count: int) -> list[dict[str, Any]]:
        """Samples of the same distributions, with the shapes of the first binding."""
        rng = np.random.default_rng([self.seed, 3])
        names = {value.name for value in model.graph.input}
        entries = [entry for entry in self.inputs if entry.value.name in names]
        return [{e.value.name: e.sample(rng, e.value.shape) for e in entries} for _ in range(count)]


def _symbol(extents: tuple[int, ...]) -> str:
    return "s" + "_".join(map(str, extents))


def _is_broadcastable(a: Value, b: Value) -> bool:
    try:
        return all(len(np.broadcast_shapes(*pair)) < 6 for pair in zip(a.shapes, b.shapes, strict=True))
    except ValueError:
        return False


def _reads(node: NodeProto) -> list[str]:
    """Names that a node reads, including names of an outer graph in its subgraphs."""
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            inner = {v.name for v in attribute.g.input} | {t.name for t in attribute.g.initializer}
            inner |= {name for child in attribute.g.node for name in child.output}
            free = [name for child in attribute.g.node for name in _reads(child)]
            free += [v.name for v in attribute.g.output]
            names += [name for name in free if name not in inner]
    return names


reads = _reads
TENSOR_TYPES = {dtype: helper.np_dtype_to_tensor_dtype(dtype) for dtype in ANY}
assert TENSOR_TYPES[F32] == TensorProto.FLOAT
