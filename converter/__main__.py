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
    # Matmuls here are many and small, so that threads mostly wait for each other. With one thread results do not depend
    # on the number of cores. NumPy reads the variable when it is imported; a value of the user has precedence.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with reduced_gc_frequency():
        try:
            # 55 ms, in which an interrupt already ends the program without a traceback
            from tpuconvert.cli.entry import run
        except KeyboardInterrupt:  # so early that nothing else answers to it yet
            return 130
        code = run(sys.argv[1:] if arguments is None else list(arguments))
        if arguments is None:
            _leave(code)  # inside the block: at its end the garbage collector would visit all objects
    return code


def _leave(code: int) -> None:
    """End the process without freeing every object first, which takes a sixth of a conversion.

    Return if the output cannot be flushed: Python reports it at its regular exit.
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
