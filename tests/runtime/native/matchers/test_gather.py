"""Plans of nearest-neighbor resizing."""

import tracemalloc

import pytest

from tpuconvert.runtime.native.builder.loader import available_isas, extension
from tpuconvert.runtime.native.plan import NativePlan
from tpuconvert.schema.graph.graph import Graph, Port
from tpuconvert.schema.ops.interpolate import Interpolate, InterpolateMode, PlatForm
from tpuconvert.schema.types import DType, TensorType

pytestmark = pytest.mark.skipif(extension() is None, reason="the native engine was not built")


def test_planning_does_not_resize_an_image():
    """The plan has one index per row and column; it once resized an image of indices for each axis."""
    graph = Graph()
    x = graph.input("x", TensorType(DType.FLOAT32, (1, 1, 2000, 2000)), Port("x", "float32", (1, 1, 2000, 2000)))
    op = Interpolate(size=(4000, 4000), platform=PlatForm.PYTORCH, method=InterpolateMode.NEAREST)
    graph.output(graph.add(op, x, name="y"))
    NativePlan(graph, "BM1686", available_isas()[-1], 1)
    tracemalloc.start()
    try:
        plan = NativePlan(graph, "BM1686", available_isas()[-1], 1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert not plan.reference_nodes
    assert peak < 4 * 2000 * 2000
