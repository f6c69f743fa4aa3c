"""Files of the emulated AArch64 system, and the command line of its Python.

The folder contains ``root`` (Debian's Python and C libraries for arm64), ``packages`` (compiled Python packages for
arm64) and one build folder per checkout. Packages without compiled parts are taken from the running interpreter.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sysconfig
from pathlib import Path

from tpuconvert.schema.system.cache_folder import cache_folder

VARIABLE = "TPUCONVERT_AARCH64"
"""Environment variable that names the folder."""
REPOSITORY = Path(__file__).resolve().parents[2]
EMULATOR = "qemu-aarch64-static"
COMPILER = "aarch64-linux-gnu-g++"
PYTHON = "python3.11"
"""Python of Debian 12, with which the extension is built."""
CPUS = {"neon": "cortex-a53", "dotprod": "neoverse-n1", "i8mm": "max"}
"""Processor that QEMU emulates for each instruction set that must be the best one available."""


def folder() -> Path:
    """Return the folder of the emulated system."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    return cache_folder() / "aarch64"


def root() -> Path:
    """Return the root folder of the emulated system."""
    return folder() / "root"


def build_folder() -> Path:
    """Return the build folder of this checkout."""
    digest = hashlib.sha256(str(REPOSITORY).encode()).hexdigest()[:12]
    return folder() / f"build-{digest}"


def module() -> Path:
    """Return the path of the extension for AArch64, which may not exist yet."""
    return build_folder() / "_native.cpython-311-aarch64-linux-gnu.so"


def missing(*, needs_compiler: bool = True) -> str:
    """Return the reason why the emulated system cannot be used, or an empty string."""
    for program in (EMULATOR, COMPILER) if needs_compiler else (EMULATOR,):
        if shutil.which(program) is None:
            return f"{program} is not installed (Debian: qemu-user-static, g++-aarch64-linux-gnu)"
    if not (root() / "usr" / "bin" / PYTHON).exists() or not (folder() / "packages" / "numpy").is_dir():
        return f"{folder()} has no emulated system: run `python -m tools.aarch64 prepare`"
    return ""


def command(cpu: str, *arguments: str) -> list[str]:
    """Return the command line that runs the emulated Python on a processor."""
    return [EMULATOR, "-cpu", cpu, "-L", str(root()), str(root() / "usr" / "bin" / PYTHON), *arguments]


def variables(view: Path) -> dict[str, str]:
    """Return the environment of the emulated Python.

    Args:
        view: folder in which the package looks installed, see ``tools/release/package_view.py``.
    """
    paths = [folder() / "packages", view, REPOSITORY, Path(sysconfig.get_path("purelib"))]
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TPUCONVERT_"))},
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TPUCONVERT_NATIVE_LIBRARY": str(module()),
    }
