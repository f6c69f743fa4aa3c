"""The installed compiler and simulator of the vendor: where they are, and the interpreter that has them."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tpuconvert.exporters.compilation.processes import run_python
from tpuconvert.exporters.tpu_mlir.dialect import COMPILER_VERSION
from tpuconvert.schema.errors import MissingExtraError, UsageError
from tpuconvert.schema.system.cache_folder import cache_folder
from tpuconvert.schema.text.json_text import parse_json

HOME_VARIABLE = "TPU_MLIR_HOME"
"""Variable with the folder of the package tpu_mlir."""

PYTHON_VARIABLE = "VENDOR_PYTHON"
"""Variable with the interpreter that has the package, where it is not the one of the package's virtual environment."""

MARKER = "environment.json"
"""File that ``device setup`` writes into its folder."""

PACKAGE = Path("lib", "python3.10", "site-packages", "tpu_mlir")
"""Folder of the package in a virtual environment."""

SETUP = "tpuconvert device setup"


@dataclass(frozen=True)
class Environment:
    """An installation of the vendor's package.

    Args:
        home: folder of the package tpu_mlir.
        python: interpreter that has the package.
        version: version of the package; empty if it is not known.
    """

    home: Path
    python: Path
    version: str

    @property
    def program(self) -> Path:
        """The compiler."""
        return self.home / "bin" / "tpuc-opt"

    @property
    def variables(self) -> Mapping[str, str]:
        """Environment variables of the compiler and of the scripts of an export."""
        return {HOME_VARIABLE: str(self.home), "TPUC_ROOT": str(self.home), "OMP_NUM_THREADS": "1"}

    def simulator(self, chip: str) -> Path:
        """Return the library with the simulator of a chip."""
        return self.home / "lib" / f"libcmodel_{chip}.so"


def default_folder() -> Path:
    """Return the folder of ``device setup`` that names none. Each version of the compiler has its own."""
    return cache_folder() / f"tpu_mlir-{COMPILER_VERSION}"


def find_environment() -> Environment | None:
    """Return the installation that TPU_MLIR_HOME names, or the one in the default folder; None if there is none.

    Raises:
        UsageError: TPU_MLIR_HOME names a folder without the compiler, or no interpreter for it was found.
    """
    named = os.environ.get(HOME_VARIABLE)
    if named:
        return _named_environment(Path(named).absolute())
    return environment_in(default_folder())


def require_environment() -> Environment:
    """Return the installation of ``find_environment``.

    Raises:
        MissingExtraError: there is none.
        UsageError: as for ``find_environment``.
    """
    environment = find_environment()
    if environment is None:
        text = (
            f"the vendor's compiler is not installed: {HOME_VARIABLE} is not set, and {default_folder()} is not there"
        )
        raise MissingExtraError(text, hint=f"install it: {SETUP}")
    return environment


def script_call(script: Path, *arguments: str, is_python: bool = False) -> str:
    """Return the shell command that runs a script of an export with the vendor's package, and installs that if needed.

    Args:
        script: a script that reads TPU_MLIR_HOME.
        arguments: its arguments.
        is_python: whether the interpreter that has the package runs it; otherwise it is an executable file.

    """
    named, folder = os.environ.get(HOME_VARIABLE), default_folder()
    home = Path(named).absolute() if named else folder / PACKAGE
    is_on_path = script.parent == Path() and not is_python  # where a program of the working directory is not found
    words = [f"./{script}" if is_on_path else str(script), *arguments]
    if is_python:
        words.insert(0, next(_interpreters(home), "python3.10") if named else str(folder / "bin" / "python"))
    call = shlex.join(words)
    if named:
        return call
    call = f"{HOME_VARIABLE}={shlex.quote(str(home))} {call}"
    return call if environment_in(folder) else f"{SETUP} && {call}"


def environment_in(folder: Path) -> Environment | None:
    """Return the installation that ``device setup`` completed in a folder, or None."""
    try:
        content = parse_json((folder / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict) or content.get("tpu_mlir") != COMPILER_VERSION:
        return None
    environment = Environment(folder / PACKAGE, folder / "bin" / "python", COMPILER_VERSION)
    return environment if environment.program.is_file() else None


def _named_environment(home: Path) -> Environment:
    if not (home / "bin" / "tpuc-opt").is_file():
        text = f"{HOME_VARIABLE} is '{home}', which has no bin/tpuc-opt; expected the folder of the package tpu_mlir"
        raise UsageError(text, hint=f"unset it, then {SETUP}")
    names = (path.name for path in home.parent.glob("tpu_mlir-*.dist-info"))
    version = next((name.removeprefix("tpu_mlir-").removesuffix(".dist-info") for name in names), "")
    for python in _interpreters(home):
        if _imports_numpy(python):
            return Environment(home, Path(python), version)
    text = f"no Python 3.10 with NumPy for {HOME_VARIABLE} '{home}', which the simulator needs"
    raise UsageError(text, hint=f"set {PYTHON_VARIABLE} to its interpreter, or unset both, then {SETUP}")


def _interpreters(home: Path) -> Iterator[str]:
    """Yield the interpreters that may have the package: the named one, or of its environment and of the PATH."""
    named = os.environ.get(PYTHON_VARIABLE)
    if named:
        yield os.path.abspath(named) if os.sep in named else named
        return
    own = home.parents[3] / "bin" / "python" if len(home.parents) > 3 else None
    if own is not None and own.is_file():
        yield str(own)
    if (other := shutil.which("python3.10")) is not None:
        yield other


def _imports_numpy(python: str) -> bool:
    code = "import sys, numpy; sys.exit(sys.version_info[:2] != (3, 10))"
    try:
        return run_python(python, code, limit=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
