"""The kernel of gather_group_quantized: the bytes of the reference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.runtime.kernels.test_group_matmul import operands
from tests.support.native_cases.float_graphs import evaluate, references, run
from tests.support.native_cases.random_graphs import needs_extension
from tpuconvert.runtime.native.builder.loader import available_isas, native
from tpuconvert.runtime.native.plan import NativePlan
from tpuconvert.schema.errors import RunError
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.gather_group_quantized import GatherGroupQuantized
from tpuconvert.schema.ops.matmul_group_quantized import MatmulGroupQuantized
from tpuconvert.schema.types import F32, I32, TensorType

pytestmark = needs_extension

INDICES = np.array([5, 0, 18, 5, 18, 7], np.int32)


def gather(op: GatherGroupQuantized, zero: str, seed: int) -> Graph:
    """A graph that gathers six rows of a table with 19 rows."""
    table = MatmulGroupQuantized(op.bits, op.group)
    codes, scale, zero_point, _ = operands(np.random.default_rng(seed), table, op.depth, 19, zero, bias=False)
    graph = Graph()
    index = graph.input("index", TensorType(I32, INDICES.shape))
    constants = [graph.constant(array) for array in (codes, scale, zero_point) if array is not None]
    graph.output(graph.add(op, index, *constants))
    return graph


@pytest.mark.parametrize("zero", ["none", "integer", "float"])
@pytest.mark.parametrize("bits", [4, 8])
def test_equals_the_reference(bits: int, zero: str) -> None:
    """Depths with one element, with a partial group, and with enough elements for several threads."""
    for seed, (group, depth) in enumerate(((16, 1), (32, 77), (64, 128), (128, 131), (256, 9000))):
        graph = gather(GatherGroupQuantized(depth, bits, group), zero, seed)
        (found,), (wanted,) = run(graph, [INDICES], steps=1), references(graph, [INDICES])
        assert found.tobytes() == wanted.tobytes(), (group, depth)


@pytest.mark.parametrize("outside", [-1, 19])
def test_index_outside_of_the_table_is_an_error(outside: int) -> None:
    plan = NativePlan(gather(GatherGroupQuantized(40), "none", 0), "BM1686", available_isas()[-1], 1)
    assert not plan.reference_nodes
    with pytest.raises(RunError, match=rf"index {outside} is outside of 0\.\.18"):
        plan.run([np.array([0, 1, 2, 3, 4, outside], np.int32)], evaluate)


def test_computed_scales_run_the_reference() -> None:
    graph = Graph()
    index, scale = graph.input("index", TensorType(I32, (2,))), graph.input("scale", TensorType(F32, (3, 1)))
    codes = graph.constant(np.full((3, 8), 0x99, np.uint8))
    graph.output(graph.add(GatherGroupQuantized(16, 4, 16), index, codes, scale))
    plan = NativePlan(graph, "BM1686", available_isas()[-1], 1)
    assert [node.op.name for node in plan.reference_nodes] == ["gather_group_quantized"]
    feeds = [np.array([2, 0], np.int32), np.array([[1], [2], [3]], np.float32)]
    np.testing.assert_array_equal(plan.run(feeds, evaluate)[0], np.outer([3, 1], np.ones(16, np.float32)))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"bits": 3}, "bits"),
        ({"group": 15}, "group"),
        ({"depth": 0}, "extent"),
        ({"extent": 1 << 60}, "large|possible|overflow"),
    ],
    ids=str,
)
def test_rejects_sizes_that_do_not_fit(changes: dict[str, object], reason: str) -> None:
    names = ("indices", "codes", "scale", "target")
    fields = {name: native().Place(index, 0) for index, name in enumerate(names)}
    fields |= {"count": 2, "extent": 4, "depth": 64, "bits": 4, "group": 32}
    isa = available_isas()[-1]
    native().group_gather_float32(native().GroupGatherSpec(**fields), isa)
    with pytest.raises(ValueError, match=reason):
        native().group_gather_float32(native().GroupGatherSpec(**{**fields, **changes}), isa)
