"""Run the source file with another engine, as an oracle that shares no code with the frontends.

If they are installed, onnxruntime runs ONNX files, and the TensorFlow Lite interpreter (ai-edge-litert) runs TFLite
files. Otherwise the evaluator of the onnx package runs ONNX files: one sample, within limits, because it is slow. They
run in a separate process, so that a crash of an engine does not end this one.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tpuconvert.schema.errors import MissingExtraError, UsageError
from tpuconvert.schema.graph.graph import Port
from tpuconvert.schema.text.json_text import parse_json
from tpuconvert.schema.types import Array
from tpuconvert.text.text_format import bytes_text
from tpuconvert.workers.child_process import run_module


class Engine(NamedTuple):
    """An engine that may be installed.

    Args:
        reads: format of the sources that it runs.
        module: name of its Python module.
        distribution: name of its distribution.
        samples: largest number of samples that it runs; None for all.
        seconds: time limit for all samples.
        memory: limit of its address space in bytes; None for no limit.
        file_bytes: largest size of a source file; None for no limit.
        process: module of this package that runs it in a process.
    """

    reads: str
    module: str
    distribution: str
    samples: int | None = None
    seconds: int = 600
    memory: int | None = None
    file_bytes: int | None = None
    process: str = "tpuconvert.verify.oracle_process"


ENGINES: Mapping[str, Engine] = {
    "onnxruntime": Engine("onnx", "onnxruntime", "onnxruntime"),
    "litert": Engine("tflite", "ai_edge_litert", "ai-edge-litert"),
    "onnx": Engine("onnx", "onnx", "onnx", 1, 60, 8 << 30, 512 << 20, "tpuconvert.verify.onnx_evaluator"),
}
"""Engine name -> engine. Of two that read a format, the first one is preferred."""

MAPPED_BYTES = 1 << 16
"""Size of a file from which it is mapped; arrays without elements cannot be."""


class StoredTensors(Mapping[str, Array]):
    """Tensors in files, each of which is read when it is asked for: all of them can be larger than the memory.

    Args:
        folder: folder with ``out0.npy``, ``out1.npy``, ...
        names: their names.
    """

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._paths = {name: folder / f"out{number}.npy" for number, name in enumerate(names)}

    def __getitem__(self, name: str) -> Array:
        path = self._paths[name]
        array: Array = np.load(path, mmap_mode="r" if path.stat().st_size > MAPPED_BYTES else None)
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


@dataclass(frozen=True)
class Statement:
    """Results of an engine for one feed.

    Args:
        tensors: tensors by their names in the source, including outputs. The files of a process exist until the next
            statement.
        outputs: names of the source's outputs, in the order of the source.
        rounds: whether the engine quantizes floats internally, so that its results are not exact.

    """

    tensors: Mapping[str, Array]
    outputs: tuple[str, ...]
    rounds: bool = False


class OracleError(Exception):
    """The engine could not run the source; the message has the reason."""


@dataclass(frozen=True)
class Oracle:
    """An installed engine with the source file to run.

    Args:
        name: key of ENGINES.
        source: path of the source file.
        signature: key of the signature of a TFLite file; None for its only one.
        keeps_state: True if the feeds are steps of one sequence. Otherwise every feed starts with the initial state.

    """

    name: str
    source: str
    signature: str | None = None
    keeps_state: bool = False

    @property
    def engine(self) -> Engine:
        """The engine."""
        return ENGINES[self.name]

    @property
    def version(self) -> str:
        """Version of the engine."""
        return metadata.version(self.engine.distribution)

    @property
    def title(self) -> str:
        """Name and version of the engine."""
        return f"{self.name} {self.version}"

    def run(
        self, ports: Sequence[Port], feeds: Sequence[Mapping[str, Array]], fixed: Mapping[str, Array] | None = None
    ) -> Iterator[Statement]:
        """Run the engine on each feed, or on the first ones if it has a limit.

        ``fixed`` has the values of the inputs that became constants in the model.

        Raises:
            OracleError: the engine refuses the file or the feeds, dies, or exceeds a limit.

        """
        max_bytes = self.engine.file_bytes
        if max_bytes is not None and os.path.getsize(self.source) > max_bytes:
            raise OracleError(f"the file has more than {bytes_text(max_bytes)}")
        count = len(feeds) if self.engine.samples is None else min(len(feeds), self.engine.samples)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            for number, feed in enumerate(feeds[:count]):
                arrays = {port.name: np.asarray(feed[port.name]).astype(port.dtype) for port in ports} | dict(
                    fixed or {}
                )
                entries: dict[str, Any] = {"names": np.array(list(arrays))}
                entries.update((f"in{k}", array) for k, array in enumerate(arrays.values()))
                np.savez(Path(folder) / f"feed{number}.npz", **entries)
            self._run_process(folder)
            for number in range(count):
                result = Path(folder) / f"result{number}"
                about = parse_json((result / "result.json").read_text(encoding="utf-8"))
                names = about["names"]
                yield Statement(StoredTensors(result, names), tuple(names[: about["outputs"]]), about["rounds"])
                shutil.rmtree(result, ignore_errors=True)  # Windows keeps files that are mapped, until the process ends

    def _run_process(self, folder: str) -> None:
        """Run all feeds in a process; after a crash once more without intermediate tensors, which can be the cause."""
        code, text = self._start(folder, outputs_only=False)
        if code < 0:
            code, text = self._start(folder, outputs_only=True)
        if code < 0:
            raise OracleError(f"its process crashed ({_signal_name(-code)})")
        if code:
            lines = text.strip().splitlines() or [f"it ended with code {code}"]
            raise OracleError(lines[-1][:300])

    def _start(self, folder: str, *, outputs_only: bool) -> tuple[int, str]:
        """Run the process and return its exit code, negative for a signal, and its standard error."""
        settings = {
            "keeps_state": self.keeps_state,
            "outputs_only": outputs_only,
            "signature": self.signature,
            "memory": self.engine.memory,
        }
        arguments = [self.name, os.path.abspath(self.source), folder, json.dumps(settings)]
        try:
            done = run_module(
                self.engine.process,
                arguments,
                capture_output=True,
                text=True,
                timeout=self.engine.seconds,
                errors="replace",
            )
        except subprocess.TimeoutExpired:
            raise OracleError(f"it took longer than {self.engine.seconds} seconds") from None
        return done.returncode, done.stderr


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def find_oracles(requested: str, source_format: str, source: str | os.PathLike[str]) -> list[Oracle]:
    """Return the requested engine for a file, or with ``auto`` the installed ones, the preferred one first.

    Raises:
        UsageError: the requested engine does not read this format.
        MissingExtraError: the requested engine is not installed.

    """
    if requested == "none":
        return []
    fitting = [name for name, engine in ENGINES.items() if engine.reads == source_format]
    installed = [name for name in fitting if importlib.util.find_spec(ENGINES[name].module) is not None]
    if requested == "auto":
        return [Oracle(name, os.fspath(source)) for name in installed]
    if requested not in fitting:
        listed = ", ".join(fitting) or "none"
        raise UsageError(f"{requested} does not read {source_format} files", hint=f"engines that do: {listed}")
    if requested not in installed:
        package = ENGINES[requested].distribution
        raise MissingExtraError(f"{requested} is not installed", hint=f"pip install {package}")
    return [Oracle(requested, os.fspath(source))]


class Hearing(NamedTuple):
    """Results of the first engine that runs the source.

    Args:
        oracle: the engine, or the last one that was tried; None if there is none.
        statements: its results, of all samples or of the first ones.
        problem: reason why no engine runs the source, or empty.
    """

    oracle: Oracle | None
    statements: Iterator[Statement] = iter(())
    problem: str = ""

    def results(self) -> Iterator[Statement]:
        """Yield the results.

        Raises:
            OracleError: no engine runs the source.
        """
        if self.problem:
            raise OracleError(self.problem)
        yield from self.statements


def run_first(
    oracles: Sequence[Oracle],
    ports: Sequence[Port],
    feeds: Sequence[Mapping[str, Array]],
    fixed: Mapping[str, Array] | None = None,
) -> Hearing:
    """Run the engines on the feeds until one succeeds."""
    problems = []
    for oracle in oracles:
        statements = oracle.run(ports, feeds, fixed)
        try:
            first = next(statements)
        except OracleError as error:
            problems.append(f"{oracle.title}: {error}")
            continue
        return Hearing(oracle, itertools.chain([first], statements))
    return Hearing(oracles[-1] if oracles else None, problem="; ".join(problems))
