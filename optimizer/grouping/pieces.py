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
        roots, readers = self._roots, self._readers
        step = len(roots)
        mine = -1
        for number in results:
            for reader in readers.pop(number, ()):
                while roots[reader] != reader:
                    reader = roots[reader]
                if mine < 0:
                    mine = reader
                elif mine != reader:
                    roots[reader] = mine
                    self.count -= 1
        if mine < 0:
            mine = step
            self.count += 1
        roots.append(mine)
        for number in operands:
            known = readers.get(number)
            if known is None:
                readers[number] = [step]
            else:
                known.append(step)
