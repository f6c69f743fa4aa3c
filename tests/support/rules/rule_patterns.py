"""A function for every rule that adds its pattern to a graph, with random numbers, axes and equivalent forms.

A function gets a ``Draw`` and the value to build on, of the shape that it declares, and returns its result. They are in
the files ``*_patterns.py`` here. ``MOVES`` are the rules whose patterns only move or select elements; they are
tested on integers too.
"""

import importlib
from pathlib import Path

from tests.support.rules.rule_draws import MOVES, PATTERNS, Draw

for _path in sorted(Path(__file__).parent.glob("*_patterns.py")):
    if _path.stem != "rule_patterns":
        importlib.import_module(f"{__spec__.parent}.{_path.stem}")

__all__ = ["MOVES", "PATTERNS", "Draw"]
