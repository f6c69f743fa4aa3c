"""Hints for misspelled names."""

from __future__ import annotations

from collections.abc import Iterable

_LEAST_ALIKE = 0.75
"""Smallest ratio of equal letters of similar names (``difflib.SequenceMatcher.ratio``)."""


def nearest(name: str, candidates: Iterable[str], limit: int = 1) -> list[str]:
    """Return the candidates that are most similar to a name, at most ``limit`` of them.

    Case, spaces, dashes and underscores are ignored: ``conv_2d`` finds ``Conv2D``.
    """
    import difflib  # 2 ms, only required for unknown names

    names = {_plain(each): each for each in sorted(candidates, reverse=True)}
    return [names[each] for each in difflib.get_close_matches(_plain(name), names, limit, _LEAST_ALIKE)]


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return a hint with the most similar candidate, or an empty string if none is similar."""
    return meant(nearest(name, candidates))


def meant(names: Iterable[str]) -> str:
    """Return the hint with these names; empty if there are none."""
    listed = " or ".join(f"'{each}'" for each in names)
    return f"did you mean {listed}?" if listed else ""


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter not in "-_ ") or name
