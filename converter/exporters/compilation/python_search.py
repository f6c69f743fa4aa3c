"""Search for a Python 3.10, the only version that the vendor's package has wheels for."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tpuconvert.exporters.compilation.processes import run_python
from tpuconvert.schema.errors import MissingExtraError, UsageError

VERSION = "3.10"

SECONDS = 60.0
"""Time limit for the start of an interpreter."""

_CHECK = "import sys, venv, ensurepip; print('.'.join(map(str, sys.version_info[:3])))"

_FOLDERS = (
    ("PYENV_ROOT", ".pyenv", "versions/3.10.*/bin/python3.10"),
    ("UV_PYTHON_INSTALL_DIR", ".local/share/uv/python", "cpython-3.10.*-linux-x86_64-gnu/bin/python3.10"),
)
"""Variable with a folder of interpreters, its default below the home folder, and the files in it: of pyenv and uv."""


def find_python(named: str | None) -> Path:
    """Return a Python 3.10 with which a virtual environment can be made.

    Args:
        named: the interpreter; by default it is searched on the PATH, and among those that pyenv and uv installed.

    Raises:
        UsageError: the system is not Linux on x86-64, or the named interpreter cannot be used.
        MissingExtraError: there is none.
    """
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        system = f"{sys.platform} on {platform.machine()}"
        text = f"this is {system}; the vendor's compiler has packages for Linux on x86-64 only"
        raise UsageError(text, hint="export without --compile, and run compile.sh of the export on such a machine")
    reasons = []
    for candidate in [named] if named is not None else _candidates():
        reason = _unusable(candidate)
        if not reason:
            return Path(shutil.which(candidate) or candidate).absolute()
        reasons.append(f"{candidate} {reason}")
    if named is not None:
        raise UsageError(f"{reasons[0]}; expected Python {VERSION} with venv", hint="name another one: --python FILE")
    listed = f": {'; '.join(reasons)}" if reasons else ""
    raise MissingExtraError(
        f"the vendor's compiler needs Python {VERSION}, and none was found on the PATH{listed}",
        hint="install one, such as by: pip install uv && uv python install 3.10",
    )


def _candidates() -> Iterator[str]:
    """Yield interpreters by preference."""
    name = f"python{VERSION}"
    if shutil.which(name) is not None:
        yield name
    for variable, default, pattern in _FOLDERS:
        folder = Path(os.environ.get(variable) or Path.home() / default)
        yield from map(str, sorted(folder.glob(pattern), reverse=True))


def _unusable(python: str) -> str:
    """Return the reason for which an interpreter cannot be used, or an empty text."""
    try:
        done = run_python(python, _CHECK, SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not run ({getattr(error, 'strerror', None) or 'no answer'})"
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return f"does not run ({lines[-1] if lines else f'exit code {done.returncode}'})"
    version = done.stdout.strip()
    return "" if version.startswith(f"{VERSION}.") else f"is Python {version}"
