"""Programs of the tests in processes of their own: they import ``tests`` and ``tools`` from every working directory."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The checkout, from which ``tests`` and ``tools`` are imported."""


def command(module: str, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
    """Return the command line that runs a module of the tests or tools, in an :func:`environment`.

    Args:
        module: full name, such as ``tests.support.onnx.campaign``.
        arguments: of the program.
        options: of the interpreter.
    """
    return [sys.executable, *options, "-m", module, *arguments]


def environment(**variables: str) -> dict[str, str]:
    """Return the variables of this process and others, with the checkout on the import path."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **variables}
