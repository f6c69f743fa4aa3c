"""Cases of the fuzzers that are kept: small files, each of which reaches other branches or once was a finding."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzzing.reader_targets import TARGETS, Target
from tests.support import programs

FOLDER = Path(__file__).resolve().parents[1] / "fuzzing"
KERNELS = FOLDER.parents[1] / "runtime" / "kernels"

CORPUS = FOLDER / "corpus"
MOST_BYTES = 64 << 10
"""Size of all kept cases."""


@pytest.mark.parametrize("name", TARGETS)
def test_kept_cases_of_readers_end_with_documented_errors(name: str, tmp_path: Path) -> None:
    cases = sorted((CORPUS / name).glob("*"))
    target = Target(name, tmp_path)
    for case in cases:
        target.use(case.read_bytes())  # raises an error that is not documented


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


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("clang++") is None or shutil.which("ninja") is None, reason="no clang++ or no Ninja")
def test_changed_calls_of_kernels_run_under_sanitizers(tmp_path: Path) -> None:
    """Atheris can load the engine, and the target of kernels runs."""
    atheris = pytest.importorskip("atheris")
    environment = {**os.environ, "PYTHON": sys.executable}
    build = [FOLDER / "native" / "build_engine.sh", tmp_path, "core;movement;general"]
    built = subprocess.run(build, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout[-2000:] + built.stderr[-2000:]
    (engine,) = tmp_path.glob("_native*.so")
    environment |= {
        "TPUCONVERT_NATIVE_LIBRARY": str(engine),
        "LD_PRELOAD": str(Path(atheris.path()) / "asan_with_fuzzer.so"),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "PYTHONPATH": str(programs.ROOT),
    }
    run = programs.command("tests.fuzzing.kernel_fuzzer", "movement", "-runs=300")
    done = subprocess.run(run, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "Done 300 runs" in done.stderr, done.stderr[-2000:]
