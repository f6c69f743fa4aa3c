"""Location of external data: the one check of every path that a model file names.

A model file is untrusted: a path in it must not make a program read (or hash, or copy to its output) unrelated files of
the machine. All code that opens external data calls :func:`external_file` first.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from tpuconvert.schema.errors import CorruptInputError


def external_file(
    model: str | os.PathLike[str],
    location: str,
    allow_root: str | os.PathLike[str] | None = None,
    *,
    owner: str = "the model",
) -> str:
    """Return the real path of a file of external data, after resolving all links.

    Args:
        model: the ONNX file.
        location: the path that the model file states, relative to its folder.
        allow_root: a directory that files may be in besides the model's folder. Hugging Face's cache needs it: its
            snapshots hold links to ``blobs``.
        owner: description of the data for messages, such as ``constant 'w'``.

    Raises:
        CorruptInputError: the path is absolute, or its file is neither in the model's folder nor in ``allow_root``.
    """
    file = os.path.basename(model)
    named = Path(location.replace("\\", "/"))
    if named.is_absolute() or location.startswith(("/", "\\")) or ":" in "".join(named.parts[:1]):
        hint = "ONNX demands a path relative to the model's folder: save the model with external data again"
        raise CorruptInputError(f"{owner} has external data at the absolute path '{location}'", file=file, hint=hint)
    folder = os.path.realpath(os.path.dirname(model))
    resolved = os.path.realpath(os.path.join(folder, named))
    roots = [folder] if allow_root is None else [folder, os.path.realpath(allow_root)]
    if any(Path(resolved).is_relative_to(root) for root in roots):
        return resolved
    place = os.path.dirname(resolved)
    if allow_root is not None:
        found = f"{owner} has external data at '{location}', which is in {place}, outside the model's folder"
        raise CorruptInputError(f"{found} and outside {roots[1]}", file=file, hint=_allow(place))
    found = f"{owner} has external data at '{location}', outside the model's folder"
    if not os.path.normpath(named).startswith(".."):  # the path is inside the folder, but a symbolic link leads outside
        raise CorruptInputError(f"{found}: it is a link to {place}", file=file, hint=_allow(place))
    raise CorruptInputError(found, file=file, hint=f"only if you trust the model: {_allow(place)}")


def _allow(place: str) -> str:
    return f"allow that directory: --allow-root {shlex.quote(place)}"
