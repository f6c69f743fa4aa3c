"""The measurements as a page of Markdown tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from tools.bench.accuracy.quantizers import FLOAT, OURS, TOOLS
from tools.bench.accuracy.results import Row

INTRODUCTION = """\
# Benchmarks of accuracy

INT8 networks of tpuconvert and of other quantizers on the same images, against the float network. Written by

    {command}

Calibration images and evaluation images are the same for all tools; no evaluation image is used for calibration.
`tools/bench/README.md` describes the settings.

- *Flips* are the images whose predicted class differs from the class of the float network, in percent, with the
  standard error. Two tools whose flips differ by less than two standard errors are not distinguishable with so few
  images.
- *Top-1* is the share of right answers in percent, *cosine* the mean cosine similarity of the outputs.
- A float detection is *kept* if the INT8 network detects the same class with an intersection over union of at least
  0.9. Detections are decoded and suppressed by the same code for all tools.
- tpuconvert is measured with its default options. Of the other tools, the best setting of each network is **marked**.
  It is the best on the evaluation images, so that the comparison favors them.
- tpuconvert computes the exact arithmetic of the chip. BM1684 has one multiplier for all
  output channels of a convolution; the other tools run on the processor.
"""

CLASSIFIER_HEADING = ("tool", "setting", "top-1", "difference", "flips", "cosine")
DETECTOR_HEADING = ("tool", "setting", "kept", "INT8 detections")


def page(rows: Iterable[Row], facts: Mapping[str, str], command: str) -> str:
    """The whole page: machine, summaries of classifiers and detectors, and a table per network."""
    networks: dict[str, list[Row]] = {}
    for row in rows:
        networks.setdefault(row.network, []).append(row)
    classifiers = {name: measurements for name, measurements in networks.items() if _has(measurements, "images")}
    detectors = {name: measurements for name, measurements in networks.items() if _has(measurements, "detections")}
    sections = [INTRODUCTION.format(command=command)]
    sections.append("## Machine\n\n" + "\n".join(f"- {name}: {value}" for name, value in facts.items()) + "\n")
    if classifiers:
        sections.append(f"## Flips of classifiers\n\n{_table(_summary(classifiers))}")
    if detectors:
        sections.append(f"## Detections kept\n\n{_table(_summary(detectors))}")
    sections.append(_where_others_are_better(networks))
    sections += [_section(name, measurements) for name, measurements in [*classifiers.items(), *detectors.items()]]
    return "\n".join(sections)


def loss(row: Row) -> float:
    """Share of the evaluation images whose class changed, or of the float detections that were lost."""
    numbers = row.numbers
    if "images" in numbers:
        return numbers["flips"] / numbers["images"]
    return 1 - numbers["kept"] / max(numbers["detections"], 1)


def best(rows: Iterable[Row], tool: str) -> Row | None:
    """The measured setting of a tool with the smallest loss; of equal ones, that with the highest cosine similarity."""
    measured = [row for row in rows if row.tool == tool and row.numbers and row.setting != FLOAT]
    return min(measured, key=lambda row: (loss(row), -row.numbers.get("cosine", 0)), default=None)


def standard_error(row: Row) -> float:
    """Standard error of the loss as a share: from a binomial distribution."""
    share, count = loss(row), row.numbers.get("images", row.numbers.get("detections", 0))
    return math.sqrt(share * (1 - share) / count) if count else 0.0


def _where_others_are_better(networks: Mapping[str, Sequence[Row]]) -> str:
    """Networks on which the best setting of another tool has a smaller loss, by chip."""
    lines = []
    for chip in TOOLS[OURS].settings:
        settings = []
        for network, rows in networks.items():
            ours = next((row for row in rows if row.tool == OURS and row.setting == chip and row.numbers), None)
            peers = [row for tool in TOOLS if tool != OURS and (row := best(rows, tool))]
            better = sorted((row for row in peers if ours and loss(row) < loss(ours)), key=loss)
            settings += [f"`{network}` ({TOOLS[row.tool].label}, {row.setting})" for row in better[:1]]
        lines.append(f"- {chip}: {', '.join(settings) or 'none'}.")
    return "## Networks on which another tool is better\n\n" + "\n".join(lines) + "\n"


def _has(rows: Iterable[Row], number: str) -> bool:
    return any(number in row.numbers for row in rows)


def _summary(networks: Mapping[str, Sequence[Row]]) -> list[tuple[str, ...]]:
    """One row per network: tpuconvert for each chip, and the best setting of each other tool."""
    ours = list(TOOLS[OURS].settings)
    peers = [name for name in TOOLS if name != OURS]
    table: list[tuple[str, ...]] = [("network", "images or detections", *ours, *(TOOLS[name].label for name in peers))]
    for network, rows in networks.items():
        measured = {row.setting: row for row in rows if row.tool == OURS and row.numbers}
        total = max(row.numbers.get("images", row.numbers.get("detections", 0)) for row in rows)
        cells = [_cell(measured.get(setting)) for setting in ours]
        for name in peers:
            best_row = best(rows, name)
            cells.append(_cell(best_row) + (f" ({best_row.setting})" if best_row else ""))
        table.append((f"`{network}`", f"{total:g}", *cells))
    return table


def _cell(row: Row | None) -> str:
    if row is None:
        return "-"
    if "images" in row.numbers:
        return f"{100 * loss(row):.2f} ± {100 * standard_error(row):.2f}"
    return f"{100 * (1 - loss(row)):.1f} ± {100 * standard_error(row):.1f} %"


def _section(network: str, rows: Sequence[Row]) -> str:
    """Table of all settings of a network, and below it what is missing."""
    marked = {best_row.key for tool in TOOLS if tool != OURS and (best_row := best(rows, tool))}
    order = {(tool, setting): index for index, (tool, setting) in enumerate(_settings())}
    listed = [row for row in rows if (row.tool, row.setting) in order]
    rows = sorted(listed, key=lambda row: order[row.tool, row.setting])
    is_classifier = _has(rows, "images")
    table: list[tuple[str, ...]] = [CLASSIFIER_HEADING if is_classifier else DETECTOR_HEADING]
    for row in rows:
        if not row.numbers:
            continue
        cells = _classifier_cells(row) if is_classifier else _detector_cells(row)
        setting = f"**{row.setting}**" if row.key in marked else row.setting
        table.append((TOOLS[row.tool].label, setting, *cells))
    totals = next(row.numbers for row in rows if row.numbers)
    about = (
        f"{totals['images']:g} images, float top-1 {100 * totals['float_correct'] / totals['images']:.2f}."
        if is_classifier
        else f"{totals['detections']:g} detections of the float network."
    )
    missing = [f"- {label}: {why}" for label, why in _failures(rows)]
    below = "\n".join(["", "Missing:", "", *missing, ""]) if missing else ""
    return f"## {network}\n\n{about}\n\n{_table(table)}{below}"


def _settings() -> list[tuple[str, str]]:
    return [(tool, setting) for tool, declared in TOOLS.items() for setting in declared.settings]


def _failures(rows: Iterable[Row]) -> list[tuple[str, str]]:
    """Label and reason of each failure; a tool that fails with one reason for all settings has one line."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.error:
            reasons.setdefault((row.tool, row.error), []).append(row.setting)
    failures = []
    for (tool, error), settings in reasons.items():
        is_all = len(settings) == len(TOOLS[tool].settings)
        failures.append((TOOLS[tool].label if is_all else f"{TOOLS[tool].label} ({'; '.join(settings)})", error))
    return failures


def _classifier_cells(row: Row) -> tuple[str, ...]:
    numbers, share = row.numbers, 100 / row.numbers["images"]
    return (
        f"{share * numbers['correct']:.2f}",
        f"{share * (numbers['correct'] - numbers['float_correct']):+.2f}",
        _cell(row),
        f"{numbers['cosine']:.5f}",
    )


def _detector_cells(row: Row) -> tuple[str, ...]:
    return _cell(row), f"{row.numbers['found']:g}"


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]]) + "\n"
