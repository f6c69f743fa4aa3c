"""Charts are well-formed, deterministic and escaped, and their marks are at the positions of the values."""

import itertools
from typing import Any

import pytest

from tests.support.report.charts import compared, description, layer, marks, numbers, parse, texts
from tpuconvert.report.charts import chart_sections, tuning_curve
from tpuconvert.report.charts.drawing import LEFT, RIGHT, TOP
from tpuconvert.report.charts.scale import Scale, tick_step

HOSTILE = "</title></svg><script>alert(1)</script>\"'&\x1b\u202e"


@pytest.mark.parametrize(
    ("low", "high", "step"),
    [(0, 10, 2), (0, 1, 0.2), (0, 49, 10), (0, 6e-4, 2e-4), (5, 5, 1), (0, 0, 0.2), (-3, 90, 20)],
)
def test_ticks_are_round_numbers(low: float, high: float, step: float) -> None:
    assert tick_step(low, high, 5) == pytest.approx(step, rel=1e-12)


def test_scale_covers_the_values_and_ends_at_ticks() -> None:
    scale = Scale.covering(-3.0, 91.0, 100.0, 0.0)
    assert (scale.low, scale.high) == (-20.0, 100.0)
    assert scale.ticks == [-20.0, 0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
    assert [scale.at(value) for value in (-20.0, 40.0, 100.0)] == [100.0, 50.0, 0.0]
    assert [scale.text(value) for value in (-20.0, 0.0)] == ["-20", "0"]
    assert Scale.covering(0, 0.3, 0, 1).text(0.1) == "0.1"


def test_scale_of_equal_values_has_a_width() -> None:
    for value in (0.0, 7.0, -0.25, 1e-30, 1e30):
        scale = Scale.covering(value, value, 0.0, 100.0)
        assert scale.low <= value <= scale.high and scale.low < scale.high
        assert 0.0 <= scale.at(value) <= 100.0


def verified(names: list[str], layers: list[dict[str, Any]], outputs: list[dict[str, Any]]) -> dict[str, Any]:
    return description(names, verification={"layers": layers, "outputs": outputs})


def test_error_is_drawn_at_its_node_and_value() -> None:
    found = verified(
        ["a", "b", "c"],
        [compared("x", 50.0), compared("c", 20.0, 0.04), compared("a", 60.0, 0.01), compared("b", 40.0)],
        [compared("c", 20.0)],
    )
    [(title, lead, svg)] = chart_sections(found)
    root = parse(svg)
    assert title == "Error over depth" and "The lowest SQNR is 20.0 dB at 'c'." in lead and "4.00%" in lead
    points = marks(root, "circle", "s1")
    assert [point.get("data-node") for point in points] == ["0", "1", "2"]  # in the order of computation
    xs, ys = zip(*(numbers(point, "cx", "cy") for point in points), strict=True)
    assert xs == (LEFT + 10, (LEFT + RIGHT) / 2, RIGHT - 10)
    assert ys[0] == TOP  # 60 dB is the upper end of the axis from 0 to 60
    assert ys[1] - ys[0] == pytest.approx(ys[2] - ys[1])
    [ring] = marks(root, "circle", "ring")
    assert numbers(ring, "cx", "cy") == [xs[2], ys[2]]
    bars = marks(root, "rect", "s2")
    assert [bar.get("data-node") for bar in bars] == ["0", "2"]
    low, high = (numbers(bar, "height")[0] for bar in bars)
    assert high == pytest.approx(4 * low, rel=0.01)
    assert [point.findtext("title") for point in points][2] == "c (conv): 20.0 dB, noise added 4.00%"


def test_error_of_exact_and_of_non_finite_tensors() -> None:
    layers = [compared("a", None, None, max_absolute=0.0), compared("b", None, None, not_finite=3, max_absolute=None)]
    [(_, lead, svg)] = chart_sections(verified(["a", "b"], layers, []))
    root = parse(svg)
    [point] = marks(root, "circle", "s3")
    assert point.get("data-node") == "0" and numbers(point, "cy") == [TOP]
    assert lead == "Every compared tensor is exact. 1 tensor with values that are not finite are left out."
    assert chart_sections(verified(["a", "b"], layers[1:], [])) == []


def test_one_node_has_a_chart() -> None:
    [(_, _, svg)] = chart_sections(verified(["a"], [compared("a", -3.0, 2.0)], [compared("a", -3.0)]))
    root = parse(svg)
    [point] = marks(root, "circle", "s1")
    assert LEFT <= numbers(point, "cx")[0] <= RIGHT and numbers(point, "cy")[0] > TOP
    assert not marks(root, "polyline", "curve")


def test_many_tensors_keep_the_worst_of_neighbours() -> None:
    names = [f"n{index}" for index in range(3000)]
    layers = [compared(name, 10.0 if name == "n1234" else 50.0, 0.001) for name in names]
    [(_, _, svg)] = chart_sections(verified(names, layers, []))
    points = marks(parse(svg), "circle", "s1")
    assert len(points) <= 400 and len(svg) < 150_000
    assert [point.get("data-node") for point in points if "10.0 dB" in (point.findtext("title") or "")] == ["1234"]


def costly(seconds: list[float], macs: list[int], ops: list[str] | None = None) -> dict[str, Any]:
    ops = ops or ["conv"] * len(seconds)
    layers = [layer(index, f"n{index}", op) for index, op in enumerate(ops)]
    costs = [{"seconds": time, "macs": count} for time, count in zip(seconds, macs, strict=True)]
    return {"nodes": len(layers), "layers": layers, "cost": {"layers": costs}}


def test_bars_have_the_length_of_their_share_and_others_are_summed() -> None:
    seconds = [1e-6 * (index + 1) for index in range(15)]
    macs = [100] * 14 + [0]
    (title, lead, svg), _ = chart_sections(costly(seconds, macs))
    root = parse(svg)
    assert title == "Time and multiply-accumulates"
    times = marks(root, "rect", "s1")[1:]  # without the path of the legend
    assert [bar.get("data-node") for bar in times] == [str(index) for index in range(14, 2, -1)]
    widths = [numbers(bar, "width")[0] for bar in times]
    assert widths == pytest.approx([widths[0] * seconds[index] / seconds[14] for index in range(14, 2, -1)], abs=0.06)
    work = marks(root, "rect", "s2")[1:]
    assert [bar.get("data-node") for bar in work] == [str(index) for index in range(13, 2, -1)]  # node 14 has none
    width = numbers(work[0], "width")[0]
    assert width / widths[0] == pytest.approx((100 / 1400) / (15 / 120), rel=0.01)
    assert "3 other nodes" in texts(root) and "5.0% 6 us, 21.4% 300 MAC" in texts(root)
    assert "'n14' takes 12.5% of it" in lead and "120 us" in lead


def test_share_of_operators_fills_the_bar() -> None:
    ops = ["conv", "conv", *(f"op{index}" for index in range(8))]
    _, (title, lead, svg) = chart_sections(costly([4.0, 4.0, *[1.0] * 8], [1] * 10, ops))
    root = parse(svg)
    assert title == "Share of the operators" and lead == "2 nodes with conv take 50.0% of the time."
    bars = [bar for bar in root.iter("rect") if bar.get("height") == "28"]
    time = [bar for bar in bars if numbers(bar, "y")[0] < 20]
    assert sum(numbers(bar, "width")[0] for bar in time) == pytest.approx(RIGHT - LEFT, abs=0.5)
    assert numbers(time[0], "width")[0] == (RIGHT - LEFT) / 2
    assert marks(root, "rect", "rest") and "3 other operators" in texts(root)


def test_nothing_to_draw() -> None:
    assert chart_sections(description([])) == []
    assert chart_sections(costly([], [])) == []
    assert chart_sections(costly([0.0], [0])) == []
    assert chart_sections(description(["a"], verification={"layers": [], "outputs": []})) == []


def test_one_node_without_work() -> None:
    sections = chart_sections(costly([1e-3], [0]))
    assert [title for title, _, _ in sections] == ["Time and multiply-accumulates", "Share of the operators"]
    assert all("MACs" not in text for _, _, svg in sections for text in texts(parse(svg)))


def tuned(metric: str = "cosine", **more: Any) -> dict[str, Any]:
    trials = [
        {"keep_float": list("abcdefgh"[:count]), "metric": 0.9 + 0.01 * count, "cost": 0.02 * count, "is_enough": True}
        for count in range(9)
    ]
    found = {"metric": metric, "of_float": 1.0, "max_drop": 5.0, "trials": trials, "curve": trials, "best": trials[5]}
    return found | more


def test_trials_are_at_their_cost_and_metric() -> None:
    root = parse(tuning_curve(tuned()))
    points = marks(root, "circle", "s1")
    [best] = marks(root, "circle", "best")
    xs = sorted(numbers(point, "cx")[0] for point in [*points, best])
    steps = [right - left for left, right in itertools.pairwise(xs)]
    assert len(xs) == 9 and xs[0] == LEFT and steps == pytest.approx([steps[0]] * 8, abs=0.11)
    level, goal = (numbers(line, "y1")[0] for line in marks(root, "line", "limit"))
    assert level == TOP and numbers(best, "cy") == [goal]  # 1.0 is the end of the axis; 0.95 is the goal
    assert "float model" in texts(root) and "chosen" in texts(root)
    assert "5 nodes in float: a, b, c, d, e" in (best.findtext("title") or "")


def test_curve_of_one_trial_and_of_none() -> None:
    one = tuned()["trials"][:1]
    root = parse(tuning_curve(tuned(trials=one, curve=one, best=one[0], of_float=None)))
    assert len(marks(root, "circle", "best")) == 1 and not marks(root, "line", "limit")
    exact = [{**one[0], "metric": None}]
    assert tuning_curve(tuned(trials=exact, curve=exact, best=exact[0])) == ""


def with_memory(live: list[int], arena: int | None) -> dict[str, Any]:
    names = [f"n{index}" for index in range(len(live))]
    return description(names, memory={"live_bytes": live, "peak_bytes": max(live, default=0), "arena_bytes": arena})


def test_bars_of_memory_have_the_height_of_the_live_bytes() -> None:
    [(title, lead, svg)] = chart_sections(with_memory([1 << 20, 3 << 20, 2 << 20], 4 << 20))
    root = parse(svg)
    assert title == "Memory over time"
    assert lead.startswith(
        "At most 3.0 MiB of tensors are live, at 'n1'. One arena for all tensors has 4.0 MiB, 33.3% more."
    )
    first, last = marks(root, "rect", "s1")
    [peak] = marks(root, "rect", "s2")
    assert [bar.get("data-node") for bar in (first, peak, last)] == ["0", "1", "2"]
    unit = numbers(first, "height")[0]
    assert [numbers(bar, "height")[0] for bar in (peak, last)] == pytest.approx([3 * unit, 2 * unit], abs=0.1)
    [line] = marks(root, "line", "limit")
    assert numbers(line, "y1") == [TOP] and "arena 4.0 MiB" in texts(root)
    assert "live tensors, MiB" in texts(root)


def test_memory_of_many_nodes_shows_the_peak() -> None:
    live = [1000] * 5000
    live[3333] = 9000
    [(_, lead, svg)] = chart_sections(with_memory(live, None))
    root = parse(svg)
    [peak] = marks(root, "rect", "s2")
    assert peak.get("data-node") == "3333" and len(svg) < 100_000 and "arena" not in lead
    assert chart_sections(with_memory([], None)) == chart_sections(with_memory([0], 0)) == []


def measured(counts: list[int], threshold: float, clipped: float | None) -> dict[str, Any]:
    entry = {"minimum": 0.0, "maximum": 4.0, "threshold": threshold, "method": "mse", "clipped": clipped}
    return {**entry, "low": 0.0, "high": float(len(counts)), "counts": counts}


def test_histogram_marks_the_threshold_and_what_it_clips() -> None:
    found = description(["a"], histograms={"a": measured([99, 9, 0, 1], 3.0, 0.01)})
    [(title, lead, svg)] = chart_sections(found)
    root = parse(svg)
    assert title == "Histograms of tensors" and "in 1 of 1 tensors, at most 1.00%" in lead
    kept, [clipped] = marks(root, "rect", "s1"), marks(root, "rect", "warn")
    assert [bar.findtext("title") for bar in kept] == ["about 99 from 0 to 1", "about 9 from 1 to 2"]
    assert clipped.findtext("title") == "about 1 from 3 to 4"
    heights = [numbers(bar, "height")[0] for bar in (*kept, clipped)]
    assert heights == pytest.approx([heights[0], heights[0] / 2, heights[0] * 0.1505], abs=0.1)  # log10: 2, 1, 0.301
    [line] = marks(root, "line", "limit")
    assert numbers(line, "x1") == pytest.approx(numbers(clipped, "x"), abs=0.1)
    assert {"a", "1.00% clipped", "mse 3", "4"} <= set(texts(root))


def test_histograms_of_the_noisiest_tensors_come_first() -> None:
    names = [f"n{index}" for index in range(9)]
    known = {name: measured([5, 1], 2.0, index / 1000) for index, name in enumerate(names)}
    known["n8"] = measured([], 1.0, None)
    verification = {"layers": [], "outputs": [], "is_quantized": True, "most_noise_added_at": ["n8", "n3", "absent"]}
    [(_, _, svg)] = chart_sections(description(names, histograms=known, verification=verification))
    shown = [text for text in texts(parse(svg)) if text.startswith("n") and text[1:].isdigit()]
    assert shown == ["n3", "n7", "n6", "n5", "n4", "n2"]


@pytest.mark.parametrize(
    ("methods", "reason"),
    [
        (["minmax"], "1 tensor with the method minmax, which needs only the largest magnitude."),
        (["mse"], "1 tensor whose values are all 0."),
        (
            ["minmax", "mse", "minmax"],
            "2 tensors with the method minmax, which needs only the largest magnitude and of 1",
        ),
    ],
)
def test_tensors_without_a_histogram_have_a_reason(methods: list[str], reason: str) -> None:
    known = {f"n{index}": {**measured([], 1.0, None), "method": name} for index, name in enumerate(methods)}
    [(title, lead, svg)] = chart_sections(description(list(known), histograms=known))
    assert title == "Histograms of tensors" and svg == "" and reason in lead
    known["other"] = measured([1], 1.0, 0.0)
    [(_, lead, svg)] = chart_sections(description(list(known), histograms=known))
    assert svg and reason in lead


def converging(samples: list[int], median: list[float], smallest: list[float]) -> dict[str, Any]:
    found = {"samples": samples, "median": median, "smallest": smallest, "slowest": "a"}
    return description(["a"], convergence=found)


def test_growth_is_drawn_over_doublings() -> None:
    [(title, lead, svg)] = chart_sections(converging([1, 2, 4, 5], [0.5, 0.75, 0.95, 1.0], [0.25, 0.5, 0.9, 1.0]))
    root = parse(svg)
    assert title == "Convergence of the calibration"
    assert "With 4 instead of 5 samples, the range of 'a' would be 10.0% smaller" in lead
    median, smallest = marks(root, "circle", "s1"), marks(root, "circle", "s2")
    xs = [numbers(point, "cx")[0] for point in median]
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2) and xs[3] == RIGHT - 10
    ys = [numbers(point, "cy")[0] for point in (*median, *smallest)]
    assert ys[3] == ys[7] == TOP and ys[0] - TOP == pytest.approx(2 * (ys[1] - TOP), abs=0.1)
    assert ys[5] == ys[0]
    assert {"1", "2", "4", "5"} <= set(texts(root))


