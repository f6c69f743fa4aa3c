"""Generic names for the parts of a model."""

from __future__ import annotations

from collections.abc import Iterable


class GenericNames:
    """New names, by kind: a letter and a number.

    Args:
        unchanged: names of tensors that stay.

    """

    def __init__(self, unchanged: Iterable[str]) -> None:
        self.tensors: dict[str, str] = {name: name for name in unchanged}
        self.extents: dict[str, str] = {}
        self._taken = set(self.tensors.values())
        self._counts: dict[str, int] = {}

    def new(self, letter: str) -> str:
        """Return the next name with a letter."""
        while True:
            number = self._counts.get(letter, 0)
            self._counts[letter] = number + 1
            if f"{letter}{number}" not in self._taken:
                return f"{letter}{number}"

    def tensor(self, name: str, letter: str = "t") -> str:
        """Return the new name of a tensor."""
        if name and name not in self.tensors:
            self.tensors[name] = self.new(letter)
        return self.tensors[name] if name else ""

    def extent(self, name: str) -> str:
        """Return the new name of a symbolic extent."""
        return self.extents.setdefault(name, f"d{len(self.extents)}")
