"""Float operands of linear operators on samples, in the order of the operators."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tpuconvert.optimizer.quantize.calibration.sample_run import SampleRun
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.types import Array, Chip

_MOST_BYTES = 48 << 20
"""Largest size of a float tensor of all samples. Up to three of them are stored at a time."""

_FEWEST_SAMPLES = 8


def affordable_samples(graph: Graph) -> int:
    """Number of samples of which no tensor of a float graph has more than 48 MB, at least 8. Open extents are 1."""
    sizes = [
        math.prod(extent if isinstance(extent, int) else 1 for extent in value.shape) * value.dtype.bits // 8
        for value in graph.values
        if not value.is_constant
    ]
    return max(_FEWEST_SAMPLES, _MOST_BYTES // max(sizes, default=1))


class FloatOperands:
    """Operands of float nodes on samples, computed part by part on the engine.

    Args:
        graph: float graph.
        chip: the target.
        feeds: the samples.
        names: names of the linear operators, in the order of the requests. Unknown names have no operand.
    """

    def __init__(self, graph: Graph, chip: Chip, feeds: Sequence[Mapping[str, Array]], names: Sequence[str]) -> None:
        by_name = {node.name: node for node in graph.nodes}
        self._nodes = [by_name.get(name) for name in names]
        nodes = {node for node in self._nodes if node is not None}
        self._run = SampleRun(graph, chip, feeds, nodes, runs_floats=True)
        self._parts = iter(self._run)
        self._reached: set[Node] = set()

    def operand(self, index: int) -> tuple[Value, list[Array]] | None:
        """Return the operand of an operator and its arrays, one per feed; None if the float graph has no such node."""
        node = self._nodes[index]
        value = node.inputs[0] if node is not None else None
        if node is None or value is None or value.is_constant:
            return None
        while node not in self._reached:
            part = next(self._parts)
            self._reached.update(part.nodes)
        return value, self._run.arrays(value)
