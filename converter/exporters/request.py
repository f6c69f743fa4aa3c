"""Arguments of an export that all targets share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpuconvert.model.model import Model
from tpuconvert.samples.calibration_data import load_feeds
from tpuconvert.samples.random_samples import random_feeds
from tpuconvert.schema.types import Array

MOST_SAMPLES = 4
"""Largest number of samples that are stored with an export."""

FLOATS = ("f32", "f16", "bf16")
"""Types in which the vendor's compiler computes floating-point operators."""

_LONGEST_NAME = 100
"""Most characters of a name, to which files of an export add suffixes; file systems allow 255 bytes."""


@dataclass(frozen=True)
class Request:
    """Arguments of an export.

    Args:
        model: the model to export.
        path: file or folder to write.
        chip: chip of the target's compiler, or None for the default.
        samples: inputs to store, as ``calibration`` of ``convert``, or None for random numbers.
        with_checks: return every integer tensor from the exported program.
        floats: type in which the exported program computes floating-point operators: a name of ``FLOATS``.
        program: name of the program, or None for the name of the model.
        borders: types of the floating-point inputs and of the floating-point results of a ``tpu-mlir`` program.
        model_sha256: SHA-256 of the file of the model; None for a model in memory.
    """

    model: Model
    path: Path
    chip: str | None = None
    samples: Any = None
    with_checks: bool = False
    floats: str = "f32"
    program: str | None = None
    borders: tuple[str, str] = ("f32", "f32")
    model_sha256: str | None = None

    @property
    def name(self) -> str:
        """Name of the program, by default of the model, in letters, digits and underscores."""
        if self.program is not None:
            return self.program
        graph = self.model.graph
        return re.sub(r"\W", "_", Path(graph.file or graph.name).stem[:_LONGEST_NAME], flags=re.ASCII) or "model"

    def feeds(self) -> list[Mapping[str, Array]]:
        """Load the samples, or draw random ones."""
        ports = self.model.graph.input_ports
        if self.samples is None:
            return list(random_feeds(ports, MOST_SAMPLES))
        feeds = load_feeds(self.samples, ports, self.model.preprocess)
        return [feed for feed, _ in zip(feeds, range(MOST_SAMPLES), strict=False)]
