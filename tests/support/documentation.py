"""Pages of the documentation: the ones written for readers, and the order that the navigation gives them."""

from __future__ import annotations

from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LISTED_ELSEWHERE = {"operators", "python", "errors", "contributing"}
"""Folders with pages of one form: per operator, task in Python, error, task of a developer. An index leads to them."""


def pages() -> list[Path]:
    """Return the pages, of the folders with pages of one form only the index."""
    every = sorted(DOCS.rglob("*.md"))
    return [page for page in every if page.parent.name not in LISTED_ELSEWHERE or page.stem == "index"]


def name_of(page: Path) -> str:
    """Return the path of a page relative to the repository, without the suffix and without ``docs/``."""
    return page.relative_to(ROOT).with_suffix("").as_posix().removeprefix("docs/")


def navigation() -> dict[str, list[str]]:
    """Return the pages of each part in the order of ``mkdocs.yml``, relative to ``docs``."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    section = text.partition("\nnav:\n")[2].partition("\n\n")[0]
    parts = yaml.safe_load(f"nav:\n{section}\n")["nav"]
    return {title: names for part in parts for title, names in part.items() if isinstance(names, list)}
