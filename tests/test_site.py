"""The documentation site builds without warnings, and its links lead to files of the site."""

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest


@pytest.fixture(scope="module")
def site(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    pytest.importorskip("material", reason="mkdocs-material is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    return folder


def test_site_has_all_pages(site: Path, repository: Path) -> None:
    pages = {page.stem for page in (repository / "docs").glob("*.md")} - {"index"}
    assert {page.parent.name for page in site.glob("*/index.html")} >= pages


class _Links(HTMLParser):
    """The addresses that a page leads to, and the images and scripts that it loads."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found |= {value for name, value in attributes if name in ("href", "src") and value}


def test_every_link_leads_to_a_file_of_the_site(site: Path) -> None:
    missing = []
    for page in site.rglob("*.html"):
        if page.name == "404.html":
            continue  # its links are relative to the root of the server
        links = _Links()
        links.feed(page.read_text(encoding="utf-8"))
        for link in sorted(links.found):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or not parts.path:
                continue
            target = page.parent / unquote(parts.path)
            if not (target / "index.html" if target.is_dir() else target).is_file():
                missing.append(f"{page.relative_to(site)}: {link}")
    assert not missing, f"{len(missing)} links lead nowhere: {missing[:5]}"


def test_sources_that_pages_link_to_are_pages(site: Path, repository: Path) -> None:
    quantization = (site / "quantization" / "index.html").read_text(encoding="utf-8")
    assert 'href="../source/optimizer/prepare_quantization.py/"' in quantization
    shown = (site / "source" / "optimizer" / "prepare_quantization.py" / "index.html").read_text(encoding="utf-8")
    first = (repository / "optimizer" / "prepare_quantization.py").read_text(encoding="utf-8").split("\n")[0]
    assert first.strip('"') in shown.replace("&quot;", '"')
    folder = (site / "source" / "schema" / "ops" / "index.html").read_text(encoding="utf-8")
    assert 'href="attention.py/"' in folder
    index = (site / "search" / "search_index.json").read_text(encoding="utf-8")
    assert '"location":"source/' not in index, "code is not in the search"
