"""Run of a compiled program in the simulator of its chip."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tpuconvert.exporters.compilation.environment import Environment
from tpuconvert.exporters.compilation.logs import reason_in_log
from tpuconvert.exporters.compilation.processes import require_space, run_program
from tpuconvert.schema.types import Array

RUNNER = "run_bmodel.py"
"""Script of an export that runs its program."""

_COMPLETED = (0, 1)
"""Exit codes of the script: all tensors agree, or some do not."""


class SimulatorFailure(Exception):
    """The simulator gave no results.

    Args:
        reason: what happened.
        is_slow: whether the time limit ended it.
    """

    def __init__(self, reason: str, *, is_slow: bool = False) -> None:
        super().__init__(f"the simulator {reason}")
        self.is_slow = is_slow


@dataclass(frozen=True)
class Simulation:
    """Results of a run.

    Args:
        results: tensors that the program returned, by name in the manifest; samples along the first axis.
        seconds: wall time.
    """

    results: dict[str, Array]
    seconds: float


def simulate(environment: Environment, folder: Path, log: Path, limit: float) -> Simulation:
    """Run the stored samples of an export, whose program is in its folder.

    Raises:
        SimulatorFailure: it failed, or exceeded the time limit.
        OSError: the disk is full.
    """
    outputs = folder / ".outputs.npz"
    command = [str(environment.python), str(folder / RUNNER), str(outputs)]
    try:
        ended = run_program(command, log, folder=folder, limit=limit, variables=environment.variables)
        if ended.code is None:
            raise SimulatorFailure(f"needed more than {limit:g} s", is_slow=True)
        if ended.code not in _COMPLETED or not outputs.is_file():
            require_space(folder)
            raise SimulatorFailure(f"ended with code {ended.code}: {reason_in_log(log) or 'no message'}")
        with np.load(outputs) as arrays:
            results = {name: arrays[name] for name in arrays.files if arrays[name].dtype != object}
    finally:
        outputs.unlink(missing_ok=True)
    return Simulation(results, ended.seconds)
