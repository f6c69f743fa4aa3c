"""Rooms: folders and modules with the same parent, and the direction of imports between them.

``docs/inside/architecture.md`` has a table for each folder with rooms, in the order of the imports.
"""

from __future__ import annotations

import ast
import functools
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.syntax_trees import statements, syntax_tree

FOLDERS = {
    "schema": "tpuconvert.schema",
    "runtime": "tpuconvert.runtime",
    "frontends": "tpuconvert.frontends",
    "optimizer": "tpuconvert.optimizer",
    "converter": "tpuconvert",
}

MOST_MODULES = 50
"""Largest number of modules of a folder."""

MOST_LOOSE = 10
"""Largest number of modules directly in ``converter/``, besides ``__init__`` and ``__main__``."""


@functools.cache
def modules(repository: Path) -> dict[str, Path]:
    """Path of every module of the package, by its dotted name."""
    found = {}
    for folder, package in FOLDERS.items():
        for path in sorted((repository / folder).rglob("*.py")):
            parts = path.relative_to(repository / folder).with_suffix("").parts
            found[".".join([package, *parts]).removesuffix(".__init__")] = path
    return found


def imported(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Modules of the package that a module imports, at any place in it and also for types."""
    for node in statements(syntax_tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in known else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@functools.cache
def arrows(repository: Path) -> list[tuple[str, str]]:
    """Imports between modules. The ``__init__`` of the package forwards names and is not a room."""
    known = modules(repository)
    pairs = ((name, target) for name, path in known.items() for target in imported(path, known))
    return [(name, target) for name, target in pairs if target in known and "tpuconvert" not in (name, target)]


def room(name: str, package: str) -> str | None:
    """Room of a module inside a package; None outside of it."""
    return name.removeprefix(f"{package}.").split(".")[0] if name.startswith(f"{package}.") else None


def tables(repository: Path) -> dict[str, list[str]]:
    """Rooms in the order of the imports, by the folder of the heading."""
    page = (repository / "docs" / "inside" / "architecture.md").read_text(encoding="utf-8")
    found = {}
    for heading, body in re.findall(r"^### `([\w/]+)/`\n(.*?)(?=^#|\Z)", page, re.M | re.S):
        cells = [line.split("|")[1] for line in body.splitlines() if line.startswith("| `")]
        found[heading] = [name.rstrip("/") for cell in cells for name in re.findall(r"`([\w/]+)`", cell)]
    return found


def package_of(folder: str) -> str:
    """Dotted name of a folder of the repository."""
    top, *rest = folder.split("/")
    return ".".join([FOLDERS[top], *rest])


def test_no_circles_between_rooms_at_any_level(repository: Path) -> None:
    graphs: dict[str, dict[str, set[str]]] = {}
    for name, target in arrows(repository):
        # The rooms of an import differ in one package only: the smallest one that contains both modules.
        inner, other = name.split("."), target.split(".")
        depth = next((place for place, parts in enumerate(zip(inner, other, strict=False)) if len({*parts}) > 1), None)
        if depth is not None:
            graphs.setdefault(".".join(inner[:depth]), {}).setdefault(inner[depth], set()).add(other[depth])
    circles = {}
    for package, graph in graphs.items():
        try:
            graphlib.TopologicalSorter(graph).prepare()
        except graphlib.CycleError as error:
            circles[package] = error.args[1]
    assert circles == {}


@pytest.mark.parametrize("folder", [*FOLDERS, "runtime/native", "optimizer/quantize", "converter/conversion"])
def test_imports_follow_the_tables(repository: Path, folder: str) -> None:
    table, package = tables(repository)[folder], package_of(folder)
    rank = {name: number for number, name in enumerate(table)}
    outer = set(FOLDERS) if folder == "converter" else set()
    found = {room(name, package) for name in modules(repository)} - {None, "__main__"} - outer
    assert found == set(table), "docs/inside/architecture.md has a row for each room"
    against = [
        f"{name} imports {target}"
        for name, target in arrows(repository)
        if (inner := room(name, package)) in rank and (other := room(target, package)) in rank
        if rank[str(inner)] < rank[str(other)]
    ]
    assert against == []


def test_top_level_folders_follow_the_table(repository: Path) -> None:
    rank = {name: number for number, name in enumerate(tables(repository)["tpuconvert"])}
    folder_of = {package: folder for folder, package in FOLDERS.items()}

    def top(name: str) -> int:
        return rank[next((folder for package, folder in folder_of.items() if room(name, package)), "converter")]

    # converter/ holds the whole package, so that the names of the others begin with its own.
    assert [pair for pair in arrows(repository) if top(pair[0]) < top(pair[1])] == []


def test_folders_have_few_modules(repository: Path) -> None:
    counts = {
        str(path.parent.relative_to(repository)): len(list(path.parent.glob("*.py"))) - 1
        for path in modules(repository).values()
        if path.name == "__init__.py"
    }
    assert {folder: count for folder, count in counts.items() if count > MOST_MODULES} == {}
    assert counts["converter"] - 1 <= MOST_LOOSE


def test_picture_names_rooms(repository: Path) -> None:
    """A folder in ``docs/images/architecture.svg`` is in the top-level folder that is named before it."""
    picture = (repository / "docs" / "images" / "architecture.svg").read_text(encoding="utf-8")
    names = re.findall(r"([a-z]\w+)/", " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", picture)))
    top, absent = "", []
    for name in names:
        top = name if name in FOLDERS else top
        if name not in FOLDERS and not (repository / top / name).is_dir():
            absent.append(f"{top}/{name}")
    assert set(FOLDERS) <= set(names)
    assert absent == []


def test_the_table_is_read(repository: Path) -> None:
    """A table that is not found would let everything pass."""
    found = tables(repository)
    assert found["schema"][-1] == "file" and len(found) >= 9


def test_a_circle_of_type_only_imports_is_found(tmp_path: Path) -> None:
    for folder in FOLDERS:
        (tmp_path / folder).mkdir()
    for name, other in (("one", "two"), ("two", "one")):
        package = tmp_path / "schema" / name
        package.mkdir()
        (package / "__init__.py").write_text("", encoding="utf-8")
        body = f"if TYPE_CHECKING:\n    from tpuconvert.schema.{other}.part import f\n"
        (package / "part.py").write_text(body, encoding="utf-8")
    (tmp_path / "schema" / "__init__.py").write_text("", encoding="utf-8")
    with pytest.raises(AssertionError):
        test_no_circles_between_rooms_at_any_level(tmp_path)
