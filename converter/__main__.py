"""``tpuconvert`` and ``python -m tpuconvert``."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence

from tpuconvert.schema.gc_control import reduced_gc_frequency


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments: without the program's name; those of the process when None, which then ends here.

    """
    # Matrix products here are many and small: threads wait for each other more than they work. And what they compute
    # does not depend on how many cores a machine has. Read when NumPy is first imported; whoever sets it is heard.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with reduced_gc_frequency():
        try:
            # 55 ms, in which an interrupt already ends the program without a traceback
            from tpuconvert.cli.entry import run
        except KeyboardInterrupt:  # so early that nothing else answers to it yet
            return 130
        code = run(sys.argv[1:] if arguments is None else list(arguments))
        if arguments is None:
            _leave(code)  # here: behind the block all the objects that were not looked at would be
    return code


def _leave(code: int) -> None:
    """End the process without freeing every object first, which takes a sixth of a conversion.

    Returns where something cannot be written any more: Python says so when it ends in its own way.
    """
    atexit._run_exitfuncs()
    try:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
    except (OSError, ValueError):
        return
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
