"""Export with a compiled program that was run in the simulator and compared: ``export --compile``."""

from __future__ import annotations

import functools
import json
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from tpuconvert.exporters.compilation.compiler import LEVELS, TRIED_LEVELS, Compiler, CompilerFailure
from tpuconvert.exporters.compilation.cycles import CycleEstimate, estimate_section
from tpuconvert.exporters.compilation.environment import HOME_VARIABLE, Environment
from tpuconvert.exporters.compilation.failing_node import FailingNode, find_failing_node, first_wrong_node
from tpuconvert.exporters.compilation.installation import obtain_environment
from tpuconvert.exporters.compilation.proof import (
    FORMAT,
    PROOF,
    Attempt,
    Proof,
    TensorComparison,
    compare_host,
    compare_program,
    describe_files,
    describe_verdict,
    differing_tensors,
    digests,
    file_sha256,
    summarize,
)
from tpuconvert.exporters.compilation.simulator import SimulatorFailure, simulate
from tpuconvert.exporters.folder import MANIFEST, write_folder
from tpuconvert.exporters.manifest import Manifest
from tpuconvert.exporters.request import Request
from tpuconvert.exporters.tpu_mlir.chips import TARGETS
from tpuconvert.exporters.tpu_mlir.dialect import COMPILER_VERSION
from tpuconvert.exporters.tpu_mlir.host_part import HostPart, find_host_part
from tpuconvert.exporters.tpu_mlir.lowering import Lowering
from tpuconvert.exporters.tpu_mlir.package import (
    HOST_MODEL,
    TPU_MLIR,
    Feed,
    lower_request,
    partial_host_part,
    program_name,
    readme,
    write_package,
)
from tpuconvert.exporters.tpu_mlir.run_bmodel import stack_samples
from tpuconvert.installed import version
from tpuconvert.model.model import load
from tpuconvert.progress import SILENT, Progress
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.errors import COMPILER_FAILS, ProblemList, ResourceLimitError, TpuConvertError, UsageError
from tpuconvert.schema.system.file_replacement import replacing
from tpuconvert.schema.types import Array
from tpuconvert.text.text_format import several, shorten

TIME_LIMIT = 600.0
"""Default time limit of a compiler pass and of the simulator, in seconds. A YOLOv8 takes a minute at level 2."""

LEAST_LIMIT = 1.0
"""Smallest time limit, in seconds."""

SEARCH_LIMIT = 120.0
"""Largest time limit of a compiler pass in the search for a node, of which a program of 1000 nodes has 20."""

SEARCH_LEVELS = (1, 0)
"""Levels of layer grouping in the search for a node: they compile quickly."""

MOST_HOST_NODES = 8
"""Nodes that are left to the host because the compiler fails at them. A program with more is refused."""


@dataclass(frozen=True)
class Compilation:
    """Options of a compilation.

    Args:
        log: file for the output of a compiler that fails.
        limit: time limit of each compiler pass and of the simulator, in seconds.
        level: level of layer grouping; by default several are tried.
        progress: receives one line per step.

    Raises:
        UsageError: the level is unknown, or the limit is less than a second.
    """

    log: Path
    limit: float = TIME_LIMIT
    level: int | None = None
    progress: Progress = SILENT

    def __post_init__(self) -> None:
        if self.level is not None and self.level not in LEVELS:
            levels = "; ".join(f"{level}: {text}" for level, text in sorted(LEVELS.items()))
            raise UsageError(f"no level {self.level} of layer grouping", hint=f"known are {levels}")
        if not self.limit >= LEAST_LIMIT:
            raise UsageError(f"time limit {self.limit:g} s", hint=f"allow {LEAST_LIMIT:g} s or more")

    @functools.cached_property
    def environment(self) -> Environment:
        """The installed compiler. Raises what ``obtain_environment`` raises."""
        environment = obtain_environment(self.progress)
        if environment.version != COMPILER_VERSION:
            installed = environment.version or "of an unknown version"
            text = f"{HOME_VARIABLE} has tpu_mlir {installed}; exports are tested with {COMPILER_VERSION}"
            self.progress.report(text)
        return environment

    @property
    def levels(self) -> tuple[int, ...]:
        """Levels in the order in which they are tried."""
        return TRIED_LEVELS if self.level is None else (self.level,)


