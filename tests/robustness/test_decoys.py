"""No command executes a file of the current folder that the user did not name.

The current folder is full of decoys: a Python file for every module of Python and of every installed package. Each of
them leaves a mark and ends the process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import tpuconvert as tc
from tests.support.commands.command_calls import CALLS, INSTALLS, call, leaf_commands, write_files
from tpuconvert.search_path import path_without_current_folder
from tpuconvert.workers.child_process import child_environment, isolated_starts, module_command, run_module

DECOY = "import os\nos.write(os.open({mark!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND), b'{name} ')\nos._exit(77)\n"
IN_EVERY_RUN = ("ci",)
"""It starts processes, as ``verify`` and ``reduce`` do."""


def decoy_names() -> set[str]:
    """Top-level modules of Python and of all installed packages, and those that Python imports at its start."""
    installed = {name for name in metadata.packages_distributions() if name.isidentifier()}
    running = {name.partition(".")[0] for name in sys.modules}
    names = {*sys.stdlib_module_names, *installed, *running, "sitecustomize", "usercustomize"}
    return {name for name in names if name.isidentifier()} - {"plugin"}


def write_decoys(folder: Path, mark: Path) -> None:
    for name in decoy_names():
        (folder / f"{name}.py").write_text(DECOY.format(mark=str(mark), name=name))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files for all commands, and decoys beside them."""
    found = tmp_path_factory.mktemp("decoys")
    write_files(found)
    write_decoys(found, found.parent / f"{found.name}.mark")
    return found


def run(folder: Path, command: list[str], **environment: str) -> None:
    mark = folder.parent / f"{folder.name}.mark"
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300
    )
    executed = mark.read_text() if mark.exists() else ""
    mark.unlink(missing_ok=True)
    assert executed == "", f"executed: {executed}"
    assert done.returncode == 0, done.stderr


def program() -> str:
    """Path of the installed command, beside the interpreter."""
    path = Path(sys.executable).with_name("tpuconvert")
    if not path.exists():
        pytest.skip("the command is not installed beside this interpreter")
    return str(path)


def test_every_command_has_a_call() -> None:
    assert set(CALLS) | INSTALLS == set(leaf_commands())


@pytest.mark.parametrize("command", [name if name in IN_EVERY_RUN else pytest.param(name, marks=pytest.mark.slow)
                                     for name in CALLS])  # fmt: skip
def test_command_executes_no_file_of_the_current_folder(command: str, folder: Path) -> None:
    run(folder, [program(), *call(command)])


def test_decoys_are_executed_without_isolation(tmp_path: Path) -> None:
    """The test above is able to fail."""
    write_decoys(tmp_path, tmp_path.parent / f"{tmp_path.name}.mark")
    with pytest.raises(AssertionError, match="executed: "):
        run(tmp_path, [sys.executable, "-c", "import json, numpy"], PYTHONSAFEPATH="")


@pytest.mark.parametrize("command", ["verify", pytest.param("ci", marks=pytest.mark.slow)])
def test_modules_of_the_current_folder_after_python_m(command: str, tmp_path: Path) -> None:
    """``python -m`` puts the current folder on the path, from which the program removes it at its start."""
    write_files(tmp_path)
    mark = tmp_path.parent / f"{tmp_path.name}.mark"
    for name in ("numpy", "yaml", "click", "onnx", "google", "onnxruntime", "json", "pickle", "subprocess"):
        (tmp_path / f"{name}.py").write_text(DECOY.format(mark=str(mark), name=name))
    run(tmp_path, [sys.executable, "-m", "tpuconvert", *call(command)], PYTHONSAFEPATH="")


@pytest.mark.parametrize("entry", ["", "."])
def test_children_do_not_get_the_current_folder_of_pythonpath(
    entry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_decoys(tmp_path, tmp_path.parent / "mark")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([entry, "/nonexistent"]))
    monkeypatch.setattr(sys, "path", [entry, str(tmp_path), *sys.path])
    done = run_module("tpuconvert", ["--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"tpuconvert {tc.__version__}\n"), done.stderr
    assert not (tmp_path.parent / "mark").exists()
    with isolated_starts():
        assert os.environ["PYTHONSAFEPATH"] == "1"
        assert str(tmp_path) not in os.environ["PYTHONPATH"].split(os.pathsep)
    assert os.environ["PYTHONPATH"] == os.pathsep.join([entry, "/nonexistent"])


def test_path_keeps_the_folder_of_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A package installed with ``pip --target`` into the current folder stays importable."""
    os.symlink(Path(tc.__file__).parent, tmp_path / "tpuconvert")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), "/elsewhere"])
    assert path_without_current_folder() == [str(tmp_path), "/elsewhere"]


def test_path_of_a_removed_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setattr(sys, "path", ["/elsewhere"])
    assert path_without_current_folder() == ["/elsewhere"]
    monkeypatch.chdir(tmp_path)


def test_command_line_of_a_child() -> None:
    assert module_command("tpuconvert.x", ["a"]) == [sys.executable, "-P", "-m", "tpuconvert.x", "a"]
    assert child_environment()["PYTHONSAFEPATH"] == "1"
