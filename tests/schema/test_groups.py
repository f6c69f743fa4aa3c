"""Groups in memory and in files, those of hostile files too, and the numbers of chips."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import tpum_models

from tpuconvert.schema import tpum_tables as tpum
from tpuconvert.schema.errors import InternalError
from tpuconvert.schema.file_decoder import decode
from tpuconvert.schema.file_encoder import encode
from tpuconvert.schema.file_format import read_model, write_model
from tpuconvert.schema.groups import MAX_PARTS, Group, Grouping, Tiles
from tpuconvert.schema.hardware import HARDWARE, LocalMemory, hardware_of
from tpuconvert.schema.types import F16, F32, I8, I16, Array, Chip, DType

MEMORY = LocalMemory(32, 1 << 17, 16)


def model_with(*groups: Group):
    return dataclasses.replace(tpum_models.rich_model(), grouping=Grouping(MEMORY, groups))


def test_groups_in_a_file(tmp_path: Path) -> None:
    written = model_with(Group(0, 2, Tiles(1, 2, 3), True))
    write_model(tmp_path / "m.tpum", written)
    assert read_model(tmp_path / "m.tpum").grouping == written.grouping
    write_model(tmp_path / "n.tpum", tpum_models.rich_model())
    assert read_model(tmp_path / "n.tpum").grouping is None


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ((Group(0, 0),), "0 nodes"),
        ((Group(-1, 2),), "expected from 0 on"),
        ((Group(0, 3), Group(2, 2)), "expected from 3 on"),
        ((Group(4, 2), Group(0, 2)), "expected from 6 on"),
        ((Group(0, 2, Tiles(0, 1, 1)),), "parts"),
        ((Group(0, 2, Tiles(1, 1, -5)),), "parts"),
        ((Group(0, 2, Tiles(1, MAX_PARTS + 1, 1)),), "parts"),
    ],
)
def test_rejects_invalid_groups(groups: tuple[Group, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Grouping(MEMORY, groups)


def test_rejects_groups_after_last_node(tmp_path: Path) -> None:
    with pytest.raises(InternalError, match="ends at node"):
        write_model(tmp_path / "m.tpum", model_with(Group(0, 1000)))


def zeros(dtype: DType, shape: tuple[int, ...]) -> Array:
    return np.zeros(shape, dtype.numpy)


@pytest.mark.parametrize(
    "change",
    [
        {"groups": (tpum.Group(first=0, count=1 << 30),)},
        {"groups": (tpum.Group(first=-(1 << 31), count=1),)},
        {"groups": (tpum.Group(first=0, count=-1),)},
        {"groups": (tpum.Group(first=0, count=1, tiles_h=1 << 30),)},
        {"groups": (tpum.Group(first=0, count=1), tpum.Group(first=0, count=1))},
        {"lanes": 0},
        {"lanes": -1},
        {"lane_bytes": 1 << 62},
        {"row_bytes": 0},
    ],
    ids=str,
)
def test_hostile_tables(change: dict[str, object]) -> None:
    tables, _ = encode(model_with(Group(0, 1)))
    grouping = tables.grouping._replace(**change)
    with pytest.raises(ValueError, match=r"group|memory"):
        decode(
            tables._replace(grouping=grouping),
            1 << 40,
            lambda _, *array: np.zeros(array[1], array[0].numpy),
        )


def test_parsing_a_memory() -> None:
    assert LocalMemory.parse("64x256K") == LocalMemory(64, 256 * 1024, 64)
    assert LocalMemory.parse("32x128k@16") == LocalMemory.parse("BM1686") == hardware_of(Chip.BM1686).memory
    assert LocalMemory.parse("2x1M").lane_bytes == 1 << 20
    assert str(LocalMemory.parse("8x1000@8")) == "8x1000@8"
    for text in ("64", "x256K", "64x", "bm9999", "0x4K", "64x0", "99999999x1K", "1x32@64"):
        with pytest.raises(ValueError, match=r"local memory|neither a size"):
            LocalMemory.parse(text)


def test_sizes_that_the_vendor_publishes() -> None:
    """Megabytes of on-chip memory in the vendor's product tables: 16, 32, 16, and 4 for one core of two."""
    total = {name: item.memory.lanes * item.memory.lane_bytes >> 20 for name, item in HARDWARE.items()}
    assert total == {"bm1682": 16, "bm1684": 32, "bm1684x": 16, "bm1686": 4}


def test_rates() -> None:
    hardware = HARDWARE["bm1684x"]
    assert hardware.macs_per_second(I8) == 2 * hardware.macs_per_second(F16)
    assert hardware.macs_per_second(I16) == hardware.macs_per_second(F32)
    assert hardware.bytes_per_mac(I8) == 68.3e9 / 16e12
