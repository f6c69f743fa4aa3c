"""Atomic replacement of files: readers see the old file or the new file, even if the writer is killed.

Files are not fsynced, so that a power failure can truncate a file that was written seconds before. This is acceptable:
the output of a conversion can be generated again, and the digest in the header detects a truncated model file.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import BinaryIO

from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.system.file_errors import unwritable
from tpuconvert.schema.system.input_files import refuse_input
from tpuconvert.schema.system.temporary_files import temporary_file


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a new file that replaces ``path`` if the block succeeds.

    Raises:
        UsageError: the file cannot be written there, or is an input of the call.
        ResourceLimitError: the disk is full.
    """
    refuse_input(path)
    try:
        target = os.path.realpath(path)  # replace the target of a symbolic link, not the link
    except ValueError as error:  # the name contains a null character
        raise UsageError(f"cannot be written: {error}", file=str(path), hint="name another file") from error
    if os.path.exists(target) and not os.path.isfile(target):
        raise UsageError("it is not a regular file", file=str(path), hint="name a file to write")
    try:
        with replacing_link(target) as file:
            yield file
    except OSError as error:
        raise unwritable(error, path) from error


@contextlib.contextmanager
def replacing_link(target: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a new file that replaces the target, or the link of that name, if the block succeeds.

    Raises:
        OSError: the file cannot be written.
    """
    with temporary_file(target) as file:
        yield file
        file.flush()
        if os.name == "nt":  # elsewhere the file stays locked until it has its name
            file.close()
        os.replace(file.name, target)
