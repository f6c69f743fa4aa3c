"""Results are written to their final memory."""

import numpy as np
import pytest

from tpuconvert.runtime.native.builder.loader import extension
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.convolution.conv_v2 import ConvV2
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.quantization.dequant_int_to_fp32 import DequantIntToFp32
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.types import F32, I8, I16, TensorType

pytestmark = pytest.mark.skipif(extension() is None, reason="the native engine was not built")


def tanh(graph: Graph, x: Value) -> Value:
    return graph.add(Active(ActiveType.ACTIVE_TANH), x)


def steps(graph: Graph) -> list[str]:
    """Kinds of the steps, after both backends were found to agree."""
    rng = np.random.default_rng(0)
    feeds = {
        value.name: rng.integers(-128, 128, value.shape).astype(np.int8)
        if value.dtype is I8
        else rng.standard_normal(value.shape).astype(np.float32)
        for value in graph.inputs
    }
    with Session(graph, backend="native", threads=1) as session:
        wanted = Session(graph, backend="reference").run(feeds)
        found = session.run(feeds)
        for name, array in found.items():
            np.testing.assert_allclose(array, wanted[name], rtol=1e-6)
        again = session.run({name: array[..., ::-1] for name, array in feeds.items()})
        for name, array in found.items():  # the next run has its own memory
            np.testing.assert_allclose(array, wanted[name], rtol=1e-6)
        assert again.keys() == found.keys()
        return [step.kind for step in session.profile(feeds)]


def head(graph: Graph, x: Value, height: int, width: int) -> Value:
    """The end of a detector: anchors next to channels, an activation, positions first, all in one list."""
    parted = graph.add(Reshape((1, 3, 7, height, width)), x)
    moved = graph.add(Permute((0, 1, 3, 4, 2)), tanh(graph, parted))
    return graph.add(Reshape((1, 3 * height * width, 7)), moved)


def test_heads_of_a_detector_are_written_to_their_place_in_the_result():
    graph = Graph("heads")
    parts = []
    for index, (height, width) in enumerate(((4, 6), (2, 3))):
        x = graph.input(f"x{index}", TensorType(F32, (1, height, width, 21)))
        parts.append(head(graph, tanh(graph, graph.add(Permute((0, 3, 1, 2)), x)), height, width))
    graph.output(graph.add(Concat(axis=1), *parts))
    kinds = steps(graph)
    assert kinds.count("elementwise_float32") == 2 * 2
    assert len(kinds) - 2 * 2 == 2  # both inputs are brought into the plan's memory, and nothing leaves it


def head_of_sums(scales: DequantIntToFp32) -> Graph:
    """A convolution with 21 channels, which become 3 times 7 floats."""
    graph = Graph("head")
    x = graph.input("x", TensorType(I8, (1, 5, 4, 6)))
    weights = graph.constant(np.random.default_rng(1).integers(-128, 128, (21, 5, 1, 1)).astype(np.int8))
    sums = graph.add(ConvV2(), x, weights)
    words = graph.add(
        RequantInt32(multiplier_val=1 << 30, shift_val=-34, mode=RequantMode.MULTIPLIER_SHIFT, out_dtype=I16), sums
    )
    parted = graph.add(Reshape((1, 3, 7, 4, 6)), words)
    graph.output(graph.add(scales, parted))
    return graph


def test_dequantizes_accumulators_after_a_reshape():
    graph = head_of_sums(DequantIntToFp32(scale_val=0.125))
    assert [kind for kind in steps(graph) if kind not in ("copy", "transpose")] == ["conv_int8 1x1"]


def test_per_channel_parameters_after_a_reshape_are_not_those_of_the_convolution():
    graph = head_of_sums(DequantIntToFp32(is_scale_pc=True, scale_vec=(0.125, 1.0, 3.0)))
    assert "elements" in steps(graph)


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_results_that_are_read_again_or_leave_twice(axis):
    graph = Graph("outputs")
    x = graph.input("x", TensorType(F32, (1, 3, 4, 5)))
    y = tanh(graph, x)
    z = tanh(graph, graph.add(Permute((0, 2, 3, 1)), y))
    both = graph.add(Concat(axis=axis), tanh(graph, y), tanh(graph, y))
    for value in (y, z, both):
        graph.output(value)
    assert "elementwise_float32" in steps(graph)
