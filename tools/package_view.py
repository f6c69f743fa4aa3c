"""Make a folder in which the package looks installed: ``tpuconvert/`` with symbolic links to this repository's folders.

Type checkers follow neither setup.cfg's ``package_dir`` nor an editable install's import hook. A view of links costs
nothing, and they find every module under its import name with errors reported for files that can be opened.
"""

import configparser
import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def package_dirs() -> dict[str, Path]:
    """Import name -> folder of this repository, as setup.cfg maps them."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    pairs = (line.split("=") for line in config["options"]["package_dir"].strip().splitlines())
    return {name.strip(): ROOT / folder.strip() for name, folder in pairs}


def make_view(view: Path) -> None:
    """Replace ``view`` by a folder of links that has the layout of the import name."""
    if view.exists():
        shutil.rmtree(view)
    mapping = package_dirs()
    for name, folder in sorted(mapping.items()):  # a parent sorts before its children
        target = view.joinpath(*name.split("."))
        if any(other.startswith(f"{name}.") for other in mapping):
            # Other folders are mapped below this one: a real folder with a link per entry, to leave room for them.
            target.mkdir(parents=True)
            for entry in sorted(folder.iterdir()):
                if entry.name != "__pycache__":
                    (target / entry.name).symlink_to(os.path.relpath(entry, target))
        else:
            target.symlink_to(os.path.relpath(folder, target.parent), target_is_directory=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: package_view.py FOLDER")
    make_view(Path(sys.argv[1]))
