"""Hook of MkDocs: add the files of the repository that pages link to, so that these links work in the site.

A link of a page to a file or folder outside ``docs`` leads to a page under ``source`` with the text of the file, or
with the list of the files in the folder. These pages are not in the search.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
"""Relative link of Markdown: start, target and the rest. Code is not left out, because it has no such links."""

_HEADER = "---\nsearch:\n  exclude: true\n---\n\n"
_LANGUAGES = {
    ".cpp": "cpp",
    ".fbs": "text",
    ".h": "cpp",
    ".json": "json",
    ".md": "markdown",
    ".py": "python",
    ".toml": "toml",
    ".yaml": "yaml",
}
"""Text files that belong to a folder, by suffix, and the language of their highlighting."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file and folder that a page links to, and for the files in such a folder."""
    root = Path(config.docs_dir).parent
    waiting = [
        target
        for file in files.documentation_pages()
        for target in _targets(file.content_string, posixpath.dirname(f"docs/{file.src_uri}"))
    ]
    done: set[str] = set()
    while waiting:
        name = waiting.pop()
        path = root / name
        if name in done or not path.exists() or files.get_file_from_path(_published(name)):
            continue
        done.add(name)
        if path.is_dir():
            inside = _files_in(path, root)
            waiting += inside
            content = _folder_page(name, inside, root)
        else:
            text = path.read_text(encoding="utf-8")
            if name.endswith(".md"):
                waiting += _targets(text, posixpath.dirname(name))
            content = _file_page(name, text)
        files.append(File.generated(config, _page_of(name), content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace links to files of the repository by links to their pages."""
    uri = page.file.src_uri
    # A page under `source` has the links of the file that it shows.
    origin = uri.removeprefix("source/").removesuffix(".md") if uri.startswith("source/") else f"docs/{uri}"
    if not origin.endswith(".md") and (Path(config.docs_dir).parent / origin).is_file():
        return markdown  # code has no links

    def replace(match: re.Match[str]) -> str:
        name = _resolve(match[2], posixpath.dirname(origin))
        target = next((path for path in (_published(name), _page_of(name)) if files.get_file_from_path(path)), None)
        if target is None:
            return match[0]
        return f"{match[1]}{posixpath.relpath(target, posixpath.dirname(uri) or '.')}{match[3]}"

    return _LINK.sub(replace, markdown)


def _targets(text: str, folder: str) -> Iterator[str]:
    """Yield the names that links of a text lead to, relative to the repository."""
    for match in _LINK.finditer(text):
        yield _resolve(match[2], folder)


def _resolve(target: str, folder: str) -> str:
    return posixpath.normpath(posixpath.join(folder, target))


def _files_in(folder: Path, root: Path) -> list[str]:
    """Return the names of the text files in a folder and its subfolders."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix in _LANGUAGES)
    return [path.relative_to(root).as_posix() for path in found if not path.parent.name.endswith(".egg-info")]


def _published(name: str) -> str:
    """Return the path of a file of ``docs`` relative to that folder; another name is not found there."""
    return name.removeprefix("docs/") if name.startswith("docs/") else f"../{name}"


def _page_of(name: str) -> str:
    """Return the path of the page of a file or folder outside ``docs``, relative to ``docs``."""
    return f"source/{name}.md"


def _file_page(name: str, text: str) -> str:
    """Return the page of a file: Markdown as it is, other text as a block of code."""
    if name.endswith(".md"):
        return f"{_HEADER}{text}"
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{_HEADER}# {name}\n\n{fence}{_LANGUAGES.get(Path(name).suffix, 'text')}\n{text}\n{fence}\n"


def _folder_page(name: str, inside: list[str], root: Path) -> str:
    """Return the page of a folder: its files with the first line of their docstrings."""
    rows = []
    for file in inside:
        text = (root / file).read_text(encoding="utf-8")
        summary = ""
        if file.endswith(".py"):
            summary = (ast.get_docstring(ast.parse(text)) or "").split("\n", 1)[0].replace("|", "\\|")
        path = posixpath.relpath(file, name)
        rows.append(f"| [`{path}`]({posixpath.relpath(file, posixpath.dirname(name) or '.')}) | {summary} |")
    return f"{_HEADER}# {name}/\n\n| file | content |\n|---|---|\n" + "\n".join(rows) + "\n"
