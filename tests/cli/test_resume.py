"""Ctrl-C during a calibration: ``--resume`` keeps the statistics, and the same command continues."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tpuconvert.__main__ import main

PREPROCESS = "color=GRAY,scale=0.0625"
SAMPLES = 1000

COMMANDS = {
    "calibrate": ("ranges.json", []),
    "convert": ("net.tpum", ["--quantize", "int8"]),
    "quantize": ("net.tpum", []),
}


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """Shifted copies of the calibration images of the example, for a calibration of some seconds."""
    images = np.load(repository / "examples" / "digits" / "calibration.npz")["images"]
    rng = np.random.default_rng(0)
    copies = [
        np.roll(images, rng.integers(0, 8, 2), (1, 2)) ^ rng.integers(0, 4, images.shape, np.uint8)
        for _ in range(SAMPLES // len(images))
    ]
    path = tmp_path_factory.mktemp("samples") / "samples.npz"
    np.savez(path, images=np.concatenate(copies))
    return path


def words(name: str, digits: Path, samples: Path, *more: str) -> list[str]:
    """Command with its output file, and further arguments."""
    output, options = COMMANDS[name]
    given = ["--calibration", str(samples), "--preprocess", PREPROCESS, "-o", output]
    return [name, str(digits / "digits.onnx"), *given, *options, *more]


def run_until(call: list[str], seconds: float | None) -> tuple[int, str]:
    """Run a command, and press Ctrl-C some time after its calibration began. Return its exit code and its stderr.

    As in a terminal, the signal reaches its worker processes too.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "tpuconvert", *call],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None,
    )
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if line.startswith("calibration:") and seconds is not None:
            time.sleep(seconds)
            try:
                os.killpg(process.pid, signal.SIGINT)
            except ProcessLookupError:
                break
    return process.wait(), "".join(lines)


def interrupt_in_the_middle(call: list[str], partial: Path) -> None:
    """Interrupt a calibration after some of its samples, whatever time they take on this machine."""
    shown = ""
    seconds = 0.8
    while not partial.exists() and seconds > 0.001:
        Path("ranges.json").unlink(missing_ok=True)
        code, shown = run_until(call, seconds)
        assert code in (0, 130), shown
        seconds /= 2
    assert partial.exists(), shown


def interrupt_and_continue(name: str, digits: Path, samples: Path, seed: int, more: list[str], most: int) -> None:
    """Interrupt a command at random moments, at most ``most`` times, and compare its file with that of one run."""
    output, partial = Path(COMMANDS[name][0]), Path(f"{COMMANDS[name][0]}.partial")
    assert main(words(name, digits, samples)) == 0
    expected = output.read_bytes()
    output.unlink()
    chosen = random.Random(seed)
    call, codes, found = words(name, digits, samples, "--resume", *more), [], ""
    for number in range(most + 1):
        was_kept = partial.exists()
        seconds = chosen.uniform(0.0, 2.0) if number < most else None
        code, shown = run_until(call, seconds)
        codes.append(code)
        found += shown
        assert ("continuing after" in shown) == was_kept or code == 130, shown
        if code == 0:
            break
        assert code == 130, shown
        # An interrupt after the model was written leaves the whole file.
        assert not output.exists() or output.read_bytes() == expected
        assert not partial.exists() or "continues" in shown or was_kept or output.exists()
    assert codes[-1] == 0, found
    assert output.read_bytes() == expected
    assert [file.name for file in Path().iterdir()] == [output.name]
    assert "Traceback" not in found


def test_an_interrupted_calibration_continues(digits: Path, samples: Path) -> None:
    interrupt_and_continue("calibrate", digits, samples, 1, [], 2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("name", COMMANDS)
def test_interrupts_at_random_moments_change_nothing(
    digits: Path, samples: Path, name: str, workers: str, seed: int
) -> None:
    interrupt_and_continue(name, digits, samples, seed, ["--workers", workers], 7)


@pytest.mark.parametrize("name", ["calibrate", "convert"])
def test_without_the_option_nothing_is_left(digits: Path, samples: Path, name: str) -> None:
    code, shown = run_until(words(name, digits, samples), 0.3)
    assert code == 130 and shown.endswith("interrupted\n")
    assert list(Path().iterdir()) == []


def test_the_file_of_other_samples_is_refused(digits: Path, samples: Path) -> None:
    # All commands in separate processes: plugins that other tests loaded into this one are an option too.
    interrupt_in_the_middle(words("calibrate", digits, samples, "--resume"), Path("ranges.json.partial"))
    code, shown = run_until(words("calibrate", digits, digits / "calibration.npz", "--resume"), None)
    assert code == 2 and "is that of a calibration with another value of the samples" in shown
    code, shown = run_until(words("calibrate", digits, samples, "--resume", "--calibration-method", "kl"), None)
    assert code == 2 and "another value of --calibration-method" in shown
    Path("ranges.json.partial").write_bytes(b"damaged")
    code, shown = run_until(words("calibrate", digits, samples, "--resume"), None)
    assert code == 4 and "remove it to start again" in shown


def test_resume_needs_a_calibration(digits: Path, samples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(digits / "digits.onnx")
    assert main(["convert", model, "-o", "net.tpum", "--resume"]) == 2
    assert "resume without a calibration" in capsys.readouterr().err
    assert main(words("calibrate", digits, samples)) == 0
    assert main(words("quantize", digits, samples, "--ranges", "ranges.json", "--resume")) == 2
    assert "resume without a calibration" in capsys.readouterr().err
