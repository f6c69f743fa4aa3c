"""A headless Chromium for tests and measurements of the report, driven by Playwright.

The browser is the one of the system: the one in ``TPUCONVERT_CHROMIUM``, or the first on the search path of
``chromium-headless-shell``, ``chromium``, ``chromium-browser`` and ``google-chrome``. Playwright's own download is not
used. The headless shell has no windows and tabs: the tests of the report take 40 % of the CPU time with it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")

_ARGUMENTS = (
    "--no-sandbox",  # the sandbox cannot be used by root, as in containers
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find_browser() -> str | None:
    """Return the path of the browser, or None if there is none."""
    named = os.environ.get("TPUCONVERT_CHROMIUM")
    candidates = (named,) if named else _NAMES
    return next((path for name in candidates if (path := shutil.which(name)) is not None), None)


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Start the browser with a profile that is removed at the end.

    Raises:
        FileNotFoundError: there is no browser.

    """
    path = find_browser()
    if path is None:
        raise FileNotFoundError(
            f"no browser: none of {', '.join(_NAMES)} is installed; name one in TPUCONVERT_CHROMIUM"
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(_ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()
