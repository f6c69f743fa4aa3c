"""Protection of input files: a call must not overwrite the files that it reads.

A caller opens a scope with :func:`noting_inputs`. Options that name inputs, and code that opens further files (external
data, images of a folder, preprocessing, plugins), record what they read. ``replacing``, which writes all files, refuses
a target that is one of these files, also by another path, a symbolic link or a hard link.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from contextvars import ContextVar

from tpuconvert.schema.errors import UsageError

_scopes: ContextVar[tuple[dict[str, None], ...]] = ContextVar("files that are read", default=())


@contextlib.contextmanager
def noting_inputs() -> Iterator[dict[str, None]]:
    """Record the files that are read in the block, and refuse to overwrite them inside the block.

    The keys of the mapping are absolute paths. Files recorded in an inner block belong to the outer block too.
    """
    files: dict[str, None] = {}
    token = _scopes.set((*_scopes.get(), files))
    try:
        yield files
    finally:
        _scopes.reset(token)


def note_input(path: str | os.PathLike[str]) -> None:
    """Record a file as an input of the call."""
    for files in _scopes.get():
        files[os.path.abspath(path)] = None


def refuse_input(path: str | os.PathLike[str], files: Iterable[str] = ()) -> None:
    """Refuse to write a file that is one of ``files`` or recorded in an open scope.

    Files are compared by device and inode, so that links and different paths of one file are recognized.

    Raises:
        UsageError: the file is one of them.

    """
    try:
        target = os.stat(path)
    except (OSError, ValueError):  # the target does not exist, or has no valid name
        return
    for location in {**dict.fromkeys(files), **{name: None for scope in _scopes.get() for name in scope}}:
        try:
            is_same = os.path.samestat(target, os.stat(location))
        except OSError:
            continue
        if is_same:
            shown = "" if os.path.abspath(path) == location else f": it is {location}"
            raise UsageError(
                f"this file is read, and would be replaced by the result{shown}",
                file=os.fspath(path),
                hint="name another file to write",
            )


def refuse_inputs_below(folder: str | os.PathLike[str], files: Iterable[str] = ()) -> None:
    """Refuse to replace a folder in which one of ``files`` lies, or one recorded in an open scope.

    Raises:
        UsageError: there is such a file.
    """
    try:
        target = os.path.join(os.path.realpath(folder), "")
    except (OSError, ValueError):  # no valid name, which the call refuses later
        return
    for location in {**dict.fromkeys(files), **{name: None for scope in _scopes.get() for name in scope}}:
        if "\0" not in location and os.path.realpath(location).startswith(target) and os.path.lexists(location):
            raise UsageError(
                f"this folder would be replaced, and {location} in it is read",
                file=os.fspath(folder),
                hint="name another folder to write",
            )
