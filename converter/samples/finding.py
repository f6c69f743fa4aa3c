"""A warning of the doctor."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """A warning: what was seen, what was expected, and what to change.

    Args:
        id: stable name of the check, for programs.
        seen: the measurement as text.
        expected: the values that correct preprocessing gives, as text.
        advice: the option or the samples that the user should change.

    """

    id: str
    seen: str
    expected: str
    advice: str

    def __str__(self) -> str:
        return f"{self.seen}; expected {self.expected}; {self.advice}"
