"""A process of its own for one engine, which answers requests over a pipe."""

from __future__ import annotations

import multiprocessing
import textwrap
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self


class EngineError(Exception):
    """An engine is missing or failed, with the reason."""


def in_short(error: Exception) -> str:
    """Return the type of an error and the beginning of its message, in one line."""
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {textwrap.shorten(words, 160, placeholder=' ...')}"


class EngineProcess:
    """Client of a process, as a context manager that ends it.

    Args:
        label: label of the engine, for messages.
        serve: function that answers requests until its pipe, the first argument, is closed. An answer that is an
            ``EngineError`` is raised here.
        arguments: its further arguments.

    Raises:
        EngineError: the process answered with one, or it ended.
    """

    def __init__(self, label: str, serve: Callable[..., None], *arguments: Any) -> None:
        self._label = label
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=serve, args=(other, *arguments), daemon=True)
        self._process.start()
        other.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pipe.close()
        self._process.join(timeout=30)
        if self._process.is_alive():
            self._process.kill()

    def _ask(self, request: Any) -> Any:
        try:
            self._pipe.send(request)
            answer = self._pipe.recv()
        except (EOFError, BrokenPipeError) as error:
            self._process.join(timeout=5)
            raise EngineError(f"{self._label}: the process ended with {self._process.exitcode}") from error
        if isinstance(answer, EngineError):
            raise answer
        return answer
