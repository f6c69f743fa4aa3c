"""A browser and pages of reports.

Tests are skipped without Playwright or without a Chromium. With ``TPUCONVERT_REQUIRE_BROWSER``, as in CI, they fail.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import pytest

from tools.bench.synthetic_report import describe_network
from tpuconvert.report.html_page import report_page, to_html

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NODES = 400
"""Number of nodes of the synthetic model: more than the table draws at once."""

OpenPage = Callable[..., Any]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if importlib.util.find_spec("playwright") is None:
        _skip("playwright is not installed: pip install -e '.[browser]'")
    from tools.pages.browser import find_browser, open_browser  # needs playwright, which is optional

    if find_browser() is None:
        _skip("no Chromium: install one, or name it in TPUCONVERT_CHROMIUM")
    with open_browser() as browser:
        yield browser


def _skip(reason: str) -> NoReturn:
    """Skip a test that needs a browser, or let it fail where a browser is required."""
    if os.environ.get("TPUCONVERT_REQUIRE_BROWSER"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def report_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of one synthetic model."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(to_html(describe_network(NODES)), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def pair_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of two models on one page."""
    path = tmp_path_factory.mktemp("report") / "pair.html"
    descriptions = [describe_network(40), {**describe_network(60), "file": "second.onnx"}]
    path.write_text(report_page(descriptions, "pair"), encoding="utf-8")
    return path


@pytest.fixture
def open_page(browser: Browser) -> OpenPage:
    """Function that opens a file as a context manager, and fails on errors, requests and violations of the policy."""

    @contextmanager
    def open_file(
        path: Path, width: int = 1400, theme: Literal["light", "dark"] = "light", *, scripts: bool = True
    ) -> Iterator[Page]:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme, java_script_enabled=scripts
        )
        complaints: list[str] = []
        page = context.new_page()
        page.on("console", lambda message: complaints.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("request", lambda request: complaints.append(f"request: {request.url}"))
        address = path.as_uri()
        page.goto(address)
        if scripts:
            page.wait_for_selector("html.started")
        try:
            yield page
            assert complaints == [f"request: {address}"], "the page makes no request and prints nothing"
        finally:
            context.close()

    return open_file
