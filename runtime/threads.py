"""Number of threads of sessions that are created without one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_thread_limit: ContextVar[int | None] = ContextVar("thread limit", default=None)


@contextmanager
def limited_threads(count: int) -> Iterator[None]:
    """Let sessions that are created in the ``with`` block use ``count`` threads if no number is given."""
    token = _thread_limit.set(count)
    try:
        yield
    finally:
        _thread_limit.reset(token)


def available_threads() -> int:
    """Number of CPUs available to this process, or the number of ``limited_threads``."""
    limit = _thread_limit.get()
    if limit is not None:
        return limit
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
