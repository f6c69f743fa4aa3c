"""Registry of lowerings: functions that export one TPU operator to another toolchain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Node

Context = TypeVar("Context")
Operator = TypeVar("Operator", bound=Op)


class NoExactForm(Exception):
    """A node has no equivalent in the target with exactly the same integers.

    Args:
        reason: what was found and what was expected.
        hint: the next step for the user.
    """

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


class Lowerings(Generic[Context]):
    """Lowerings for one export target, by operator.

    A lowering takes the operator's definition, the node and the state of the export.
    """

    def __init__(self) -> None:
        self._functions: dict[str, Callable[[Any, Node, Context], None]] = {}

    def __call__(
        self, *operators: type[Operator]
    ) -> Callable[[Callable[[Operator, Node, Context], None]], Callable[[Operator, Node, Context], None]]:
        """Register the decorated function for these operators."""

        def register(
            function: Callable[[Operator, Node, Context], None],
        ) -> Callable[[Operator, Node, Context], None]:
            for operator in operators:
                assert operator.name not in self._functions, f"two lowerings of {operator.name}"
                self._functions[operator.name] = function
            return function

        return register

    def find(self, operator: str) -> Callable[[Any, Node, Context], None] | None:
        """Return the lowering of an operator, or None."""
        return self._functions.get(operator)

    @property
    def operators(self) -> list[str]:
        """Operators that have a lowering, sorted."""
        return sorted(self._functions)
