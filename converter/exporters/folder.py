"""Atomic writing of export folders."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
from collections.abc import Callable
from pathlib import Path

from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.system.file_errors import unwritable
from tpuconvert.schema.system.input_files import refuse_input, refuse_inputs_below
from tpuconvert.schema.system.temporary_files import temporary_folder
from tpuconvert.schema.text.json_text import parse_json

_HERE = -100  # AT_FDCWD: paths are relative to the working directory
_RENAME_EXCHANGE = 2

MANIFEST = "export.json"
"""Name of the manifest of an export. A later export replaces a folder only if it contains this file."""

FILES = ".files.json"
"""List of the files that an export wrote. A later export replaces no folder with others in it."""

PRODUCTS = (".bmodel", ".log")
"""Suffixes of the files that the scripts of an export write into its folder, beside its name."""

LISTED = 3
"""Files of others that an error names."""


def write_folder(
    folder: str | os.PathLike[str],
    write: Callable[[Path], None],
    manifest: str = MANIFEST,
    *,
    keeps_others: bool = True,
) -> None:
    """Write a folder atomically: ``write`` fills a temporary folder beside it, which is then renamed.

    Args:
        folder: folder to write.
        write: writes the files.
        manifest: file that marks a folder of the same kind, which may be replaced.
        keeps_others: do not replace a folder with files that no earlier call wrote.

    Raises:
        UsageError: the folder exists and has no manifest, an input of the call or files of others, or it cannot be
            written.
        ResourceLimitError: the disk is full.
    """
    target = Path(os.path.realpath(folder))
    refuse_input(target)
    refuse_inputs_below(target)
    if os.path.exists(target) and not os.path.isdir(target):
        raise UsageError("it is a file, expected a folder", file=str(folder), hint="name another folder")
    if os.path.isdir(target) and any(target.iterdir()) and not os.path.isfile(target / manifest):
        raise UsageError(
            "the folder has other files in it", file=str(folder), hint=f"name a new folder, or one with {manifest}"
        )
    if keeps_others and os.path.isdir(target):
        _refuse_files_of_others(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(target) as staging:
            write(Path(staging))
            if keeps_others:
                _write_list(Path(staging))
            os.chmod(staging, 0o755)
            _replace(target, Path(staging))
    except OSError as error:
        raise unwritable(error, folder) from error


def _write_list(folder: Path) -> None:
    """Write the names of all files of a folder, and of files that its scripts will write, into it."""
    names = _names_below(folder)
    for path in folder.rglob(MANIFEST):
        program = parse_json(path.read_text(encoding="utf-8")).get("name", "")
        names += [str(path.relative_to(folder).with_name(f"{program}{suffix}")) for suffix in PRODUCTS if program]
    (folder / FILES).write_text(json.dumps(names) + "\n", encoding="utf-8")


def _refuse_files_of_others(target: Path) -> None:
    """Raise if a folder has files that no export wrote there, which would be lost."""
    if not os.path.lexists(target / FILES):  # a folder of an earlier version
        return
    written: set[str] = set()
    if not os.path.islink(target / FILES):
        with contextlib.suppress(ValueError, TypeError, OSError):
            written = set(parse_json((target / FILES).read_text(encoding="utf-8")))
    others = [name for name in _names_below(target) if name not in written]
    if others:
        hint = "move them, or name another folder"
        raise UsageError(
            f"it has files that no export wrote: {', '.join(others[:LISTED])}", file=str(target), hint=hint
        )


def _names_below(folder: Path) -> list[str]:
    """Return the files below a folder, relative to it, without the list and what Python caches."""
    files = (path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir() or path.is_symlink())
    return sorted(str(path) for path in files if str(path) != FILES and "__pycache__" not in path.parts)


def _replace(target: Path, staging: Path) -> None:
    """Give the new folder the name of the old one. The old one, if any, gets the name ``staging``, or is removed."""
    if not os.path.exists(target):
        staging.rename(target)
    elif not _exchange(target, staging):
        with temporary_folder(target) as old:
            target.rename(Path(old) / target.name)
            try:
                staging.rename(target)
            except OSError:
                (Path(old) / target.name).rename(target)
                raise


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders in one step, so that no kill can leave the name without a folder.

    Return False where the system cannot: Linux and its usual file systems can.
    """
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    done: int = renameat2(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _RENAME_EXCHANGE)
    return done == 0
