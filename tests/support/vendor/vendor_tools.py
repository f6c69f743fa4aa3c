"""Compile exports with the vendor's compiler and run them in its chip simulator."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tpuconvert as tc
from tpuconvert.exporters.tpulang.package import PROGRAM
from tpuconvert.schema.file.file_model import FileModel
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.types import Chip

COMPILE_SECONDS = 1800
"""A program that returns every tensor of a detector takes minutes to compile."""


@dataclass(frozen=True)
class Vendor:
    """The installed compiler: its folder, and the interpreter that has it."""

    home: Path
    python: str

    def run(self, command: Sequence[str], **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command of an export, with further environment variables."""
        environment = {**os.environ, "TPU_MLIR_HOME": str(self.home), **variables}
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=COMPILE_SECONDS
        )

    def differences(
        self,
        model: tc.Model,
        feeds: Sequence[Mapping[str, Any]],
        chip: str,
        folder: Path,
        *,
        to: str = "tpu-mlir",
        grouping: int = 2,
        floats: str = "f32",
        with_checks: bool = True,
    ) -> list[str]:
        """Return the tensors of ``compare`` that differ."""
        lines = self.compare(
            model, feeds, chip, folder, to=to, grouping=grouping, floats=floats, with_checks=with_checks
        )
        return [line for line in lines if line.startswith("DIFF")]

    def compare(
        self,
        model: tc.Model,
        feeds: Sequence[Mapping[str, Any]],
        chip: str,
        folder: Path,
        *,
        to: str = "tpu-mlir",
        grouping: int = 2,
        floats: str = "f32",
        with_checks: bool = True,
    ) -> list[str]:
        """Export, by default with every integer tensor, compile, simulate. Return a line per tensor, "ok" or "DIFF"."""
        tc.export(model, folder, to=to, chip=chip, data=feeds, with_checks=with_checks, floats=floats)
        if to == "tpulang":
            compiled = self.run([self.python, str(folder / PROGRAM)])
        else:
            compiled = self.run([str(folder / "compile.sh")], LAYER_GROUP_OPT=str(grouping))
        assert compiled.returncode == 0, compiled.stderr
        simulated = self.run([self.python, str(folder / "run_bmodel.py")])
        lines = [line for line in simulated.stdout.splitlines() if line.startswith(("ok  ", "DIFF"))]
        assert simulated.returncode in (0, 1) and lines, simulated.stderr + simulated.stdout
        return lines


def model_of(graph: Graph, chip: Chip = Chip.BM1686) -> tc.Model:
    """A graph as a model."""
    return tc.Model(FileModel(graph, chip, "0", "int8"))


def random_integers(shape: Sequence[int], dtype: Any, seed: int) -> np.ndarray:
    """Integers of the whole range, with both limits."""
    limits = np.iinfo(dtype)
    array = np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape).astype(dtype)
    array.reshape(-1)[:2] = limits.min, limits.max
    return array
