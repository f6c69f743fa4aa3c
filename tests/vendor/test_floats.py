"""Every floating-point form in the vendor's simulator, in three types on two chips."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import tpuconvert as tc
from tests.support.vendor.float_families import FAMILIES, Family, built
from tests.support.vendor.vendor_tools import Vendor
from tpuconvert.exporters.request import FLOATS
from tpuconvert.schema.file.file_model import FileModel
from tpuconvert.schema.types import Chip

pytestmark = pytest.mark.vendor


@pytest.mark.parametrize("build", FAMILIES, ids=lambda build: build.__name__)
@pytest.mark.parametrize("floats", FLOATS)
@pytest.mark.parametrize("chip", ["bm1684x", "bm1688"])
def test_forms(build: Callable[[Family], None], floats: str, chip: str, vendor: Vendor, tmp_path: Path) -> None:
    family = built(build)
    model = tc.Model(FileModel(family.graph, Chip.BM1686, "0", "none"))
    lines = vendor.compare(model, [family.feed], chip, tmp_path / "out", floats=floats)
    assert len(lines) == len(family.graph.outputs)
    assert [line for line in lines if line.startswith("DIFF")] == []
