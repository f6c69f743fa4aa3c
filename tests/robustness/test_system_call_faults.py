"""A command whose system calls fail leaves the old or the new result, and nothing else (``fail_system_calls.py``)."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import programs

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the shim reads /proc"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="no compiler for the shim"),
    pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="a sanitizer replaces the same functions"),
]

SOURCE = Path(__file__).with_name("system_call_shim.cpp")


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("shim") / "shim.so"
    flags = ["-O1", "-std=c++17", "-shared", "-fPIC", "-o", str(library)]
    subprocess.run(["g++", *flags, str(SOURCE), "-ldl"], check=True)
    return library


@pytest.mark.parametrize(
    ("command", "step"),
    [
        ("convert", 3),
        ("dump", 29),
        *(pytest.param(name, 1, marks=pytest.mark.slow) for name in ("convert", "export", "run", "report", "dump")),
    ],
)
def test_results_are_complete(shim: Path, command: str, step: int) -> None:
    done = subprocess.run(
        programs.command("tests.robustness.fail_system_calls", command, str(step)),
        env=programs.environment(LD_PRELOAD=str(shim), OPENBLAS_NUM_THREADS="1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    counts = json.loads(done.stdout.splitlines()[-1])
    assert counts["calls"] > 0 and set(counts["outcomes"]) <= {"old", "new"}, counts
    assert counts["outcomes"]["old"] > 0, counts
