"""Commands that are killed, interrupted or out of space leave the old file or the new one, and nothing else.

The tests with the full counts have the marker ``slow``; docs/reference/security.md has their results.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import tpuconvert as tc
from tests.support.commands.forked_commands import INTERRUPTED, Commands, Ended, moments
from tests.support.sampled import sampled

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")

DIGITS = Path(tc.__file__).parents[1] / "examples" / "digits"
SAMPLES = ["--calibration", "calibration.npz", "--preprocess", "color=GRAY,scale=0.0625", "--effort", "low"]
MANIFEST = """
models:
  float: {source: digits.onnx, output: made/float.tpum, samples: 1}
  caffe: {source: digits.prototxt, weights: digits.caffemodel, output: made/caffe.tpum, samples: 1}
"""

FEW, MANY = 1, 200
_TEMPORARY = re.compile(r"\..*\.[0-9a-f]{16}\.tmp")


@dataclass(frozen=True)
class Command:
    """A command under test.

    Args:
        arguments: of ``tpuconvert``.
        targets: files and folders that it writes.
        states: further files and folders that it writes and reads again.
        is_gradual: True if it writes a target more than once.
    """

    arguments: tuple[str, ...]
    targets: tuple[str, ...]
    states: tuple[str, ...] = ()
    is_gradual: bool = False


TO = ("-o", "made/net.tpum")
TUNE = ("--data", "check.npz", "--metric", "cosine", "--max-drop", "0.99999")

COMMANDS = {
    "convert": Command(("convert", "digits.onnx", "--quantize", "int8", *SAMPLES, *TO), ("net.tpum",)),
    "quantize": Command(("quantize", "digits.onnx", "--ranges", "ranges.json", *TO), ("net.tpum",)),
    "tune": Command(
        ("tune", "digits.onnx", *SAMPLES, *TUNE, *TO),
        ("net.tpum", "net.rules.yaml"),
        ("net.tuning.json",),
        is_gradual=True,
    ),
    "export": Command(("export", "int8.tpum", "made/folder"), ("folder",)),
    "export onnx": Command(("export", "int8.tpum", "made/net.onnx", "--to", "onnx"), ("net.onnx",)),
    "ci": Command(("ci", "models.yaml", "-j", "1", "--cache", "made/cache"), ("float.tpum", "caffe.tpum"), ("cache",)),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Inputs of all commands."""
    found = tmp_path_factory.mktemp("inputs")
    for file in DIGITS.glob("digits.*"):
        shutil.copy(file, found)
    _write_samples(found)
    (found / "models.yaml").write_text(MANIFEST)
    return found


def _write_samples(folder: Path) -> None:
    import numpy as np

    with np.load(DIGITS / "calibration.npz") as arrays:
        images = arrays["images"][:8]
    np.savez(folder / "calibration.npz", images=images)
    np.savez(folder / "check.npz", images=images[:2])


@pytest.fixture(scope="module")
def commands(folder: Path) -> Iterator[Commands]:
    """A server of commands, with the files that some commands read."""
    with Commands(folder) as server:
        ranges = ["calibrate", "digits.onnx", *SAMPLES[:4], "-o", "ranges.json"]
        model = ["convert", "digits.onnx", "--quantize", "int8", *SAMPLES, "-o", "int8.tpum"]
        for arguments in (ranges, model):
            ended = server.run(arguments)
            assert ended.code == 0, ended.error
        yield server


class Targets:
    """The folder ``made`` with the targets of a command, before and after it."""

    def __init__(self, folder: Path, command: Command, commands: Commands) -> None:
        self.made, self.command, self.commands = folder / "made", command, commands
        self.clear()
        self.seconds = min(self._finish() for _ in range(2))  # the first run also imports
        self.new = {name: digest(self.made / name) for name in command.targets}
        self.largest = max(path.stat().st_size for path in self.made.rglob("*") if path.is_file())
        self.reset()
        self.old = {name: digest(self.made / name) for name in command.targets}

    def _finish(self) -> float:
        self.clear()
        ended = self.commands.run(self.command.arguments)
        assert ended.code == 0, ended.error
        return ended.seconds

    def clear(self) -> None:
        shutil.rmtree(self.made, ignore_errors=True)
        self.made.mkdir()

    def reset(self) -> None:
        """Remove everything, and write other targets."""
        self.clear()
        for name in () if self.command.is_gradual else self.command.targets:
            if name == "folder":
                (self.made / name).mkdir()
                (self.made / name / "export.json").write_text("{}")
            else:
                (self.made / name).write_bytes(b"the file of another run")

    def check_whole(self) -> None:
        """Check that each target is the old one or the new one."""
        for name in self.command.targets:
            path = self.made / name
            if self.command.is_gradual:
                if path.suffix == ".tpum" and path.exists():
                    tc.load(path)
                continue
            assert digest(path) in (self.old[name], self.new[name]), name
        for name in self.litter():
            assert _TEMPORARY.fullmatch(os.path.basename(name)), name

    def check_finished(self) -> None:
        """Run the command to its end: it finishes what a killed one began, and removes what it left."""
        ended = self.commands.run(self.command.arguments)
        assert ended.code == 0, ended.error
        assert {name: digest(self.made / name) for name in self.command.targets} == self.new
        assert self.litter() == []

    def litter(self) -> list[str]:
        """Names in the folder that the finished command would not leave."""
        known = {*self.command.targets, *self.command.states}
        found = [name for name in os.listdir(self.made) if name not in known]
        cached = [path for path in (self.made / "cache").rglob("*") if path.name.startswith(".")]
        return found + [str(path) for path in cached]


