"""Compilation of a module of the ``tpu`` dialect by the vendor's program ``tpuc-opt``."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tpuconvert.exporters.compilation.cycles import CycleEstimate, NoEstimate, describe_estimate, read_estimate
from tpuconvert.exporters.compilation.environment import Environment
from tpuconvert.exporters.compilation.logs import reason_in_log
from tpuconvert.exporters.compilation.processes import Ended, require_space, run_program
from tpuconvert.exporters.tpu_mlir.passes import compiler_passes, profile_pass
from tpuconvert.progress import SILENT, Progress

LEVELS = {2: "chosen for speed", 1: "as large as possible", 0: "each layer alone", 3: "a longer search"}
"""Levels of layer grouping."""

TRIED_LEVELS = (2, 1, 0)
"""Levels in the order in which they are tried. Level 3 computes wrong results for several networks."""


class CompilerFailure(Exception):
    """The compiler did not write a program.

    Args:
        title: the pass that failed.
        reason: what happened, with the compiler's own message.
        is_slow: whether the time limit ended it.
    """

    def __init__(self, title: str, reason: str, *, is_slow: bool = False) -> None:
        super().__init__(f"the compiler {reason} (pass '{title}')")
        self.is_slow = is_slow


@dataclass(frozen=True)
class Compiled:
    """A compilation.

    Args:
        seconds: wall time of each pass.
        cycles: estimate of the compiler; None if it was not requested, or if there is none.
    """

    seconds: dict[str, float]
    cycles: CycleEstimate | None = None


@dataclass(frozen=True)
class Compiler:
    """Compiler with its limits.

    Args:
        environment: the installation.
        limit: time limit of a pass, in seconds.
        log: file to which the output of the compiler is appended.
        progress: receives one line per pass.
    """

    environment: Environment
    limit: float
    log: Path
    progress: Progress = SILENT

    def compile(self, source: Path, name: str, level: int, target: Path, chip: str = "") -> Compiled:
        """Compile ``NAME.mlir`` and its weights in a folder.

        Args:
            source: folder with the module and its weights.
            name: symbol name of the module.
            level: level of layer grouping, of ``LEVELS``.
            target: file to write; it must not exist.
            chip: chip for which the cycles are estimated too; empty if they are not.

        Raises:
            CompilerFailure: a pass failed, exceeded the time limit, or wrote nothing. There is no file then.
            OSError: the compiler cannot be started, or files cannot be written: the disk is full.
        """
        # The passes write weight files with fixed names into the working folder.
        work = target.with_name(f".{name}.work")
        work.mkdir()
        try:
            for file in (f"{name}.mlir", f"{name}_weights.npz"):
                shutil.copyfile(source / file, work / file)
            seconds = {}
            for compiler_pass in (passes := compiler_passes(name, level)):
                self.progress.stage(f"{compiler_pass.title} (layer grouping at level {level})")
                ended = self._run(work, compiler_pass.arguments)
                seconds[compiler_pass.title] = round(ended.seconds, 3)
                if ended.code != 0:
                    raise CompilerFailure(compiler_pass.title, self._reason(ended), is_slow=ended.code is None)
                step = f"{len(seconds)} of {len(passes)}, {compiler_pass.title}"
                self.progress.report(f"compiled: step {step}, level {level}: {ended.seconds:.1f} s")
            program = work / f"{name}.bmodel"
            if not program.is_file() or not program.stat().st_size:
                raise CompilerFailure(passes[-1].title, "wrote no program")
            program.rename(target)
            return Compiled(seconds, self._estimate(work, name, chip, seconds) if chip else None)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _estimate(self, work: Path, name: str, chip: str, seconds: dict[str, float]) -> CycleEstimate | None:
        """Let the compiler write a profile of the program, and return its cycles. A failure is reported."""
        estimate_pass = profile_pass(name)
        ended = self._run(work, estimate_pass.arguments)
        seconds[estimate_pass.title] = round(ended.seconds, 3)
        try:
            if ended.code != 0:
                raise NoEstimate(f"the compiler {self._reason(ended)}")
            estimate = read_estimate(work, work / f"{name}.bmodel.json", chip)
        except NoEstimate as error:
            self.progress.report(f"no estimate of cycles: {error}")
            return None
        self.progress.report(describe_estimate(estimate))
        return estimate

    def _run(self, work: Path, arguments: Iterable[str]) -> Ended:
        command = [str(self.environment.program), "--mlir-disable-threading", *arguments]
        ended = run_program(command, self.log, folder=work, limit=self.limit, variables=self.environment.variables)
        require_space(work)  # a pass ends with success after it wrote half of a file
        return ended

    def _reason(self, ended: Ended) -> str:
        if ended.code is None:
            return f"needed more than {self.limit:g} s"
        how = f"exited with code {ended.code}" if ended.code > 0 else f"ended with {_signal_name(-ended.code)}"
        detail = reason_in_log(self.log)
        return f"{how}: {detail}" if detail else how


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
