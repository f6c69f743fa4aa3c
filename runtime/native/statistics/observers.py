"""Observers of runs for which the native engine collects statistics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from tpuconvert.runtime.native.statistics.channel_statistics import TensorStatistics
from tpuconvert.schema.graph.graph import Value
from tpuconvert.schema.types import Array


@dataclass(frozen=True)
class Binding:
    """The values of a plan that an observer takes.

    Args:
        plan: the plan.
        key: state of the observer when it was bound.
        values: the values and what the plan needs to load them, in the order in which they are computed.
        native: the same for the engine, with the statistics that it collects.
    """

    plan: object
    key: Hashable
    values: Sequence[tuple[Value, Any]]
    native: Any


class StatisticsObserver(ABC):
    """Observer that needs statistics of most values only.

    The native engine collects them in one call per run. Threads then hardly wait for the interpreter lock; it would be
    taken several times per step otherwise. Values without statistics, and those with elements that are not finite, are
    passed to ``__call__``, as all values are without the engine.
    """

    binding: Binding | None = None

    @abstractmethod
    def __call__(self, value: Value, array: Array) -> None:
        """Take a value; the array is valid during the call only."""

    @property
    @abstractmethod
    def key(self) -> Hashable:
        """State on which ``takes`` and ``statistics`` depend. After a change they are asked again."""

    @abstractmethod
    def takes(self, value: Value) -> bool:
        """Return False for a value that is not observed."""

    @abstractmethod
    def statistics(self, value: Value, location: Any, array: Array) -> TensorStatistics | None:
        """Return what collects the statistics of a value in the memory of the engine.

        Args:
            value: the value.
            location: where its elements are.
            array: a view of them, for its shape and strides.

        Returns:
            None to have the value passed to ``__call__``.
        """

    @abstractmethod
    def release(self) -> None:
        """Read everything that was collected; a new binding follows."""