@dataclass(frozen=True)
class Outcome:
    """A compiled program, and what it computes."""

    level: int
    comparisons: list[TensorComparison]
    cycles: CycleEstimate | None

    @property
    def differing(self) -> int:
        """Number of tensors whose difference is not accepted."""
        return sum(not item["difference"].is_accepted for item in self.comparisons)


def export_compiled(request: Request, compilation: Compilation) -> tuple[dict[str, Any], Proof]:
    """Write an export folder with a compiled program, and its comparison with tpuconvert. Return manifest and proof.

    Nodes at which the compiler fails are left to the host. The folder is written completely or not at all; the log of
    a compiler that failed is beside it.

    Raises:
        UnsupportedError: the compiler fails at too many nodes, or at nodes on which all others depend.
        ResourceLimitError: the simulator exceeds the time limit, or the disk is full.
        UsageError: the chip is unknown or is not the chip of the model, or the folder cannot be written.
    """
    export = _CompiledExport(request, compilation)
    try:
        write_folder(request.path, export.write)
    finally:
        if export.failed_log:
            _write_log(compilation, export.failed_log)
    assert export.proof is not None
    return dict(export.manifest), export.proof


def _write_log(compilation: Compilation, text: bytes) -> None:
    """Write the log of a compiler that failed. The error that names it is raised anyway, so a failure is a report."""
    try:
        with replacing(compilation.log) as file:
            file.write(text)
    except TpuConvertError as error:
        compilation.progress.report(f"the output of the compiler is lost: {error}")


