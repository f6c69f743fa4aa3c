"""Model files that sessions have open, which share their weights and plans."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from tpuconvert.runtime.native.plans import Plans
    from tpuconvert.runtime.native.split_plans import SplitPlans
    from tpuconvert.schema.file.file_reader import OpenModel


@dataclass(eq=False)
class LoadedFile:
    """A model file and its native plans, shared by all sessions that have it open."""

    opened: OpenModel
    plans: dict[tuple[str, int, int | None], Plans | SplitPlans] = field(default_factory=dict)

    def __del__(self) -> None:
        self.opened.close()  # before the cyclic garbage collector frees the graph


_OPEN: WeakValueDictionary[tuple[int, ...], LoadedFile] = WeakValueDictionary()
"""Open files by device, inode, size and modification time, so that a replaced file is not mistaken for the old one."""


def open_file(path: str | os.PathLike[str]) -> LoadedFile:
    """Return a file; read it unless a session has it open."""
    # Start-up cost: importing the file format takes 35 ms.
    from tpuconvert.schema.file.file_reader import open_model

    try:
        status = os.stat(path)
        identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    except (OSError, ValueError):
        return LoadedFile(open_model(path))  # This raises the error.
    opened = _OPEN.get(identity)
    if opened is None:
        opened = _OPEN[identity] = LoadedFile(open_model(path))
    return opened
