"""Folder for files that can be made or downloaded again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder of this program in the cache folder of the user: ``$XDG_CACHE_HOME``, or ``~/.cache``."""
    named = os.environ.get("XDG_CACHE_HOME")
    return (Path(named) if named and os.path.isabs(named) else Path.home() / ".cache") / "tpuconvert"
