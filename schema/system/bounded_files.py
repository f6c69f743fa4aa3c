"""Reading of whole small files: only regular files, and only up to a limit."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader

from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.system.limits import current_limits, exceeded

_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
"""Without ``O_NONBLOCK``, opening a pipe would wait for a writer."""


def open_regular(path: str | os.PathLike[str], flags: int = 0, folder: int | None = None) -> BufferedReader:
    """Open a regular file for reading: not a pipe, device or folder.

    Args:
        path: the file.
        flags: further flags of ``os.open``, e.g. ``os.O_NOFOLLOW``.
        folder: descriptor of the folder to which the path is relative, instead of the working directory.

    Raises:
        OSError: the file cannot be opened.
        UsageError: it is a pipe or a device.
    """
    try:
        descriptor = os.open(path, _FLAGS | flags, dir_fd=folder)
    except ValueError as error:  # the name contains a null character
        raise OSError(errno.EINVAL, str(error), os.fspath(path)) from error
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise UsageError("is a pipe or a device, not a file", file=os.fspath(path), hint="save it to a file first")
        if stat.S_ISDIR(mode):  # open() would name the descriptor
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        return open(descriptor, "rb")
    except Exception:  # after an interrupt, the file object may have closed the descriptor already
        os.close(descriptor)
        raise


def check_regular(path: str | os.PathLike[str]) -> None:
    """Refuse a pipe or a device with the errors of :func:`open_regular`, for code that opens the file itself."""
    open_regular(path).close()


def read_bounded(path: str | os.PathLike[str]) -> bytes:
    """Read a file of at most ``max_text_bytes``.

    Raises:
        OSError: the file cannot be read.
        UsageError: it is a pipe or a device.
        ResourceLimitError: it is larger.
    """
    with open_regular(path) as file:
        content = file.read(current_limits().max_text_bytes + 1)
        if len(content) > current_limits().max_text_bytes:
            size = os.fstat(file.fileno()).st_size
            raise exceeded(f"{size:,} bytes of text", "max_text_bytes", file=os.fspath(path))
        return content


def read_text(path: str | os.PathLike[str], encoding: str = "utf-8") -> str:
    """Read a text of at most ``max_text_bytes``. Line ends become line feeds.

    Raises:
        OSError: the file cannot be read.
        UnicodeDecodeError: the file has another encoding.
        UsageError: it is a pipe or a device.
        ResourceLimitError: it is larger.
    """
    return read_bounded(path).decode(encoding).replace("\r\n", "\n").replace("\r", "\n")
