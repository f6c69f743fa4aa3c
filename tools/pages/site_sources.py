"""Hook of MkDocs: links to files of the repository outside ``docs`` lead to its home, which ``setup.cfg`` declares."""

from __future__ import annotations

import configparser
import posixpath
import re
from functools import cache
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
_LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
"""Relative link of Markdown: start, target and the rest. Code is not left out, because it has no such links."""


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace links that leave ``docs``, and links to folders, which are not pages."""
    folder = posixpath.dirname(f"docs/{page.file.src_uri}")

    def replace(match: re.Match[str]) -> str:
        name = posixpath.normpath(posixpath.join(folder, match[2]))
        address = address_of(name)
        return match[0] if address is None else f"{match[1]}{address}{match[3]}"

    return _LINK.sub(replace, markdown)


def address_of(name: str) -> str | None:
    """Return the address of a file or folder at the home of the repository, or None if the site has it."""
    path = ROOT / name
    if name.startswith(".") or not path.exists() or (name.startswith("docs/") and path.is_file()):
        return None
    return f"{_home()}/{'tree' if path.is_dir() else 'blob'}/main/{name}"


@cache
def _home() -> str:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    lines = config["metadata"]["project_urls"].strip().splitlines()
    return next(line.partition("=")[2].strip() for line in lines if line.startswith("Source"))
