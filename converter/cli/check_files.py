"""``tpuconvert-check FILE...``: run ``tpuconvert check`` on several models, for pre-commit hooks."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tpuconvert.__main__ import main as tpuconvert


def main(arguments: Sequence[str] | None = None) -> int:
    """Check every file, a prototxt without its weights. Return the exit code of the first file that fails, else 0."""
    files = sys.argv[1:] if arguments is None else arguments
    codes = [tpuconvert(["check", file]) for file in files]
    return next((code for code in codes if code), 0)
