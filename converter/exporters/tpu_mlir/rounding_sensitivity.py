"""Amplification of rounding errors by a network: the bounds for differences of a device that computes in floats."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.graph.graph_copy import copy_graph
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic_with_scalar import Muls
from tpuconvert.schema.ops.quantization.requant_fp32_to_int import RequantFp32ToInt
from tpuconvert.schema.types import Array, Scalar

DRAWS = 2
"""Random changes that are tried."""

LAST_PLACES = {"f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}
"""Relative size of a unit in the last place."""


def rounding_sensitivity(graph: Graph, feed: Mapping[str, Array]) -> float:
    """Return the largest change of an output if each number of the inputs changes by one unit of its last place.

    Args:
        graph: a graph that computes in floating point.
        feed: arrays by input name.

    Returns:
        The change as a share of the output's largest magnitude.
    """
    largest = 0.0
    with Session(graph) as session:
        expected = session.run(dict(feed))
        for seed in range(DRAWS):
            rng = np.random.default_rng(seed)
            changed = {name: _changed(np.asarray(array), rng) for name, array in feed.items()}
            for name, array in session.run(changed).items():
                want = expected[name]
                if array.dtype.kind == "f" and array.shape == want.shape:
                    difference = np.abs(_difference(array, want)).max(initial=0)
                    magnitude = np.abs(want[np.isfinite(want)]).max(initial=0)
                    largest = max(largest, float(difference / magnitude) if magnitude else 0.0)
    return largest if np.isfinite(largest) else 0.0


def _difference(array: Array, expected: Array) -> Array:
    """Return the differences of elements: 0 where both are infinite or both are NaN."""
    is_same = (array == expected) | (np.isnan(array) & np.isnan(expected))
    with np.errstate(invalid="ignore"):  # infinite minus infinite
        return np.where(is_same, 0.0, array.astype(np.float64) - expected)


def _changed(array: Array, rng: np.random.Generator) -> Array:
    if array.dtype.kind != "f":
        return array
    towards = np.where(rng.integers(0, 2, array.shape), np.inf, -np.inf).astype(np.float32)
    return np.nextafter(array.astype(np.float32), towards)


def observe_values(
    graph: Graph, names: Collection[str], feeds: Sequence[Mapping[str, Array]]
) -> tuple[dict[str, Array], list[dict[str, Array]]]:
    """Return values of a graph by name, with all samples along a new first axis, and its outputs for each sample."""
    arrays: dict[str, list[Array]] = {name: [] for name in names}

    def keep(value: Value, array: Array) -> None:
        if value.name in arrays:
            arrays[value.name].append(np.array(array))

    with Session(graph, observed=True) as session:
        outputs = [dict(session.run(feed, observe=keep)) for feed in feeds]
    return {name: np.stack(items) for name, items in arrays.items()}, outputs


def rounds_floats(node: Node) -> bool:
    """Return True if a node makes whole floats of others, as a source does that quantizes activations itself."""
    return isinstance(node.op, Active) and node.op.active_type is ActiveType.ACTIVE_ROUND


def rounded_operand(node: Node) -> Value | None:
    """Return the computed float of which a node makes the nearest integer, or None if it is another node.

    Nodes that cut off the fraction do not count: a whole number that a device computes exactly would become another.
    """
    if not (rounds_floats(node) or isinstance(node.op, RequantFp32ToInt)):
        return None
    operand = node.inputs[0]
    return operand if operand is not None and operand.producer is not None else None


def changes_by_rounding(
    graph: Graph, expected: Mapping[str, Array], feeds: Sequence[Mapping[str, Array]], kind: str
) -> dict[str, float]:
    """Return how much values change if every computed float changes by its last place before it is rounded.

    A float near a tie then becomes the next integer, which a network may amplify.

    Args:
        graph: the graph.
        expected: values of the graph by name, with all samples along the first axis.
        feeds: the samples.
        kind: type of the floats, ``f32``, ``f16`` or ``bf16``.

    Returns:
        Root mean square of the change by name: the largest of all floats upwards, all downwards, and random directions.
    """
    largest, rng = dict.fromkeys(expected, 0.0), np.random.default_rng(0)
    for directions in ((1,), (-1,), *[(-1, 1)] * DRAWS):
        changed = copy_graph(graph)
        for node in changed.nodes:
            operand = rounded_operand(node)
            if operand is not None:
                factor = Scalar.f32(1 + rng.choice(directions) * LAST_PLACES[kind])
                changed.set_input(node, 0, changed.add(Muls(factor), operand))
        changed.sort()
        for name, array in observe_values(changed, expected, feeds)[0].items():
            difference = _difference(array, expected[name])
            change = float(np.sqrt(np.mean(np.square(difference)))) if difference.size else 0.0
            largest[name] = max(largest[name], change if np.isfinite(change) else 0.0)
    return largest
