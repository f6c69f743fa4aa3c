"""Deliberately invalid cases: attributes of nodes, and arguments of the extension's constructors."""

import contextlib
import dataclasses
import enum
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.support.native_cases.draft import NativeCase
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.types import DType, Scalar

INTEGERS = (-1, 0, 1, 2, 3, 7, 63, 64, 127, 128, 255, 256, -128, -129, 32767, 65536)
EXTREMES = (2**31 - 1, -(2**31), 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, -(2**63))
FLOATS = (0.0, -0.0, -1.0, 1e-30, 1e30, math.inf, -math.inf, math.nan, 0.5, 3.0)


def mutate(value: Any, rng: np.random.Generator, *, extremes: bool) -> Any:
    """Return another value of the same type, mostly near the given one."""

    def pick(options):
        return options[int(rng.integers(len(options)))]

    if isinstance(value, bool):
        return not value
    if isinstance(value, enum.Enum):
        return pick(list(type(value)))
    if isinstance(value, int):
        near = (value + 1, value - 1, 2 * value, -value)
        return int(pick(near + INTEGERS + (EXTREMES if extremes else ())))
    if isinstance(value, float):
        return float(pick((value * 2, -value, *FLOATS)))
    if isinstance(value, Scalar):
        with contextlib.suppress(ValueError):
            dtype = pick([*DType]) if rng.random() < 0.3 else value.dtype
            return Scalar(dtype, mutate(value.value, rng, extremes=extremes))
        return value
    if isinstance(value, (tuple, list)):
        items = list(value)
        choice = rng.random()
        if choice < 0.15 and items:
            items.pop(int(rng.integers(len(items))))
        elif choice < 0.3:
            items.append(pick(items) if items else 1)
        elif choice < 0.35:
            items = []
        elif items:
            place = int(rng.integers(len(items)))
            items[place] = mutate(items[place], rng, extremes=extremes)
        return type(value)(items)
    return value


def mutated_op(op: Op, rng: np.random.Generator, *, extremes: bool) -> tuple[Op, bool]:
    """Return the operator with one attribute changed, and True if its constructor accepts the change."""
    names = [item.name for item in dataclasses.fields(op)]
    if not names:
        return op, True
    name = names[int(rng.integers(len(names)))]
    value = mutate(getattr(op, name), rng, extremes=extremes)
    try:
        return dataclasses.replace(op, **{name: value}), True
    except (ValueError, TypeError, OverflowError):
        changed = object.__new__(type(op))
        for item in dataclasses.fields(op):
            object.__setattr__(changed, item.name, value if item.name == name else getattr(op, item.name))
        return changed, False


def rebuilt(case: NativeCase, rng: np.random.Generator) -> Graph:
    """Return the graph with one attribute of one node changed and types inferred again, as a reader creates them.

    Raises:
        ValueError, TpuConvertError: when an operator refuses.
    """
    nodes = case.graph.nodes
    target = nodes[int(rng.integers(len(nodes)))]
    graph = Graph("hostile")
    now: dict[Value, Value] = {value: graph.input(value.name, value.type) for value in case.graph.inputs}
    for value in case.graph.values:
        if value.is_constant:
            now[value] = graph.constant(value.array, value.name)
    for node in nodes:
        op, is_legal = mutated_op(node.op, rng, extremes=False) if node is target else (node.op, True)
        if not is_legal:
            raise ValueError(f"{op.name} refuses")
        made = graph.add_all(op, *(None if value is None else now[value] for value in node.inputs))
        now.update(zip(node.outputs, made, strict=True))
    for value in case.graph.outputs:
        graph.output(now[value])
    return graph


@contextlib.contextmanager
def forge(case: NativeCase, rng: np.random.Generator) -> Iterator[Graph]:
    """Yield the graph with an unchecked change of one attribute or shape, and undo the change."""
    nodes = [node for node in case.graph.nodes if dataclasses.fields(node.op)]
    if nodes and rng.random() < 0.6:
        node = nodes[int(rng.integers(len(nodes)))]
        before = node.op
        node.op, _ = mutated_op(before, rng, extremes=True)
        try:
            yield case.graph
        finally:
            node.op = before
        return
    values = [value for value in case.graph.values if value.producer is not None]
    value = values[int(rng.integers(len(values)))]
    type_ = value.type
    shape = mutate(type_.shape, rng, extremes=False)
    if any(isinstance(extent, int) and extent < 0 for extent in shape):
        shape = tuple(abs(extent) for extent in shape)
    dtype = type_.dtype if rng.random() < 0.7 else [*DType][int(rng.integers(len(DType)))]
    value.type = dataclasses.replace(type_, shape=shape, dtype=dtype)
    try:
        yield case.graph
    finally:
        value.type = type_


def elements(graph: Graph) -> int:
    """Return the number of elements of the largest value."""
    return max(math.prod(value.shape) for value in graph.values if value.type.is_static)
