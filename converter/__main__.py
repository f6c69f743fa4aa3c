"""``tpuconvert`` and ``python -m tpuconvert``."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments: without the program's name; those of the process when None.

    """
    try:
        from tpuconvert.cli.group import run
    except KeyboardInterrupt:  # so early that nothing else answers to it yet
        return 130
    return run(sys.argv[1:] if arguments is None else list(arguments))


if __name__ == "__main__":
    sys.exit(main())
