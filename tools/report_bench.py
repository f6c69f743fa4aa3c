"""Measure the report: time to build, size, first paint, script start, selection, and frames while the graph is panned.

``paint`` is the time in which the script draws one frame, ``frame`` the interval between frames.

Needs the extra ``browser`` and a Chromium. Example: ``python tools/report_bench.py --nodes 180 1000 10000``
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from browser import open_browser
from synthetic_report import describe_network

from tpuconvert.report.html_page import to_html

LOADS = 5
"""Number of times that a page is loaded. The median is printed."""

FRAMES = 120
"""Number of frames of the panned graph."""

_HEADING = "page  MB  build s  first paint ms  ready ms  select ms  paint: median ms  95 %  frame: median ms  95 %"

_PAN = """
async (frames) => {
  const canvas = document.querySelector("#view-graph canvas");
  if (!canvas) return [];
  canvas.scrollIntoView({ block: "center" });
  const box = canvas.getBoundingClientRect();
  const send = (type, x, y) => canvas.dispatchEvent(new PointerEvent(type, {
    bubbles: true, clientX: box.left + x, clientY: box.top + y, pointerId: 1, button: 0, buttons: 1 }));
  const paints = [];
  const frameTimes = [];
  await new Promise((resolve) => requestAnimationFrame(resolve));
  try { send("pointerdown", 300, 200); } catch (error) { /* a synthetic pointer cannot be captured */ }
  for (let frame = 0; frame < frames; frame += 1) {
    send("pointermove", 300 + 100 * Math.sin(frame / 9), 200 - 2 * frame);
    const start = performance.now();
    report.graph.paintNow();
    paints.push(performance.now() - start);
  }
  let before = await new Promise((resolve) => requestAnimationFrame(resolve));
  for (let frame = 0; frame < frames; frame += 1) {
    send("pointermove", 300 + 100 * Math.sin(frame / 9), 200 + 2 * frame);
    const now = await new Promise((resolve) => requestAnimationFrame(resolve));
    frameTimes.push(now - before);
    before = now;
  }
  send("pointerup", 300, 200);
  return [paints, frameTimes];
}
"""


def measure_page(browser: Any, path: Path) -> tuple[float, float, float, list[list[float]]]:
    """Return first paint, start of the scripts and selection of a node in milliseconds, and the times of frames."""
    paints, starts, selections = [], [], []
    frames: list[list[float]] = []
    for number in range(LOADS):
        context = browser.new_context(viewport={"width": 1400, "height": 900})
        page = context.new_page()
        page.goto(path.as_uri())
        page.wait_for_selector("html.started")
        starts.append(page.evaluate("performance.now()"))
        paints.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
        select = (
            "const start = performance.now(); report.select(report.nodeCount() >> 1); return performance.now() - start"
        )
        selections.append(page.evaluate(f"(() => {{ {select} }})()"))
        if number == LOADS - 1:
            frames = page.evaluate(_PAN, FRAMES)
        context.close()
    return statistics.median(paints), statistics.median(starts), statistics.median(selections), frames


def main() -> int:
    """Print one line per page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="pages to measure besides the synthetic ones")
    parser.add_argument("--nodes", nargs="*", type=int, default=[180, 1000, 10_000], help="sizes of synthetic models")
    arguments = parser.parse_args()
    print(_HEADING)
    with tempfile.TemporaryDirectory() as folder, open_browser() as browser:
        pages: list[tuple[Path, float]] = [(path.absolute(), 0.0) for path in arguments.files]
        for count in arguments.nodes:
            description = describe_network(count)
            started = time.perf_counter()
            text = to_html(description)
            seconds = time.perf_counter() - started
            path = Path(folder) / f"synthetic_{count}.html"
            path.write_text(text, encoding="utf-8")
            pages.append((path, seconds))
        for path, seconds in pages:
            paint, start, selection, frames = measure_page(browser, path)
            cells = [path.name, f"{path.stat().st_size / 1e6:.2f}", f"{seconds:.2f}"]
            cells += [f"{paint:.0f}", f"{start:.0f}", f"{selection:.1f}"]
            for times in frames:
                ordered = sorted(times)
                cells += [f"{statistics.median(ordered):.1f}", f"{ordered[len(ordered) * 95 // 100]:.1f}"]
            print("  ".join(cells), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
