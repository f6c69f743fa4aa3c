"""Kernels that would need a table per element of a huge axis decline: opening a small model takes little memory."""

import tracemalloc
from typing import Any

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.tflite.models import T, serialize, single
from tpuconvert.runtime.native.matchers.tables import MOST_ENTRIES
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.pool_int import PoolInt
from tpuconvert.schema.types import I8, TensorType

HUGE = 2**31 - 1
MOST_BYTES = 64 << 20

MODELS: dict[str, tuple[str, tuple[int, ...], list[Any], str, dict[str, Any]]] = {
    "average pool": ("AVERAGE_POOL_2D", (1, 4, HUGE, 1), [], "Pool2DOptions",
                     {"stride_w": 1, "stride_h": 1, "filter_width": 2, "filter_height": 2}),
    "bilinear": ("RESIZE_BILINEAR", (1, 4, 4, 1), [np.asarray([HUGE, 8], np.int32)], "ResizeBilinearOptions", {}),
    "nearest": ("RESIZE_NEAREST_NEIGHBOR", (1, 4, 4, 1), [np.asarray([HUGE, 9], np.int32)],
                "ResizeNearestNeighborOptions", {}),
    "mirrored": ("MIRROR_PAD", (HUGE, 4), [np.asarray([[1, 1], [0, 0]], np.int32)], "MirrorPadOptions", {}),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_open(name: str) -> None:
    op, shape, constants, table, options = MODELS[name]
    operands = [T(shape=shape), *(T(data=array) for array in constants)]
    model = tc.convert(serialize(single(op, operands, [T()], table, **options)))
    tracemalloc.start()
    try:
        with tc.limited(run_bytes=1 << 40), tc.Session(model, threads=1):
            assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()


def test_indices() -> None:
    """A list of Python integers takes 2 s and 600 MB for this many."""
    graph = Graph("many")
    index = graph.constant(np.zeros(MOST_ENTRIES + 1, np.int32), "index")
    graph.output(graph.add(IndexSelect(0), graph.input("x", TensorType(I8, (4,))), index))
    with tc.Session(graph, threads=1) as session:
        assert session.reference_nodes == ["index_select"]


def test_windows_of_a_huge_image() -> None:
    """Windows without elements are found without a table of all windows."""
    op = PoolInt(stride_h=1, stride_w=2, kernel_h=2, kernel_w=2, is_avg_pooling=True)
    tracemalloc.start()
    try:
        (y,) = op.infer(TensorType(I8, (1, 1, 2, HUGE - 1)))[:1]
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()
    assert y.shape == (1, 1, 1, (HUGE - 1) // 2)


@pytest.mark.parametrize(("pads", "window"), [({"pad_w_l": 2}, 0), ({"pad_w_r": 2}, 4)])
def test_windows_outside_of_the_image(pads: dict[str, int], window: int) -> None:
    op = PoolInt(stride_h=1, stride_w=1, kernel_h=2, kernel_w=2, is_avg_pooling=True, **pads)
    with pytest.raises(ShapeError, match=f"window {window} holds no element of the image"):
        op.infer(TensorType(I8, (1, 1, 2, 4)))
