"""Lets the tests import the scripts of the example as they import each other."""

import sys
from pathlib import Path

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
sys.path.insert(0, str(DIGITS))
