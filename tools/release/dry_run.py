"""Check the files of a release without publishing them; ``make release-dry-run`` makes and checks them.

``python -m tools.release.dry_run install DIST ENVIRONMENT`` installs the wheel of DIST that fits this Python into a
virtual environment, of which cyclonedx-py then lists the packages. ``check DIST RELEASE`` checks the files of DIST, and
in RELEASE the bill of materials ``tpuconvert.cdx.json`` and the notes ``notes.md``. It also installs the wheel in a new
environment (``wheel_smoke.py``) and the source distribution without a package index. Every problem is printed; the exit
code is 1 if there is one.
"""

from __future__ import annotations

import argparse
import base64
import configparser
import csv
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from email.message import Message
from email.parser import Parser
from pathlib import Path

from packaging.requirements import Requirement
from packaging.tags import sys_tags
from packaging.utils import canonicalize_name, parse_wheel_filename

from tools.release.release import MOST_WHEEL_BYTES, ROOT, read_version, release_notes, version_problems


def required_packages() -> list[str]:
    """Return the names of the required packages of setup.cfg."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    return [canonicalize_name(Requirement(line).name) for line in config["options"]["install_requires"].split()]


def fitting_wheel(dist: Path) -> Path:
    """Return the wheel of a folder that this Python can install.

    Raises:
        SystemExit: none fits, or several do.
    """
    tags = set(sys_tags())
    fitting = [path for path in sorted(dist.glob("*.whl")) if parse_wheel_filename(path.name)[3] & tags]
    if len(fitting) != 1:
        names = ", ".join(path.name for path in fitting) or "none"
        sys.exit(f"{dist}: wheels for this Python: {names}; expected one, which `make dist` builds")
    return fitting[0]


def source_distribution(dist: Path) -> Path:
    """Return the source distribution of a folder.

    Raises:
        SystemExit: there is not exactly one.
    """
    archives = sorted(dist.glob("*.tar.gz"))
    if len(archives) != 1:
        sys.exit(f"{dist}: {len(archives)} source distributions, expected one, which `make sdist` builds")
    return archives[0]


def wheel_problems(wheel: Path, version: str) -> Iterator[str]:
    """Yield a sentence for each file of a wheel that its record does not describe, and for wrong metadata."""
    if wheel.stat().st_size > MOST_WHEEL_BYTES:
        yield f"{wheel.name} has {wheel.stat().st_size} bytes, expected at most {MOST_WHEEL_BYTES}"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        folder = f"tpuconvert-{version}.dist-info"
        if f"{folder}/METADATA" not in names:
            yield f"{wheel.name}: {folder}/METADATA is missing"
            return
        record = {row[0]: row[1] for row in csv.reader(archive.read(f"{folder}/RECORD").decode().splitlines())}
        for name in names:
            digest = base64.urlsafe_b64encode(hashlib.sha256(archive.read(name)).digest()).rstrip(b"=").decode()
            if name != f"{folder}/RECORD" and record.get(name) != f"sha256={digest}":
                yield f"{wheel.name}: {name} is not what RECORD describes"
        metadata = Parser().parsestr(archive.read(f"{folder}/METADATA").decode())
    yield from (f"{wheel.name}: {problem}" for problem in metadata_problems(metadata, version))
    if not any(name.startswith("tpuconvert/runtime/_native.") for name in names):
        yield f"{wheel.name}: the native engine is missing"
    for name in ("LICENSE", "NOTICE"):
        if not any(each.startswith(f"{folder}/") and each.endswith(f"/{name}") for each in names):
            yield f"{wheel.name}: {name} is missing"


def metadata_problems(metadata: Message, version: str) -> Iterator[str]:
    """Yield a sentence for each wrong or missing field of a package's metadata."""
    expected = {"Name": "tpuconvert", "Version": version, "Description-Content-Type": "text/markdown"}
    for name, value in expected.items():
        if metadata[name] != value:
            yield f"{name} is {metadata[name]}, expected {value}"
    listed = [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]
    names = {canonicalize_name(each.name) for each in listed if each.marker is None}
    if names != set(required_packages()):
        yield f"it requires {', '.join(sorted(names))}, expected {', '.join(sorted(required_packages()))}"
    if not str(metadata.get_payload()).strip():
        yield "the description is empty"


