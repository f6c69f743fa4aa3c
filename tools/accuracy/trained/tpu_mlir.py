"""INT8 by the vendor's own calibration, run by its chip simulator.

Needs an interpreter with the package tpu_mlir and what its calibration requires, in the variables of
``make test-vendor``: TPU_MLIR_HOME is the folder of the package, VENDOR_PYTHON the interpreter. The target
``accuracy-vendor`` of the Makefile installs both.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import numpy as np
import onnx
from onnx import version_converter

from tools.accuracy.trained.decoders import Outputs
from tools.accuracy.trained.engines import Run
from tools.accuracy.trained.samples import Feed
from tools.bench.machine import ABSENT
from tpuconvert.schema.types import Array

CHIP = "bm1688"
"""The chip whose integer arithmetic BM1686 has."""
PROGRAM = "model.bmodel"
"""File of the compiled model, in the folder of the quantization."""
SECONDS = 3600
"""Limit of one program, and of one sample in the simulator."""
OPSET, IR_VERSION = 19, 9
"""Highest versions that the package onnx of the vendor's requirements reads. With others its simplifications are left
out, with a warning in its log only."""
MARKER = "sample finished"
SIMULATION = f"""
import functools, sys
import numpy as np
from tpu_mlir.python.tools import model_runner

def keep_result(module, name):
    setattr(module, name, functools.cache(getattr(module, name)))

keep_result(model_runner, "get_chip_from_model")
keep_result(model_runner, "get_kernel_mode_from_model")
for index, line in enumerate(sys.stdin):
    source, target = line.split()
    with np.load(source) as sample:
        outputs = model_runner.model_inference(dict(sample), sys.argv[1])
    np.savez(target, **outputs)
    print("\\n{MARKER}", flush=True)
    if index == 0:  # from here on the runtime has the simulator of the chip
        keep_result(sys.modules["pyruntime_bm"], "Model")
