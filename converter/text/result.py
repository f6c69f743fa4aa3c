"""Base of the results of the public functions: text, plain values, and the display in a notebook."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from tpuconvert.schema.text.html_text import notebook_html
from tpuconvert.schema.text.plain_values import Plain
from tpuconvert.text.styled_text import join_lines
from tpuconvert.text.text_format import shorten

LONGEST = 120
"""Length above which the first line of a result is shortened in its ``repr``."""


class Result(Plain, ABC):
    """Result of a public function. ``to_dict()`` returns the plain values that the command prints with ``--json``.

    ``str(result)`` gives the lines that the command prints, ``repr(result)`` the first of them. Derived classes are
    frozen dataclasses with ``repr=False``.
    """

    @abstractmethod
    def lines(self) -> list[str]:
        """Return the text of the command, line by line."""

    def _notebook(self) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
        """Return the lines and the table that a notebook shows. The first row of the table is its heading."""
        return self.lines(), ()

    def __str__(self) -> str:
        return join_lines(self.lines())

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {shorten(self.lines()[0].strip(), LONGEST)}>"

    def _repr_html_(self) -> str:
        return notebook_html(*self._notebook())
