"""``tpuconvert`` and ``python -m tpuconvert``."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
from collections.abc import Sequence

from tpuconvert.schema.system.gc_control import reduced_gc_frequency
from tpuconvert.search_path import remove_current_folder


def _terminate(number: int, _frame: object) -> None:
    """End the process as an interrupt does: child processes are killed, and temporary folders are removed."""
    raise SystemExit(128 + number)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments: Command line without the program's name. If None, use ``sys.argv`` and end the process.

    """
    if arguments is None:
        remove_current_folder()
        _open_streams()
        signal.signal(signal.SIGTERM, _terminate)
    # The matmuls are many and small, so that threads mostly wait for each other. With one thread, results do not depend
    # on the number of cores. NumPy reads the variable when it is imported. A value set by the user has precedence.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        with reduced_gc_frequency():
            # 80 ms, inside the try block so that an interrupt during the import prints no traceback.
            from tpuconvert.cli.entry import run

            code = run(sys.argv[1:] if arguments is None else list(arguments))
            if arguments is None:
                _leave(code)  # inside the block, so that the garbage collector stays idle
    except KeyboardInterrupt:  # before or after the part of run() that handles interrupts
        code = 130
        with contextlib.suppress(OSError):
            sys.stderr.write("interrupted\n")
        if arguments is None:
            _leave(code)
    return code


def check_files(arguments: Sequence[str] | None = None) -> int:
    """``tpuconvert-check FILE...``: run ``tpuconvert check`` on several models, for pre-commit hooks.

    Every file is checked, a prototxt without its weights. The result is the exit code of the first one that fails.
    """
    files = sys.argv[1:] if arguments is None else arguments
    codes = [main(["check", file]) for file in files]
    return next((code for code in codes if code), 0)


def _open_streams() -> None:
    """Connect standard streams that were closed before the start with the null device.

    Otherwise the first file that is opened gets the number of the stream, so that a message could be written to it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the smallest free number, which is this one
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - stays open
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - stays open
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 - stays open


def _leave(code: int) -> None:
    """End the process without freeing every object first: freeing takes a sixth of the time of a conversion.

    If stdout cannot be flushed, return instead: Python reports the failure at its regular exit.
    """
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        return
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
