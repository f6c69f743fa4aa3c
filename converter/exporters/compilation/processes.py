"""Programs of the vendor as child processes: output in a log file, a time limit, no process left after an interrupt."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

KILLED_SECONDS = 10.0
"""Time in which a killed process must end: the system cannot end one that waits for a device."""


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


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and the processes that it started and left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(KILLED_SECONDS)
