"""Replacing a file in one step: at every moment there is the old file or the new one.

That holds for everybody who looks, and for a writer that is killed. It is not waited for the disk, as no compiler does:
after a loss of power a file that was written seconds before may be short or empty. What a conversion writes is made
again from its source, and a model file that is not whole does not fit the digest in its header.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import BinaryIO

from tpuconvert.schema.errors import ResourceLimitError, TpuConvertError, UsageError
from tpuconvert.schema.input_files import refuse_input

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of ``path`` when the block ends well.

    Raises:
        UsageError: the file cannot be written there, or is one that the call reads.
        ResourceLimitError: the disk is full.
    """
    refuse_input(path)
    target = os.path.realpath(path)  # a link stays one
    if os.path.exists(target) and not os.path.isfile(target):
        raise UsageError("it is not a regular file", file=str(path), hint="name a file to write")
    try:
        with _new_file(target) as file:
            yield file
    except OSError as error:
        raise _write_error(error, path) from error


@contextlib.contextmanager
def _new_file(target: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A new file that takes the target's place when the block ends well, and is removed when it does not."""
    folder, name = os.path.split(target)
    temporary = os.path.join(folder, f".{name}.{os.urandom(8).hex()}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _write_error(error: OSError, path: str | os.PathLike[str]) -> TpuConvertError:
    reason = error.strerror or str(error)
    if error.errno in _FULL:
        return ResourceLimitError(f"cannot be written: {reason}", file=str(path), hint="free space, then try again")
    missing = isinstance(error, FileNotFoundError)
    hint = "create its folder first" if missing else "choose a folder that you may write to"
    return UsageError(f"cannot be written: {reason}", file=str(path), hint=hint)
