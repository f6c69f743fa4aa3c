"""Commands in forked processes that are killed, interrupted or limited: many runs without as many imports.

A server process imports the program once and forks for each command. It has no other thread, so that a fork is safe.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.support import programs

INTERRUPTED = 130
_HANG = 300.0  # seconds after which a command is taken for a hanging one


@dataclass(frozen=True)
class Ended:
    """End of a command.

    Args:
        code: exit code, or the negative number of the signal that ended it.
        seconds: wall time from its start to its end.
        late: wall time from the signal that it got to its end, or 0.
        error: the end of what it printed.
    """

    code: int
    seconds: float
    late: float
    error: str

    @property
    def was_killed(self) -> bool:
        """True if SIGKILL ended it."""
        return self.code == -signal.SIGKILL


class Commands:
    """A server of commands in a folder. Use it as a context."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        environment = programs.environment(OPENBLAS_NUM_THREADS="1", TPUCONVERT_PLUGINS="none")
        self._server = subprocess.Popen(
            programs.command(__spec__.name), cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.communicate()

    def start(
        self,
        arguments: Sequence[str],
        *,
        after: float | None = None,
        number: int = signal.SIGKILL,
        most_bytes: int | None = None,
        without_override: bool = False,
    ) -> int:
        """Start a command and return its process.

        Args:
            arguments: of ``tpuconvert``.
            after: seconds after which it gets a signal.
            number: the signal.
            most_bytes: largest file that it may write.
            without_override: True if permissions of files hold for the superuser as well. Only for Linux.
        """
        limits = {"most_bytes": most_bytes, "without_override": without_override}
        return int(self._ask({"start": list(arguments), "after": after, "number": int(number), **limits}))

    def wait(self, process: int) -> Ended:
        """Wait for the end of a command."""
        return Ended(*self._ask({"wait": process}))

    def run(self, arguments: Sequence[str], **options: Any) -> Ended:
        """Start a command and wait for its end. The arguments are the same as for :meth:`start`."""
        return self.wait(self.start(arguments, **options))

    def _ask(self, request: dict[str, Any]) -> Any:
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.write((json.dumps(request) + "\n").encode())
        self._server.stdin.flush()
        return json.loads(self._server.stdout.readline())


def moments(seconds: float, chance: random.Random) -> float:
    """Return a random moment of a command that takes some seconds."""
    return chance.random() * seconds * 1.02


# Server


def _serve() -> None:
    from tpuconvert.cli import entry  # noqa: F401  # imported before the forks

    known: set[str] = set()
    children: dict[int, tuple[float, float | None, int, int]] = {}
    for line in sys.stdin.buffer:
        request = json.loads(line)
        if "start" in request:
            answer: Any = _start(request, children)
        else:
            answer, modules = _wait(children, request["wait"])
            for name in sorted(set(modules) - known):
                known.add(name)
                _import(name)
        sys.stdout.buffer.write((json.dumps(answer) + "\n").encode())
        sys.stdout.buffer.flush()


def _import(name: str) -> None:
    try:
        importlib.import_module(name)
    except Exception:  # such as a name of another machine
        return


def _start(request: dict[str, Any], children: dict[int, tuple[float, float | None, int, int]]) -> int:
    errors, modules = os.pipe(), os.pipe()
    begun = time.monotonic()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.dup2(errors[1], 2)
            os.dup2(os.open(os.devnull, os.O_RDWR), 0)
            os.dup2(errors[1], 1)
            try:
                code = _run(request)
            except KeyboardInterrupt:  # before the program handles it
                code = INTERRUPTED
            if code == 0:
                os.set_blocking(modules[1], False)
                os.write(modules[1], "\n".join(_modules()).encode()[:60_000])
        finally:
            os._exit(code)
    os.close(errors[1])
    os.close(modules[1])
    after = request["after"]
    children[child] = (begun, None if after is None else begun + after, errors[0], modules[0])
    _signals[child] = request["number"]
    return child


_signals: dict[int, int] = {}


def _modules() -> list[str]:
    return [name for name in sys.modules if name.startswith(("tpuconvert", "yaml", "google.protobuf")) and "." in name]


def _run(request: dict[str, Any]) -> int:
    from tpuconvert.__main__ import main

    signal.signal(signal.SIGINT, signal.default_int_handler)
    if request["most_bytes"] is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["most_bytes"], request["most_bytes"]))
    if request["without_override"] and os.getuid() == 0:
        _drop_override()
    return main(request["start"])


def _drop_override() -> None:
    """Drop the capabilities CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this process
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted and inheritable: of numbers below 32, then of the others
    if libc.capget(header, sets):
        raise OSError(ctypes.get_errno(), "capget")
    for index in (0, 1):
        sets[index] &= ~0b110
    if libc.capset(header, sets):
        raise OSError(ctypes.get_errno(), "capset")


def _wait(children: dict[int, tuple[float, float | None, int, int]], child: int) -> tuple[list[Any], list[str]]:
    begun, moment, errors, modules = children.pop(child)
    sent = 0.0
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        now = time.monotonic()
        if found:
            break
        if moment is not None and now >= moment and not sent:
            os.kill(child, _signals[child])
            sent = now
        if now - begun > _HANG:
            os.kill(child, signal.SIGKILL)
        until = 0.002 if moment is None or sent else min(0.002, max(0.0, moment - now))
        time.sleep(until)
    text = _read_all(errors)
    names = _read_all(modules).split()
    return [os.waitstatus_to_exitcode(status), now - begun, now - sent if sent else 0.0, text[-2000:]], names


def _read_all(descriptor: int) -> str:
    os.set_blocking(descriptor, False)  # workers of a killed command may still have it open
    parts = []
    try:
        while part := os.read(descriptor, 1 << 16):
            parts.append(part)
    except BlockingIOError:
        pass
    os.close(descriptor)
    return b"".join(parts).decode(errors="replace")


if __name__ == "__main__":
    _serve()
