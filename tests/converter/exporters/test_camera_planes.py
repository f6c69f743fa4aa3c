"""Camera planes in an exported program, computed with NumPy from the operations of the module."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.vendor.module_in_numpy import run_module
from tests.support.vendor.vendor_tools import model_of
from tpuconvert.exporters.tpu_mlir.chips import TARGETS
from tpuconvert.exporters.tpu_mlir.package import lower_graph
from tpuconvert.schema.arithmetic.yuv420 import yuv420_to_rgb
from tpuconvert.schema.errors import UnsupportedError
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.host.yuv import HostYuv420ToRgb
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.types import Chip, DType, TensorType


def graph_of(shape: tuple[int, int, int], *, interleaved: bool, blue_first: bool, order: tuple[int, ...] = ()) -> Graph:
    graph = Graph("planes")
    x = graph.input("planes", TensorType(DType.UINT8, shape))
    y = graph.add(HostYuv420ToRgb(interleaved, blue_first), x, name="pixels")
    graph.output(graph.add(Permute(order), y, name="moved") if order else y)
    return graph


@pytest.mark.parametrize("blue_first", [False, True])
@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("chip", ["bm1684x", "bm1688"])
def test_pixels_are_those_of_the_operator_for_all_luma(chip: str, interleaved: bool, blue_first: bool) -> None:
    """Each Y, with values of U and V that have the limits."""
    chroma = [0, 1, 15, 16, 64, 100, 127, 128, 129, 200, 240, 254, 255]
    y, u, v = (part.reshape(-1) for part in np.meshgrid(np.arange(256), chroma, chroma, indexing="ij"))
    width = 2 * len(chroma)
    luma = np.zeros((2 * len(y) // len(chroma), width), np.uint8)
    blocks = [part.reshape(-1, len(chroma)).astype(np.uint8) for part in (y, u, v)]
    luma[:] = blocks[0].repeat(2, axis=0).repeat(2, axis=1)
    planes = np.stack(blocks[1:], axis=-1) if interleaved else np.stack(blocks[1:])
    array = np.concatenate([luma, planes.reshape(-1, width)])[np.newaxis]
    found = run_module(graph_of(array.shape, interleaved=interleaved, blue_first=blue_first), chip, array)
    expected = yuv420_to_rgb(array, interleaved=interleaved)
    assert np.array_equal(found, expected[..., ::-1] if blue_first else expected)


@pytest.mark.parametrize("order", [(0, 3, 1, 2), (0, 3, 2, 1)])
def test_channels_are_joined_where_a_permutation_moves_them(order: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 256, (2, 9, 10), np.uint8)
    graph = graph_of(array.shape, interleaved=True, blue_first=False, order=order)
    if order == (0, 3, 1, 2):
        found = run_module(graph, "bm1684x", array)
        assert np.array_equal(found, yuv420_to_rgb(array, interleaved=True).transpose(order))
    lines = lower_graph(graph, TARGETS["bm1684x"], "net").module.lines
    permutes = [line for line in lines if line.operation == "tpu.Permute"]
    assert len(permutes) == (order != (0, 3, 1, 2))


def test_a_chip_without_a_form_is_an_error_that_names_the_other_format(tmp_path: Path) -> None:
    model = model_of(graph_of((1, 12, 8), interleaved=True, blue_first=False), Chip.BM1684)
    with pytest.raises(UnsupportedError, match="planes become pixels") as error:
        tc.export(model, tmp_path / "out", chip="bm1684")
    assert "--fuse-preprocess rgb" in str(error.value) and not (tmp_path / "out").exists()
