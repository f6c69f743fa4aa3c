"""Location of external data: the one check of every path that a model file names.

A model file is untrusted: a path in it must not make a program read (or hash, or copy to its output) unrelated files of
the machine. All code that opens external data calls :func:`external_file` first.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from io import BufferedReader
from pathlib import Path

from tpuconvert.schema.errors import CorruptInputError
from tpuconvert.schema.system.bounded_files import open_regular

_CAN_WALK = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW") and hasattr(os, "O_DIRECTORY")
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)


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
        CorruptInputError: the path is absolute, its links cannot be followed, or its file is neither in the model's
            folder nor in ``allow_root``.
    """
    file = os.path.basename(model)
    named = Path(location.replace("\\", "/"))
    if named.is_absolute() or location.startswith(("/", "\\")) or ":" in "".join(named.parts[:1]):
        hint = "ONNX demands a path relative to the model's folder: save the model with external data again"
        raise CorruptInputError(f"{owner} has external data at the absolute path '{location}'", file=file, hint=hint)
    roots = _roots(model, allow_root)
    try:
        resolved = os.path.realpath(os.path.join(roots[0], named))
    except OSError as error:  # a link was replaced while it was followed
        message = f"{owner} has external data at '{location}', whose links cannot be followed: {error.strerror}"
        hint = "convert again when no other program changes the folder"
        raise CorruptInputError(message, file=file, hint=hint) from error
    if any(Path(resolved).is_relative_to(root) for root in roots):
        return resolved
    folder = os.path.dirname(resolved)
    if allow_root is not None:
        message = f"{owner} has external data at '{location}', which is in {folder}, outside the model's folder"
        raise CorruptInputError(f"{message} and outside {roots[1]}", file=file, hint=_allow(folder))
    message = f"{owner} has external data at '{location}', outside the model's folder"
    if not os.path.normpath(named).startswith(".."):  # the path is inside the folder, but a symbolic link leads outside
        raise CorruptInputError(f"{message}: it is a link to {folder}", file=file, hint=_allow(folder))
    raise CorruptInputError(message, file=file, hint=f"only if you trust the model: {_allow(folder)}")


def _roots(model: str | os.PathLike[str], allow_root: str | os.PathLike[str] | None) -> Sequence[str]:
    """Real paths of the model's folder and of the allowed directory."""
    folder = os.path.realpath(os.path.dirname(model))
    return (folder,) if allow_root is None else (folder, os.path.realpath(allow_root))


def open_external(
    resolved: str, model: str | os.PathLike[str], allow_root: str | os.PathLike[str] | None = None
) -> BufferedReader:
    """Open a file that :func:`external_file` found.

    No link is followed below the model's folder or the allowed directory: a program that replaces a part of the path by
    a link after the check would have another file read. Windows cannot open relative to a folder and has no such check.

    Args:
        resolved: the result of :func:`external_file`.
        model: the ONNX file.
        allow_root: as for :func:`external_file`.

    Raises:
        OSError: the file cannot be opened, or a part of its path was replaced by a link.
        UsageError: it is a pipe or a device.
    """
    root = next(root for root in _roots(model, allow_root) if Path(resolved).is_relative_to(root))
    *folders, name = Path(resolved).relative_to(root).parts or ("",)
    if not _CAN_WALK:
        return open_regular(resolved)
    descriptor = os.open(root, _FOLDER)
    try:
        for folder in folders:
            outer, descriptor = descriptor, os.open(folder, _FOLDER, dir_fd=descriptor)
            os.close(outer)
        return open_regular(name, os.O_NOFOLLOW, folder=descriptor)
    finally:
        os.close(descriptor)


def _allow(folder: str) -> str:
    return f"allow that directory: --allow-root {shlex.quote(folder)}"
