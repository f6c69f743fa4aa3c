"""Numbers of the chips."""

from tpuconvert.schema.definition.hardware import HARDWARE
from tpuconvert.schema.types import F16, F32, I8, I16, Chip


def test_sizes_that_the_vendor_publishes() -> None:
    """Megabytes of on-chip memory in the vendor's product tables: 16, 32, and 4 for one core of two."""
    total = {chip: item.memory.lanes * item.memory.lane_bytes >> 20 for chip, item in HARDWARE.items()}
    assert total == {Chip.BM1682: 16, Chip.BM1684: 32, Chip.BM1686: 4}


def test_rates() -> None:
    hardware = HARDWARE[Chip.BM1686]
    assert hardware.macs_per_second(I8) == 4 * hardware.macs_per_second(F16)
    assert hardware.macs_per_second(I16) == hardware.macs_per_second(F32)
    assert hardware.bytes_per_mac(I8) == 32e9 / 3.6e12
