"""``tpuconvert`` and ``python -m tpuconvert``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from tpuconvert.schema.garbage import rarely_collected


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments: without the program's name; those of the process when None.

    """
    # Matrix products here are many and small: threads wait for each other more than they work. And what they compute
    # does not depend on how many cores a machine has. Read when NumPy is first imported; whoever sets it is heard.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with rarely_collected():
        try:
            from tpuconvert.cli.group import run
        except KeyboardInterrupt:  # so early that nothing else answers to it yet
            return 130
        return run(sys.argv[1:] if arguments is None else list(arguments))


if __name__ == "__main__":
    sys.exit(main())
