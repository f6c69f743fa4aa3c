"""The files that a call reads, and the one check that it writes over none of them.

A caller opens a scope with :func:`noting_inputs`. Options that name inputs, and readers of files that are found on the
way (external data, images of a folder, preprocessing, plugins), note what they read. ``replacing``, through which every
file is written, then refuses a target that is one of these files: by another path, through a link, or as a hard link.
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
    """Collect the files that are read in the block, and refuse to write over them in it.

    The keys of the mapping are their absolute paths. Files noted in an inner block belong to the outer one as well.
    """
    files: dict[str, None] = {}
    token = _scopes.set((*_scopes.get(), files))
    try:
        yield files
    finally:
        _scopes.reset(token)


def note_input(path: str | os.PathLike[str]) -> None:
    """Note a file that is read, or is going to be."""
    for files in _scopes.get():
        files[os.path.abspath(path)] = None


def refuse_input(path: str | os.PathLike[str], files: Iterable[str] = ()) -> None:
    """Refuse to write a file that is one of ``files``, or was noted in a scope that is open.

    Files are compared by device and inode: spellings, links and, on file systems that ignore it, the case of letters
    make no difference.

    Raises:
        UsageError: it is one of them.

    """
    try:
        target = os.stat(path)
    except OSError:  # there is no file that could be lost
        return
    for place in {**dict.fromkeys(files), **{name: None for scope in _scopes.get() for name in scope}}:
        try:
            is_same = os.path.samestat(target, os.stat(place))
        except OSError:
            continue
        if is_same:
            shown = "" if os.path.abspath(path) == place else f": it is {place}"
            raise UsageError(
                f"this file is read, and would be replaced by the result{shown}",
                file=os.fspath(path),
                hint="name another file to write",
            )
