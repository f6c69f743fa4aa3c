"""Text to train small decoders on: the sources of Python's standard library, which every installation has.

Their license, the one of the Python Software Foundation, allows to use, copy and change them.
"""

import sysconfig
import zlib
from pathlib import Path
from typing import NamedTuple

HELD_OUT = 16
"""One of this number of files is held out."""

_SKIPPED = frozenset({"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"})
"""Folders of other licenses, and of tests, which have long tables."""


class LibraryText(NamedTuple):
    """Contents of files, in the order of their names. No file is in both parts."""

    training: list[str]
    held_out: list[str]


def read_library_text(folder: Path | None = None) -> LibraryText:
    """Return the text of the Python files of a folder, by default the one of the standard library.

    A checksum of the name of a file chooses its part, so that machines with a version of Python have the same parts.
    """
    folder = folder or Path(sysconfig.get_paths()["stdlib"])
    text = LibraryText([], [])
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder)
        if _SKIPPED.isdisjoint(name.parts):
            part = text.training if zlib.crc32(name.as_posix().encode()) % HELD_OUT else text.held_out
            part.append(path.read_text(encoding="utf-8", errors="replace"))
    return text
