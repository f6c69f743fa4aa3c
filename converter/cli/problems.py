"""Complaints about how a command was called."""

from __future__ import annotations

from pathlib import Path


def ensure_folder(path: str | None) -> None:
    """Say early that a file cannot be written because its folder does not exist.

    Raises:
        UsageError: with the folder's name.

    """
    if path is not None:
        folder = Path(path).parent
        ensure(folder.is_dir(), f"{path}: there is no folder {folder}", hint="create it first")


def ensure(condition: bool, message: str, hint: str = "") -> None:
    """Say that the call is wrong where ``condition`` does not hold.

    Raises:
        UsageError: with the message.

    """
    if not condition:
        from tpuconvert.schema.errors import UsageError

        raise UsageError(message, hint=hint)
