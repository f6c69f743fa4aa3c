"""Runs without conversions: feeds that have the types and shapes of the graph already.

A call of ``Session.run`` converts types, checks shapes and looks up a plan. For a network that runs for a few
microseconds, this takes longer than the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tpuconvert.runtime.session.border import numpy_type
from tpuconvert.schema.graph.graph import Graph, Port, Value
from tpuconvert.schema.types import Array

if TYPE_CHECKING:
    from tpuconvert.runtime.native.direct_plan import DirectPlan


class _Input(NamedTuple):
    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class DirectRun:
    """Runs of a plan with static shapes that has the inputs and outputs of the graph.

    Args:
        graph: the graph of the plan.
        plan: access to the plan without conversions.
    """

    def __init__(self, graph: Graph, plan: DirectPlan) -> None:
        pairs = zip(graph.input_ports, graph.inputs, strict=True)
        self._inputs = [_Input(port.name, value.dtype.numpy, value.type.static_shape) for port, value in pairs]
        self._outputs = [port.name for port in graph.output_ports]
        self._plan = plan

    def run(self, feeds: Any) -> dict[str, Array] | None:
        """Run once; None if the feeds are not a dictionary, or if an array needs a conversion or a check."""
        inputs = self._inputs
        if type(feeds) is not dict or len(feeds) != len(inputs):
            return None
        arrays = []
        for name, dtype, shape in inputs:
            array = feeds.get(name)
            if type(array) is not np.ndarray or array.dtype is not dtype or array.shape != shape:
                return None
            flags = array.flags
            if not (flags.c_contiguous and flags.aligned):
                return None
            arrays.append(array)
        return dict(zip(self._outputs, self._plan.run(arrays), strict=True))


def direct_run(graph: Graph, plan: DirectPlan) -> DirectRun | None:
    """Return an object for direct runs, or None if inputs or outputs need conversions."""
    ports = (*zip(graph.input_ports, graph.inputs, strict=True), *zip(graph.output_ports, graph.outputs, strict=True))
    return DirectRun(graph, plan) if all(_is_plain(*pair) for pair in ports) else None


def _is_plain(port: Port, value: Value) -> bool:
    """Return True if the array of the user has the type of the graph input."""
    is_static = value.type.is_static and port.shape == value.shape
    return is_static and numpy_type(port.dtype) == value.dtype.numpy
