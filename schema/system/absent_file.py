"""The error for an input file that does not exist, with the next step."""

from __future__ import annotations

import itertools
import os

from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.text.spelling import meant, nearest
from tpuconvert.schema.text.visible_text import one_line

_MOST_ENTRIES = 10_000
"""Number of entries of a folder that are read: it may have millions of images."""

_SHOWN = 3
"""Number of files that are named."""


def absent_file(path: str | os.PathLike[str], *, or_folder: bool = False) -> UsageError:
    """Return the error for a path that does not exist.

    Its hint is the most similar name in the folder, or other files with this suffix, or the folder that is missing.

    Args:
        path: the path that was opened.
        or_folder: whether a folder was possible too.

    """
    name = os.fspath(path)
    what = "no such file or folder" if or_folder else "no such file"
    return UsageError(f"{name}: {what}", hint=_hint(name))


def _hint(path: str) -> str:
    folder, name = os.path.split(path)
    where = os.path.abspath(folder or os.curdir)
    if not os.path.isdir(where):
        while not os.path.isdir(os.path.dirname(where)):
            where = os.path.dirname(where)
        return f"there is no folder {one_line(where)}"
    try:
        with os.scandir(where) as entries:
            names = [entry.name for entry in itertools.islice(entries, _MOST_ENTRIES)]
    except OSError as error:
        return f"the folder {one_line(where)} cannot be read ({error.strerror})"
    if similar := nearest(name, names):
        return meant(one_line(os.path.join(folder, each)) for each in similar)
    suffix = os.path.splitext(name)[1].lower()
    others = sorted(each for each in names if suffix and each.lower().endswith(suffix))
    if others:
        more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
        return f"the folder {one_line(where)} has {', '.join(map(one_line, others[:_SHOWN]))}{more}"
    return f"the folder {one_line(where)} has no {suffix} file; check the path" if suffix else "check the path"