@dataclass
class _CompiledExport:
    """State of one compiled export."""

    request: Request
    compilation: Compilation
    manifest: Mapping[str, Any] = field(default_factory=dict)
    proof: Proof | None = None
    attempts: list[Attempt] = field(default_factory=list)
    failed_log: bytes = b""

    def write(self, staging: Path) -> None:
        """Fill the folder: lower, compile and compare; leave nodes to the host until the program compiles."""
        on_host: dict[str, str] = {}
        lowering = lower_request(self.request, on_host)
        host = partial_host_part(lowering)
        feeds = self.request.feeds()
        log = staging / f"{program_name(self.request)}.log"
        environment, started = self.compilation.environment, time.monotonic()
        while True:
            manifest = self._write_package(staging, lowering, host, feeds, with_checks=self.request.with_checks)
            outcome, failure = self._try_levels(staging, manifest, log)
            if failure is not None:
                failing = self._find_failing_node(lowering, failure, log)
            elif outcome is not None and (wrong := self._find_wrong_node(staging, outcome, feeds, on_host, log)):
                failing = wrong
            else:
                break
            name_of_node = shorten(failing.node.name)
            text = f"{failing.node.op.name} '{name_of_node}': {failing.reason}; the host computes it"
            self.compilation.progress.report(text)
            on_host[failing.node.name] = failing.reason
            lowering = lower_request(self.request, on_host)
            host = find_host_part(lowering)
            if host.is_everything or len(on_host) > MOST_HOST_NODES:
                self._refuse(host, on_host, log)
            _remove_files(staging, keep=log)
        assert outcome is not None
        seconds = time.monotonic() - started
        self.manifest, self.proof = manifest, self._describe(staging, environment, manifest, outcome, seconds)
        (staging / PROOF).write_text(json.dumps(self.proof, indent=2) + "\n", encoding="utf-8")
        text = readme(manifest, TPU_MLIR, describe_verdict(self.proof), describe_files(manifest["name"]))
        cycles = "" if outcome.cycles is None else estimate_section(outcome.cycles)
        (staging / "README.md").write_text(text + cycles, encoding="utf-8")

    def _write_package(
        self, folder: Path, lowering: Lowering, host: HostPart, feeds: Sequence[Feed], *, with_checks: bool
    ) -> Manifest:
        return write_package(folder, self.request.model, lowering, host, feeds, TPU_MLIR, with_checks=with_checks)

    def _find_wrong_node(
        self, staging: Path, outcome: Outcome, feeds: Sequence[Feed], on_host: Mapping[str, str], log: Path
    ) -> FailingNode | None:
        """Return the first node whose integers differ in a program that returns every integer, at the same level.

        None if nothing differs there, or if the program would compute nothing without the node.
        """
        if not outcome.differing or self.compilation.level is not None or len(on_host) >= MOST_HOST_NODES:
            return None
        lowering = lower_request(self.request, on_host)
        with tempfile.TemporaryDirectory(prefix=".checks.", dir=staging) as temporary:
            folder = Path(temporary)
            manifest = self._write_package(folder, lowering, find_host_part(lowering), feeds, with_checks=True)
            try:
                comparisons = self._try_level(folder, manifest, log, outcome.level, []).comparisons
            except (CompilerFailure, SimulatorFailure):
                return None
        wrong = first_wrong_node(lowering, comparisons)
        if wrong is None:
            return None
        without = lower_request(self.request, {**on_host, wrong.node.name: wrong.reason})
        return None if find_host_part(without).is_everything else wrong

    def _find_failing_node(self, lowering: Lowering, failure: CompilerFailure, log: Path) -> FailingNode:
        compiler = Compiler(self.compilation.environment, min(self.compilation.limit, SEARCH_LIMIT), log)
        levels = SEARCH_LEVELS if self.compilation.level is None else (self.compilation.level,)
        progress, with_checks = self.compilation.progress, self.request.with_checks
        return find_failing_node(lowering, compiler, levels, failure, progress, with_checks=with_checks)

    def _try_levels(
        self, staging: Path, manifest: Manifest, log: Path
    ) -> tuple[Outcome, None] | tuple[None, CompilerFailure]:
        """Compile and compare at one level of layer grouping after the other, until the results are accepted.

        The program of the accepted outcome is kept, else the one with the fewest differences.

        Returns:
            This outcome, or the failure of the last level if the compiler fails at each.

        Raises:
            UnsupportedError: there is a program, but the simulator fails.
        """
        best: Outcome | None = None
        program = staging / f"{manifest['name']}.bmodel"
        best_program = staging / f".{manifest['name']}.best"
        failures: list[CompilerFailure | SimulatorFailure] = []
        first = TARGETS[manifest["chip"]].level
        for level in sorted(self.compilation.levels, key=lambda level: level != first):
            try:
                outcome = self._try_level(staging, manifest, log, level, self.attempts)
            except (CompilerFailure, SimulatorFailure) as error:
                failures.append(error)
                continue
            if best is None or outcome.differing < best.differing:
                best = outcome
                program.replace(best_program)
            if not outcome.differing:
                break
        if best is not None:
            best_program.replace(program)
            return best, None
        crash = next((failure for failure in failures if isinstance(failure, SimulatorFailure)), None)
        last = failures[-1]
        if crash is None and isinstance(last, CompilerFailure):
            return None, last
        problems = self._problems()
        problems.add(COMPILER_FAILS, "program", manifest["name"], str(crash), self._hint(log))
        problems.fail()

    def _try_level(self, staging: Path, manifest: Manifest, log: Path, level: int, attempts: list[Attempt]) -> Outcome:
        """Compile and compare at one level. Append the attempt to ``attempts``.

        Raises:
            CompilerFailure, SimulatorFailure: there are no results.
            ResourceLimitError: the simulator exceeds the time limit.
        """
        program = staging / f"{manifest['name']}.bmodel"
        program.unlink(missing_ok=True)
        attempt: Attempt = {"level": level, "outcome": "failed", "reason": "", "seconds": {}}
        attempts.append(attempt)
        progress, limit = self.compilation.progress, self.compilation.limit
        try:
            compiler = Compiler(self.compilation.environment, limit, log, progress)
            compiled = compiler.compile(staging, manifest["name"], level, program, manifest["chip"])
            attempt["seconds"] |= compiled.seconds
            progress.stage(f"simulate {several(manifest['samples'], 'sample')}")
            simulation = simulate(self.compilation.environment, staging, log, limit)
        except CompilerFailure as error:
            attempt["reason"] = str(error)
            progress.report(f"level {level}: {error}")
            raise
        except SimulatorFailure as error:
            attempt["reason"] = str(error)
            if error.is_slow:
                text = f"{error} for {several(manifest['samples'], 'sample')}"
                raise ResourceLimitError(text, hint=f"allow more: --time-limit; {self._hint(log)}") from error
            progress.report(f"level {level}: {error}")
            raise
        attempt["seconds"]["simulate"] = round(simulation.seconds, 3)
        comparisons = _compare(staging, manifest, simulation.results)
        outcome = Outcome(level, comparisons, compiled.cycles)
        attempt["outcome"] = "differs" if outcome.differing else "accepted"
        count = several(len(comparisons), "tensor")
        attempt["reason"] = f"{outcome.differing} of {count} differ" if outcome.differing else ""
        verdict = attempt["reason"] or f"{count} compared, none differs"
        progress.report(f"simulated: level {level}: {simulation.seconds:.1f} s: {verdict}")
        return outcome

    def _describe(
        self, staging: Path, environment: Environment, manifest: Manifest, outcome: Outcome, seconds: float
    ) -> Proof:
        name = manifest["name"]
        files = [f"{name}.bmodel", f"{name}.mlir", f"{name}_weights.npz", MANIFEST]
        files += ["inputs.npz", "expected.npz", "results.npz"]
        simulator = environment.simulator(manifest["chip"])
        return {
            "format": FORMAT,
            "is_accepted": not outcome.differing,
            "tpuconvert": version(),
            "compiler": f"tpu_mlir {environment.version or 'of an unknown version'}",
            "simulator": {"library": simulator.name, "sha256": file_sha256(simulator)},
            "chip": manifest["chip"],
            "program_digest": manifest["program_digest"],
            "model_sha256": self.request.model_sha256,
            "files": digests(staging, [*files, *([HOST_MODEL] if (staging / HOST_MODEL).exists() else [])]),
            "samples": manifest["samples"],
            "tolerance": manifest["tolerance"],
            "tensors": summarize(outcome.comparisons),
            "differing": differing_tensors(outcome.comparisons),
            "level": outcome.level,
            "attempts": self.attempts,
            "seconds": round(seconds, 3),
            "host_nodes": manifest["host_nodes"],
            "cycles": outcome.cycles,
        }

    def _problems(self) -> ProblemList:
        graph = self.request.model.graph
        return ProblemList(graph.file or graph.name, "the vendor's compiler")

    def _hint(self, log: Path) -> str:
        """Return the hint with the place of the log, which is kept."""
        self.failed_log = log.read_bytes()
        return f"the output of the compiler is in {self.compilation.log}"

    def _refuse(self, host: HostPart, on_host: Mapping[str, str], log: Path) -> NoReturn:
        """Refuse a model at whose nodes the compiler fails.

        Raises:
            UnsupportedError: always.
        """
        problems, hint = self._problems(), f"end the model before this node: --outputs; {self._hint(log)}"
        for node in host.nodes:
            if node.name in on_host:
                problems.add(COMPILER_FAILS, node.op.name, node.name, on_host[node.name], hint)
        problems.fail()


