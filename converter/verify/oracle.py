"""Run the source file with another engine, as an oracle that shares no code with the frontends.

If they are installed, onnxruntime runs ONNX files, and the TensorFlow Lite interpreter (ai-edge-litert) runs TFLite
files. They run in a separate process, so that a crash of an engine does not end this one.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from tpuconvert.schema.errors import MissingExtraError, UsageError
from tpuconvert.schema.graph import Port
from tpuconvert.schema.types import Array
from tpuconvert.workers.child_process import run_module

ENGINES: Mapping[str, tuple[str, str, str]] = {
    "onnxruntime": ("onnx", "onnxruntime", "onnxruntime"),
    "litert": ("tflite", "ai_edge_litert", "ai-edge-litert"),
}
"""Engine name -> source format, module name, distribution name."""

_MOST_SECONDS = 600


@dataclass(frozen=True)
class Statement:
    """Results of an engine for one feed.

    Args:
        tensors: tensors by their names in the source, including outputs.
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

    """

    name: str
    source: str

    @property
    def title(self) -> str:
        """Name and version of the engine."""
        return f"{self.name} {metadata.version(ENGINES[self.name][2])}"

    def run(
        self, ports: Sequence[Port], feeds: Sequence[Mapping[str, Array]], fixed: Mapping[str, Array] | None = None
    ) -> Iterator[Statement]:
        """Run the engine on each feed. ``fixed`` has the values of the inputs that became constants in the model.

        Raises:
            OracleError: the engine refuses the file or the feeds, dies, or takes longer than ten minutes.

        """
        with tempfile.TemporaryDirectory() as folder:
            for number, feed in enumerate(feeds):
                arrays = {port.name: np.asarray(feed[port.name]).astype(port.dtype) for port in ports} | dict(
                    fixed or {}
                )
                given: dict[str, Any] = {"names": np.array(list(arrays))}
                given.update((f"in{k}", array) for k, array in enumerate(arrays.values()))
                np.savez(Path(folder) / f"feed{number}.npz", **given)
            arguments = [self.name, os.path.abspath(self.source), folder]
            try:
                done = run_module(
                    "tpuconvert.verify.oracle_process",
                    arguments,
                    capture_output=True,
                    text=True,
                    timeout=_MOST_SECONDS,
                    errors="replace",
                )
            except subprocess.TimeoutExpired:
                raise OracleError(f"it took longer than {_MOST_SECONDS} seconds") from None
            if done.returncode:
                lines = done.stderr.strip().splitlines() or [f"it ended with code {done.returncode}"]
                raise OracleError(lines[-1][:300])
            for number in range(len(feeds)):
                with np.load(Path(folder) / f"result{number}.npz", allow_pickle=False) as result:
                    names = result["names"].tolist()
                    tensors = {name: result[f"out{k}"] for k, name in enumerate(names)}
                    yield Statement(tensors, tuple(names[: int(result["outputs"])]), bool(result["rounds"]))


def find_oracle(wanted: str, source_format: str, source: str | os.PathLike[str]) -> Oracle | None:
    """Return the requested engine for a file, or with ``auto`` an installed one, if any.

    Raises:
        UsageError: the requested engine does not read this format.
        MissingExtraError: the requested engine is not installed.

    """
    if wanted == "none":
        return None
    fitting = [name for name, (reads, _, _) in ENGINES.items() if reads == source_format]
    installed = [name for name in fitting if importlib.util.find_spec(ENGINES[name][1]) is not None]
    if wanted == "auto":
        return Oracle(installed[0], os.fspath(source)) if installed else None
    if wanted not in fitting:
        known = ", ".join(fitting) or "none"
        raise UsageError(f"{wanted} does not read {source_format} files", hint=f"engines that do: {known}")
    if wanted not in installed:
        package = ENGINES[wanted][2]
        raise MissingExtraError(f"{wanted} is not installed", hint=f"pip install {package}")
    return Oracle(wanted, os.fspath(source))
