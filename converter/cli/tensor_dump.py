"""``run --dump FOLDER``: every tensor of a run as a file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpuconvert.cli.problems import ensure
from tpuconvert.exporters.folder import write_folder
from tpuconvert.schema.errors import RunError
from tpuconvert.schema.system.file_errors import unwritable
from tpuconvert.schema.text.plain_values import to_plain
from tpuconvert.schema.text.visible_text import for_json

if TYPE_CHECKING:
    from tpuconvert.runtime.session.session import Session
    from tpuconvert.schema.graph.graph import Value
    from tpuconvert.schema.types import Array

LIST = "tensors.json"
"""File with the names, operators, types, shapes, scales and files of the tensors, in the order of the run."""

_LONGEST = 80


def check_dump_folder(folder: str | None) -> None:
    """Refuse a folder that has files, which would be mixed with the tensors."""
    if folder is not None:
        path = Path(folder)
        is_free = not path.exists() or (path.is_dir() and not any(path.iterdir()))
        ensure(is_free, f"{folder}: is not an empty folder", hint="name a new folder for the tensors")


def dump_tensors(session: Session, feeds: Mapping[str, Array], folder: Path) -> tuple[dict[str, Array], int]:
    """Run a model once and write its inputs and every computed tensor as ``.npy`` files.

    If a node fails, the tensors before it and their list are written. The folder is complete or not there.

    Returns:
        The outputs, and the number of tensors.

    Raises:
        RunError: a node failed.
        UsageError: the folder cannot be written.
        ResourceLimitError: the disk is full.
    """
    import numpy as np

    entries: list[dict[str, Any]] = []
    outputs: dict[str, Array] = {}
    failures: list[RunError] = []

    def write_tensors(staging: Path) -> None:
        def write(value: Value, array: Array) -> None:
            plain_name = re.sub(r"[^A-Za-z0-9_.-]+", "_", value.name)[:_LONGEST]
            name = f"{len(entries):04d}_{plain_name}.npy"
            try:
                np.save(staging / name, array, allow_pickle=False)
            except OSError as error:
                raise unwritable(error, folder) from error
            entries.append(_entry(value, array, name))

        try:
            outputs.update(session.run(feeds, observe=write, borrow=True))
        except RunError as error:
            failures.append(error)
        text = for_json(json.dumps(to_plain(entries), indent=2, ensure_ascii=False))
        (staging / LIST).write_text(f"{text}\n", encoding="utf-8", newline="")

    write_folder(folder, write_tensors, manifest=LIST, keeps_others=False)
    if failures:
        raise failures[0]
    return outputs, len(entries)


def _entry(value: Value, array: Array, file: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": value.name,
        "operator": "input" if value.producer is None else value.producer.op.name,
        "sources": [] if value.producer is None else [str(source) for source in value.producer.sources],
        "dtype": array.dtype.name,
        "shape": list(array.shape),
        "file": file,
    }
    if value.quant is not None:
        entry |= {"scale": value.quant.scale, "zero_point": value.quant.zero_point, "axis": value.quant.axis}
    return entry
