"""Hints for misspelled names."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most like a name; an empty text where none is alike.

    Case, dashes and underscores do not count: ``conv_2d`` finds ``Conv2D``.
    """
    import difflib  # 2 ms, only for names that are wrong

    names = {_plain(each): each for each in sorted(known, reverse=True)}
    found = difflib.get_close_matches(_plain(name), names, 1, 0.75)
    return names[found[0]] if found else ""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint with the nearest known name; an empty text where none is alike."""
    found = nearest(name, known)
    return f"did you mean '{found}'?" if found else ""


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter not in "-_ ") or name
