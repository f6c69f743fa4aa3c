"""Progress on stderr: bars on a terminal, lines in logs, colors only if enabled."""

import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tpuconvert.__main__ import main
from tpuconvert.cli.progress_bar import Lines

Captured = pytest.CaptureFixture[str]


def test_lines_come_every_so_often(capsys: Captured) -> None:
    lines = Lines(0.01)
    lines.stage("calibrate", 100)
    lines.advance(34)
    told = ""
    while "calibrate 34 of 100" not in told:
        time.sleep(0.01)
        told += capsys.readouterr().err
    lines.stage("write")
    while "write" not in told:
        time.sleep(0.01)
        told += capsys.readouterr().err
    lines.stop()
    capsys.readouterr()
    assert re.fullmatch(r"((calibrate( \d+ of 100)?|write) \(\d+ s\)\n)+", told)
    time.sleep(0.03)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("mode", "draws"), [("bar", True), ("lines", False), ("none", False)])
def test_modes(digits: Path, mode: str, draws: bool, capsys: Captured) -> None:
    assert main(["convert", str(digits / "digits.onnx"), "-o", "net.tpum", "--progress", mode]) == 0
    shown = capsys.readouterr()
    assert bool(shown.err) == draws
    assert shown.out.startswith("digits.onnx for BM1686")


def test_unknown_mode(digits: Path) -> None:
    assert main(["convert", str(digits / "digits.onnx"), "--progress", "loud"]) == 2


@pytest.mark.parametrize("wanted", [True, False])
def test_colours_respect_no_color(digits: Path, wanted: bool) -> None:
    """Run a command on a pseudoterminal."""
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    environment |= {"TERM": "xterm-256color"} | ({} if wanted else {"NO_COLOR": "1"})
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "tpuconvert", "convert", str(digits / "digits.onnx"), "-o", "net.tpum", "--verify"]
    with subprocess.Popen(command, stderr=theirs, stdout=subprocess.PIPE, env=environment) as process:
        os.close(theirs)
        drawn = b""
        while chunk := _read(ours):
            drawn += chunk
        assert process.stdout is not None
        assert b"\x1b" not in process.stdout.read()
        assert process.wait() == 0
    os.close(ours)
    assert bool(re.search(rb"\x1b\[(3[1-9]|9\d|38;)", drawn)) == wanted


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # the other end was closed
        return b""
