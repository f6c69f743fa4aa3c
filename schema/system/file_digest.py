"""Digest of the content of a file."""

from __future__ import annotations

import os

from tpuconvert.schema.system.bounded_files import open_regular
from tpuconvert.schema.system.content_digest import CHUNK, Digest
from tpuconvert.schema.system.file_errors import unreadable
from tpuconvert.schema.system.mapped_pages import aligned_buffer


def file_digest(path: str | os.PathLike[str]) -> str:
    """Digest of a file's content, in hexadecimal digits.

    Raises:
        UsageError: the file cannot be read.

    """
    digest = Digest()
    part = aligned_buffer(CHUNK)
    try:
        with open_regular(path) as file:
            while size := file.readinto(part):
                digest.update(part[:size])
    except OSError as error:
        raise unreadable(error, path) from error
    return digest.hexdigest()
