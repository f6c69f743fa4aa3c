"""Registry of the steps of which a random graph consists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.support.onnx.random_graphs.drawing import Drawing

Function = Callable[[Drawing], object]


@dataclass(frozen=True)
class Registered:
    """A step: a function that adds nodes to a graph, its weight, and whether INT8 campaigns use it."""

    function: Function
    weight: float
    is_calm: bool


STEPS: dict[str, Registered] = {}


def step(weight: float = 1.0, *, calm: bool = True) -> Callable[[Function], Function]:
    """Register a function under its name."""

    def register(function: Function) -> Function:
        STEPS[function.__name__] = Registered(function, weight, calm)
        return function

    return register
