"""Ctrl-C during a calibration leaves no file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

PREPROCESS = "color=GRAY,scale=0.0625"
SAMPLES = 1000

COMMANDS = {
    "calibrate": ("ranges.json", []),
    "convert": ("net.tpum", ["--quantize", "int8"]),
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


def run_and_interrupt(call: list[str], seconds: float) -> tuple[int, str]:
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
        if line.startswith("calibration:"):
            time.sleep(seconds)
            os.killpg(process.pid, signal.SIGINT)
    return process.wait(), "".join(lines)


@pytest.mark.parametrize("name", COMMANDS)
def test_an_interrupted_calibration_leaves_nothing(digits: Path, samples: Path, name: str) -> None:
    output, options = COMMANDS[name]
    given = ["--calibration", str(samples), "--preprocess", PREPROCESS, "-o", output]
    code, shown = run_and_interrupt([name, str(digits / "digits.onnx"), *given, *options], 0.3)
    assert code == 130 and shown.endswith("interrupted\n")
    assert list(Path().iterdir()) == []