def source_problems(wheel: Path, archive: Path) -> Iterator[str]:
    """Yield a sentence for each module and data file of a wheel whose bytes the source distribution does not have."""
    with tarfile.open(archive) as sources:
        members = [member for member in sources.getmembers() if member.isfile()]
        contents = {hashlib.sha256(_read(sources, member)).digest() for member in members}
    with zipfile.ZipFile(wheel) as files:
        for name in files.namelist():
            is_built = ".dist-info/" in name or name.startswith("tpuconvert/runtime/_native.")
            if not is_built and hashlib.sha256(files.read(name)).digest() not in contents:
                yield f"{wheel.name}: {name} is not in {archive.name}"


def _read(sources: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = sources.extractfile(member)
    assert file is not None
    return file.read()


def material_problems(document: Path, version: str) -> Iterator[str]:
    """Yield a sentence for each package that a CycloneDX document lacks."""
    if not document.is_file():
        yield f"{document.name} is missing"
        return
    content = json.loads(document.read_text(encoding="utf-8"))
    components = content.get("components", [])
    versions: dict[str, str | None] = {canonicalize_name(each["name"]): each.get("version") for each in components}
    for name in required_packages():
        if not versions.get(name):
            yield f"{document.name}: {name} is missing, or its version"
    if versions.get("tpuconvert") != version:
        yield f"{document.name}: the version of tpuconvert is {versions.get('tpuconvert')}, expected {version}"


def notes_problems(notes: Path) -> Iterator[str]:
    """Yield a sentence if the notes are not the section of CHANGELOG.md about the version."""
    if not notes.is_file():
        yield f"{notes.name} is missing"
    elif notes.read_text(encoding="utf-8") != release_notes():
        yield f"{notes.name}: not the section of CHANGELOG.md about version {read_version()}"


def offline_problems(archive: Path) -> Iterator[str]:
    """Yield the output of pip if it cannot install a source distribution without a package index and the engine.

    This Python must have what builds the package: setuptools. It installs into a folder that is removed.
    """
    with tempfile.TemporaryDirectory(prefix="tpuconvert-offline-") as folder:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index"]
        options = ["--no-deps", "--no-build-isolation", "--target", folder, str(archive)]
        done = subprocess.run(
            [*pip, *options], env={**os.environ, "TPUCONVERT_NATIVE": "off"}, capture_output=True, text=True
        )
        if done.returncode:
            yield f"{archive.name} cannot be installed without a package index:\n{done.stdout}{done.stderr}"
        elif not (Path(folder) / "tpuconvert" / "__init__.py").is_file():
            yield f"{archive.name}: its installation has no package tpuconvert"


def smoke_problems(wheel: Path) -> Iterator[str]:
    """Yield a sentence if the wheel does not work in a new environment; print its steps."""
    if subprocess.run([sys.executable, "-m", "tools.release.wheel_smoke", str(wheel)], cwd=ROOT).returncode:
        yield f"{wheel.name}: see above"


def check(dist: Path, release: Path) -> int:
    """Print the outcome of every check. Return 1 if there is a problem."""
    version, wheel, archive = read_version(), fitting_wheel(dist), source_distribution(dist)
    checks = {
        "versions": version_problems(ROOT, None),
        "contents and metadata of the wheels": (
            problem for each in sorted(dist.glob("*.whl")) for problem in wheel_problems(each, version)
        ),
        "the wheel has the files of the source distribution": source_problems(wheel, archive),
        "bill of materials": material_problems(release / "tpuconvert.cdx.json", version),
        "notes": notes_problems(release / "notes.md"),
        "installation of the source distribution without a package index": offline_problems(archive),
        "the wheel in a new environment": smoke_problems(wheel),
    }
    is_clean = True
    for name, problems in checks.items():
        found = list(problems)
        print(f"{'failed' if found else 'ok':6} {name}", *found, sep="\n       ", flush=True)
        is_clean = is_clean and not found
    sizes = ", ".join(f"{path.name} {path.stat().st_size:,} bytes" for path in sorted(dist.iterdir()))
    print(f"{sizes}; nothing was published")
    return int(not is_clean)


def main(arguments: Sequence[str]) -> int:
    """Run a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    installer, checker = commands.add_parser("install"), commands.add_parser("check")
    for command in (installer, checker):
        command.add_argument("dist", type=Path, help="folder with wheels and a source distribution")
    installer.add_argument("environment", type=Path, help="virtual environment, without pip")
    checker.add_argument("release", type=Path, help="folder with the bill of materials and the notes")
    options = parser.parse_args(arguments)
    if options.command == "check":
        return check(options.dist, options.release)
    pip = [sys.executable, "-m", "pip", "--python", str(options.environment), "install", "--quiet"]
    return subprocess.run([*pip, str(fitting_wheel(options.dist))]).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
