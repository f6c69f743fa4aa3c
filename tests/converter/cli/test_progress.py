"""Progress on stderr: bars on a terminal, lines in logs, colors only if enabled."""

import os
import pty
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tpuconvert.__main__ import main
from tpuconvert.cli.progress_bar import Estimate, Lines, duration

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
    assert re.fullmatch(r"((calibrate( \d+ of 100)?|write) \(\d+ s(, about \d+ s left)?\)\n)+", told)
    time.sleep(0.03)
    assert capsys.readouterr().err == ""


def test_an_interrupt_before_the_thread_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(thread: threading.Thread) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupt)
    lines = Lines(0.01)
    with pytest.raises(KeyboardInterrupt):
        lines.stage("calibrate", 100)
    lines.stop()  # raises nothing that would hide the interrupt


def test_the_remaining_time_is_that_of_the_remaining_steps() -> None:
    estimate = Estimate(100)
    assert estimate.remaining(0.0) is None
    estimate.advance(20, 60.0)  # a preparation of a minute, and 20 steps of an interrupted run
    assert estimate.remaining(61.0) is None
    estimate.advance(30, 65.0)
    assert estimate.remaining(65.0) == 70 * 0.5
    assert estimate.remaining(75.0) == 25.0  # the time of a step that takes longer counts down
    assert estimate.text(65.0) == "about 35 s left"
    assert estimate.remaining(1000.0) == 0.0
    estimate.advance(100, 100.0)
    assert estimate.remaining(100.0) is None and estimate.text(100.0) == ""


def test_the_remaining_time_follows_a_change_of_the_speed() -> None:
    """The last half of the finished steps counts: 60 s for a step in the first half, 1 s in the second."""
    estimate, now = Estimate(300), 0.0
    for done in range(1, 101):
        now += 60.0
        estimate.advance(done, now)
    assert estimate.remaining(now) == 200 * 60.0
    for done in range(101, 201):
        now += 1.0
        estimate.advance(done, now)
    assert estimate.remaining(now) == 100.0  # the mean of all steps would give 50 minutes


def test_a_report_without_a_new_step_does_not_shorten_the_estimate() -> None:
    estimate = Estimate(10)
    for done, now in ((1, 0.0), (2, 4.0), (2, 5.0)):
        estimate.advance(done, now)
    assert estimate.remaining(6.0) == 8 * 4.0 - 2.0


def test_a_stage_of_unknown_length_has_no_remaining_time() -> None:
    estimate = Estimate(0)
    estimate.advance(3, 1.0)
    estimate.advance(4, 2.0)
    assert estimate.remaining(2.0) is None


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (99, "99 s"), (100, "2 min"), (5900, "98 min"), (9000, "2.5 h")]
)
def test_durations_have_one_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_lines_have_the_remaining_time(capsys: Captured) -> None:
    lines = Lines(0.01)
    lines.stage("calibrate", 1000)
    lines.advance(1)
    time.sleep(0.02)
    lines.advance(2)
    told = ""
    while not re.search(r"calibrate 2 of 1000 \(\d+ s, about \d+ (s|min) left\)", told):
        time.sleep(0.01)
        told += capsys.readouterr().err
    lines.stop()


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
