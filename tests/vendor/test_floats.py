"""Every floating-point form in the vendor's simulator, in three types on two chips."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.vendor.float_families import FAMILIES, Family, built
from tests.support.vendor.vendor_tools import Vendor
from tpuconvert.exporters.request import FLOATS
from tpuconvert.schema.file.file_model import FileModel
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.copy import Constdata
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.quantization.dequant_int_to_fp32 import DequantIntToFp32
from tpuconvert.schema.ops.quantization.requant_fp32_to_int import RequantFp32ToInt
from tpuconvert.schema.types import Chip, DType, QuantParams, TensorType

pytestmark = pytest.mark.vendor

I8, I16, I32, F32 = DType.INT8, DType.INT16, DType.INT32, DType.FLOAT32


@pytest.mark.parametrize("build", FAMILIES, ids=lambda build: build.__name__)
@pytest.mark.parametrize("floats", FLOATS)
@pytest.mark.parametrize("chip", ["bm1684x", "bm1688"])
def test_forms(build: Callable[[Family], None], floats: str, chip: str, vendor: Vendor, tmp_path: Path) -> None:
    family = built(build)
    model = tc.Model(FileModel(family.graph, Chip.BM1686, "0", "none"))
    lines = vendor.compare(model, [family.feed], chip, tmp_path / "out", floats=floats)
    assert len(lines) == len(family.graph.outputs)
    assert [line for line in lines if line.startswith("DIFF")] == []


@pytest.mark.parametrize("chip", ["bm1684x", "bm1688"])
def test_scales_and_offsets_per_channel(chip: str, vendor: Vendor, tmp_path: Path) -> None:
    """The input has ties and exceeds the range of the integers."""
    scales = (0.5, 0.25, 1.0)
    graph = Graph("channels")
    x = graph.input("x", TensorType(F32, (1, 3, 8, 8)))
    for offsets in ((), (0, 3, -7), (3, 3, 3)):
        one_offset = {"is_offset_pc": True, "offset_vec": offsets} if len(set(offsets)) > 1 else {}
        if len(set(offsets)) == 1:
            one_offset = {"offset_val": offsets[0]}
        factors = tuple(1 / scale for scale in scales)
        quantized = graph.add(RequantFp32ToInt(is_scale_pc=True, scale_vec=factors, out_dtype=I8, **one_offset), x)
        quantized.quant = QuantParams(scales, offsets or (0, 0, 0), I8, axis=1)
        graph.output(quantized)
        graph.output(graph.add(DequantIntToFp32(is_scale_pc=True, scale_vec=scales, **one_offset), quantized))
    steps = np.random.default_rng(3).integers(-1200, 1200, (1, 3, 8, 8))
    feed = {"x": (steps / 8).astype(np.float32)}
    model = tc.Model(FileModel(graph, Chip.BM1686, "0", "int8"))
    lines = vendor.compare(model, [feed], chip, tmp_path / "out")
    assert len(lines) == 6 and [line for line in lines if line.startswith("DIFF")] == []
    assert sum(" equal" in line for line in lines) == 3


@pytest.mark.parametrize("chip", ["bm1684x", "bm1688"])
def test_tables_of_16_bits(chip: str, vendor: Vendor, tmp_path: Path) -> None:
    """Every entry of a table of whole numbers, cast to integers that saturate."""
    graph = Graph("table")
    index = graph.input("x", TensorType(I32, (4096,)), quant=QuantParams((1.0,), (0,), I32))
    table = graph.constant((np.arange(4096, dtype=np.float32) - 2048) * 20, "table")
    chosen = graph.add(IndexSelect(0), graph.add(Constdata(), table), index)
    graph.output(graph.add(Cast(out_dtype=I16), chosen))
    feed = {"x": np.random.default_rng(3).permutation(4096).astype(np.int32)}
    lines = vendor.compare(tc.Model(FileModel(graph, Chip.BM1686, "0", "int8")), [feed], chip, tmp_path / "out")
    assert lines and [line for line in lines if line.startswith("DIFF")] == []
