"""Every command with closed or full standard streams, and with file names that are not UTF-8: no internal error."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.commands.command_calls import CALLS, call, write_files
from tests.support.paired import paired
from tpuconvert.cli.entry import run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("files")
    write_files(found)
    return found


def _close(*numbers: int) -> Callable[[], None]:
    return lambda: [os.close(number) for number in numbers] and None  # type: ignore[func-returns-value]


def _replace(number: int, make: Callable[[], int]) -> Callable[[], None]:
    def prepare() -> None:
        os.dup2(make(), number)

    return prepare


def _full() -> int:
    return os.open("/dev/full", os.O_WRONLY)


def _broken_pipe() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


STREAMS: dict[str, Callable[[], None]] = {
    "no stdin": _close(0),
    "no stdout": _close(1),
    "no stderr": _close(2),
    "no streams": _close(0, 1, 2),
    "full stdout": _replace(1, _full),
    "full stderr": _replace(2, _full),
    "broken stdout": _replace(1, _broken_pipe),
    "broken stderr": _replace(2, _broken_pipe),
}

DEFAULT = {("convert", "no stdout"), ("inspect", "no streams"), ("verify", "no stderr"), ("check", "broken stderr")}
"""Pairs of command and stream that are tested by default."""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux only")
@pytest.mark.parametrize(
    ("command", "stream"),
    [
        pytest.param(command, stream, marks=() if (command, stream) in DEFAULT else pytest.mark.slow)
        for command in CALLS
        for stream in STREAMS
    ],
)
def test_streams(command: str, stream: str, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tpuconvert", *call(command)],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        preexec_fn=STREAMS[stream],
        timeout=300,
        check=False,
    )
    text = (done.stdout + done.stderr).decode()
    assert "Traceback" not in text and "TC1001" not in text
    assert done.returncode in ((0,) if stream != "full stdout" else (0, 6)), text


def test_failure_without_stderr(folder: Path) -> None:
    """The exit code of an error does not depend on the stream that takes its text."""
    for prepare in (STREAMS["no stderr"], STREAMS["full stderr"], STREAMS["broken stderr"]):
        done = subprocess.run(
            [sys.executable, "-P", "-m", "tpuconvert", "check", "absent.onnx"],
            cwd=folder,
            preexec_fn=prepare,
            check=False,
        )
        assert done.returncode == 2


REFUSED = {"reproduce": 5, "ci": 2}
"""Exit codes of commands that refuse such names: a model stores the name of its source."""

BAD = "\udcff"
"""The byte 0xff of a file name, as Python represents it."""


@pytest.fixture(scope="module")
def strange(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of all commands, with names that are not UTF-8, in such a folder."""
    written = tmp_path_factory.mktemp("files")
    write_files(written)
    found = written.with_name(f"folder{BAD}")
    try:
        written.rename(found)
    except OSError:
        pytest.skip("the file system requires UTF-8")
    names = [path.name for path in found.iterdir() if path.name != "condition.py"]
    for name in names:
        (found / name).rename(found / f"{BAD}{name}")
    (found / f"{BAD}dumps").rename(found / "dumps")
    return found


def _with_bad_name(word: str, folder: Path) -> str:
    """Put the byte into the name of a file that is read, or written."""
    if word.startswith("-"):
        return word
    head, separator, name = word.rpartition("/")
    is_file = (folder / f"{BAD}{word}").exists() or Path(word).suffix in (".tpum", ".json", ".onnx", ".sig")
    return f"{head}{separator}{BAD}{name}" if is_file or word in ("folder", "plan", "demo", "cache") else word


@pytest.mark.parametrize(("command", "as_json"), paired([name for name in CALLS if name != "demo"], [False, True]))
def test_names_that_are_not_utf8(
    command: str, as_json: bool, strange: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(strange)
    words = [*command.split(), *(_with_bad_name(word, strange) for word in CALLS[command])]
    if as_json and command in ("completion", "demo"):
        return
    code = run([*words, *(["--json"] if as_json else [])])
    text = capfd.readouterr()
    assert "TC1001" not in text.err and "Traceback" not in text.err
    assert code == REFUSED.get(command, 0), text.err
    text.out.encode("utf-8")
