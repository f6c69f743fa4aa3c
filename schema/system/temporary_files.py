"""Temporary files and folders beside a target, and removal of those whose writer was killed."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from typing import Any

try:
    import fcntl
except ImportError:  # Windows: temporary files of killed writers stay
    fcntl = None  # type: ignore[assignment]

_MOST_BYTES = 200
"""Bytes of a target's name in the name of its temporary file, which has 22 more; file systems allow 255."""

_made: dict[str, int] = {}
"""Names of the temporary files and folders that exist, with the process that made them."""

_OPEN = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


@contextlib.contextmanager
def temporary_file(target: str | os.PathLike[str]) -> Iterator[Any]:
    """Open a new binary file beside the target; its name is ``file.name``. It is removed if it still exists at the end.

    It stays locked while it is open. Unlocked ones, left by writers of the target that were killed, are removed first.
    """
    remove_abandoned(target)
    while True:
        name = _new_name(target)
        try:
            with open(name, "xb") as file:
                if not _lock_new(name, file.fileno()):
                    continue
                yield file
                return
        finally:
            _remove_file(name)


@contextlib.contextmanager
def temporary_folder(target: str | os.PathLike[str]) -> Iterator[str]:
    """Create a folder beside the target. It is removed at the end; files that killed writers left are removed first."""
    remove_abandoned(target)
    while True:
        name = _new_name(target)
        try:
            os.mkdir(name, 0o700)
            with _opened(name) as descriptor:
                if descriptor is not None and not _lock_new(name, descriptor):
                    continue
                if not os.path.isdir(name):  # another process removed it before it could be opened
                    continue
                yield name
                return
        finally:
            _remove_folder(name)


@atexit.register
def remove_made() -> None:
    """Remove what an interrupt left: Ctrl-C may come while a temporary file or folder is removed."""
    for name, process in list(_made.items()):
        if process == os.getpid():
            (_remove_folder if os.path.isdir(name) else _remove_file)(name)


def _remove_file(name: str) -> None:
    try:
        os.unlink(name)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError:  # such as a path that is too long: there is nothing to remove at the end of the process
        _made.pop(os.path.abspath(name), None)
        raise
    _made.pop(os.path.abspath(name), None)


def _remove_folder(name: str) -> None:
    shutil.rmtree(name, ignore_errors=True)
    _made.pop(os.path.abspath(name), None)


def remove_abandoned(target: str | os.PathLike[str]) -> None:
    """Remove temporary files and folders of the target that no process has locked."""
    if fcntl is None:
        return
    folder, name = _split(os.path.abspath(target))
    pattern = re.compile(rf"\.{re.escape(name)}\.[0-9a-f]{{16}}\.tmp", re.DOTALL)
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in [entry for entry in entries if pattern.fullmatch(entry.name)]:
            with _opened(entry.path) as descriptor:
                if descriptor is None or not _lock(descriptor):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    with contextlib.suppress(OSError):
                        os.unlink(entry.path)


def _new_name(target: str | os.PathLike[str]) -> str:
    folder, name = _split(target)
    path = os.path.join(folder, f".{name}.{os.urandom(8).hex()}.tmp")
    _made[os.path.abspath(path)] = os.getpid()
    return path


def _split(target: str | os.PathLike[str]) -> tuple[str, str]:
    """Return the folder of a target, and the part of its name that its temporary files have."""
    folder, name = os.path.split(os.fspath(target))
    while len(os.fsencode(name)) > _MOST_BYTES:
        name = name[:-1]
    return folder, name


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int | None]:
    """Descriptor of a file or folder; None if it cannot be opened, or on Windows."""
    try:
        descriptor = None if fcntl is None else os.open(path, _OPEN)
    except OSError:
        descriptor = None
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Lock a file until its descriptor is closed. Return False if another descriptor has the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # also on file systems without locks
        return False
    return True


def _lock_new(name: str, descriptor: int) -> bool:
    """Lock a new file. Return False if another process removed it before, as abandoned."""
    if fcntl is not None:
        _lock(descriptor)
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(name))
    except FileNotFoundError:
        return False
