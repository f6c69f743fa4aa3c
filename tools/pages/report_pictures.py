"""Write the pictures of the report in docs/images: ``python -m tools.pages.report_pictures [NAME ...]``.

The commands of docs/guides/int8-accuracy.md run in a temporary folder and write reports; a headless Chromium takes the
pictures in the light and in the dark theme. Needs the extras ``browser`` and ``images``, and a Chromium.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import Browser, Locator, Page

from tools.pages.browser import open_browser

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / "docs" / "guides" / "int8-accuracy.md"
IMAGES = ROOT / "docs" / "images"
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
COLORS = 256
"""Number of colors of an image: no color differs by more than 3 of 255, and the file has a third of the size."""

LARGEST = 150_000
"""Largest size of a picture in bytes."""


def panel(page: Page, title: str) -> Locator:
    """Return the panel of the report with a heading."""
    heading = page.get_by_role("heading", name=title, exact=True)
    return page.locator("main section, main figure, main article").filter(has=heading).last


def show_worst(page: Page) -> None:
    """Click on the first name in the table of the worst nodes."""
    panel(page, "Error of each node at the outputs").get_by_role("link").first.click()


def show_rule(page: Page) -> None:
    """Copy the precision rule of the worst node."""
    show_worst(page)
    page.get_by_role("button", name="Copy", exact=True).click()


def show_operand(page: Page) -> None:
    """Click on the operand of the worst node in the histograms."""
    show_rule(page)
    panel(page, "Histograms of tensors").locator("[data-node]", has_text="pool").first.click(timeout=4000)


def color_by_error(page: Page) -> None:
    """Show the worst node in the graph, with all nodes colored by their error."""
    show_worst(page)
    graph = panel(page, "Graph")
    graph.locator("select").last.select_option(value="isolated", timeout=4000)


@dataclass(frozen=True)
class Picture:
    """One picture.

    Args:
        report: file that the tutorial writes.
        act: brings the page into the state to show.
        show: element to take; None takes the window.
        size: width and height of the window.

    """

    report: str
    act: Callable[[Page], None] = lambda _page: None
    show: Callable[[Page], Locator] | None = None
    size: tuple[int, int] = (1280, 800)


PICTURES = {
    "report": Picture("error.html", show_worst, size=(1280, 860)),
    "report-graph": Picture("error.html", color_by_error, lambda page: panel(page, "Graph")),
    "report-histograms": Picture("error.html", show=lambda page: panel(page, "Histograms of tensors")),
    "report-memory": Picture("error.html", show=lambda page: panel(page, "Memory over time")),
    "worst-layer": Picture("error.html", show_worst, size=(1280, 520)),
    "worst-rule": Picture("error.html", show_rule, lambda page: page.locator("#details"), size=(1280, 520)),
    "worst-histogram": Picture("error.html", show_operand, lambda page: page.locator("#details"), size=(1280, 520)),
    "worst-fixed": Picture("fixed.html", size=(1280, 520)),
}


def run_tutorial(folder: Path) -> None:
    """Run the commands of the tutorial in their order."""
    (folder / "examples").symlink_to(ROOT / "examples", target_is_directory=True)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    text = TUTORIAL.read_text(encoding="utf-8")
    for language, block in re.findall(r"^```(bash|python)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        command = ["bash", "-e", "-c", block] if language == "bash" else [sys.executable, "-c", block]
        subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)


def take(browser: Browser, picture: Picture, folder: Path, theme: Literal["light", "dark"]) -> bytes:
    """Return a picture as a PNG file with a palette."""
    width, height = picture.size
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=theme, reduced_motion="reduce")
    try:
        page.goto((folder / picture.report).as_uri())
        page.wait_for_selector("html.started")
        picture.act(page)
        page.mouse.move(0, 0)
        if picture.show is None:
            page.evaluate("window.scrollTo(0, 0)")
        page.wait_for_timeout(300)  # the graph is painted in an animation frame
        taken = page.screenshot() if picture.show is None else picture.show(page).screenshot()
    finally:
        page.close()
    # The default method replaces colors of few pixels, such as the color of marked names.
    palette = Image.Quantize.MAXCOVERAGE
    image = Image.open(io.BytesIO(taken)).convert("RGB").quantize(COLORS, palette, dither=Image.Dither.NONE)
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()


def main() -> int:
    """Write the pictures. Return 1 if one is too large."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"only these of {', '.join(PICTURES)}")
    names = parser.parse_args().names or list(PICTURES)
    if unknown := set(names) - set(PICTURES):
        parser.error(f"unknown picture {', '.join(sorted(unknown))}; expected {', '.join(PICTURES)}")
    too_large = []
    with tempfile.TemporaryDirectory() as name, open_browser() as browser:
        folder = Path(name)
        run_tutorial(folder)
        for name in names:
            for theme in THEMES:
                content = take(browser, PICTURES[name], folder, theme)
                path = IMAGES / f"{name}-{theme}.png"
                path.write_bytes(content)
                print(f"{path.relative_to(ROOT)}  {len(content):,} bytes")
                too_large += [path.name] if len(content) > LARGEST else []
    if too_large:
        print(f"larger than {LARGEST:,} bytes: {', '.join(too_large)}; choose a smaller window", file=sys.stderr)
    return int(bool(too_large))


if __name__ == "__main__":
    sys.exit(main())
