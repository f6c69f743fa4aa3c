"""The graph view in a headless Chromium: drawing, selection, blocks, search, colors, keys, and positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.support.report.graph_view_cases import (
    CASES,
    Case,
    chain,
    decoder,
    inception,
    random_graph,
    residual,
    transformer,
)
from tests.support.report.graph_view_page import page_of
from tests.support.sampled import sampled

OpenGraph = Callable[..., AbstractContextManager[Any]]

OVERLAPS = """() => {
  const { boxes } = report.graph.state.scene;
  const rows = [...boxes].sort((a, b) => a.y - b.y);
  const found = [];
  rows.forEach((a, at) => {
    for (let i = at + 1; i < rows.length && rows[i].y < a.y + a.h; i += 1) {
      const b = rows[i];
      const isInside = a.kind === 3 && b.block === a.block;
      const isOutside = b.kind === 3 && a.block === b.block;
      if (a.x < b.x + b.w && b.x < a.x + a.w && !isInside && !isOutside) found.push([a, b]);
      if (isInside && (b.x < a.x || b.x + b.w > a.x + a.w || b.y + b.h > a.y + a.h)) found.push([a, b]);
    }
  });
  return found;
}"""
"""Pairs of boxes that overlap, and boxes that leave the frame of their block."""

LINES = """() => {
  const { scene } = report.graph.state;
  const back = (line) => (line.parent < 0 ? line : back(scene.lines[line.parent]));
  const drawn = new Set();
  let broken = 0;
  for (const line of scene.lines) {
    if (line.parent === undefined || line.y1 < line.y0) broken += 1;
    if (line.parent >= 0) {
      const before = scene.lines[line.parent];
      const distance = Math.hypot(before.x1 - line.x0, before.y1 - line.y0);
      if (distance > 0.01 || before.net !== line.net) broken += 1;
    }
    if (line.box >= 0) drawn.add(scene.boxOf[back(line).net] + " " + line.box);
  }
  let missing = 0;
  const { edges } = report.model;
  for (let at = 0; at < edges.length; at += 2) {
    const [from, to] = [scene.boxOf[edges[at]], scene.boxOf[edges[at + 1]]];
    if (from !== to && !drawn.has(from + " " + to)) missing += 1;
  }
  return { broken, missing };
}"""
"""Number of lines that go up or do not continue their parent, and number of edges without a line."""


@pytest.fixture
def open_graph(open_page: OpenGraph, tmp_path: Path) -> OpenGraph:
    """Function that opens the report of a case, as ``open_page`` does."""

    @contextmanager
    def open_case(case: Case, width: int = 1400, theme: Literal["light", "dark"] = "light") -> Iterator[Any]:
        path = tmp_path / "graph.html"
        path.write_text(page_of(case), encoding="utf-8")
        with open_page(path, width, theme) as page:
            wait_until(page, "report.graph.view.width > 0")
            yield page

    return open_case


def wait_until(page: Any, expression: str) -> None:
    """Wait for a condition. The policy of the page forbids the function of Playwright, which evaluates text."""
    for _ in range(200):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(25)
    pytest.fail(f"still false after 5 s: {expression}")


def box_of(page: Any, v: int) -> dict[str, float]:
    """Box of a node, or of its block, in pixels of the page."""
    box: dict[str, float] = page.evaluate("v => report.graph.screenBox(v)", v)
    canvas = page.locator(".graph-stage > canvas").bounding_box()
    return {**box, "x": box["x"] + canvas["x"], "y": box["y"] + canvas["y"]}


def click_node(page: Any, v: int, count: int = 1) -> None:
    box = box_of(page, v)
    page.mouse.click(box["x"] + box["w"] / 3, box["y"] + box["h"] / 2, click_count=count)


def colors_of(page: Any) -> set[tuple[int, ...]]:
    """The colors of the pixels of the canvas, on a grid."""
    found = page.evaluate(
        """() => {
          report.graph.paintNow();
          const canvas = document.querySelector(".graph-stage > canvas");
          const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
          copy.drawImage(canvas, 0, 0);
          const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
          const colors = new Set();
          for (let at = 0; at < data.length; at += 4 * 7) colors.add([...data.slice(at, at + 3)].join());
          return [...colors];
        }"""
    )
    return {tuple(map(int, color.split(","))) for color in found}


def expanded(page: Any) -> int:
    count: int = page.evaluate("report.graph.state.expanded.size")
    return count


def spoken(page: Any) -> str:
    text: str = page.locator(".graph-live").inner_text()
    return text


@pytest.mark.parametrize("name", sampled([name for name in CASES if name != "chain"], every=2))
def test_boxes_and_lines_in_every_state_of_expansion(open_graph: OpenGraph, name: str) -> None:
    with open_graph(CASES[name]()) as page:
        blocks = page.evaluate("report.model.layout.blocks.length")
        for seed in range(4):
            # Sets of expanded blocks: all, none, every second, every third.
            page.evaluate(
                """([seed, blocks]) => {
                  const { state } = report.graph;
                  const all = Array.from({ length: blocks }, (_, place) => place);
                  state.expanded = new Set(all.filter((place) => seed === 0 || (seed > 1 && place % seed === 1)));
                  state.scene = report.graphGeometry.build(state.layout, report.nodeCount(), state.expanded);
                  report.graph.paintNow();
                }""",
                [seed, blocks],
            )
            assert page.evaluate(OVERLAPS) == []
            assert page.evaluate(LINES) == {"broken": 0, "missing": 0}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
def test_operators_have_the_colors_of_the_page(
    open_graph: OpenGraph, width: int, theme: Literal["light", "dark"]
) -> None:
    with open_graph(residual(2, scopes=False), width, theme) as page:
        conv = (0x2F, 0x6F, 0xD6) if theme == "light" else (0x6F, 0xA3, 0xF2)
        assert conv in colors_of(page)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        page.emulate_media(color_scheme="dark" if theme == "light" else "light")
        wait_until(page, "report.graph.state.colors.ground === report.color('ground')")
        assert conv not in colors_of(page)


def test_click_selects_a_node(open_graph: OpenGraph) -> None:
    with open_graph(residual(2, scopes=False)) as page:
        click_node(page, 1)
        assert page.evaluate("report.selected") == 1
        assert "n0_conv1" in spoken(page)
        before = page.evaluate("report.graph.view.y")
        click_node(page, 2)
        assert page.evaluate("report.selected") == 2
        assert page.evaluate("report.graph.view.y") == before, "the graph stays where it is"


def test_lines_of_the_selected_node_are_marked(open_graph: OpenGraph) -> None:
    with open_graph(residual(18, scopes=False)) as page:
        page.evaluate("report.select(10)")  # conv2's relu and the skip end in this add
        nets = page.evaluate(
            "[...new Set([...report.graph.state.paths].map(line => report.graph.state.scene.lines[line].net))]"
        )
        producers = page.evaluate("report.producers(10)")
        assert sorted(nets) == sorted({10, *producers})


def test_small_graphs_are_expanded_and_large_ones_collapsed(open_graph: OpenGraph) -> None:
    with open_graph(residual(18, scopes=True)) as page:
        assert expanded(page) == 6
    with open_graph(transformer(12)) as page:
        assert expanded(page) == 0


def test_double_click_expands_and_the_title_collapses(open_graph: OpenGraph) -> None:
    with open_graph(transformer(12)) as page:
        node = page.evaluate("report.model.layout.blocks[0].nodes[0]")
        top = box_of(page, node)
        click_node(page, node, 2)
        assert expanded(page) == 1
        frame = page.evaluate("report.graph.state.scene.boxes[report.graph.state.scene.frameOf.get(0)].y")
        shown = (frame - page.evaluate("report.graph.view.y")) * page.evaluate("report.graph.view.zoom")
        canvas = page.locator(".graph-stage > canvas").bounding_box()
        assert abs(shown + canvas["y"] - top["y"]) < 2, "the top of the block stays where it was"
        assert "expanded" in spoken(page)
        title = page.evaluate(
            """() => {
              const { scene } = report.graph.state;
              const { x, y } = scene.boxes[scene.frameOf.get(0)];
              const { view } = report.graph;
              return [(x - view.x) * view.zoom + 10, (y - view.y) * view.zoom + 10];
            }"""
        )
        page.mouse.click(canvas["x"] + title[0], canvas["y"] + title[1])
        assert expanded(page) == 0


def test_buttons_expand_collapse_and_fit(open_graph: OpenGraph) -> None:
    with open_graph(transformer(12)) as page:
        page.click("text=Expand all")
        assert expanded(page) == 12
        page.click("text=Collapse all")
        assert expanded(page) == 0
        page.click("text=Expand all")
        page.click("text=Fit")
        height = page.evaluate("report.graph.state.scene.height * report.graph.view.zoom")
        assert height < page.evaluate("report.graph.view.height")


def test_selection_elsewhere_expands_the_block_and_shows_the_node(open_graph: OpenGraph) -> None:
    with open_graph(transformer(12)) as page:
        page.evaluate("report.select(200)")
        assert expanded(page) == 1
        box = page.evaluate("report.graph.screenBox(200)")
        view = page.evaluate("report.graph.view")
        assert 0 < box["x"] < view["width"]
        assert 0 < box["y"] < view["height"]
        page.evaluate("report.select(20, false)")
        assert expanded(page) == 1, "the selection at the start expands nothing"


def test_search_marks_nodes_and_shows_them(open_graph: OpenGraph) -> None:
    with open_graph(transformer(12)) as page:
        page.evaluate("report.showFound([250, 251])")
        block = page.evaluate("report.graph.state.blockOf[250]")
        assert page.evaluate("[...report.graph.state.foundBlocks]") == [block]
        box = page.evaluate("report.graph.screenBox(250)")
        assert 0 < box["y"] < page.evaluate("report.graph.view.height")
        assert (0xB5, 0x48, 0x0B) in colors_of(page)
        page.evaluate("report.showFound(null)")
        assert (0xB5, 0x48, 0x0B) not in colors_of(page)


def test_colors_by_precision_and_by_measure(open_graph: OpenGraph) -> None:
    with open_graph(transformer(2)) as page:
        values = page.eval_on_selector_all("[aria-label='Color by'] option", "all => all.map(o => o.value)")
        assert values == ["kind", "precision", "sqnr", "macs"]
        page.select_option("[aria-label='Color by']", "precision")
        assert page.locator(".graph-legend li").all_inner_texts() == ["INT8", "float"]
        integer, floating = (0x24, 0x91, 0x5A), (0xD9, 0x73, 0x0D)
        assert {integer, floating} <= colors_of(page)
        page.evaluate("report.view('graph').color('macs')")
        assert page.locator(".graph-legend li").first.inner_text() == "0"
        assert integer not in colors_of(page)


def test_keys_move_zoom_fit_and_select(open_graph: OpenGraph) -> None:
    with open_graph(residual(2, scopes=False)) as page:
        canvas = page.locator(".graph-stage > canvas")
        assert "Graph with 12 nodes" in canvas.get_attribute("aria-label")
        canvas.focus()
        x, zoom = page.evaluate("[report.graph.view.x, report.graph.view.zoom]")
        page.keyboard.press("+")
        assert page.evaluate("report.graph.view.zoom") > zoom
        page.keyboard.press("ArrowRight")
        assert page.evaluate("report.graph.view.x") > x
        page.keyboard.press("0")
        assert page.evaluate("report.graph.view.zoom") < zoom
        page.evaluate("report.select(0)")
        page.keyboard.press("Shift+ArrowDown")
        assert page.evaluate("report.selected") == 1
        page.keyboard.press("Shift+ArrowUp")
        assert page.evaluate("report.selected") == 0
        page.keyboard.press("Escape")
        assert page.evaluate("report.selected") == -1


def test_enter_expands_and_collapses_the_block(open_graph: OpenGraph) -> None:
    with open_graph(transformer(12)) as page:
        node = page.evaluate("report.model.layout.blocks[1].nodes[0]")
        click_node(page, node)
        assert "23 nodes" in spoken(page)
        page.keyboard.press("Enter")
        assert expanded(page) == 1
        assert page.evaluate("report.selected") == node
        page.keyboard.press("Enter")
        assert expanded(page) == 0


def test_drag_and_wheel_move_and_zoom(open_graph: OpenGraph) -> None:
    with open_graph(residual(18, scopes=True)) as page:
        x, y = page.evaluate("[report.graph.view.x, report.graph.view.y]")
        page.mouse.move(300, 300)
        page.mouse.down()
        page.mouse.move(340, 250, steps=4)
        page.mouse.up()
        moved = page.evaluate("[report.graph.view.x, report.graph.view.y, report.graph.view.zoom]")
        assert moved[0] == pytest.approx(x - 40 / moved[2])
        assert moved[1] == pytest.approx(y + 50 / moved[2])
        assert page.evaluate("report.selected") == 0, "a drag selects nothing"
        page.evaluate("document.activeElement.blur()")
        page.mouse.wheel(0, -200)
        page.wait_for_selector(".graph-hint:not([hidden])")
        assert page.locator(".graph-hint").inner_text() == "Click the graph or hold Ctrl to zoom with the wheel"
        assert page.evaluate("report.graph.view.zoom") == moved[2], (
            "the wheel scrolls the page until the graph has the focus"
        )
        page.locator(".graph-stage > canvas").focus()
        page.mouse.wheel(0, -200)
        wait_until(page, f"report.graph.view.zoom > {moved[2]}")


def test_wheel_with_ctrl_zooms_and_the_page_stays(open_graph: OpenGraph) -> None:
    with open_graph(residual(18, scopes=True)) as page:
        zoom, scroll = page.evaluate("[report.graph.view.zoom, scrollY]")
        page.mouse.move(300, 300)
        page.keyboard.down("Control")
        page.mouse.wheel(0, -200)
        page.keyboard.up("Control")
        wait_until(page, f"report.graph.view.zoom > {zoom}")
        assert page.evaluate("scrollY") == scroll
        assert page.locator(".graph-hint").is_hidden()


@pytest.mark.parametrize("width", [400, 1400])
def test_keyboard_focus_shows_the_keys(open_graph: OpenGraph, width: int) -> None:
    with open_graph(residual(2, scopes=False), width) as page:
        hint = page.locator(".graph-hint")
        canvas = page.locator(".graph-stage > canvas")
        page.locator(".graph-tools select:visible").last.focus()
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement === report.graph.parts.canvas")
        for key in ("Arrow keys move", "zoom", "0 fits", "Shift", "Enter"):
            assert key in hint.inner_text()
            assert key.lower() in canvas.get_attribute("aria-label").lower(), "screen readers get the same keys"
        inside, stage = hint.bounding_box(), page.locator(".graph-stage").bounding_box()
        assert stage["x"] <= inside["x"] and inside["x"] + inside["width"] <= stage["x"] + stage["width"]
        page.keyboard.press("Tab")
        assert hint.is_hidden()
        canvas.click(position={"x": 40, "y": 40})
        assert hint.is_hidden(), "a user of the mouse has the text above the graph"


def test_touch_moves_and_pinches(open_graph: OpenGraph) -> None:
    with open_graph(residual(18, scopes=True)) as page:
        canvas = page.locator(".graph-stage > canvas").bounding_box()
        touch = page.context.new_cdp_session(page)

        def send(kind: str, *points: tuple[float, float]) -> None:
            places = [{"x": canvas["x"] + x, "y": canvas["y"] + y, "id": i} for i, (x, y) in enumerate(points)]
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": places})

        before = page.evaluate("({ ...report.graph.view })")
        send("touchStart", (200, 200))
        send("touchMove", (230, 160))
        send("touchEnd")
        moved = page.evaluate("({ ...report.graph.view })")
        assert moved["x"] == pytest.approx(before["x"] - 30 / before["zoom"])
        assert moved["y"] == pytest.approx(before["y"] + 40 / before["zoom"])
        send("touchStart", (200, 200), (300, 200))
        send("touchMove", (150, 200), (350, 200))
        send("touchEnd")
        zoomed = page.evaluate("({ ...report.graph.view })")
        assert zoomed["zoom"] == pytest.approx(2 * moved["zoom"], rel=0.01)
        middle = [view["x"] + 250 / view["zoom"] for view in (moved, zoomed)]
        assert middle[1] == pytest.approx(middle[0], abs=1), "what is between the fingers stays there"


def test_tooltip_of_hostile_names_is_text(open_graph: OpenGraph) -> None:
    case = Case()
    case.node("<img src=x onerror=alert(1)></script>", case.node("conv"))
    with open_graph(case.with_ports()) as page:
        box = box_of(page, 1)
        page.mouse.move(box["x"] + 20, box["y"] + 20)
        assert "<img src=x" in page.locator(".graph-tip").inner_text()
        assert page.locator(".graph-tip img").count() == 0


def test_shapes_of_lines(open_graph: OpenGraph) -> None:
    """A line has the shape of its tensor, also with dynamic dimensions, but not if results of the node differ."""
    labels = """() => {
      const { context } = report.graph.parts;
      const written = [];
      const fillText = context.fillText;
      context.fillText = (text) => written.push(text);
      report.graph.paintNow();
      context.fillText = fillText;
      return written.filter((text) => text.includes("\u00d7"));
    }"""
    with open_graph(chain(2)) as page:
        assert page.evaluate(labels) == [
            "N\u00d73\u00d732\u00d732",
            "N\u00d716\u00d78\u00d78",
            "N\u00d716\u00d79\u00d78",
        ]
        page.evaluate("report.model.more_results = { 0: [{ shape: [1, 2] }] }")
        assert page.evaluate(labels) == ["N\u00d73\u00d732\u00d732", "N\u00d716\u00d79\u00d78"]


def test_model_without_layout_shows_no_graph(open_graph: OpenGraph) -> None:
    with open_graph(chain(2)) as page:
        assert page.locator(".graph-stage").is_visible()
        page.evaluate("delete report.model.layout, report.showModel(0)")
        assert page.evaluate("report.graph.state.scene") is None
        assert not page.locator(".graph-stage").is_visible()


def test_map_moves_in_a_large_graph(open_graph: OpenGraph) -> None:
    with open_graph(chain(10_000)) as page:
        page.click("text=Expand all")
        area = page.locator(".graph-map").bounding_box()
        page.mouse.click(area["x"] + area["width"] / 2, area["y"] + area["height"] / 2)
        middle = page.evaluate("report.graph.state.scene.height / 2")
        view = page.evaluate("report.graph.view")
        assert view["y"] + view["height"] / view["zoom"] / 2 == pytest.approx(middle, rel=0.02)
        assert len(colors_of(page)) > 3


def test_panning_lays_out_nothing(open_graph: OpenGraph) -> None:
    """A layout of the page in every frame took more time than drawing the graph."""
    with open_graph(chain(10_000)) as page:
        page.click("text=Expand all")
        assert page.locator(".graph-map-mark").is_visible()
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable")

        def layouts() -> float:
            metrics = session.send("Performance.getMetrics")["metrics"]
            return float(next(metric["value"] for metric in metrics if metric["name"] == "LayoutCount"))

        pan = """async () => {
          const before = parts().style.transform;
          for (let frame = 0; frame < 20; frame += 1) {
            report.graph.move(2, 900);
            await new Promise(requestAnimationFrame);
          }
          await new Promise(requestAnimationFrame);
          return before !== parts().style.transform;
        }""".replace("parts()", "report.graph.parts.mapMark")
        page.evaluate(pan)
        before = layouts()
        assert page.evaluate(pan), "the mark of the map moves"
        assert layouts() == before


def test_operators_are_measured_once_for_all_zooms(open_graph: OpenGraph) -> None:
    count = """() => {
      const { prototype } = CanvasRenderingContext2D;
      const original = prototype.measureText;
      const calls = [];
      prototype.measureText = function (text) { calls.push(text); return original.call(this, text); };
      for (const zoom of [0.5, 0.4, 0.3, 0.45]) {
        report.graph.zoomBy(zoom / report.graph.view.zoom);
        report.graph.paintNow();
      }
      prototype.measureText = original;
      return calls;
    }"""
    with open_graph(residual(18, scopes=False)) as page:
        page.evaluate("report.graph.fit(); report.graph.zoomBy(0.3 / report.graph.view.zoom); report.graph.paintNow()")
        operators = page.evaluate("Array.from({ length: report.nodeCount() }, (_, v) => report.opOf(v))")
        assert not set(page.evaluate(count)) & set(operators)


@pytest.mark.parametrize(
    ("name", "width"),
    [
        pytest.param(name, width, marks=() if index % 3 == 0 and width == (390, 1440)[index % 2] else pytest.mark.slow)
        for index, name in enumerate(name for name in CASES if name != "empty")
        for width in (390, 1440)
    ],
)
def test_first_view_is_readable_and_begins_at_an_input(open_graph: OpenGraph, name: str, width: int) -> None:
    with open_graph(CASES[name](), width) as page:
        view = page.evaluate("report.graph.view")
        assert view["zoom"] >= 0.75
        inputs = page.evaluate("report.model.inputs.map((_, i) => report.graph.screenBox(report.nodeCount() + i))")
        first = inputs[0]
        assert first["x"] >= 0.0 and first["x"] + first["w"] <= view["width"]
        assert 0.0 <= first["y"] <= view["height"] / 2
        scene = page.evaluate("report.graph.state.scene.boxes")
        top = [box for box in scene if box["y"] < view["y"] + view["height"] / view["zoom"]]
        left = (min(box["x"] for box in top) - view["x"]) * view["zoom"]
        right = view["width"] - (max(box["x"] + box["w"] for box in top) - view["x"]) * view["zoom"]
        is_cut = left < 0 or right < 0
        assert is_cut or left == pytest.approx(right, abs=1.0), "boxes that fit are in the middle"


def test_wide_graph_is_shown_as_a_whole_only_if_it_is_readable(open_graph: OpenGraph) -> None:
    with open_graph(chain(4), 1440) as page:
        boxes = page.evaluate("report.model.nodes.name.map((_, v) => report.graph.screenBox(v))")
        height = page.evaluate("report.graph.view.height")
        assert all(box["y"] >= 0 and box["y"] + box["h"] <= height for box in boxes)
    with open_graph(chain(60), 1440) as page:
        assert page.evaluate("report.graph.view.zoom") == 1.0


@pytest.mark.parametrize("width", sampled([390, 700, 1440], every=2))
def test_map_covers_no_part_of_the_graph(open_graph: OpenGraph, width: int) -> None:
    with open_graph(random_graph(400, 3), width) as page:
        page.click("text=Expand all")
        stage = page.locator(".graph-stage").bounding_box()
        panel = page.locator("#view-graph").bounding_box()
        small = page.locator(".graph-map-box")
        assert small.is_visible() == (width > 660)
        if small.is_visible():
            area = small.bounding_box()
            assert area["x"] >= stage["x"] + stage["width"]
            assert area["x"] + area["width"] <= panel["x"] + panel["width"]
        assert page.evaluate("document.documentElement.scrollWidth") == width


def test_graph_has_the_larger_part_of_a_phone(open_graph: OpenGraph) -> None:
    with open_graph(residual(18, scopes=True), 390) as page:
        assert page.locator(".graph-stage").bounding_box()["height"] >= 400


def test_shapes_of_tensors_touch_no_line_and_no_other_shape(open_graph: OpenGraph) -> None:
    labels_and_lines = """() => {
      const { state, parts } = report.graph;
      const places = state.scene.lines.map((_, place) => place);
      return [report.graphPaint.labelsOf(parts.context, state.scene, places), state.scene.lines];
    }"""
    for case in (decoder(4), inception(3)):
        with open_graph(case) as page:
            page.click("text=Expand all")
            labels, lines = page.evaluate(labels_and_lines)
            assert labels
            rectangles = [(label["x"], label["y"] - 9.5, label["x"] + label["w"], label["y"]) for label in labels]
            sides = [
                (min(line["x0"], line["x1"]), line["y0"], max(line["x0"], line["x1"]), line["y1"]) for line in lines
            ]
            for at, one in enumerate(rectangles):
                for other in (*rectangles[:at], *sides):
                    overlaps = one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
                    assert not overlaps
