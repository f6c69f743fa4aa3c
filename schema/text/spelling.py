"""Hints for misspelled names."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most similar to a name, or an empty string if none is similar.

    Case, spaces, dashes and underscores are ignored: ``conv_2d`` finds ``Conv2D``.
    """
    import difflib  # 2 ms, only required for unknown names

    names = {_plain(each): each for each in sorted(known, reverse=True)}
    matches = difflib.get_close_matches(_plain(name), names, 1, 0.75)
    return names[matches[0]] if matches else ""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint with the most similar known name, or an empty string if none is similar."""
    closest = nearest(name, known)
    return f"did you mean '{closest}'?" if closest else ""


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter not in "-_ ") or name
