"""A process for trials, so that a crash or an endless loop of a trial is a failure and does not end the reduction.

``python -m tpuconvert.reduction.worker`` reads pickled calls from stdin and writes pickled answers to stdout. Both ends
belong to this program.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import IO, Any

from tpuconvert.plugins import load_plugins
from tpuconvert.reduction.failure import CRASH, TIMEOUT, Failure
from tpuconvert.schema.errors import TpuConvertError
from tpuconvert.workers.child_process import start_module

_SIZE = struct.Struct("<Q")


class WorkerDiedError(Exception):
    """The process ended or was ended during a call.

    Args:
        failure: the kind of the end.

    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Worker:
    """Client of the process, which is started again after its end.

    Args:
        plugins: Python files that the process loads first.

    """

    def __init__(self, plugins: Iterable[str]) -> None:
        self._plugins = list(plugins)
        self._process: subprocess.Popen[bytes] | None = None

    def call(self, function: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
        """Call a function of a module of this package in the process.

        Raises:
            WorkerDiedError: the process ended, or needed more time than ``seconds``.
            TpuConvertError: the function raised it.

        """
        if self._process is None:
            self._process = self._start()
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        try:
            _send(process.stdin, (function, arguments))
            answer, error = _receive(process.stdout, seconds)
        except (EOFError, BrokenPipeError, TimeoutError) as ending:
            self.close()
            raise WorkerDiedError(_ending(process, ending, seconds)) from None
        if error is not None:
            kind, state = error
            raised = kind.__new__(kind, state["message"])
            raised.__dict__.update(state)
            raise raised
        return answer

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            process, self._process = self._process, None
            if process.poll() is None:
                # A process that ended by itself keeps its return code: wait a moment before it is killed.
                try:
                    process.wait(0.2)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(BrokenPipeError):
                        stream.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()  # the process ends at the end of its input
        self.close()

    def _start(self) -> subprocess.Popen[bytes]:
        return start_module(
            __name__, self._plugins, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )


def _ending(process: subprocess.Popen[bytes], ending: BaseException, seconds: float) -> Failure:
    if isinstance(ending, TimeoutError):
        return Failure(TIMEOUT, "", f"no result after {seconds:.0f} seconds")
    code = process.returncode or 0
    if code < 0:
        name = signal.Signals(-code).name if -code in signal.Signals.__members__.values() else f"signal {-code}"
        return Failure(CRASH, name, f"the process ended by {name}")
    return Failure(CRASH, f"exit code {code}", f"the process ended with exit code {code}")


def _send(stream: IO[bytes], message: Any) -> None:
    content = pickle.dumps(message)
    stream.write(_SIZE.pack(len(content)))
    stream.write(content)
    stream.flush()


def _receive(stream: IO[bytes], seconds: float | None) -> Any:
    ready, _, _ = select.select([stream], [], [], seconds)
    if not ready:
        raise TimeoutError
    head = stream.read(_SIZE.size)
    if len(head) < _SIZE.size:
        raise EOFError
    content = stream.read(*_SIZE.unpack(head))
    return pickle.loads(content)


def main(plugins: list[str]) -> None:
    """Answer calls until the end of stdin."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what code prints must not get into the answers
    sys.stdout = sys.stderr
    load_plugins(plugins)
    calls = sys.stdin.buffer
    while True:
        try:
            function, arguments = _receive(calls, None)
        except EOFError:
            return
        try:
            answer, error = function(*arguments), None
        except TpuConvertError as raised:
            answer, error = None, (type(raised), dict(vars(raised)))  # not every error class can be pickled
        _send(answers, (answer, error))


if __name__ == "__main__":
    # The module has two names now; the functions and classes of messages belong to the importable one.
    from tpuconvert.reduction.worker import main as imported_main

    imported_main(sys.argv[1:])
