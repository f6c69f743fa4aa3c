"""Geometry of windows along height and width."""

from __future__ import annotations

from typing import NamedTuple


class Window(NamedTuple):
    """Geometry of a convolution: values along H and W; pads are top, left, bottom, right."""

    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    groups: int = 1
