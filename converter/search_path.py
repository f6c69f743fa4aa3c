"""The folders in which Python searches modules, without the current folder.

This module imports only modules that are built into the interpreter, so that nothing of the current folder is executed
before the folder is removed from the path.
"""

import os
import sys


def path_without_current_folder() -> list[str]:
    """Return the entries of ``sys.path`` except the current folder, unless it is where this package is installed."""
    return [entry for entry in sys.path if entry and not _is_current_folder(entry)]


def remove_current_folder() -> None:
    """Remove the current folder from ``sys.path``.

    ``python -m`` and an empty or relative entry of PYTHONPATH put it there. A model file may have been unpacked there
    together with a ``numpy.py``.
    """
    sys.path[:] = path_without_current_folder()


def _is_current_folder(entry: str) -> bool:
    package = os.path.dirname(os.path.realpath(__file__))
    try:
        is_current = os.path.realpath(entry) == os.path.realpath(os.curdir)
    except OSError:  # the current folder was removed
        return False
    return is_current and os.path.realpath(os.path.join(entry, "tpuconvert")) != package
