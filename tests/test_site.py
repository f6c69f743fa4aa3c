"""The documentation site builds without warnings, and its links lead to files of the site."""

import html
import os
import re
import subprocess
import sys
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


@pytest.mark.slow
def test_site_has_all_pages(site: Path, repository: Path) -> None:
    docs = repository / "docs"
    for page in docs.rglob("*.md"):
        path = page.relative_to(docs).with_suffix("")
        folder = path.parent if path.name == "index" else path
        assert (site / folder / "index.html").is_file(), path


@pytest.mark.slow
def test_filter_of_a_table(site: Path) -> None:
    pytest.importorskip("playwright", reason="the extra browser is not installed")
    from tools.pages.browser import find_browser, open_browser  # imports Playwright

    if find_browser() is None:
        pytest.skip("no Chromium is installed")
    with open_browser() as browser:
        page = browser.new_page()
        page.goto((site / "inside" / "exporters" / "index.html").as_uri())
        page.fill(".table-filter input", "ResNetV2 torchscript")
        shown = page.locator("table:has(th:text-is('INT8 share')) tbody tr:visible")
        assert [row.startswith("resnetv2") for row in shown.all_inner_texts()] == [True]
        assert page.locator(".table-filter output").inner_text().startswith("1 of ")
        page.fill(".table-filter input", "")
        assert shown.count() > 100


_TAG = re.compile(r"<[a-z][^>]*>")
_ADDRESS = re.compile(r"""\s(?:href|src)=(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""")


def links(page: Path) -> set[str]:
    """The addresses that a page leads to, and the images and scripts that it loads."""
    tags = _TAG.findall(page.read_text(encoding="utf-8"))
    return {html.unescape("".join(value)) for tag in tags for value in _ADDRESS.findall(tag)} - {""}


def test_links_of_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("""<a class="x" href="a&amp;b/">c</a> href="text" <img alt='' src='d.svg'><script src=e.js>""")
    assert links(page) == {"a&b/", "d.svg", "e.js"}


@pytest.mark.slow
def test_every_link_leads_to_a_file_of_the_site(site: Path) -> None:
    missing = []
    for page in site.rglob("*.html"):
        if page.name == "404.html":
            continue  # its links are relative to the root of the server
        for link in sorted(links(page)):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or not parts.path:
                continue
            target = page.parent / unquote(parts.path)
            if not (target / "index.html" if target.is_dir() else target).is_file():
                missing.append(f"{page.relative_to(site)}: {link}")
    assert not missing, f"{len(missing)} links lead nowhere: {missing[:5]}"


@pytest.mark.slow
def test_links_to_sources_lead_to_the_repository(site: Path) -> None:
    quantization = (site / "reference" / "quantization" / "index.html").read_text(encoding="utf-8")
    home = "https://github.com/tpuconvert/tpuconvert"
    assert f'href="{home}/blob/main/optimizer/prepare_quantization.py"' in quantization
    engine = (site / "inside" / "engine" / "index.html").read_text(encoding="utf-8")
    assert f'href="{home}/tree/main/schema/ops"' in engine
    assert not (site / "source").exists()


def test_address_of_a_file_of_the_repository() -> None:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed")
    from tools.pages.site_sources import address_of

    assert address_of("setup.py") == "https://github.com/tpuconvert/tpuconvert/blob/main/setup.py"
    assert address_of("docs/images") == "https://github.com/tpuconvert/tpuconvert/tree/main/docs/images"
    assert address_of("docs/index.md") is None and address_of("absent.py") is None and address_of("../x") is None