"""
"""Program for the vendor's interpreter: runs a compiled model on many samples. It starts programs and loads the model
once, which model_runner does for every sample."""


class VendorError(Exception):
    """A program of the vendor failed."""


@dataclass(frozen=True)
class Programs:
    """The vendor's programs, run in a folder."""

    home: Path
    python: str
    folder: Path

    def command(self, name: str, *arguments: str) -> list[str]:
        """Return the command of a program of the package."""
        return [self.python, str(self.home / "python" / "tools" / f"{name}.py"), *arguments]

    @property
    def environment(self) -> Mapping[str, str]:
        """Return the variables that the programs need."""
        return {
            **os.environ,
            "TPUC_ROOT": str(self.home),
            "PATH": f"{self.home / 'bin'}:{self.home / 'python' / 'tools'}:{os.environ['PATH']}",
            "PYTHONPATH": f"{self.home.parent}:{self.home}:{self.home / 'python'}",
            "LD_LIBRARY_PATH": f"{self.home / 'lib'}:{self.home / 'lib' / 'third_party'}",
        }

    def run(self, name: str, *arguments: str) -> None:
        """Run a program to its end.

        Raises:
            VendorError: it failed, or took too long.
        """
        try:
            done = subprocess.run(
                self.command(name, *arguments),
                cwd=self.folder,
                env=self.environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise VendorError(f"{name} took more than {SECONDS} s") from None
        (self.folder / f"{name}.log").write_text(done.stdout + done.stderr, encoding="utf-8")
        if done.returncode:
            raise VendorError(f"{name} failed: {_reason(done.stderr.strip() or done.stdout.strip(), done.returncode)}")


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
    shutil.rmtree(folder, ignore_errors=True)  # the compiler reads files that it finds
    data = folder / "calibration"
    data.mkdir(parents=True)
    for index, sample in enumerate(samples):
        _write(data / f"{index:04}.npz", sample)
    names = write_readable(source, folder / "readable.onnx")
    programs = Programs(Path(home), python, folder)
    programs.run("model_transform", "--model_name", "model", "--model_def", "readable.onnx", "--mlir", "model.mlir")
    count = str(len(samples))
    programs.run("run_calibration", "model.mlir", "--dataset", "calibration", "--input_num", count, "-o", "table")
    quantized = ["--mlir", "model.mlir", "--quantize", "INT8", "--calibration_table", "table", "--chip", CHIP]
    programs.run("model_deploy", *quantized, "--model", PROGRAM)
    simulation = Simulation(programs, PROGRAM)

    def run(feed: Feed) -> Outputs:
        return named_outputs(simulation.run(feed), names)

    return run


def installed_version() -> str:
    """Return the version of the vendor's package, or that it is absent."""
    home = os.environ.get("TPU_MLIR_HOME")
    found = metadata.distributions(name="tpu_mlir", path=[str(Path(home).parent)]) if home else ()
    return next((distribution.version for distribution in found), ABSENT)


def write_readable(source: Path, target: Path) -> list[str]:
    """Write a model in versions that the vendor's packages read. Return the names of its outputs."""
    model = onnx.load(source)
    if next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")) > OPSET:
        model = version_converter.convert_version(model, OPSET)
    model.ir_version = min(model.ir_version, IR_VERSION)
    onnx.save(model, target)
    return [port.name for port in model.graph.output]


def named_outputs(arrays: Mapping[str, Array], names: Sequence[str]) -> Outputs:
    """Return the arrays of the simulator by the names of the model.

    They have its order. The compiler adds the operator to a name. If it removed the last operator, the output has the
    name of the operator before. All names that it kept have to be at their places.

    Raises:
        VendorError: the model has other outputs.
    """
    kept = [{key for key in arrays if key == name or key.startswith(f"{name}_")} for name in names]
    if len(arrays) != len(names) or any(keys and key not in keys for key, keys in zip(arrays, kept, strict=True)):
        raise VendorError(f"the outputs {', '.join(names)} of the model are {', '.join(arrays)} after compilation")
    return dict(zip(names, arrays.values(), strict=True))


class Simulation:
    """A process that runs a compiled model, one sample after the other.

    Args:
        programs: the vendor's programs.
        model: file of the compiled model, in their folder.
    """

    def __init__(self, programs: Programs, model: str) -> None:
        self._folder = programs.folder
        self._process = subprocess.Popen(
            [programs.python, "-c", SIMULATION, model],
            cwd=programs.folder,
            env=programs.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        weakref.finalize(self, _end, self._process)

    def run(self, feed: Feed) -> dict[str, Array]:
        """Return the outputs of a sample, by the names of the compiled model.

        Raises:
            VendorError: the process ended, or took too long.
        """
        _write(self._folder / "input.npz", feed)
        watch = threading.Timer(SECONDS, self._process.kill)
        watch.start()
        try:
            lines = self._answer("input.npz output.npz\n")
        finally:
            watch.cancel()
        if lines is not None:
            raise VendorError(f"the simulator failed: {_reason(''.join(lines), self._process.wait())}")
        with np.load(self._folder / "output.npz") as archive:
            return {name: archive[name] for name in archive.files}

    def _answer(self, line: str) -> list[str] | None:
        """Write a line and wait for the marker. Return what was printed instead, if the process ends before."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it has printed the reason
            self._process.stdin.write(line)
            self._process.stdin.flush()
        lines = []
        for printed in self._process.stdout:
            if printed.rstrip("\n") == MARKER:
                return None
            lines.append(printed)
        return lines


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def _reason(text: str, code: int) -> str:
    """Return the last line that a program printed."""
    return (text.strip().splitlines() or [f"exit code {code}"])[-1]


def _write(path: Path, feed: Feed) -> None:
    with path.open("wb") as file:
        np.savez(file, **feed)  # type: ignore[arg-type]  # numpy declares its own keywords only