def test_thresholds_are_drawn_as_shares_of_the_range() -> None:
    found = converging([1, 2], [0.5, 1.0], [0.25, 1.0])
    found["histograms"] = {name: measured([], threshold, None) for name, threshold in (("a", 4), ("b", 2), ("c", 1))}
    lead, svg = next(section[1:] for section in chart_sections(found) if section[0].startswith("Convergence"))
    assert "thresholds: the ranges of 2 of 3 tensors are below the range" in lead
    root = parse(svg)
    lines = {line.findtext("title"): numbers(line, "y1")[0] - TOP for line in marks(root, "line", "limit")}
    heights = {title: height for title, height in lines.items() if title}
    assert heights == {"median of the thresholds: 50.0%": 100.0, "threshold of c: 25.0%": 150.0}
    assert {"median of the thresholds: 50%", "threshold of c: 25%"} <= set(texts(root)), "the legend has the values"
    found["histograms"] = {"a": measured([], 4.0, None)}
    assert "dashed" not in next(section[1] for section in chart_sections(found) if section[0].startswith("Convergence"))


def test_growth_with_one_sample_and_with_crowded_ticks() -> None:
    [(_, lead, svg)] = chart_sections(converging([1], [1.0], [1.0]))
    root = parse(svg)
    assert len(marks(root, "circle", "s1")) == 1 and not marks(root, "polyline", "curve") and "instead" not in lead
    [(_, lead, svg)] = chart_sections(converging([1, 2, 4, 8, 16, 32, 64, 65], [1.0] * 8, [1.0] * 8))
    shown = texts(parse(svg))
    assert "65" in shown and "64" not in shown and "More samples would hardly change the ranges." in lead


