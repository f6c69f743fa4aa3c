"""Freed arrays are returned to the operating system."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import os
from pathlib import Path
import numpy as np
from tpuconvert.schema.system.heap_memory import large_arrays_returned

def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

with large_arrays_returned():
    np.ones(20 << 20, np.uint8)  # the first large array that is freed raises the threshold of glibc
    pairs = [(np.ones(5 << 20, np.uint8), np.ones(3000, np.uint8)) for _ in range(20)]
    kept = [small for _, small in pairs]
    before = resident_bytes()
    del pairs
    print(before - resident_bytes())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has the option")
def test_large_arrays_are_returned_when_they_are_freed() -> None:
    # In processes of their own, because free pieces of the heap would serve the arrays.
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 50 << 20
