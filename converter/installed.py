"""Metadata of installed packages, read from their folders.

Importing ``importlib.metadata`` takes longer than the conversion of a small network, so that it is imported only if a
package may have entry points.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterable

NAME = "tpuconvert"

PAGES = "https://github.com/tpuconvert/tpuconvert/blob/main/docs"
"""Address of the documentation."""


def version() -> str:
    """Return the version in the metadata of the installed package."""
    for folder in _metadata_folders():
        if os.path.basename(folder).startswith(f"{NAME}-"):
            for line in _text(os.path.join(folder, "METADATA")).splitlines():
                if line.startswith("Version:"):
                    return line.partition(":")[2].strip()
    from importlib import metadata

    return metadata.version(NAME)


def may_have_entry_points(group: str) -> bool:
    """Return True if an installed package may have entry points of a group; False is certain."""
    if any(os.path.isfile(location) for location in sys.path):
        return True  # a zip archive on the path may contain packages; it is not searched here
    return any(group in _text(os.path.join(folder, "entry_points.txt")) for folder in _metadata_folders())


def _metadata_folders() -> Iterable[str]:
    return _folders_in(tuple(sys.path))


@functools.cache
def _folders_in(locations: tuple[str, ...]) -> list[str]:
    """Return the metadata folders of installed packages. Cached: packages do not change while a program runs."""
    folders: list[str] = []
    for location in locations:
        try:
            names = os.listdir(location or os.curdir)
        except OSError:
            continue
        folders += (os.path.join(location, name) for name in names if name.endswith((".dist-info", ".egg-info")))
    return folders


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