def everything(name: str) -> dict[str, Any]:
    found = costly([1.0, 2.0], [1, 2], [name, "conv"])
    found["layers"] = [layer(0, name, name), layer(1, "b")]
    layers, outputs = [compared(name, 3.0, 0.5, op=name)], [compared(name, 3.0)]
    found["verification"] = {"layers": layers, "outputs": outputs, "is_quantized": True, "most_noise_added_at": [name]}
    found["memory"] = {"live_bytes": [3, 2], "peak_bytes": 3, "arena_bytes": 4}
    found["histograms"] = {name: {**measured([3, 1], 1.5, 0.1), "method": name}}
    found["convergence"] = {"samples": [1, 2], "median": [0.5, 1.0], "smallest": [0.4, 1.0], "slowest": name}
    return found


def test_hostile_names_are_text() -> None:
    trial = {"keep_float": [HOSTILE], "metric": 1.0, "cost": 0.5, "is_enough": True}
    curve = tuning_curve(tuned(metric=HOSTILE, trials=[trial], curve=[trial], best=trial))
    for svg in [*(svg for _, _, svg in chart_sections(everything(HOSTILE))), curve]:
        root = parse(svg)
        assert not list(root.iter("script")) and "<script" not in svg and "\x1b" not in svg and "\u202e" not in svg
    assert len(chart_sections(everything(HOSTILE))) == 6


def test_equal_descriptions_give_equal_charts() -> None:
    assert chart_sections(everything("a")) == chart_sections(everything("a"))


def test_colors_are_those_of_the_page() -> None:
    for _, _, svg in chart_sections(everything("a")):
        assert not any(word in svg for word in ("fill=", "stroke=", "style=", "#", "rgb"))
