"""Programs of the vendor as child processes: output in a log file, a time limit, no process left after an interrupt."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

KILLED_SECONDS = 10.0
"""Time in which a killed process must end: the system cannot end one that waits for a device."""

SPACE_BYTES = 1 << 16
"""Bytes that a disk has room for, unless a write failed because it was full: that write filled it."""

COMMAND = "+ "
"""Beginning of the line of a log with a command, before its output."""


@dataclass(frozen=True)
class Ended:
    """End of a process.

    Args:
        code: exit code, negative for the number of a signal; None if the time limit ended it.
        seconds: wall time.
    """

    code: int | None
    seconds: float


def run_program(
    command: Sequence[str], log: Path, *, folder: Path, limit: float, variables: Mapping[str, str] | None = None
) -> Ended:
    """Run a command, and append the command and its output to a log file.

    Args:
        command: program and arguments.
        log: file for stdout and stderr.
        folder: working folder.
        limit: seconds after which it is killed, with all processes that it started.
        variables: further environment variables.

    Raises:
        OSError: the program cannot be started.
    """
    started = time.monotonic()
    with open(log, "ab") as output:
        output.write(f"{COMMAND}{' '.join(command)}\n".encode())
        output.flush()
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **(variables or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # its group can be killed without this process
        )
        code: int | None = None
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            pass
        finally:
            if code is None:  # after the time limit, or an interrupt
                _kill_group(process)
    return Ended(code, time.monotonic() - started)


def run_python(python: str, code: str, limit: float) -> subprocess.CompletedProcess[str]:
    """Run statements in an interpreter, whose output is returned.

    They run in an empty folder: Python imports from the current one first, where a model may have been unpacked with a
    ``numpy.py``.

    Args:
        python: a name on the PATH, or a file.
        code: the statements.
        limit: time limit in seconds.

    Raises:
        OSError: the interpreter cannot be started.
        subprocess.TimeoutExpired: it exceeded the limit.
    """
    program = os.path.abspath(python) if os.path.dirname(python) else python
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "-c", code]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=limit)


def require_space(folder: Path) -> None:
    """Write and remove a file. The programs of the vendor do not tell that the disk is full.

    Raises:
        OSError: the file cannot be written.
    """
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(bytes(SPACE_BYTES))


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and the processes that it started and left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(KILLED_SECONDS)