def digest(path: Path) -> str:
    """SHA-256 of a file, or of the files of a folder with their names; empty if there is none."""
    found = hashlib.sha256()
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    for file in sorted(path.rglob("*")):
        found.update(str(file.relative_to(path)).encode() + (file.read_bytes() if file.is_file() else b""))
    return found.hexdigest() if path.is_dir() else ""


@pytest.fixture(scope="module", params=list(COMMANDS))
def targets(request: pytest.FixtureRequest, folder: Path, commands: Commands) -> Targets:
    return Targets(folder, COMMANDS[request.param], commands)


def _kill(targets: Targets, count: int, chance: random.Random) -> int:
    """Kill the command at random moments, until it was killed ``count`` times. Return the number of new targets."""
    killed = replaced = 0
    for attempt in range(20 * count):
        ended = targets.commands.run(targets.command.arguments, after=moments(targets.seconds, chance))
        targets.check_whole()
        if ended.was_killed:
            killed += 1
            replaced += any(digest(targets.made / name) == targets.new[name] for name in targets.command.targets)
        else:
            assert ended.code == 0, ended.error
        if killed == count or attempt % 8 == 7:
            targets.check_finished()
        if killed == count:
            return replaced
        if not ended.was_killed or chance.random() < 0.5:  # else the next one continues where this one was killed
            targets.reset()
    pytest.fail(f"the command was killed only {killed} times")


def test_killed(targets: Targets) -> None:
    targets.reset()
    _kill(targets, FEW, random.Random(1))


@pytest.mark.slow
def test_killed_often(targets: Targets, record_property: Callable[[str, object], None]) -> None:
    targets.reset()
    record_property("replaced", _kill(targets, MANY, random.Random(2)))


def _interrupt(targets: Targets, count: int, chance: random.Random) -> float:
    """Press Ctrl-C at random moments. Return the longest time until the command ended, in seconds."""
    longest = 0.0
    for _ in range(count):
        targets.reset()
        moment = moments(targets.seconds, chance)
        ended = targets.commands.run(targets.command.arguments, after=moment, number=signal.SIGINT)
        assert ended.code in (0, INTERRUPTED), ended.error
        assert "Traceback" not in ended.error
        targets.check_whole()
        assert targets.litter() == []
        longest = max(longest, ended.late)
    return longest


def test_interrupted(targets: Targets) -> None:
    _interrupt(targets, FEW, random.Random(3))


@pytest.mark.slow
def test_interrupted_often(targets: Targets, record_property: Callable[[str, object], None]) -> None:
    record_property("seconds until the end", f"{_interrupt(targets, MANY // 4, random.Random(4)):.2f}")


def _check_refused(targets: Targets, ended: Ended, code: int) -> None:
    assert ended.code == code, ended.error
    assert "internal" not in ended.error and "Traceback" not in ended.error
    targets.check_whole()
    assert targets.litter() == []


@pytest.mark.parametrize("share", sampled([0.0, 0.3, 0.9], every=2))
def test_disk_full(targets: Targets, share: float) -> None:
    """A limit for the size of files ends writes in the middle, as a full disk does."""
    targets.reset()
    limit = int(targets.largest * share)
    _check_refused(targets, targets.commands.run(targets.command.arguments, most_bytes=limit), 6)


def test_small_disk(targets: Targets) -> None:
    """A file system without space. Only the superuser can mount one."""
    targets.clear()
    options = ["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", str(targets.made)]
    if subprocess.run(options, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no permission to mount a file system")
    try:
        ended = targets.commands.run(targets.command.arguments)
        assert ended.code == 6, ended.error
        assert targets.litter() == []
    finally:
        subprocess.run(["umount", str(targets.made)], check=True)


@pytest.mark.skipif(sys.platform != "linux" and os.getuid() == 0, reason="the superuser may write everywhere")
def test_folder_that_cannot_be_written(targets: Targets) -> None:
    targets.reset()
    targets.made.chmod(0o555)
    try:
        ended = targets.commands.run(targets.command.arguments, without_override=True)
        _check_refused(targets, ended, 2)
        assert "Permission denied" in ended.error, ended.error
    finally:
        targets.made.chmod(0o755)


def _write_at_once(targets: Targets, count: int, times: int) -> None:
    for _ in range(times):
        targets.reset()
        processes = [targets.commands.start(targets.command.arguments) for _ in range(count)]
        for process in processes:
            ended = targets.commands.wait(process)
            assert ended.code == 0, ended.error
        assert {name: digest(targets.made / name) for name in targets.command.targets} == targets.new
        assert targets.litter() == []


def test_writers_of_one_target(targets: Targets) -> None:
    """Two commands, and four ci with one cache."""
    _write_at_once(targets, 4 if targets.command.arguments[0] == "ci" else 2, 1)


@pytest.mark.slow
def test_writers_of_one_target_often(targets: Targets) -> None:
    _write_at_once(targets, 4 if targets.command.arguments[0] == "ci" else 2, 25)
