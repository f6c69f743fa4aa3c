"""Calibration methods of plugins, in addition to the methods of ``ranges.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from tpuconvert.optimizer.precision_rules import AUTO, METHODS, split_method
from tpuconvert.optimizer.quantize.ranges.ranges import Range, RangeCollector
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.types import Array
from tpuconvert.schema.user_code import note_definition


class Collector(Protocol):
    """Collects the values of one tensor over samples."""

    def add(self, array: Array) -> None:
        """Add the values of one sample."""

    def result(self) -> Range:
        """Range of all samples."""


@runtime_checkable
class MergeableCollector(Collector, Protocol):
    """Collector that can be merged with another one, so that several processes can collect a part of the samples each.

    It can be pickled. ``result`` must not depend on how the samples were split, nor on the order of the merges.
    """

    def merge(self, other: Any) -> None:
        """Add the values of another collector of this class, which is not changed."""


_CALIBRATORS: dict[str, type[Collector]] = {}


def calibrators() -> tuple[str, ...]:
    """Names of all methods."""
    return (*METHODS, *sorted(_CALIBRATORS))


def collector(method: str, *, keeps_histogram: bool = False) -> Collector:
    """New collector of a registered method, such as ``mse`` or ``percentile:99.9``.

    ``keeps_histogram`` is passed to ``RangeCollector``; the methods of plugins ignore it.

    Raises:
        ValueError: ``auto``, which is one of the others for each tensor.
    """
    if method == AUTO:
        raise ValueError("auto chooses a method for each tensor; expected one of the other methods")
    name, _ = split_method(method)
    return RangeCollector(method, keeps_histogram=keeps_histogram) if name in METHODS else _CALIBRATORS[method]()


def register_calibrator(name: str) -> Callable[[type[Collector]], type[Collector]]:
    """Decorator that adds a calibration method, for ``--calibration-method NAME``.

    The class is instantiated once per tensor. ``add(array)`` is called for each sample. ``result()`` is called at the
    end and returns a ``Range``: the smallest and largest value of all samples, and the threshold for quantization.

    Raises:
        UsageError: the name is taken.

    """

    def register(kind: type[Collector]) -> type[Collector]:
        if name in calibrators():
            raise UsageError(f"there is a calibration method '{name}' already", hint="choose another name")
        note_definition(kind)
        _CALIBRATORS[name] = kind
        return kind

    return register
