"""Start Python processes that execute no file of the current folder.

By default ``python -m`` and ``python -c`` put the current folder first on ``sys.path``, so that a ``numpy.py`` beside a
downloaded model would be executed. Every child of this program is started by a function of this module.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from tpuconvert.search_path import path_without_current_folder

_changing_environment = threading.Lock()


def module_command(module: str, arguments: Sequence[str] = ()) -> list[str]:
    """Return the command line that runs a module of this package. It needs :func:`child_environment`."""
    return [sys.executable, "-P", "-m", module, *arguments]


def child_environment() -> dict[str, str]:
    """Return the environment of a child: the search path of this process without the current folder."""
    return {**os.environ, **_isolation()}


def run_module(module: str, arguments: Sequence[str] = (), **options: Any) -> subprocess.CompletedProcess[Any]:
    """Run a module of this package in an isolated process and wait for its end, with options of ``subprocess.run``."""
    return subprocess.run(module_command(module, arguments), env=child_environment(), **options)


def start_module(module: str, arguments: Sequence[str] = (), **options: Any) -> subprocess.Popen[Any]:
    """Start a module of this package in an isolated process, with options of ``subprocess.Popen``."""
    return subprocess.Popen(module_command(module, arguments), env=child_environment(), **options)


@contextlib.contextmanager
def isolated_starts() -> Iterator[None]:
    """Isolate the processes that ``multiprocessing`` starts in the ``with`` block: it has no argument for this.

    They inherit the environment, which is changed for the block.
    """
    with _changing_environment:
        before = {name: os.environ.get(name) for name in _isolation()}
        os.environ.update(_isolation())
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def _isolation() -> dict[str, str]:
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(path_without_current_folder())}
