"""Hardware parameters of the chips: on-chip memory, peak compute rate and bandwidth of global memory.

A chip has lanes that compute in parallel, each with its own memory. Channels are distributed over the lanes. The plane
of a channel begins at a multiple of ``row_bytes``, the number of bytes that a lane processes at once.

Source: lanes and memory sizes, ``bmrt_arch_info.cpp`` of the vendor's runtime (libsophon, get_npu_num, get_lmem_size,
get_eu_num), and for BM1684 and BM1686 the same numbers in TPU-MLIR (include/tpu_mlir/Backend/BM168x, NPU_NUM,
LMEM_BYTES, EU_BYTES). The sources of the peak rates are given at each chip; docs/inside/optimizer.md has them as a
table.
"""

from __future__ import annotations

from dataclasses import dataclass

from tpuconvert.schema.types import F16, I8, U8, Chip, DType

_KIB = 1 << 10


@dataclass(frozen=True)
class LocalMemory:
    """On-chip memory.

    Args:
        lanes: number of channels that are computed in parallel.
        lane_bytes: memory of one lane.
        row_bytes: alignment of the plane of a channel.
    """

    lanes: int
    lane_bytes: int
    row_bytes: int


@dataclass(frozen=True)
class Hardware:
    """One chip. Units: multiply-accumulates (MACs) per second, bytes per second."""

    memory: LocalMemory
    bytes_per_second: float
    macs_int8: float
    macs_float16: float
    macs_float32: float

    def macs_per_second(self, dtype: DType) -> float:
        """Peak rate for operands of a type; a type without its own rate has the rate of FLOAT32."""
        if dtype in (I8, U8):
            return self.macs_int8
        return self.macs_float16 if dtype is F16 else self.macs_float32

    def bytes_per_mac(self, dtype: DType) -> float:
        """Bytes that global memory transfers in the time of one MAC. It converts a cost of computation to bytes."""
        return self.bytes_per_second / self.macs_per_second(dtype)


HARDWARE = {
    # 3 TFLOPS FP32: the vendor's product table. No bandwidth is published: here, of the BM1680 board (SC1 manual).
    Chip.BM1682: Hardware(LocalMemory(64, 256 * _KIB, 128), 83.2e9, 1.5e12, 1.5e12, 1.5e12),
    # 17.6 TOPS INT8 (without Winograd), 2.2 TFLOPS FP32: the same table. LPDDR4X-4266 on 128 bits, as BM1684X.
    Chip.BM1684: Hardware(LocalMemory(64, 512 * _KIB, 128), 68.3e9, 8.8e12, 1.1e12, 1.1e12),
    # One of two cores: 14.4 TOPS INT8, 0.45 TFLOPS FP32 and 2 * 32 GB/s in the profiler of TPU-MLIR (python/
    # profile_helper/bm1688_defs.py); FP16 is a quarter of INT8 (16 TOPS and 4 TFLOPS in the vendor's product table).
    Chip.BM1686: Hardware(LocalMemory(32, 128 * _KIB, 16), 32e9, 3.6e12, 0.9e12, 0.1125e12),
}
"""Hardware by chip."""


def hardware_of(chip: Chip) -> Hardware:
    """Return the hardware parameters of a chip."""
    return HARDWARE[chip]
