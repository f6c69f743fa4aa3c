"""Geometry of windows along height and width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Window(NamedTuple):
    """Geometry of a convolution: values along H and W; pads are top, left, bottom, right."""

    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    groups: int = 1

    def with_least_strides(self, extents: Sequence[int], results: Sequence[int]) -> Window:
        """Return an equal window with the least stride along axes of one result, where any other has no effect.

        The compiler takes strides up to 15, which the stride of a global average exceeds.

        Args:
            extents: height and width of the operand.
            results: height and width of the result.
        """
        strides = list(self.strides)
        for axis in (0, 1):
            if results[axis] == 1:
                # Elements after the only window. A smaller stride would make a second window of them.
                reach = (self.kernel[axis] - 1) * self.dilations[axis] + 1
                rest = extents[axis] + self.pads[axis] + self.pads[2 + axis] - reach
                strides[axis] = min(strides[axis], max(rest, 0) + 1)
        return self._replace(strides=(strides[0], strides[1]))
