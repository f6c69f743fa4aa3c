"""Temporary files of writers that were killed, and of those that still write."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tpuconvert.exporters.folder import write_folder
from tpuconvert.schema.system import temporary_files
from tpuconvert.schema.system.file_replacement import replacing
from tpuconvert.schema.system.temporary_files import temporary_file, temporary_folder

needs_locks = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no flock")

WRITER = """
import sys
from pathlib import Path
from tpuconvert.exporters.folder import write_folder
from tpuconvert.schema.system.file_replacement import replacing

def wait(folder):
    (Path(folder) / "part").write_text("half")
    print("ready", flush=True)
    sys.stdin.read()

if sys.argv[1] == "folder":
    write_folder(sys.argv[2], wait)
else:
    with replacing(sys.argv[2]) as file:
        file.write(b"half")
        file.flush()
        print("ready", flush=True)
        sys.stdin.read()
"""


def start_writer(kind: str, target: Path) -> subprocess.Popen[str]:
    """Start a process that has written half of the target and waits for the end of its input."""
    command = [sys.executable, "-c", WRITER, kind, str(target)]
    writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
    return writer


def kill(writer: subprocess.Popen[str]) -> None:
    writer.send_signal(signal.SIGKILL)
    writer.communicate()


def write(kind: str, target: Path) -> None:
    if kind == "folder":
        write_folder(target, lambda folder: _fill(folder), "whole")
    else:
        with replacing(target) as file:
            file.write(b"whole")


def _fill(folder: Path) -> None:
    (folder / "whole").write_text("whole")


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


@needs_locks
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_the_next_writer_removes_what_a_killed_one_left(kind: str, tmp_path: Path) -> None:
    target = tmp_path / "made"
    write(kind, target)
    kill(start_writer(kind, target)) if kind == "file" else kill(start_writer(kind, tmp_path / "other"))
    assert len(names(tmp_path)) == 2  # the old one stays, and there is half of a new one
    (tmp_path / ".unrelated.0123456789abcdef.tmp").write_text("kept")
    write(kind, target if kind == "file" else tmp_path / "other")
    assert not [name for name in names(tmp_path) if name.endswith(".tmp") and "unrelated" not in name]
    assert ".unrelated.0123456789abcdef.tmp" in names(tmp_path)


@needs_locks
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_files_of_a_running_writer_stay(kind: str, tmp_path: Path) -> None:
    target = tmp_path / "made"
    writer = start_writer(kind, target)
    write(kind, target)
    assert len(names(tmp_path)) == 2
    if kind == "file":
        writer.communicate("")
        assert (names(tmp_path), target.read_bytes()) == (["made"], b"half")
    else:
        kill(writer)


@needs_locks
@pytest.mark.parametrize("name", ["a" * 255, "\u00e9" * 127, "a\nb" * 80], ids=["255", "127 of two bytes", "lines"])
def test_long_names(name: str, tmp_path: Path) -> None:
    """A file system allows names of 255 bytes, so that the temporary file cannot have the whole name."""
    write("file", tmp_path / name)
    kill(start_writer("file", tmp_path / name))
    write("file", tmp_path / name)
    assert names(tmp_path) == [name]


def test_a_target_is_replaced_in_one_step(tmp_path: Path) -> None:
    target = tmp_path / "made"
    write("folder", target)
    before = os.stat(target).st_ino
    write("folder", target)
    assert os.stat(target).st_ino != before
    assert (names(tmp_path), names(target)) == (["made"], [".files.json", "whole"])


def test_a_new_temporary_that_another_process_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its creation and its lock, another writer may take it for abandoned."""
    from tpuconvert.schema.system import temporary_files

    lock, removed = temporary_files._lock_new, []

    def remove_first(name: str, descriptor: int) -> bool:
        if not removed:
            removed.append(name)
            os.rmdir(name) if os.path.isdir(name) else os.unlink(name)
        return lock(name, descriptor)

    monkeypatch.setattr(temporary_files, "_lock_new", remove_first)
    with temporary_file(tmp_path / "x") as file:
        assert file.name not in removed and os.path.exists(file.name)
    removed.clear()
    with temporary_folder(tmp_path / "x") as folder:
        assert folder not in removed and os.path.isdir(folder)
    assert names(tmp_path) == []


@needs_locks
def test_a_folder_that_is_removed_before_it_is_opened_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, made = os.mkdir, []

    def make_and_remove_first(name: str, mode: int) -> None:
        make(name, mode)
        made.append(name)
        if len(made) == 1:
            os.rmdir(name)

    monkeypatch.setattr(os, "mkdir", make_and_remove_first)
    with temporary_folder(tmp_path / "x") as folder:
        assert os.path.isdir(folder) and made[1:] == [folder]


@pytest.mark.parametrize("make", [temporary_file, temporary_folder])
def test_nothing_stays_after_an_interrupt_during_the_creation(
    make: Callable[[Path], AbstractContextManager[object]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = os.mkdir

    def create_and_interrupt(name: str, mode: int) -> None:
        create(name, mode)
        raise KeyboardInterrupt

    def interrupt(name: str, descriptor: int) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "mkdir", create_and_interrupt)
    monkeypatch.setattr(temporary_files, "_lock_new", interrupt)
    with pytest.raises(KeyboardInterrupt), make(tmp_path / "target"):
        pass
    assert list(tmp_path.iterdir()) == []


INTERRUPTED = """
import shutil, sys, os
from tpuconvert.schema.system import temporary_files

def interrupted_once(name, call=getattr({module}, "{function}"), left=[1], **options):
    if left:
        left.clear()
        raise KeyboardInterrupt
    call(name, **options)

{module}.{function} = interrupted_once
with temporary_files.{make}(sys.argv[1]):
    pass
"""


@pytest.mark.parametrize(
    ("make", "module", "function"), [("temporary_folder", "shutil", "rmtree"), ("temporary_file", "os", "unlink")]
)
def test_nothing_stays_after_an_interrupt_during_the_removal(
    make: str, module: str, function: str, tmp_path: Path
) -> None:
    program = INTERRUPTED.format(make=make, module=module, function=function)
    ended = subprocess.run([sys.executable, "-c", program, str(tmp_path / "target")], capture_output=True, text=True)
    assert "KeyboardInterrupt" in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_is_too_long_leaves_nothing_for_the_end_of_the_process(tmp_path: Path) -> None:
    program = """
import sys
from tpuconvert.schema.system.temporary_files import temporary_file
try:
    with temporary_file(sys.argv[1] + "/a" * 2500):
        pass
except OSError as error:
    print(error.errno)
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (f"{errno.ENAMETOOLONG}\n", "")
