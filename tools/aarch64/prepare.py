"""Download Debian's Python and the compiled Python packages for arm64 into the folder of the emulated system."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tools.aarch64.environment import PYTHON, folder, root

DEBIAN_PACKAGES = (
    f"{PYTHON}-minimal",
    f"lib{PYTHON}-minimal",
    f"lib{PYTHON}-stdlib",
    f"lib{PYTHON}-dev",
    "libc6",
    "libstdc++6",
    "libgcc-s1",
    "libexpat1",
    "zlib1g",
    "libffi8",
    "libssl3",
    "libbz2-1.0",
    "liblzma5",
)
COMPILED_PACKAGES = ("numpy", "xxhash")
PLATFORMS = ("manylinux2014_aarch64", "manylinux_2_27_aarch64", "manylinux_2_28_aarch64")
SETTINGS = """\
Dir::State "{apt}";
Dir::State::status "{apt}/status";
Dir::Cache "{apt}/cache";
APT::Architecture "arm64";
APT::Architectures {{"arm64";}};
Acquire::Languages "none";
"""


def prepare() -> Path:
    """Replace the emulated system. Needs network access and the package sources of Debian 12, but no special rights.

    Raises:
        subprocess.CalledProcessError: if a download fails.
    """
    with tempfile.TemporaryDirectory(prefix="tpuconvert-aarch64-") as name:
        work = Path(name)
        _extract_system(work)
        _extract_packages(work)
        for part in ("root", "packages"):
            shutil.rmtree(folder() / part, ignore_errors=True)
            folder().mkdir(parents=True, exist_ok=True)
            shutil.move(str(work / part), str(folder() / part))
    return root()


def _extract_system(work: Path) -> None:
    """Extract the Debian packages to ``work/root``. The system's lists of packages and its status stay as they are."""
    apt, debs = work / "apt", work / "debs"
    for part in (apt / "lists" / "partial", apt / "cache" / "archives" / "partial", debs):
        part.mkdir(parents=True)
    (apt / "status").touch()
    (apt / "apt.conf").write_text(SETTINGS.format(apt=apt), encoding="utf-8")
    environment = {"APT_CONFIG": str(apt / "apt.conf"), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    subprocess.run(["apt-get", "-q", "update"], check=True, env=environment)
    subprocess.run(["apt-get", "-q", "download", *DEBIAN_PACKAGES], check=True, env=environment, cwd=debs)
    for package in sorted(debs.glob("*.deb")):
        subprocess.run(["dpkg", "-x", str(package), str(work / "root")], check=True)


def _extract_packages(work: Path) -> None:
    """Extract wheels for arm64 to ``work/packages``."""
    platforms = [option for platform in PLATFORMS for option in ("--platform", platform)]
    choice = ["--no-deps", "--only-binary=:all:", "--python-version", PYTHON.removeprefix("python"), *platforms]
    wheels = work / "wheels"
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "-q", "-d", str(wheels), *choice, *COMPILED_PACKAGES], check=True
    )
    for wheel in wheels.glob("*.whl"):
        zipfile.ZipFile(wheel).extractall(work / "packages")
