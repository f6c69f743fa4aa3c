"""Every floating-point form in the vendor's simulator, in three types on two chips."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.vendor.float_families import FAMILIES, Family, built
from tests.support.vendor.vendor_tools import Vendor
from tpuconvert.exporters.tpu_mlir.chips import TARGETS
from tpuconvert.schema.file.file_model import FileModel
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.copy import Constdata
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.quantization.dequant_int_to_fp32 import DequantIntToFp32
from tpuconvert.schema.ops.quantization.requant_fp32_to_int import RequantFp32ToInt
from tpuconvert.schema.types import Chip, DType, QuantParams, Scalar, TensorType

pytestmark = pytest.mark.vendor

I8, I16, I32, F32 = DType.INT8, DType.INT16, DType.INT32, DType.FLOAT32


ON_HOST = {("bm1684", "lookups"): 6}
"""Branches that the host computes: lookups in constants."""

TYPES = [(name, floats) for name, target in TARGETS.items() for floats in target.floats]


@pytest.mark.parametrize("build", FAMILIES, ids=lambda build: build.__name__)
@pytest.mark.parametrize(("chip", "floats"), TYPES)
def test_forms(build: Callable[[Family], None], floats: str, chip: str, vendor: Vendor, tmp_path: Path) -> None:
    family = built(build)
    model = tc.Model(FileModel(family.graph, TARGETS[chip].chip, "0", "none"))
    level = TARGETS[chip].level  # groups of BM1684 with floats are often wrong
    lines = vendor.compare(model, [family.feed], chip, tmp_path / "out", floats=floats, grouping=level)
    assert len(lines) == len(family.graph.outputs) - ON_HOST.get((chip, build.__name__), 0)
    assert [line for line in lines if line.startswith("DIFF")] == []


@pytest.mark.parametrize("chip", ["bm1684x", "bm1688"])
def test_scales_and_offsets_per_channel(chip: str, vendor: Vendor, tmp_path: Path) -> None:
    """The input has ties and exceeds the range of the integers."""
    scales = (0.5, 0.25, 0.125)
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
def test_an_offset_that_is_no_zero_point(chip: str, vendor: Vendor, tmp_path: Path) -> None:
    """Some exporters round to even by adding 1.5 * 2^23, which the offset of the first integers subtracts again."""
    graph = Graph("rounding")
    x = graph.input("x", TensorType(F32, (1, 2, 64)))
    rounded = graph.add(Adds(Scalar.f32(12582912.0)), x)
    quantized = graph.add(RequantFp32ToInt(offset_val=114 - 12582912, out_dtype=DType.UINT8), rounded)
    quantized.quant = QuantParams.per_tensor(1.0, 114, DType.UINT8)
    graph.output(quantized)
    feed = {"x": (np.random.default_rng(3).integers(-600, 600, (1, 2, 64)) / 4).astype(np.float32)}
    lines = vendor.compare(tc.Model(FileModel(graph, Chip.BM1686, "0", "int8")), [feed], chip, tmp_path / "out")
    assert len(lines) == 1 and " 0 of 128 values differ" in lines[0]


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
