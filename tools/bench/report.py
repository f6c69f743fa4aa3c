"""Measure the report: time to build, size, first paint, script start, selection, and frames while the graph is panned.

The graph is panned as it is at the start, and with all blocks expanded at several zooms down to the whole graph.
``work`` is the processor time of one frame in the main thread of the page: script, style, layout, paint and the
rasterization of the canvas. ``interval`` is the time between frames, which is at least the interval of the display
and also depends on the load of the machine; ``idle`` shows it without panning.

Needs the extra ``browser`` and a Chromium. Example: ``python -m tools.bench.report --nodes 180 1000 10000``.
``--branches 60`` draws parallel chains, so that thousands of nodes are visible at once.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tools.bench.synthetic_report import describe_network
from tools.pages.browser import open_browser
from tpuconvert.report.html_page import to_html

LOADS = 5
"""Number of times that a page is loaded. The median is printed."""

FRAMES = 120
"""Number of frames of the panned graph."""

_ZOOMS = {"text": 0.8, "names": 0.3, "boxes": 0.2, "dots": 0.08, "whole": 0.0}
"""Names and zooms of the states with all blocks expanded; the last one is the smallest zoom, of the whole graph."""

_ZOOM = """
(zoom) => {
  const { graph } = report;
  if (graph.state.expanded.size < graph.state.layout.blocks.length) graph.parts.expand.click();
  if (zoom) graph.zoomBy(zoom / graph.view.zoom);
  else graph.fit();
  graph.center(graph.state.scene.width / 2, graph.state.scene.height / 2);
}
"""

_FRAME_EVENT = "ProxyMain::BeginMainFrame"
"""Event in a trace of Chromium that comprises the work of the main thread for one frame."""

_MOVE = """
async ([frames, kind]) => {
  const { graph } = report;
  const { canvas } = graph.parts;
  canvas.scrollIntoView({ block: "center" });
  const step = {
    pan: (frame) => graph.move(12 * Math.cos(frame / 9), frame % 60 < 30 ? 9 : -9),
    zoom: (frame) => graph.zoomBy(frame % 40 < 20 ? 1.12 : 1 / 1.12),
    idle: () => {},
  }[kind];
  const times = [];
  let before = await new Promise((resolve) => requestAnimationFrame(resolve));
  for (let frame = 0; frame < frames; frame += 1) {
    step(frame);
    const now = await new Promise((resolve) => requestAnimationFrame(resolve));
    times.push(now - before);
    before = now;
  }
  return times;
}
"""


def measure_frames(browser: Any, page: Any, kind: str, trace: Path) -> tuple[list[float], list[float]]:
    """Pan, zoom or wait. Return the work and the interval of each frame in ms."""
    browser.start_tracing(page=page, path=str(trace), categories=["cc"])
    intervals = page.evaluate(_MOVE, [FRAMES, kind])
    browser.stop_tracing()
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    work = [event["tdur"] / 1e3 for event in events if event["name"] == _FRAME_EVENT and "tdur" in event]
    return work or [0.0], intervals


def measure_page(
    browser: Any, path: Path, viewport: tuple[int, int], trace: Path
) -> tuple[list[float], dict[str, tuple[list[float], list[float]]]]:
    """Return first paint, script start and selection of a node, and work and intervals of frames by state; in ms."""
    paints, starts, selections = [], [], []
    frames: dict[str, tuple[list[float], list[float]]] = {}
    for number in range(LOADS):
        context = browser.new_context(viewport={"width": viewport[0], "height": viewport[1]})
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
            frames["idle"] = measure_frames(browser, page, "idle", trace)
            frames["start"] = measure_frames(browser, page, "pan", trace)
            for state, zoom in _ZOOMS.items():
                page.evaluate(_ZOOM, zoom)
                frames[state] = measure_frames(browser, page, "pan", trace)
            page.evaluate(_ZOOM, _ZOOMS["dots"])
            frames["zooming"] = measure_frames(browser, page, "zoom", trace)
        context.close()
    return [statistics.median(times) for times in (paints, starts, selections)], frames


def describe(times: list[float]) -> str:
    """Return the median and the 95th percentile of times in milliseconds."""
    ordered = sorted(times)
    return f"median {statistics.median(ordered):5.1f} ms, 95 % {ordered[len(ordered) * 95 // 100]:5.1f} ms"


def main() -> int:
    """Print one line per page, and one per state of its graph."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="pages to measure besides the synthetic ones")
    parser.add_argument("--branches", type=int, default=1, help="number of parallel branches of the synthetic models")
    parser.add_argument("--nodes", nargs="*", type=int, default=[180, 1000, 10_000], help="sizes of synthetic models")
    parser.add_argument("--viewport", nargs=2, type=int, default=[1400, 900], help="width and height in CSS pixels")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, open_browser() as browser:
        trace = Path(folder) / "trace.json"
        pages: list[tuple[Path, float]] = [(path.absolute(), 0.0) for path in arguments.files]
        for count in arguments.nodes:
            description = describe_network(count, branches=arguments.branches)
            started = time.perf_counter()
            text = to_html(description)
            seconds = time.perf_counter() - started
            path = Path(folder) / f"synthetic_{count}.html"
            path.write_text(text, encoding="utf-8")
            pages.append((path, seconds))
        for path, seconds in pages:
            (paint, start, selection), states = measure_page(browser, path, arguments.viewport, trace)
            print(
                f"{path.name}: {path.stat().st_size / 1e6:.2f} MB, built in {seconds:.2f} s, "
                f"first paint {paint:.0f} ms, script start {start:.0f} ms, selection {selection:.1f} ms",
                flush=True,
            )
            for state, (work, intervals) in states.items():
                print(f"  {state:7}  work {describe(work)}  interval {describe(intervals)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
