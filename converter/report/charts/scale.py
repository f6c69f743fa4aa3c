"""Linear scales from values to coordinates, and their ticks."""

from __future__ import annotations

import math
from dataclasses import dataclass

_TICKS = 5
"""Number of intervals between ticks to aim at."""


@dataclass(frozen=True)
class Scale:
    """Linear map of the values ``low`` to ``high`` to the coordinates ``start`` to ``end``.

    Args:
        low: first value.
        high: last value, above ``low``.
        start: coordinate of ``low``.
        end: coordinate of ``high``.
        step: distance of two ticks, which are multiples of it.
    """

    low: float
    high: float
    start: float
    end: float
    step: float

    @classmethod
    def covering(cls, low: float, high: float, start: float, end: float, *, ticks: int = _TICKS) -> Scale:
        """Return a scale whose ends are ticks, and which covers the values ``low`` to ``high``."""
        step = tick_step(low, high, ticks)
        first, last = math.floor(low / step), math.ceil(high / step)
        return cls(first * step, max(last, first + 1) * step, start, end, step)

    @classmethod
    def exact(cls, low: float, high: float, start: float, end: float, *, ticks: int = _TICKS) -> Scale:
        """Return a scale that ends at ``low`` and ``high``, which need not be ticks."""
        return cls(low, high if high > low else low + 1.0, start, end, tick_step(low, high, ticks))

    def at(self, value: float) -> float:
        """Return the coordinate of a value; values outside the scale are moved to its ends."""
        part = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)

    @property
    def ticks(self) -> list[float]:
        """Values of the ticks, in ascending order."""
        first = math.ceil(self.low / self.step - 1e-9)  # rounding of the division must not drop a tick at an end
        last = math.floor(self.high / self.step + 1e-9)
        return [index * self.step for index in range(first, last + 1)]

    def text(self, value: float) -> str:
        """Format a tick with the digits that the distance of the ticks needs."""
        return f"{value + 0.0:.{max(0, -math.floor(math.log10(self.step) + 1e-9))}f}"


def tick_step(low: float, high: float, ticks: int) -> float:
    """Return the distance of ticks: 1, 2 or 5 times a power of ten, with about ``ticks`` intervals in the range."""
    span = high - low
    if not span > 0.0:
        span = abs(high) or 1.0
    power = math.floor(math.log10(span / ticks))
    rest = span / ticks / 10.0**power
    factor = next((factor for factor in (1, 2, 5) if rest <= factor * 1.0001), 10)
    return factor * 10.0**power if power >= 0 else factor / 10.0**-power
