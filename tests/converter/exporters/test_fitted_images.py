"""Images that an exported program crops, resizes and pads, computed with NumPy from the operations of the module."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.vendor.module_in_numpy import run_module
from tests.support.vendor.vendor_tools import model_of
from tpuconvert.schema.errors import UnsupportedError
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.host.fit_image import METHODS, HostFitImage
from tpuconvert.schema.types import Chip, DType, TensorType

FITS = [
    {"size": (32, 32), "inner": (23, 32), "box": (0, 0, 36, 50), "corner": (4, 0)},  # letterbox
    {"size": (40, 48), "inner": (40, 48), "box": (2, 3, 32, 40)},  # enlarged
    {"size": (20, 24), "inner": (18, 22), "box": (0, 3, 36, 44), "corner": (1, 2)},  # halved
    {"size": (36, 36), "inner": (36, 36), "box": (0, 7, 36, 36)},  # not resized
    {"size": (7, 50), "inner": (7, 50), "box": (0, 0, 36, 50)},  # one axis
]


def graph_of(method: str, fit: dict, shape: tuple[int, ...] = (2, 36, 50, 3)) -> Graph:
    graph = Graph("fit")
    x = graph.input("image", TensorType(DType.UINT8, shape))
    graph.output(graph.add(HostFitImage(pad=114, method=METHODS.index(method), **fit), x, name="y"))
    return graph


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("method", ["opencv-linear", "opencv-nearest"])
def test_pixels_are_those_of_the_operator(method: str, fit: dict) -> None:
    graph = graph_of(method, fit)
    rng = np.random.default_rng(0)
    array = rng.choice(np.array([0, 1, 127, 128, 254, 255, *rng.integers(0, 256, 9)], np.uint8), (2, 36, 50, 3))
    (expected,) = graph.nodes[0].op.reference(array)
    assert np.array_equal(run_module(graph, "bm1684x", array), expected)


@pytest.mark.parametrize(
    ("method", "chip", "found", "hint"),
    [
        ("opencv-area", "bm1684x", "opencv-linear and opencv-nearest, not opencv-area", "without camera="),
        ("opencv-linear", "bm1684", "which BM1684 does not have", "without camera="),
    ],
)
def test_what_has_no_form_is_an_error(method: str, chip: str, found: str, hint: str, tmp_path: Path) -> None:
    model = model_of(graph_of(method, FITS[0]), Chip.BM1684 if chip == "bm1684" else Chip.BM1686)
    with pytest.raises(UnsupportedError, match=found) as error:
        tc.export(model, tmp_path / "out", chip=chip)
    assert hint in str(error.value) and "exact-on" not in str(error.value) and not (tmp_path / "out").exists()


def test_another_method_without_resizing_is_exported() -> None:
    graph = graph_of("opencv-area", FITS[3], (1, 36, 50, 1))
    array = np.random.default_rng(0).integers(0, 256, (1, 36, 50, 1), np.uint8)
    assert np.array_equal(run_module(graph, "bm1688", array), array[:, :, 7:43])
