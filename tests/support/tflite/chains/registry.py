"""Registry of the operators of random chains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.tflite.chains.builder import Chain

BYTES = ("INT8", "UINT8")
ALL = ("INT8", "UINT8", "INT16")
ANY_RANK = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class Step:
    """An operator of a chain.

    Args:
        name: of the operator.
        apply: adds the operator to a chain, with a tensor as its first operand, or does nothing if it does not fit.
        types: that its kernel supports.
        ranks: of the first operand.
        weight: relative frequency.
    """

    name: str
    apply: Callable[[Chain, int], None]
    types: tuple[str, ...]
    ranks: tuple[int, ...]
    weight: float


_STEPS: dict[str, Step] = {}


def step(
    *types: str, name: str = "", ranks: tuple[int, ...] = ANY_RANK, weight: float = 1.0
) -> Callable[[Callable[[Chain, int], None]], Callable[[Chain, int], None]]:
    """Register a function that adds an operator; its name in capitals is the name of the operator."""

    def register(function: Callable[[Chain, int], None]) -> Callable[[Chain, int], None]:
        operator = name or function.__name__.upper()
        if operator in _STEPS:
            raise ValueError(f"two steps {operator}")
        _STEPS[operator] = Step(operator, function, types, ranks, weight)
        return function

    return register


def steps() -> list[Step]:
    """All registered steps by name."""
    return [_STEPS[name] for name in sorted(_STEPS)]
