"""Whether nodes are connected through values that they make and read."""

from __future__ import annotations

from collections.abc import Iterable


class Pieces:
    """Counts the connected pieces of nodes, added from the last to the first. Reading one value connects nothing."""

    def __init__(self) -> None:
        self.count = 0
        self._roots: list[int] = []
        self._readers: dict[int, list[int]] = {}

    def add(self, results: Iterable[int], operands: Iterable[int]) -> None:
        """Add a node, by the numbers of the values that it makes and reads; constants do not count."""
        step = len(self._roots)
        self._roots.append(step)
        self.count += 1
        for number in results:
            for reader in self._readers.get(number, ()):
                mine, other = self._root(step), self._root(reader)
                if mine != other:
                    self._roots[other] = mine
                    self.count -= 1
        for number in operands:
            self._readers.setdefault(number, []).append(step)

    def _root(self, step: int) -> int:
        while self._roots[step] != step:
            step = self._roots[step]
        return step
