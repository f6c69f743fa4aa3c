"""INT8 by the vendor's own calibration, run by its chip simulator.

Needs an interpreter with the package tpu_mlir and what its extra ``onnx`` requires, in the variables of
``make test-vendor``: TPU_MLIR_HOME is the folder of the package, VENDOR_PYTHON the interpreter.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx

from tools.accuracy.trained.decoders import Outputs
from tools.accuracy.trained.engines import Run
from tools.accuracy.trained.samples import Feed

CHIP = "bm1688"
"""The chip whose integer arithmetic BM1686 has."""
SECONDS = 3600
"""Limit of one program."""


class VendorError(Exception):
    """A program of the vendor failed."""


def quantize_tpu_mlir(source: Path, samples: Sequence[Feed], folder: Path) -> Run:
    """Calibrate and compile an ONNX file with the vendor's default settings. Return a function that simulates it.

    Args:
        source: a float ONNX file with fixed extents.
        samples: calibration samples.
        folder: folder for the files of the compiler.

    Raises:
        ImportError: the variables are not set.
        VendorError: a program failed.
    """
    home, python = os.environ.get("TPU_MLIR_HOME"), os.environ.get("VENDOR_PYTHON")
    if not home or not python:
        raise ImportError("TPU_MLIR_HOME and VENDOR_PYTHON are not set")
    data = folder / "calibration"
    data.mkdir(parents=True, exist_ok=True)
    for index, sample in enumerate(samples):
        _write(data / f"{index:04}.npz", sample)

    def run_program(name: str, *arguments: str) -> None:
        root = Path(home)
        environment = {
            **os.environ,
            "TPUC_ROOT": home,
            "PATH": f"{root / 'bin'}:{root / 'python' / 'tools'}:{os.environ['PATH']}",
            "PYTHONPATH": f"{root.parent}:{root}:{root / 'python'}",
            "LD_LIBRARY_PATH": f"{root / 'lib'}:{root / 'lib' / 'third_party'}",
        }
        command = [python, str(root / "python" / "tools" / f"{name}.py"), *arguments]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS
        )
        if done.returncode:
            lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
            raise VendorError(f"{name} failed: {lines[-1] if lines else f'exit code {done.returncode}'}")

    run_program(
        "model_transform", "--model_name", "model", "--model_def", str(source.resolve()), "--mlir", "model.mlir"
    )
    count = str(len(samples))
    run_program("run_calibration", "model.mlir", "--dataset", "calibration", "--input_num", count, "-o", "table")
    quantized = ["--mlir", "model.mlir", "--quantize", "INT8", "--calibration_table", "table", "--chip", CHIP]
    run_program("model_deploy", *quantized, "--model", "model.bmodel")
    names = [port.name for port in onnx.load(source, load_external_data=False).graph.output]

    def run(feed: Feed) -> Outputs:
        _write(folder / "input.npz", feed)
        run_program("model_runner", "--input", "input.npz", "--model", "model.bmodel", "--output", "output.npz")
        with np.load(folder / "output.npz") as archive:
            arrays = [archive[name] for name in archive.files]
        return dict(zip(names, arrays, strict=True))  # the compiler adds the operator to the names

    return run


def _write(path: Path, feed: Feed) -> None:
    with path.open("wb") as file:
        np.savez(file, **feed)  # type: ignore[arg-type]  # numpy declares its own keywords only
