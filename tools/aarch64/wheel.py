"""A wheel for Linux on AArch64, cross-compiled, and its smoke test under QEMU."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tools.aarch64.build import cmake_options, tools, write_toolchain
from tools.aarch64.environment import CPUS, REPOSITORY, command, folder, missing, module, variables
from tools.release.release import MOST_WHEEL_BYTES
from tools.release.wheel_smoke import SmokeError, smoke

_PLATFORM = re.compile(r'"(manylinux_\w+_aarch64)"')
"""Platform tag in the output of ``auditwheel show``: the version of the oldest C library with which the wheel works."""


def build_wheel(target: Path) -> Path:
    """Build the wheel of the running Python version and write it to a folder; ``auditwheel`` finds its platform tag.

    Raises:
        RuntimeError: if the emulated system is not prepared, or the wheel fits no platform tag.
        subprocess.CalledProcessError: if a program fails; it has printed the reason.
    """
    reason = missing()
    if reason:
        raise RuntimeError(reason)
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tpuconvert-wheel-") as name:
        made = Path(name)
        environment = {
            **tools(),
            "_PYTHON_HOST_PLATFORM": "linux-aarch64",
            "SETUPTOOLS_EXT_SUFFIX": module().name.removeprefix("_native"),
            "CMAKE_ARGS": shlex.join(cmake_options(write_toolchain(made))),
            "TPUCONVERT_NATIVE": "on",
        }
        python = [sys.executable, "-m"]
        options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", name]
        subprocess.run([*python, "pip", "wheel", *options, str(REPOSITORY)], check=True, env=environment)
        (wheel,) = made.glob("*.whl")
        show = subprocess.run([*python, "auditwheel", "show", str(wheel)], check=True, capture_output=True, text=True)
        platform = _PLATFORM.search(show.stdout)
        if platform is None:
            raise RuntimeError(f"auditwheel knows no platform tag for {wheel.name}:\n{show.stdout}")
        tags = ["tags", "--platform-tag", platform[1], str(wheel)]
        renamed = subprocess.run([*python, "wheel", *tags], check=True, capture_output=True, text=True).stdout.split()[
            -1
        ]
        return Path(shutil.copy(made / renamed, target))


def test_wheel(wheel: Path) -> None:
    """Unpack a wheel and run its smoke test on every emulated processor.

    Raises:
        SmokeError: a step failed.
    """
    size = wheel.stat().st_size
    print(f"{wheel.name}: {size / 1e6:.2f} MB")
    if size > MOST_WHEEL_BYTES:
        raise SmokeError(f"{wheel.name} has {size} bytes, expected at most {MOST_WHEEL_BYTES}")
    with tempfile.TemporaryDirectory(prefix="tpuconvert-smoke-") as name:
        installed = Path(name) / "packages"
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(installed)
        environment = variables(installed)
        del environment["TPUCONVERT_NATIVE_LIBRARY"]  # the engine was loaded from the wheel
        paths = [path for path in environment["PYTHONPATH"].split(os.pathsep) if Path(path) != REPOSITORY / "tests"]
        environment["PYTHONPATH"] = os.pathsep.join([str(installed), str(folder() / "packages"), *paths])
        for isa, cpu in CPUS.items():
            print(f"{cpu}, whose best instruction set is {isa}:")
            work = Path(name) / isa
            work.mkdir()
            smoke(command(cpu), work, environment, wheel.name.split("-")[1])
