"""Calibration methods of plugins, in addition to those of ``ranges.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast, get_args

from tpuconvert.optimizer.quantize.ranges import Method, Range, RangeCollector
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.types import Array

OWN: tuple[str, ...] = get_args(Method)


class Collector(Protocol):
    """Collects the values of one tensor over samples."""

    def add(self, array: Array) -> None:
        """Add the values of one sample."""

    def result(self) -> Range:
        """Range of all samples."""


_CALIBRATORS: dict[str, type[Collector]] = {}


def add_calibrator(name: str) -> Callable[[type[Collector]], type[Collector]]:
    """Register a class under a name.

    Raises:
        UsageError: the name is taken.

    """

    def register(kind: type[Collector]) -> type[Collector]:
        if name in OWN or name in _CALIBRATORS:
            raise UsageError(f"there is a calibration method '{name}' already", hint="choose another name")
        _CALIBRATORS[name] = kind
        return kind

    return register


def calibrators() -> tuple[str, ...]:
    """Names of all methods."""
    return (*OWN, *sorted(_CALIBRATORS))


def collector(method: str) -> Collector:
    """New collector of a registered method."""
    return RangeCollector(cast(Method, method)) if method in OWN else _CALIBRATORS[method]()
