"""Add the scripts of the example to the import path, so that tests can import them."""

import sys
from pathlib import Path

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
sys.path.insert(0, str(DIGITS))
