"""The report in a browser: search, table, details, keyboard, themes, widths, and the security policy."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any, Literal

import pytest

import tpuconvert as tc
from tests.support.networks.decoders import EXPLICIT, decoder
from tests.support.networks.small_models import model_of, scaled_and_shifted
from tests.support.sampled import sampled
from tools.bench.synthetic_report import describe_network
from tpuconvert.model.description import describe_model
from tpuconvert.report.html_page import to_html
from tpuconvert.schema.file.file_model import Note

HOSTILE = "</script><script>alert(1)</script><!-- <img src=x onerror=alert(2)> \u2028 \"'&"


def shown_names(page: Any) -> list[str]:
    """The node of each row that is drawn in the table."""
    names: list[str] = page.eval_on_selector_all("table.nodes tbody tr[data-index] a", "all => all.map(a => a.title)")
    return names


def column(page: Any, name: str) -> list[Any]:
    values: list[Any] = page.evaluate("name => report.column(name)", name)
    return values


@pytest.mark.parametrize("theme", sampled(["light", "dark"], every=2))
@pytest.mark.parametrize("width", [400, 1400])
def test_page_is_drawn_without_horizontal_scrolling(
    open_page: Any, report_file: Path, width: int, theme: Literal["light", "dark"]
) -> None:
    with open_page(report_file, width, theme) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.locator(".card").count() == 6
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        brightness = sum(int(part) for part in background[4:-1].split(","))
        assert (brightness > 600) == (theme == "light")
        page.click("#theme")
        assert page.evaluate("report.theme()") == ("dark" if theme == "light" else "light")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != background


def test_worst_node_is_selected_at_the_start_and_a_click_selects_another(open_page: Any, report_file: Path) -> None:
    with open_page(report_file) as page:
        worst = page.evaluate("report.model.worst")
        assert page.evaluate("report.selected") == worst[0]
        link = page.locator("#noise tbody td.w a").nth(3)
        link.click()
        assert page.evaluate("report.selected") == worst[3]
        details = page.locator("#details")
        assert details.locator("h3").inner_text() == column(page, "name")[worst[3]]
        text = details.inner_text()
        rule = f"--keep-float '{column(page, 'keep_float')[worst[3]]}'"
        for word in ("requant_int32", rule, "noise added", "threshold", "Relu '"):
            assert word in text
        assert page.url.endswith(f"#m0n{worst[3]}")


def test_equal_tensor_behind_a_known_deviation_has_no_difference(open_page: Any, tmp_path: Path) -> None:
    description = describe_network(40)
    entry = description["verification"]["layers"][0]
    entry.update(stage="as read", sqnr_db=None, max_absolute=0.0, cosine=1.0)
    path = tmp_path / "report.html"
    path.write_text(to_html(description), encoding="utf-8")
    with open_page(path) as page:
        index = column(page, "name").index(entry["name"])
        page.evaluate(f"report.select({index})")
        text = page.locator("#details").inner_text()
        assert "difference from the source" in text and "first differs at" not in text
        assert "as read" in page.locator(f"table.nodes tr[data-index='{index}']").inner_text()


def test_details_lead_to_operands_and_users(open_page: Any, report_file: Path) -> None:
    with open_page(report_file) as page:
        page.evaluate("report.select(6)")
        links = page.locator("#details ul.links a")
        names = column(page, "name")
        assert links.evaluate_all("all => all.map(a => a.title)") == [names[5], names[3], names[7]]
        links.first.click()
        assert page.evaluate("report.selected") == 5
        page.evaluate("report.select(0)")
        assert links.first.get_attribute("title") == "input"
        links.first.click()
        assert "graph input" in page.locator("#details").inner_text()
        assert "float32[1, 3, 224, 224]" in page.locator("#details").inner_text()


def test_names_on_charts_stay_legible_when_their_node_is_selected(open_page: Any, report_file: Path) -> None:
    """A wide stroke, which marks bars, hides letters; the texts on bars have a stroke below the letters."""
    with open_page(report_file) as page:
        selected = page.locator("svg.chart text[data-node].selected")
        assert selected.count(), "the worst node is selected at the start"
        for stroke, order in selected.evaluate_all(
            "texts => texts.map(getComputedStyle).map((style) => [style.stroke, style.paintOrder])"
        ):
            assert stroke == "none" or order.startswith("stroke")


def test_rule_is_selected_by_the_copy_button(open_page: Any, report_file: Path) -> None:
    with open_page(report_file) as page:
        page.click("button.copy")
        rule = page.locator("code.rule").inner_text()
        assert page.evaluate("getSelection().toString()") == rule
        assert page.locator("#details [role=status]").inner_text() in ("copied", "selected: press Ctrl+C")


def test_search_finds_by_name_operator_and_source_with_the_keyboard(open_page: Any, report_file: Path) -> None:
    with open_page(report_file) as page:
        page.keyboard.press("/")
        page.keyboard.type("block17/add")
        options = page.locator("#found [role=option]")
        assert options.count() == 2
        page.keyboard.press("ArrowDown")
        assert options.nth(1).get_attribute("aria-selected") == "true"
        page.keyboard.press("Enter")
        assert column(page, "name")[page.evaluate("report.selected")].endswith("block17/add/relu")
        assert page.locator("#found").is_hidden()
        for query, least in (("op:conv_v2", 100), ("CONV", 200), ("/relu'", 0), ("block9 relu", 2)):
            page.fill("#search", query)
            assert len(page.evaluate("query => report.find(query)", query)) >= least
        page.fill("#search", "no such node")
        assert "no node matches" in page.locator("#found").inner_text()
        page.keyboard.press("Escape")
        assert page.locator("#found").is_hidden()


def test_table_sorts_by_click_and_by_key_with_absent_values_last(open_page: Any, report_file: Path) -> None:
    with open_page(report_file) as page:
        names, sqnr = column(page, "name"), column(page, "sqnr")
        order = sorted((value, index) for index, value in enumerate(sqnr) if value is not None)
        heading = page.locator("table.nodes th button", has_text="SQNR dB")
        heading.click()
        assert shown_names(page)[:5] == [names[index] for _, index in order[:5]]
        assert page.locator("th[aria-sort=ascending]").count() == 1
        page.keyboard.press("Enter")  # the heading keeps the focus
        assert page.locator("th[aria-sort=descending]").count() == 1
        assert shown_names(page)[:5] == [names[index] for _, index in order[::-1][:5]]


def test_table_filters_by_words_and_conditions(open_page: Any, report_file: Path) -> None:
    with open_page(report_file) as page:
        macs, names = column(page, "macs"), column(page, "name")
        page.fill("#filter", "op:conv_v2 macs>100m")
        wanted = [name for name, count in zip(names, macs, strict=True) if count > 1e8]
        shown = shown_names(page)
        assert shown == wanted[: len(shown)] and shown
        assert f"{len(wanted)} of 400 nodes" in page.locator("#view-nodes").inner_text()


def test_table_draws_only_visible_rows(open_page: Any, report_file: Path) -> None:
    with open_page(report_file) as page:
        assert 20 <= len(shown_names(page)) <= 60
        page.evaluate("document.getElementById('nodes').scrollTop = 1e6")
        page.wait_for_function("document.querySelector('table.nodes tr[data-index=\"399\"]')")
        assert len(shown_names(page)) <= 60
        page.focus("#nodes")
        page.keyboard.press("Home")
        assert page.evaluate("report.selected") == 0
        page.keyboard.press("ArrowDown")
        assert page.evaluate("report.selected") == 1
        assert page.locator("table.nodes tr.selected").get_attribute("data-index") == "1"


def test_columns_follow_the_data(open_page: Any, report_file: Path) -> None:
    with open_page(report_file) as page:
        buttons = page.locator(".presets button")
        assert buttons.all_inner_texts() == ["Overview", "Accuracy", "Quantization", "Cost", "Graph"]
        for name, heading in (
            ("Accuracy", "clipped"),
            ("Quantization", "lowest"),
            ("Cost", "MACs"),
            ("Graph", "reads"),
        ):
            buttons.filter(has_text=name).click()
            assert heading in page.locator("table.nodes thead").inner_text()


def test_every_control_is_reached_with_the_keyboard_and_shows_the_focus(open_page: Any, report_file: Path) -> None:
    with open_page(report_file) as page:
        reached = set()
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement === document.body"):
                continue  # after the last control the focus leaves the page
            reached.add(page.evaluate("document.activeElement.id || document.activeElement.className"))
            visible = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert visible != "none", page.evaluate("document.activeElement.outerHTML")
        assert {"skip", "search", "theme", "filter"} <= reached


def test_details_are_a_sheet_that_closes_on_a_narrow_screen(open_page: Any, report_file: Path) -> None:
    with open_page(report_file, 400) as page:
        details = page.locator("#details")
        assert details.is_hidden()
        page.locator("#noise tbody a").first.click()
        assert details.is_visible()
        assert page.evaluate("document.documentElement.scrollWidth") == 400
        page.click("#details .close")
        assert details.is_hidden()


def test_models_of_one_page_are_shown_one_at_a_time(open_page: Any, pair_file: Path) -> None:
    with open_page(pair_file) as page:
        assert page.locator("#m0").is_visible() and page.locator("#m1").is_hidden()
        page.select_option("#model", "1")
        assert page.locator("#m0").is_hidden() and page.locator("#m1").is_visible()
        assert page.locator("#m1 #nodes").count() == 1
        assert "60 nodes" in page.locator("#view-nodes").inner_text()
        page.goto(pair_file.as_uri() + "#m0n7")
        page.wait_for_function("report.modelIndex === 0 && report.selected === 7")


def test_page_is_readable_without_scripts(open_page: Any, pair_file: Path) -> None:
    with open_page(pair_file, scripts=False) as page:
        assert page.locator("noscript p").is_visible()
        for number in (0, 1):
            article = page.locator(f"#m{number}")
            assert article.is_visible()
            for words in ("INT8 MACs", "Compared with the source", "Tensors with the most", "Groups"):
                assert words in article.inner_text()


def test_hostile_names_stay_text_in_the_browser(open_page: Any, tmp_path: Path) -> None:
    graph = scaled_and_shifted(name=HOSTILE)
    graph.rename(graph.nodes[0].outputs[0], HOSTILE)
    path = tmp_path / "hostile.html"
    path.write_text(
        to_html(describe_model(model_of(graph, notes=(Note("float", HOSTILE, HOSTILE),)).content)), encoding="utf-8"
    )
    with open_page(path) as page:
        assert page.evaluate("report.nameOf(0)") == HOSTILE
        page.fill("#search", "alert(1)")
        page.keyboard.press("Enter")
        assert page.locator("#details h3").inner_text().startswith("</script><script>alert(1)")
        assert page.locator("img").count() == 0 and page.locator("script").count() == 2


def test_policy_stops_scripts_and_requests_that_are_not_of_the_page(browser: Any, report_file: Path) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(report_file.as_uri())
    added = "const script = document.createElement('script'); script.textContent = 'window.ran = 1';"
    page.evaluate(f"() => {{ {added} document.body.append(script); }}")
    assert page.evaluate("window.ran") is None
    refused = page.evaluate("fetch('http://127.0.0.1:9/').then(() => 'sent', error => error.name)")
    assert refused == "TypeError"
    context.close()


def brightness_at_edges(page: Any, region: Any) -> tuple[int, int, int]:
    """Sum of the colors of a region's ground at its left edge, beside it in the middle, and at its right edge."""
    pillow = pytest.importorskip("PIL.Image")
    region.evaluate("region => region.scrollIntoView({ block: 'start' })")
    image = pillow.open(io.BytesIO(region.screenshot())).convert("RGB")
    y = 3  # above the text of the heading
    left, middle, right = (sum(image.getpixel((x, y))) for x in (1, image.width // 2, image.width - 2))
    return left, middle, right


@pytest.mark.parametrize("scripts", [True, False])
@pytest.mark.parametrize("theme", sampled(["light", "dark"], every=2))
def test_table_that_is_wider_than_a_phone_has_a_shadow_where_it_goes_on(
    open_page: Any, report_file: Path, theme: Literal["light", "dark"], *, scripts: bool
) -> None:
    with open_page(report_file, 390, theme, scripts=scripts) as page:
        region = page.locator("#noise .scroll")
        left, middle, right = brightness_at_edges(page, region)
        assert abs(left - middle) <= 6 < 30 < abs(right - middle)
        region.evaluate("region => (region.scrollLeft = region.scrollWidth)")
        left, middle, right = brightness_at_edges(page, region)
        assert abs(right - middle) <= 6 < 30 < abs(left - middle)


def test_table_that_fits_has_no_shadow(open_page: Any, report_file: Path) -> None:
    with open_page(report_file, 1400) as page:
        region = page.locator("#compared .scroll")
        left, middle, right = brightness_at_edges(page, region)
        assert left == middle == right


def test_long_address_in_a_note_stays_in_the_details(open_page: Any, tmp_path: Path) -> None:
    description = describe_network(40)
    name = description["layers"][20]["outputs"][0]["name"]
    description["notes"] = [{"kind": "chip", "node": name, "message": "see https://example.org/" + 60 * "x"}]
    path = tmp_path / "report.html"
    path.write_text(to_html(description), encoding="utf-8")
    with open_page(path) as page:
        page.evaluate("report.select(20)")
        assert page.locator("#details .note").count() == 1
        assert page.evaluate("details.scrollWidth <= details.clientWidth")


def test_cause_of_an_error_leads_to_its_picture(open_page: Any, report_file: Path) -> None:
    with open_page(report_file, 1400) as page:
        histogram = page.locator("#noise a[data-picture=Calibration]").last
        index = int(histogram.get_attribute("data-node"))
        histogram.click()
        assert page.evaluate("report.selected") == index
        assert page.url.endswith(f"#m0n{index}")
        panel = page.locator("#details").bounding_box()
        picture = page.locator("#details [data-part=Calibration]").bounding_box()
        assert panel["y"] <= picture["y"] and picture["y"] + picture["height"] <= panel["y"] + panel["height"] + 1


def test_cause_without_histogram_leads_to_the_graph(open_page: Any, tmp_path: Path) -> None:
    description = describe_network(400)
    description.pop("histograms")
    path = tmp_path / "report.html"
    path.write_text(to_html(description), encoding="utf-8")
    with open_page(path, 1400) as page:
        link = page.locator("#noise a[data-picture]").last
        assert link.get_attribute("data-picture") == "graph" and link.inner_text() == "in the graph"
        link.click()
        page.wait_for_timeout(100)
        graph = page.locator("#view-graph").bounding_box()
        assert graph["y"] < 900 and graph["y"] + graph["height"] > 0
        box = page.evaluate("report.graph.screenBox(report.selected)")
        view = page.evaluate("report.graph.view")
        assert 0 <= box["x"] <= view["width"] and 0 <= box["y"] <= view["height"]


CONTENT = """() => [...document.querySelectorAll("main .panel, main .card")]
  .filter((panel) => panel.getClientRects().length)
  .map((panel) => {
    const copy = panel.cloneNode(true);
    for (const part of copy.querySelectorAll("h3, .lead, dt")) part.remove();
    return [panel.innerText, copy.textContent.trim() !== "" || copy.querySelector("svg *, canvas, td") !== null];
  })"""
"""Text of each card, and whether it has anything besides its heading and its lead."""


def test_every_card_has_content(open_page: Any, report_file: Path, tmp_path: Path) -> None:
    small = tmp_path / "small.html"
    small.write_text(to_html(describe_model(model_of(scaled_and_shifted()).content)), encoding="utf-8")
    open_extents = tmp_path / "decoder.onnx"
    open_extents.write_bytes(decoder(EXPLICIT).SerializeToString())
    unknown_cost = tc.report(tc.convert(open_extents), tmp_path / "decoder.html")
    for path in (report_file, small, unknown_cost):
        with open_page(path) as page:
            shown = page.evaluate(CONTENT)
            assert len(shown) > 3
            zeros = [
                text for text, _ in shown if re.search(r"(?<![\d.])0 (us|bytes)", text) and "All nodes" not in text
            ]
            assert zeros == []
            assert [text for text, has_content in shown if not has_content] == []


OVERLAPPING_TEXTS = """() => [...document.querySelectorAll("svg.chart")].flatMap((chart) => {
  const texts = [...chart.querySelectorAll("text")].filter((text) => text.getClientRects().length);
  const boxes = texts.map((text) => text.getBoundingClientRect());
  const shared = (a, b) => [
    Math.min(a.right, b.right) - Math.max(a.left, b.left), Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top)];
  return texts.flatMap((text, i) => texts.slice(i + 1).flatMap((other, k) => {
    const [width, height] = shared(boxes[i], boxes[i + 1 + k]);
    return width > 1 && height > 0.3 * boxes[i].height ? [[text.textContent, other.textContent]] : [];
  }));
})"""


@pytest.mark.parametrize("width", [390, 700, 1440])
def test_labels_of_charts_do_not_overlap(open_page: Any, report_file: Path, width: int) -> None:
    with open_page(report_file, width) as page:
        assert page.evaluate(OVERLAPPING_TEXTS) == []
