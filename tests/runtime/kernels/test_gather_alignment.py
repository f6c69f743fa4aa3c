"""Gathers from slices that begin at an odd byte."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.native_cases.random_graphs import check, needs_extension
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.pad import Pad, PadType
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.types import I32, U8, Scalar, TensorType

pytestmark = needs_extension


def cut_of(graph: Graph, start: int, wide: int):
    x = graph.input("x", TensorType(U8, (8, 1, 1)))
    moved = graph.add(Clamp(Scalar(U8, 1), Scalar(U8, 100)), x)
    cut = graph.add(Extract((start, 0, 0), (start + wide, 1, 1), (1, 1, 1)), moved)
    return graph.add(Permute((1, 2, 0)), cut)


@pytest.mark.parametrize("start", [1, 2, 3])
@pytest.mark.parametrize("wide", [2, 4])
def test_mirrored_edges(start: int, wide: int) -> None:
    """Slices of 2 and 4 bytes are moved as elements of that size, which must begin at a multiple of it."""
    graph = Graph()
    x = cut_of(graph, start, wide)
    pad = Pad(Scalar(U8, 0), (1, 1, 1, 1, 0, 0), PadType.PAD_SYMMETRIC)
    graph.output(graph.add(pad, x, name="y"))
    check(graph, [np.arange(8, dtype=np.uint8).reshape(8, 1, 1)])


@pytest.mark.parametrize("start", [1, 2, 3])
@pytest.mark.parametrize("wide", [2, 4])
@pytest.mark.parametrize("constant", [True, False])
def test_chosen_rows(start: int, wide: int, constant: bool) -> None:
    graph = Graph()
    x = cut_of(graph, start, wide)
    indices = np.zeros(3, np.int32)
    index = graph.constant(indices) if constant else graph.input("i", TensorType(I32, (3,)))
    graph.output(graph.add(IndexSelect(dim=0), x, index, name="y"))
    feeds = [np.arange(8, dtype=np.uint8).reshape(8, 1, 1)]
    check(graph, feeds if constant else [*feeds, indices])
