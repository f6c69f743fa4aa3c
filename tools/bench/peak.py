"""Peak rate of 8-bit multiply-accumulates of one core, measured with a compiled loop."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

STEPS = 1 << 20
"""Number of loop iterations of the probe; each executes ``INDEPENDENT`` independent instructions."""

INDEPENDENT = 16
"""Instructions per iteration: more than latency times instructions per cycle, so that the loop is throughput-bound."""

# The probe returns 0 steps per instruction if the processor has neither instruction.
SOURCE = """
#include <immintrin.h>
#include <stdint.h>

#define EACH(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11) M(12) M(13) M(14) M(15)

__attribute__((target("avx512f,avx512vnni"))) static void widest(int64_t steps) {
#define START(i) __m512i sum##i = _mm512_setzero_si512();
  EACH(START)
  const __m512i x = _mm512_set1_epi8(1);
  for (int64_t step = 0; step < steps; ++step) {
#define PRODUCT(i) __asm__ volatile("vpdpbusd %1, %1, %0" : "+v"(sum##i) : "v"(x));
    EACH(PRODUCT)
  }
}

#ifdef HAS_AVXVNNI
__attribute__((target("avx2,avxvnni"))) static void narrow(int64_t steps) {
#define START_NARROW(i) __m256i sum##i = _mm256_setzero_si256();
  EACH(START_NARROW)
  const __m256i x = _mm256_set1_epi8(1);
  for (int64_t step = 0; step < steps; ++step) {
#define PRODUCT_NARROW(i) __asm__ volatile("%{vex%} vpdpbusd %1, %1, %0" : "+x"(sum##i) : "x"(x));
    EACH(PRODUCT_NARROW)
  }
}
#endif

#ifdef HAS_AMX
#include <cpuid.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Asks Linux for the permission to use the tile registers: ARCH_REQ_XCOMP_PERM of XFEATURE_XTILEDATA. */
static int has_amx(void) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 24 & 3) == 3 && syscall(SYS_arch_prctl, 0x1023, 18) == 0;
}

static void tiles(int64_t steps) {
  uint8_t configuration[64] __attribute__((aligned(64)));
  memset(configuration, 0, sizeof configuration);
  configuration[0] = 1;
  for (int i = 0; i < 8; ++i) configuration[16 + 2 * i] = 64, configuration[48 + i] = 16;
  __asm__ volatile("ldtilecfg %0" : : "m"(configuration));
#define CLEAR(i) __asm__ volatile("tilezero %tmm" #i);
  CLEAR(0) CLEAR(1) CLEAR(2) CLEAR(3) CLEAR(4) CLEAR(5) CLEAR(6) CLEAR(7)
  for (int64_t step = 0; step < steps; ++step) {
#define TILE_PRODUCT(i) __asm__ volatile("tdpbusd %tmm7, %tmm6, %tmm" #i);
#define FOUR TILE_PRODUCT(0) TILE_PRODUCT(1) TILE_PRODUCT(2) TILE_PRODUCT(3)
    FOUR FOUR FOUR FOUR
  }
  __asm__ volatile("tilerelease");
}
#endif

/* Multiply-accumulate steps of one instruction; 0 where the processor has none. */
int per_instruction(void) {
#ifdef HAS_AMX
  if (has_amx()) return 16 * 16 * 64;
#endif
  if (__builtin_cpu_supports("avx512vnni")) return 64;
#ifdef HAS_AVXVNNI
  if (__builtin_cpu_supports("avxvnni")) return 32;
#endif
  return 0;
}

void probe(int64_t steps) {
#ifdef HAS_AMX
  if (has_amx()) { tiles(steps); return; }
#endif
  if (__builtin_cpu_supports("avx512vnni")) { widest(steps); return; }
#ifdef HAS_AVXVNNI
  narrow(steps);
#endif
}
"""


class ProbeError(Exception):
    """The peak rate cannot be measured; the message has the reason."""


def build_probe(target: Path) -> None:
    """Compile the probe.

    Raises:
        ProbeError: there is no compiler, or the processor has no instruction for 8-bit dot products.
    """
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise ProbeError("no C compiler")
    call = [compiler, "-O2", "-shared", "-fPIC", "-x", "c", "-", "-o", str(target)]
    # Compilers before 2021 know neither AVX-VNNI nor AMX, which is used on Linux only.
    for variant in (["-DHAS_AVXVNNI", "-DHAS_AMX"], ["-DHAS_AMX"], ["-DHAS_AVXVNNI"], []):
        done = subprocess.run([*call, *variant], input=SOURCE, text=True, capture_output=True, check=False)
        if done.returncode == 0:
            break
    else:
        raise ProbeError(f"the probe does not compile: {done.stderr.strip().splitlines()[0]}")
    if steps_per_run(target) == 0:
        raise ProbeError("the processor has no instruction for 8-bit products")


def open_probe(library: Path) -> Callable[[], None]:
    """Load the compiled probe. Return a function that runs its loop."""
    probe = ctypes.CDLL(str(library.resolve())).probe
    probe.argtypes = [ctypes.c_int64]
    probe.restype = None
    return lambda: probe(STEPS)


def steps_per_run(library: Path) -> int:
    """Number of multiply-accumulates per call of the probe."""
    return int(ctypes.CDLL(str(library.resolve())).per_instruction()) * INDEPENDENT * STEPS
