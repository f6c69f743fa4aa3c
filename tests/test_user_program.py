"""The types of the public names: a program of a user passes ``mypy --strict``, with the package as it is installed."""

import importlib.util
import os
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


@pytest.fixture(scope="module")
def site(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package as an installation lays it out, for type checkers."""
    folder = tmp_path_factory.mktemp("site")
    make_view(folder / "view")
    return folder / "view"


def check_types(program: Path, site: Path) -> list[str]:
    """Errors of ``mypy --strict`` for a program, without those for the package itself."""
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull]
    command += ["--follow-imports", "silent", "--cache-dir", str(site.parent / "cache"), str(program)]
    environment = {**os.environ, "MYPYPATH": str(site)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=program.parent)
    return [line for line in done.stdout.splitlines() if ": error:" in line or done.returncode == 2]


def test_types_of_a_users_program(site: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    shutil.copy(PROGRAM, program)
    assert check_types(program, site) == []


def test_mistakes_are_found(site: Path, tmp_path: Path) -> None:
    program = tmp_path / "wrong.py"
    program.write_text(WRONG)
    lines = [int(error.split(":")[1]) for error in check_types(program, site)]
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
