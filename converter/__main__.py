"""``tpuconvert`` and ``python -m tpuconvert``."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence

from tpuconvert.schema.gc_control import reduced_gc_frequency
from tpuconvert.search_path import remove_current_folder


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments: Command line without the program's name. If None, use ``sys.argv`` and end the process.

    """
    if arguments is None:
        remove_current_folder()
    # The matmuls are many and small, so that threads mostly wait for each other. With one thread, results do not depend
    # on the number of cores. NumPy reads the variable when it is imported. A value set by the user has precedence.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with reduced_gc_frequency():
        try:
            # The import takes 55 ms. It is inside the try block so that an interrupt during it prints no traceback.
            from tpuconvert.cli.entry import run

            code = run(sys.argv[1:] if arguments is None else list(arguments))
        except KeyboardInterrupt:  # before or after the part of run() that handles interrupts
            code = 130
        if arguments is None:
            _leave(code)  # inside the block, so that the garbage collector stays idle
    return code


def _leave(code: int) -> None:
    """End the process without freeing every object first: freeing takes a sixth of the time of a conversion.

    If the output cannot be flushed, return instead: Python reports the failure at its regular exit.
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
