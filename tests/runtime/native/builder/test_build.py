"""Installing from source: with a compiler the engine is built, without one everything else still works."""

import os
import shutil
import subprocess
import sys
import textwrap
import time
import venv
import zipfile
from pathlib import Path

import pytest

from tools.release.release import MOST_WHEEL_BYTES

pytestmark = pytest.mark.slow

ONE_LINE = (
    "tpuconvert: no C++ compiler was found (c++, g++, clang++, cl);"
    " the native engine is left out and models run on NumPy"
)


@pytest.fixture
def checkout(repository, tmp_path_factory) -> Path:
    """The files of the repository that are not ignored, without what was built in it.

    One for each test: CMake remembers the compiler that it found in a folder before.
    """
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=repository,
        capture_output=True,
        text=True,
    )
    if listing.returncode:
        pytest.skip("not a git checkout: the list of files cannot be made")
    copy = tmp_path_factory.mktemp("checkout")
    for name in listing.stdout.splitlines():
        if (repository / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(repository / name, copy / name)
    return copy


def environment(folder: Path, programs: tuple[str, ...] = ()) -> dict[str, str]:
    """Variables of a process that finds these programs and no others. The folder is given links to them."""
    folder.mkdir(exist_ok=True)
    for name in programs:
        found = shutil.which(name)
        assert found, f"this test needs {name}"
        (folder / name).symlink_to(found)
    kept = {name: value for name, value in os.environ.items() if name in ("HOME", "TMPDIR", "PIP_INDEX_URL", "LANG")}
    kept |= {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "HTTP", "http"))}
    return {**kept, "PATH": str(folder)}


def pip(python: Path, *arguments: str) -> list[str]:
    """The command that runs our pip for another environment, which has everything that building needs."""
    fixed = ["install", "--no-build-isolation", "--no-deps", "--no-index", "-v"]
    return [sys.executable, "-m", "pip", "--python", str(python), *fixed, *arguments]


def run(command: list[str], **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=1800, **options)


PROBE = """
    import numpy as np
    import tpuconvert as tc
    from tpuconvert.schema.errors import MissingExtraError
    from tpuconvert.schema.graph.graph import Graph
    from tpuconvert.schema.ops.arithmetic import Add
    from tpuconvert.schema.types import F32, TensorType
    graph = Graph()
    x = graph.input("x", TensorType(F32, (3,)))
    graph.output(graph.add(Add(), x, x, name="y"))
    with tc.Session(graph, backend="auto") as session:
        print(session.backend, session.run({"x": np.ones(3, np.float32)})["y"].tolist())
    try:
        print(tc.Session(graph, backend="native").backend)
    except MissingExtraError as error:
        print("MissingExtraError:", str(error).splitlines()[0])
"""


def probe(python: Path) -> list[str]:
    """Output of both backends in a fresh process outside of any checkout."""
    done = run([str(python), "-c", textwrap.dedent(PROBE)], cwd=python.parent, env={"PATH": ""})
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def python(tmp_path) -> Path:
    """A new virtual environment with the packages of this one, but without tpuconvert."""
    venv.create(tmp_path / "fresh", with_pip=False)
    found = tmp_path / "fresh" / "bin" / "python"
    [packages] = (tmp_path / "fresh" / "lib").glob("python*/site-packages")
    ours = [Path(entry) for entry in sys.path if entry.endswith("site-packages")]
    for folder in ours:
        for item in folder.iterdir():
            if "tpuconvert" not in item.name:
                (packages / item.name).symlink_to(item)
    return found


def test_without_a_compiler(checkout, python, tmp_path):
    done = run(pip(python, str(checkout)), env=environment(tmp_path / "bin"), cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    said = [line.strip() for line in (done.stdout + done.stderr).splitlines() if "native engine is left out" in line]
    assert set(said) == {ONE_LINE}
    first, second = probe(python)
    assert first == "reference [2.0, 2.0, 2.0]"
    assert second.startswith("MissingExtraError: this installation of tpuconvert has no native engine")


def test_with_a_compiler(checkout, python, tmp_path):
    if not shutil.which("c++") and not shutil.which("g++"):
        pytest.skip("there is no compiler")
    start = time.perf_counter()
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-build-isolation",
        "--no-deps",
        "--no-index",
        "-w",
        str(tmp_path),
        str(checkout),
    ]
    tools = str(Path(sys.executable).parent)
    done = run(command, env={**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    [wheel] = tmp_path.glob("*.whl")
    [extension] = [item for item in zipfile.ZipFile(wheel).infolist() if "_native" in item.filename]
    print(
        f"\nbuilt in {time.perf_counter() - start:.0f} s with {os.cpu_count()} processors;"
        f" wheel {wheel.stat().st_size} bytes, extension {extension.file_size} bytes"
    )
    assert wheel.stat().st_size < MOST_WHEEL_BYTES
    assert extension.filename.startswith("tpuconvert/runtime/_native")
    installed = run(pip(python, str(wheel)), cwd=tmp_path)
    assert installed.returncode == 0, installed.stderr
    assert probe(python) == ["native [2.0, 2.0, 2.0]", "native"]


def test_a_compiler_that_fails_is_an_error_with_the_way_out(checkout, python, tmp_path):
    """A broken compiler is not the same as none: the user must know."""
    broken = tmp_path / "broken"
    broken.mkdir()
    for name in ("c++", "g++", "cc", "gcc"):
        (broken / name).write_text("#!/bin/sh\nexit 1\n")
        (broken / name).chmod(0o755)
    tools = str(Path(sys.executable).parent)
    path = os.pathsep.join([str(broken), tools, os.environ["PATH"]])
    done = run(pip(python, str(checkout)), env={**os.environ, "PATH": path, "CXX": str(broken / "c++")}, cwd=tmp_path)
    assert done.returncode != 0
    assert "TPUCONVERT_NATIVE=off" in done.stdout + done.stderr
