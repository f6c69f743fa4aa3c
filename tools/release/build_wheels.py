"""Build the wheels of this machine from a source distribution: ``python -m tools.release.build_wheels DIST TARGET``.

DIST is a folder with one source distribution, TARGET gets the wheels. cibuildwheel has the version and the hashes of
``tools/release/publish_requirements.txt``, and ``[tool.cibuildwheel]`` of pyproject.toml configures it. Further
arguments are its options, such as ``--print-build-identifiers``. Works on every system without make or a shell.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from tools.release.release import ROOT

REQUIREMENTS = ROOT / "tools" / "release" / "publish_requirements.txt"


def main(arguments: list[str]) -> int:
    """Run cibuildwheel in an environment for it. Return its exit code."""
    if len(arguments) < 2:
        sys.exit(f"usage: {(__doc__ or '').splitlines()[0]}")
    dist, target, *options = arguments
    archives = sorted(Path(dist).glob("*.tar.gz"))
    if len(archives) != 1:
        sys.exit(f"{dist}: {len(archives)} source distributions, expected one; build it with `make sdist`")
    with tempfile.TemporaryDirectory(prefix="cibuildwheel-") as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))
        install = [python, "-m", "pip", "install", "--quiet", "--require-hashes", "--only-binary", ":all:"]
        subprocess.run([*install, "-r", str(REQUIREMENTS)], check=True)
        command = [python, "-m", "cibuildwheel", "--output-dir", target, *options, str(archives[0])]
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
