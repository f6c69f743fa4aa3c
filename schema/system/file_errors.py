"""Convert errors of the operating system about a file to errors of tpuconvert, with the next step."""

from __future__ import annotations

import errno
import os

from tpuconvert.schema.errors import ResourceLimitError, TpuConvertError, UsageError
from tpuconvert.schema.system.absent_file import absent_file
from tpuconvert.schema.text.visible_text import one_line

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_DENIED = (errno.EACCES, errno.EPERM)
_DAMAGED = (errno.EIO, errno.EBADMSG)
_IN_THE_WAY = (errno.EEXIST, errno.ENOTDIR)
_OTHER_PATH = "a file is where a folder is needed: name another path"


def is_disk_full(error: OSError) -> bool:
    """Return True if an error means that the disk is full or the user's quota is exceeded."""
    return error.errno in _FULL


def unreadable(error: OSError, path: str | os.PathLike[str] = "", hint: str = "") -> UsageError:
    """Return the error for a file or folder that cannot be read.

    Args:
        error: the error of the operating system.
        path: the file. Default: the one that the error names.
        hint: the next step, if it is another one for this file.

    """
    name = os.fspath(path) or str(error.filename or "")
    if isinstance(error, FileNotFoundError) and not hint:
        return absent_file(name)
    return UsageError(f"cannot be read ({_reason(error)})", file=name, hint=hint or _reading_hint(error, name))


def unwritable(error: OSError, path: str | os.PathLike[str]) -> TpuConvertError:
    """Return the error for a file or folder that cannot be written."""
    message = f"cannot be written ({_reason(error)})"
    if is_disk_full(error):
        return ResourceLimitError(message, file=os.fspath(path), hint="free space, then try again")
    return UsageError(message, file=os.fspath(path), hint=_writing_hint(error, os.path.dirname(path)))


def file_error(error: OSError) -> TpuConvertError:
    """Return the error for a call of the operating system of which only the error is known."""
    if is_disk_full(error):
        hint = "free space, then try again"
        return ResourceLimitError(_reason(error), file=str(error.filename or ""), hint=hint)
    if isinstance(error, FileNotFoundError) and error.filename:
        return absent_file(os.fsdecode(error.filename))
    name = str(error.filename or "")
    return UsageError(_reason(error), file=name, hint=_reading_hint(error, name))


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _writing_hint(error: OSError, folder: str | bytes) -> str:
    if error.errno in _IN_THE_WAY:
        return _OTHER_PATH
    if error.errno == errno.ENAMETOOLONG:
        return "choose a shorter name"
    is_missing = isinstance(error, FileNotFoundError) and not os.path.isdir(folder or os.curdir)
    return "create its folder first" if is_missing else "choose a folder that you may write to"


def _reading_hint(error: OSError, path: str) -> str:
    if isinstance(error, IsADirectoryError):
        return "it is a folder: name a file in it"
    if error.errno in _DENIED:
        return f"your user needs permission for it and for the folders above it: see {one_line(_first_closed(path))}"
    if error.errno in _IN_THE_WAY:
        return _OTHER_PATH
    if error.errno in _DAMAGED:
        return "the disk or the network reports a fault: copy the file again"
    return "check the path"


def _first_closed(path: str) -> str:
    """Return the first folder on the way to a path that may not be entered, or else the path."""
    folders = [os.path.abspath(path)]
    while (above := os.path.dirname(folders[-1])) != folders[-1]:
        folders.append(above)
    return next((folder for folder in reversed(folders[1:]) if not os.access(folder, os.X_OK)), path)
