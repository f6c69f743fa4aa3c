"""Make a folder in which the package looks installed: ``tpuconvert/`` with symbolic links to this repository's files.

Type checkers follow neither setup.cfg's ``package_dir`` nor an editable install's import hook. With this folder of
links, they find every module under its import name, and report errors for files that can be opened.
"""

import configparser
import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def package_folders() -> dict[str, Path]:
    """Return import name -> folder for every package in setup.cfg."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    pairs = (line.split("=") for line in config["options"]["package_dir"].strip().splitlines())
    mapping = {name.strip(): folder.strip() for name, folder in pairs}
    folders = {}
    for package in config["options"]["packages"].split():
        mapped = max((name for name in mapping if f"{package}.".startswith(f"{name}.")), key=len)
        folders[package] = ROOT.joinpath(mapping[mapped], *package[len(mapped) :].strip(".").split("."))
    return folders


def make_view(view: Path) -> None:
    """Replace ``view`` by a folder of links whose layout follows the import names."""
    if view.exists():
        shutil.rmtree(view)
    for package, folder in package_folders().items():
        target = view.joinpath(*package.split("."))
        target.mkdir(parents=True, exist_ok=True)
        for entry in sorted(folder.iterdir()):
            if entry.is_file():
                (target / entry.name).symlink_to(os.path.relpath(entry, target))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tools.release.package_view FOLDER")
    make_view(Path(sys.argv[1]))
