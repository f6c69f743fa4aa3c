"""Workers: run the shards of a task in this process, in its threads, in other processes, or on a cluster.

A task is a pure function of its shard, and the results of shards merge exactly in any order. Therefore the result does
not depend on the number of workers or shards, on the order in which shards finish, or on shards that run twice.
"""

from __future__ import annotations

import functools
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from tpuconvert.schema.errors import TpuConvertError

ATTEMPTS = 4
"""Number of times that a shard runs if the workers that run it end, before this is an error."""

S = TypeVar("S")
R = TypeVar("R")
S_contra = TypeVar("S_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)


class Task(Protocol[S_contra, R_co]):
    """Function of a shard that can be pickled. It is sent to every worker once and may keep what it prepares.

    A thread gets ``copy.copy(task)``, which has nothing in common with the task that a run changes.
    """

    def run(self, shard: S_contra, progress: Callable[[int], None]) -> R_co:
        """Return the result of a shard.

        Args:
            shard: content of the shard.
            progress: called with the number of steps done.
        """


@dataclass(frozen=True)
class Shard(Generic[S]):
    """A part of the work.

    Args:
        name: description for messages, such as ``samples 8 to 15``.
        size: number of steps for the progress.
        content: argument of the task; it can be pickled.
        worker: number of the worker that runs the shard if it can, so that it finds what it kept of an earlier one.
    """

    name: str
    size: int
    content: S
    worker: int | None = None


@dataclass(frozen=True)
class Failure:
    """A shard without a result: its error, which names the shard if its workers ended ``ATTEMPTS`` times."""

    error: TpuConvertError


class Workers(ABC):
    """Workers that run shards. As a context manager it stops them at the end, also after an error or Ctrl-C."""

    count = 1
    """Number of shards that run at the same time."""

    shards_per_worker = 4
    """Number of shards into which the work of one worker is split: more of them balance workers of different speed."""

    _last: tuple[object, bytes] | None = None

    def _pickled(self, task: object) -> bytes:
        """Pickle a task, once if it is used again. Equal tasks are the same bytes object."""
        if self._last is None or self._last[0] is not task:
            self._last = task, pickle.dumps(task, protocol=pickle.HIGHEST_PROTOCOL)
        return self._last[1]

    @abstractmethod
    def results(
        self, task: Task[S, R], shards: Sequence[Shard[S]], progress: Callable[[int, int], None]
    ) -> Iterator[tuple[int, R | Failure]]:
        """Yield the index and the result of every shard, in any order; the same one may be repeated.

        Args:
            task: the function.
            shards: its arguments.
            progress: called with the index of a shard and the number of its steps done, where they are known.
        """

    def map(
        self, task: Task[S, R], shards: Sequence[Shard[S]], progress: Callable[[int], None] | None = None
    ) -> Iterator[tuple[int, R]]:
        """Yield the index and the result of every shard once, in the order in which they finish.

        Args:
            task: the function.
            shards: its arguments.
            progress: called with the number of steps done by all workers.

        Raises:
            TpuConvertError: a shard failed, or its workers ended ``ATTEMPTS`` times; the message names the shard.
        """
        for index, result in self.outcomes(task, shards, progress):
            if isinstance(result, Failure):
                raise result.error
            yield index, result

    def map_in_order(
        self, task: Task[S, R], shards: Sequence[Shard[S]], progress: Callable[[int], None] | None = None
    ) -> Iterator[R]:
        """Yield the results in the order of the shards. The arguments and errors are the same as for ``map``."""
        early: dict[int, R] = {}
        following = 0
        for index, result in self.map(task, shards, progress):
            early[index] = result
            while following in early:
                yield early.pop(following)
                following += 1

    def outcomes(
        self, task: Task[S, R], shards: Sequence[Shard[S]], progress: Callable[[int], None] | None = None
    ) -> Iterator[tuple[int, R | Failure]]:
        """Yield what ``map`` yields, but a shard that failed as a ``Failure``. It does not stop the others."""
        delivered: set[int] = set()
        done = [0] * len(shards)

        def advance(index: int, steps: int) -> None:
            if steps > done[index]:  # a shard that runs again begins with its first step
                done[index] = steps
                if progress is not None:
                    progress(sum(done))

        for index, result in self.results(task, shards, advance):
            if index in delivered:
                continue
            delivered.add(index)
            advance(index, shards[index].size)
            yield index, result
            if len(delivered) == len(shards):
                return

    @abstractmethod
    def close(self) -> None:
        """Stop the workers."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ThisProcess(Workers):
    """The calling process, which runs the shards one after the other."""

    def results(
        self, task: Task[S, R], shards: Sequence[Shard[S]], progress: Callable[[int, int], None]
    ) -> Iterator[tuple[int, R | Failure]]:
        """Yield the results in the order of the shards."""
        for index, shard in enumerate(shards):
            yield index, task.run(shard.content, functools.partial(progress, index))

    def close(self) -> None:
        """Do nothing."""


def bounds(count: int, parts: int) -> list[tuple[int, int]]:
    """Split ``range(count)`` into at most ``parts`` ranges [start, end) whose lengths differ by at most 1."""
    parts = min(count, parts)
    return [(count * part // parts, count * (part + 1) // parts) for part in range(parts)]
