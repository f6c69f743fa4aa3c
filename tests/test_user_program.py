"""The types of the public names: a program of a user passes ``mypy --strict``, with the package as it is installed."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tools.release.package_view import make_view

PROGRAM = Path(__file__).parent / "support" / "user_program.py"

WRONG = """
import tpuconvert as tc

tc.check("net.onnx", chipp="bm1686")
tc.verify(tc.load("net.tpum"), "net.onnx", samples="4")
tc.bench("net.tpum", backend="gpu")
number: str = tc.bench("net.tpum").median
tc.absent("net.onnx")
"""
"""A program with one mistake per line after the import."""


def check_types(program: Path, repository: Path) -> list[str]:
    """Errors of ``mypy --strict`` for a program.

    ``make lint`` uses the same view, settings and cache: the types of the whole package take 25 s, and only if its
    sources have changed.
    """
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    make_view(repository / "build" / "view")
    command = [sys.executable, "-m", "mypy", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=repository)
    return [line for line in done.stdout.splitlines() if ": error:" in line or done.returncode == 2]


@pytest.mark.slow
def test_types_of_a_users_program(repository: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    shutil.copy(PROGRAM, program)
    assert check_types(program, repository) == []


@pytest.mark.slow
def test_mistakes_are_found(repository: Path, tmp_path: Path) -> None:
    program = tmp_path / "wrong.py"
    program.write_text(WRONG)
    lines = [int(error.split(":")[1]) for error in check_types(program, repository)]
    assert lines == [4, 5, 6, 7, 8]


def test_program_runs(repository: Path, tmp_path: Path) -> None:
    digits = repository / "examples" / "digits"
    for name in ("digits.onnx", "calibration.npz"):
        shutil.copy(digits / name, tmp_path)
    with np.load(digits / "digits.npz") as archive:
        chosen = archive["test"][:40]
        np.savez(tmp_path / "labeled.npz", images=archive["images"][chosen], labels=archive["labels"][chosen])
    program = shutil.copy(PROGRAM, tmp_path)  # beside folders of tests/support, which have names of packages
    done = subprocess.run([sys.executable, program, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "(3, 10)" in done.stdout
    assert (tmp_path / "report.html").is_file()
