"""Failed allocations of the engine end with an error, and the engine works afterwards (``fuzz_allocations.py``)."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tpuconvert.runtime.native.builder.loader import extension

FOLDER = Path(__file__).parent
FIRST = 2000
"""Number of allocations of each phase that fail in turn, in the long test."""

PHASES = ("load", "run", "convert")

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the shim replaces functions of glibc"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="no compiler for the shim"),
    pytest.mark.skipif(extension() is None, reason="no native engine"),
    pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="a sanitizer replaces the same functions"),
]


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("shim") / "shim.so"
    source = FOLDER / "fuzz_allocation_shim.cpp"
    made = subprocess.run(
        ["g++", "-O1", "-std=c++17", "-shared", "-fPIC", "-o", str(library), str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode and "__libc_" in made.stderr:
        pytest.skip("a C library other than glibc")
    assert made.returncode == 0, made.stderr
    return library


def fail(shim: Path, phase: str, first: int, last: int, step: int) -> dict[str, Any]:
    """Let the allocations ``first, first + step, ... last`` fail, and check the outcomes."""
    command = [sys.executable, str(FOLDER / "fuzz_allocations.py"), phase, str(first), str(last), str(step)]
    environment = {**os.environ, "LD_PRELOAD": str(shim), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert set(found["outcomes"]) <= {"clean error", "no effect", "not reached"}, found
    assert found["outcomes"].get("clean error", 0) > 0, found
    return found


@pytest.mark.parametrize(
    ("phase", "step"), [pytest.param("load", 197, marks=pytest.mark.slow), ("run", 23), ("convert", 797)]
)
def test_a_sample_of_failed_allocations(shim: Path, phase: str, step: int) -> None:
    fail(shim, phase, 1, FIRST, step)


@pytest.mark.slow
@pytest.mark.parametrize("phase", PHASES)
def test_each_of_the_first_allocations_fails(shim: Path, phase: str) -> None:
    found = fail(shim, phase, 1, FIRST, 1)
    assert sum(found["outcomes"].values()) == min(FIRST, found["allocations"])
