"""Export of a converted model to another toolchain."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpuconvert.exporters.folder import write_folder
from tpuconvert.exporters.tpu_mlir.chips import TARGETS
from tpuconvert.exporters.tpu_mlir.package import lower_graph, write_package
from tpuconvert.model import Model, load
from tpuconvert.samples.calibration_data import load_feeds
from tpuconvert.samples.random_samples import random_feeds
from tpuconvert.schema.chip_names import plain_name
from tpuconvert.schema.errors import UsageError

FORMS = ("tpu-mlir",)
"""Names of the export targets."""

MOST_SAMPLES = 4
"""Largest number of samples that are stored with an export."""


@dataclass(frozen=True)
class Export:
    """Result of an export.

    Attributes:
        folder: folder with the exported files.
        manifest: contents of ``export.json``: names, types and scales of inputs and outputs, and operators that remain
            for the host.
    """

    folder: Path
    manifest: dict[str, Any]


def export(
    model: Model | str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    to: str = "tpu-mlir",
    chip: str = "bm1684x",
    samples: Any = None,
    with_checks: bool = False,
) -> Export:
    """Export a quantized model to the format of another toolchain, with bit-exact integers.

    Args:
        model: a converted model, or the path of a ``.tpum`` file.
        folder: folder to write. The folder of an earlier export is replaced; any other existing folder is an error.
        to: the target; ``tpu-mlir`` is the vendor's compiler.
        chip: ``bm1684x``, ``bm1688`` or ``bm1684``.
        samples: inputs to store with their expected results, as ``calibration`` of ``convert``. Default: random
            numbers.
        with_checks: let the exported program return every integer tensor, to locate differences.

    Raises:
        UnsupportedError: some nodes have no exact equivalent in the target. Nothing is written.
        UsageError: an argument is invalid, or the folder cannot be written.
    """
    if to not in FORMS:
        raise UsageError(f"unknown form '{to}'", hint=f"known are {', '.join(FORMS)}")
    target = TARGETS.get(plain_name(chip))
    if target is None:
        raise UsageError(f"no export for chip '{chip}'", hint=f"known are {', '.join(TARGETS)}")
    if not isinstance(model, Model):
        model = load(model)
    if model.chip is not target.chip:
        raise UsageError(
            f"the model is for {model.chip.value}, an export for {target.name} needs one for {target.chip.value}",
            file=model.graph.file,
            hint=f"convert it with --chip {target.chip.value.lower()}",
        )
    name = re.sub(r"\W", "_", Path(model.graph.file or model.graph.name).stem, flags=re.ASCII) or "model"
    lowering = lower_graph(model.graph, target, f"m_{name}" if name[0].isdigit() else name)
    if not lowering.integer_values():
        raise UsageError(
            "the model has no integers to export", file=model.graph.file, hint="convert it with --quantize int8"
        )
    ports = model.graph.input_ports
    if samples is None:
        feeds = random_feeds(ports, MOST_SAMPLES)
    else:
        feeds = [
            feed for feed, _ in zip(load_feeds(samples, ports, model.preprocess), range(MOST_SAMPLES), strict=False)
        ]
    manifest: dict[str, Any] = {}
    write: Callable[[Path], None] = lambda staging: manifest.update(  # noqa: E731
        write_package(staging, lowering, feeds, with_checks=with_checks)
    )
    write_folder(folder, write)
    return Export(Path(folder), manifest)
