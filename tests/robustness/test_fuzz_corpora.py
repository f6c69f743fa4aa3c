"""Cases of the fuzzers that are kept: small files, each of which reaches other branches or once was a finding."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "fuzzing"
KERNELS = FOLDER.parents[1] / "runtime" / "kernels"
sys.path.append(str(FOLDER))

from reader_targets import TARGETS, Target  # noqa: E402  the folder is no package

CORPUS = FOLDER / "corpus"
MOST_BYTES = 64 << 10
"""Size of all kept cases."""


@pytest.mark.parametrize("name", TARGETS)
def test_kept_cases_of_readers_end_with_documented_errors(name: str, tmp_path: Path) -> None:
    cases = sorted((CORPUS / name).glob("*"))
    target = Target(name, tmp_path)
    for case in cases:
        target.use(case.read_bytes())  # raises what is no documented error


def test_corpora_are_small() -> None:
    sizes = [path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()]
    assert sizes
    assert sum(sizes) <= MOST_BYTES
    assert {path.name for path in CORPUS.iterdir()} <= {*TARGETS, "program"}


def test_target_of_plans_compiles(tmp_path: Path) -> None:
    """The normal build leaves the target out, so that changes of the engine could break it unnoticed."""
    if shutil.which("clang++") is None:
        pytest.skip("no clang++")
    header = tmp_path / "header.cpp"
    header.write_text("#include <fuzzer/FuzzedDataProvider.h>\n")
    check = ["clang++", "-std=c++17", "-fsyntax-only", "-I", str(KERNELS)]
    if subprocess.run([*check, header], stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("Clang has no libFuzzer")
    source = FOLDER / "native" / "program_fuzzer.cpp"
    checked = subprocess.run([*check, source], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.slow
def test_kept_cases_of_plans_run_under_sanitizers(tmp_path: Path) -> None:
    if shutil.which("clang++") is None:
        pytest.skip("no clang++")
    built = subprocess.run([FOLDER / "native" / "build.sh", tmp_path], capture_output=True, text=True, check=False)
    if "libclang_rt" in built.stderr:
        pytest.skip("Clang has no libFuzzer")
    assert built.returncode == 0, built.stderr
    cases = sorted(map(str, (CORPUS / "program").iterdir()))
    done = subprocess.run([tmp_path / "program_fuzzer", *cases], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