def _remove_files(staging: Path, keep: Path) -> None:
    """Remove all files of a folder but one."""
    for path in staging.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path != keep:
            path.unlink()


def _compare(staging: Path, manifest: Manifest, results: Mapping[str, Array]) -> list[TensorComparison]:
    """Compare the results of the simulator, and of the part for the host on them, with the stored ones."""
    with np.load(staging / "expected.npz") as expected:
        comparisons = compare_program(manifest, expected, results)
    if (staging / HOST_MODEL).exists() and all(output["name"] in results for output in manifest["outputs"]):
        with np.load(staging / "results.npz") as expected:
            comparisons += compare_host(manifest, expected, _run_host(staging, manifest, results))
    return comparisons


def _run_host(staging: Path, manifest: Manifest, results: Mapping[str, Array]) -> dict[str, Array]:
    """Run the part for the host on the results of the simulator."""
    shapes = {output["name"]: output["shape"] for output in manifest["outputs"]}
    feeds: dict[str, Array] = {}
    with np.load(staging / "inputs.npz") as inputs:
        for item in manifest["host_inputs"]:
            name = item["name"]
            array, shape = (inputs[item["port"]], item["shape"]) if item["port"] else (results[name], shapes[name])
            feeds[name] = array.reshape(len(array), *shape)  # a scalar of the source has one axis in the model
    outputs: dict[str, list[Array]] = {}
    with Session(load(staging / HOST_MODEL).graph) as session:
        for index in range(manifest["samples"]):
            for name, array in session.run({name: array[index] for name, array in feeds.items()}).items():
                outputs.setdefault(name, []).append(np.array(array))
    return stack_samples(outputs)
