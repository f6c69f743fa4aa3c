"""Atomic writing of export folders."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from tpuconvert.schema.errors import ResourceLimitError, UsageError
from tpuconvert.schema.file_replacement import is_disk_full
from tpuconvert.schema.input_files import refuse_input

MANIFEST = "export.json"
"""Name of the manifest of an export. A later export replaces a folder only if it contains this file."""


def write_folder(folder: str | os.PathLike[str], write: Callable[[Path], None], manifest: str = MANIFEST) -> None:
    """Write a folder atomically: ``write`` fills a temporary folder beside it, which is then renamed.

    Args:
        folder: folder to write.
        write: writes the files.
        manifest: file that marks a folder of the same kind, which may be replaced.

    Raises:
        UsageError: the folder exists and has no manifest, or cannot be written.
        ResourceLimitError: the disk is full.
    """
    target = Path(os.path.realpath(folder))
    refuse_input(target)
    if target.exists() and not target.is_dir():
        raise UsageError("it is a file, expected a folder", file=str(folder), hint="name another folder")
    if target.is_dir() and any(target.iterdir()) and not (target / manifest).is_file():
        raise UsageError(
            "the folder has other files in it", file=str(folder), hint=f"name a new folder, or one with {manifest}"
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent))
        try:
            write(staging)
            staging.chmod(0o755)
            _replace(target, staging)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    except OSError as error:
        if is_disk_full(error):
            raise ResourceLimitError("cannot be written: the disk is full", file=str(folder)) from error
        raise UsageError(f"cannot be written: {error.strerror or error}", file=str(folder)) from error


def _replace(target: Path, staging: Path) -> None:
    """Rename the new folder to the name of the old one, and remove the old one afterwards."""
    if not target.exists():
        staging.rename(target)
        return
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", suffix=".old", dir=target.parent) as old:
        target.rename(Path(old) / target.name)
        try:
            staging.rename(target)
        except OSError:
            (Path(old) / target.name).rename(target)
            raise
