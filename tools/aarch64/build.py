"""Cross build of the extension."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tools.aarch64.environment import COMPILER, PYTHON, REPOSITORY, build_folder, missing, module, root

# Debian's pyconfig.h includes one of the same name below the folder of the processor.
TOOLCHAIN = """\
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER {compiler})
set(CMAKE_CXX_FLAGS_INIT "-idirafter {include}")
"""


def tools() -> dict[str, str]:
    """Return an environment that finds the programs beside the running interpreter, such as cmake and ninja."""
    return {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}


def write_toolchain(folder: Path) -> Path:
    """Write the description of the compiler for CMake to a folder."""
    toolchain = folder / "toolchain.cmake"
    toolchain.write_text(TOOLCHAIN.format(compiler=COMPILER, include=root() / "usr" / "include"), encoding="utf-8")
    return toolchain


def cmake_options(toolchain: Path) -> list[str]:
    """Return the options that a cross build has in addition to a native one."""
    options = [
        f"-DCMAKE_TOOLCHAIN_FILE={toolchain}",
        f"-DPython_INCLUDE_DIR={root() / 'usr' / 'include' / PYTHON}",
        f"-DNB_SUFFIX={module().name.removeprefix('_native')}",
    ]
    if shutil.which("ccache"):
        options.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
    return options


def _configure(folder: Path) -> None:
    options = [
        *cmake_options(write_toolchain(folder)),
        "-DCMAKE_BUILD_TYPE=Release",
        "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
        f"-DPython_EXECUTABLE={sys.executable}",
    ]
    source = REPOSITORY / "runtime" / "kernels"
    command = ["cmake", "-S", str(source), "-B", str(folder), "-G", "Ninja", *options]
    subprocess.run(command, check=True, env=tools(), stdout=subprocess.DEVNULL)


def build(jobs: int | None = None) -> Path:
    """Compile what has changed and return the path of the extension.

    Raises:
        RuntimeError: if the emulated system is not prepared.
        subprocess.CalledProcessError: if a file does not compile; the compiler has printed the reason.
    """
    reason = missing()
    if reason:
        raise RuntimeError(reason)
    folder = build_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test processes share the folder
        if not (folder / "build.ninja").is_file():
            _configure(folder)
        parallel = ["--parallel", *([str(jobs)] if jobs else [])]
        subprocess.run(["cmake", "--build", str(folder), *parallel], check=True, env=tools(), stdout=sys.stderr)
    return module()
