"""For every rule a function that puts its pattern into a graph, with numbers, axes and spellings drawn at random.

A function gets a ``Draw`` and the value to build on, of the shape that it declares, and returns its result. ``MOVES``
are the rules whose patterns only move elements or choose among them: they run on integers too.
"""

from optimizer.rule_draws import MOVES, PATTERNS, Draw

from optimizer import (  # noqa: F401  they fill the list
    condition_patterns,
    folding_patterns,
    fusing_patterns,
    layout_patterns,
    spelling_patterns,
)

__all__ = ["MOVES", "PATTERNS", "Draw"]
