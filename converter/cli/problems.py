"""Complaints about how a command was called."""

from __future__ import annotations


def ensure(condition: bool, message: str, hint: str = "") -> None:
    """Say that the call is wrong where ``condition`` does not hold.

    Raises:
        UsageError: with the message.

    """
    if not condition:
        from tpuconvert.schema.errors import UsageError

        raise UsageError(message, hint=hint)
