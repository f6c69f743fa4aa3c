"""The page about a zoo: families, exporters and opsets with their outcomes."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import onnxruntime

from tools.bench.machine import measured_on
from tools.zoo.explanations import EXPLANATIONS
from tools.zoo.files import VARIANTS, Made, exports
from tools.zoo.outcome import EXPORTER, MIN_COSINE, MIN_KEPT, MIN_SHARE, NUMBER, OK, OUTCOMES, Outcome
from tpuconvert.verify.difference import FLOAT_TOLERANCE

COLUMNS = (
    *("network", "package", "exporter", "batch", "opsets", "outcome", "float error", "cosine", "ONNX Runtime"),
    *("centered", "SQNR, dB", "boxes", "share", "nodes", "seconds"),
)
"""Columns of the raw rows."""
Row = dict[str, str]


def page(outcomes: Sequence[Outcome], folder: Path, explanations: Mapping[str, str] = EXPLANATIONS) -> str:
    """Return the page in Markdown.

    Args:
        outcomes: outcomes of the exports.
        folder: folder of the zoo.
        explanations: network -> reason for an outcome that is not reached.
    """
    export_facts = Made.load(folder)
    counts = Counter(outcome.outcome for outcome in outcomes)
    lines = [
        "# Exporters",
        "",
        "<!-- Made by `python -m tools.zoo run FOLDER --markdown docs/inside/exporters.md`. -->",
        "",
        "Well-known network architectures, exported by both exporters of",
        f"{_packages(export_facts)},",
        "with batch 1 or with a dynamic batch. Each model is checked and converted in float; a small one is also",
        "compared with its source, tensor by tensor. Then it is converted to INT8, calibrated with 8 samples. Both are",
        f"compared with ONNX Runtime {onnxruntime.__version__} on 4 other samples. A dynamic batch runs",
        "with extents 1 and 3. [exporters.json](exporters.json) has the rows of all exports.",
        f"Measured {measured_on()}.",
        "",
        *_summary(outcomes, export_facts),
        "",
        "| outcome | models | meaning |",
        "|---|---|---|",
        *(f"| {name} | {counts[name]} | {meaning} |" for name, meaning in OUTCOMES.items()),
        f"| all | {len(outcomes)} | |",
        f"| not run | {sum(1 for _ in exports(folder)) - len(outcomes)} | exported, and left out of this run |",
        "",
        *_left_out(outcomes, folder),
        *_earlier(outcomes),
        "## Networks",
        "",
        "Cells have the range over the exports of a network; [Method](#method) explains the columns. A model with a",
        "small INT8 share is close because it computes in float.",
        "",
        *network_table(raw_rows(outcomes, export_facts)),
    ]
    reasons = _reasons(outcomes)
    if reasons:
        lines += ["", "## Reasons", "", "| models | outcome | reason | networks |", "|---|---|---|---|", *reasons]
    missed = _missed(outcomes, explanations)
    if missed:
        lines += [
            "",
            "## Explanations",
            "",
            "| network | exports | result | ONNX Runtime | explanation |",
            "|---|---|---|---|---|",
            *missed,
        ]
    return "\n".join([*lines, "", *_method()]) + "\n"


def _method() -> list[str]:
    """Return the section about weights, samples and columns."""
    return [
        "## Method",
        "",
        "No network has trained weights: they are drawn so that activations have the range of trained networks, and",
        "batch norm statistics are computed from the samples. Biases of batch norms are drawn around 1. With biases "
        "around",
        "0, as at the start of training, a deep network amplifies every change of its input, even the rounding of",
        "floats: float models differ from one engine to the next, and no INT8 model can follow. Details are in",
        "`settle` of `tools/zoo/networks/network.py`, next to the networks. Calibration and comparison use different",
        "samples: scenes with rectangles and noise, token ids and masks, tones, spectrograms. These",
        "commands write the page:",
        "",
        "```text",
        "python -m tools.zoo make FOLDER",
        "python -m tools.zoo run FOLDER --markdown docs/inside/exporters.md",
        "```",
        "",
        "The first command needs the extra `zoo` (PyTorch), the second does not; `make zoo` runs each in a",
        "separate environment.",
        "",
        "The float error is the largest difference from ONNX Runtime as a share of an output's range; more than",
        f"{FLOAT_TOLERANCE:g} is accepted up to twice the difference that ONNX Runtime's own graph optimizations make,",
        "as for keypoints that are the largest element of a map. Cosine and SQNR",
        "are the smallest of all INT8 outputs, compared with the float outputs of ONNX Runtime. The column ONNX",
        "Runtime is the same cosine of its own static quantization (QDQ, 8 bits, weights per channel, range by",
        "minimum and maximum) with the same samples. For the centered cosine the mean of the samples is",
        "subtracted first: a network that ignores its input has a high cosine and a low centered one. For a detector",
        "that selects its boxes, the column boxes has the share of ONNX Runtime's boxes that the INT8 model finds,",
        "with the same label and an intersection over union of at least 0.5. The share is the part of",
        "multiply-accumulates that is computed in integers, with an extent of 1 for symbolic ones. The raw rows also",
        "have the number of nodes in the source, the float model and the INT8 model, and the CPU seconds of the float",
        "conversion and of the INT8 conversion with its calibration.",
        "",
        "Some networks are also converted from other sources. Quantized ones keep their integers; they are compared",
        "with the same model in ONNX Runtime.",
        "",
        "| exporter | source |",
        "|---|---|",
        *(f"| {name} | {meaning} |" for name, meaning in VARIANTS.items()),
    ]


def _left_out(outcomes: Sequence[Outcome], folder: Path) -> list[str]:
    """Return a line with the networks that were exported but have no outcome: they count in no share."""
    with_outcome = {outcome.export.network for outcome in outcomes if outcome.outcome != EXPORTER}
    names = dict.fromkeys(
        export.network
        for export in exports(folder)
        if export.network not in with_outcome and not export.refusal(folder)
    )
    return [f"Networks without any run, which no share counts: {', '.join(names)}.", ""] if names else []


def _earlier(outcomes: Sequence[Outcome]) -> list[str]:
    """Return a line with the networks whose outcomes have no time: they were copied from an earlier page."""
    names = dict.fromkeys(one.export.network for one in outcomes if one.outcome != EXPORTER and not one.seconds)
    return [f"Networks with rows of an earlier run: {', '.join(names)}.", ""] if names else []


def _packages(export_facts: Made) -> str:
    """Return the names and versions of the packages."""
    names = {"torch": "PyTorch"}
    versions = {name: number.partition("+")[0] for name, number in export_facts.versions.items() if name != "onnx"}
    (first, *others) = [f"{names.get(name, name)} {number}" for name, number in versions.items()]
    return first + (f" (networks of {', '.join(others)} and hand-written ones)" if others else "")


def _summary(outcomes: Sequence[Outcome], export_facts: Made) -> list[str]:
    """Return a table with the number of families that reach the limits."""
    families: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.outcome != EXPORTER:
            families.setdefault(export_facts.families.get(outcome.export.network, outcome.export.network), []).append(
                outcome
            )
    floats = sum(all(map(is_float_equal, group)) for group in families.values())
    integers = sum(all(map(is_int8_close, group)) for group in families.values())
    measured = [group for group in families.values() if any(one.peer is not None for one in group)]
    peers = sum(all(map(is_peer_close, group)) for group in measured)
    total = len(families)

    def share(count: int) -> str:
        return f"{100 * count / max(1, total):.1f} %"

    return [
        "| families | number | share |",
        "|---|---|---|",
        f"| exported | {total} | |",
        f"| float error at most {FLOAT_TOLERANCE:g} for every export | {floats} | {share(floats)} |",
        f"| INT8 cosine at least {MIN_COSINE:g} (detectors: {100 * MIN_KEPT:g} % of the boxes), and "
        f"{100 * MIN_SHARE:g} % of the multiply-accumulates in integers, for every export | "
        f"{integers} | {share(integers)} |",
        f"| the same for INT8 models of ONNX Runtime, measured for {len(measured)} | {peers} | "
        f"{100 * peers / max(1, len(measured)):.1f} % |",
    ]


def is_float_equal(outcome: Outcome) -> bool:
    """Return True if the float model agrees with the source, or if the source is quantized."""
    if outcome.export.is_quantized or outcome.export.exporter == "half":  # half: its own limit was checked
        return outcome.outcome in (OK, NUMBER)
    return outcome.difference is not None and outcome.difference <= FLOAT_TOLERANCE


def is_int8_close(outcome: Outcome) -> bool:
    """Return True if the INT8 model is as close to the source as expected, with enough work in integers."""
    if outcome.outcome not in (OK, NUMBER) or (outcome.share is not None and outcome.share < MIN_SHARE):
        return False
    if outcome.kept is not None:
        return outcome.kept >= MIN_KEPT
    return outcome.cosine is not None and outcome.cosine >= MIN_COSINE


def is_peer_close(outcome: Outcome) -> bool:
    """Return True if ONNX Runtime's INT8 model is as close, or was not measured."""
    return outcome.peer is None or outcome.peer >= MIN_COSINE


def raw_rows(outcomes: Iterable[Outcome], export_facts: Made) -> list[Row]:
    """Return one row for each group of opsets with the same outcome."""
    groups: dict[tuple[str, str, str, str], list[Outcome]] = {}
    for outcome in outcomes:
        export = outcome.export
        groups.setdefault((export.network, export.exporter, export.batch, outcome.outcome), []).append(outcome)
    rows = []
    for (network, exporter, batch, end), group in groups.items():
        cells = [network, export_facts.packages.get(network, ""), exporter, batch]
        cells += [", ".join(str(outcome.export.opset) for outcome in group), end]
        errors = [outcome.difference for outcome in group if outcome.difference is not None]
        cells += [f"{max(errors):.0e}" if errors else ""]
        for figures in ("cosine", "peer", "centered"):
            cells += [_range([getattr(outcome, figures) for outcome in group], 4)]
        cells += [_range([outcome.sqnr for outcome in group], 1)]
        cells += [_percent(outcome.kept for outcome in group), _percent(outcome.share for outcome in group)]
        cells += [", ".join(_nodes(group)), ", ".join(_seconds(group))]
        rows.append(dict(zip(COLUMNS, cells, strict=True)))
    return rows


def raw_file(rows: Sequence[Row]) -> str:
    """Return the text of the file with the raw rows, one per line."""
    return "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n"


def network_table(rows: Iterable[Row]) -> list[str]:
    """Return a table with one row for each network, after the mark of a table that the site filters."""
    networks: dict[str, list[Row]] = {}
    for row in rows:
        networks.setdefault(row["network"], []).append(row)
    lines = ['<p class="table-filter"></p>', ""]
    lines += ["| network | package | exports | outcome | float error | cosine | ONNX Runtime | boxes | INT8 share |"]
    lines += ["|---" * 9 + "|"]
    for network, group in networks.items():
        exports = "; ".join(dict.fromkeys(f"{row['exporter']} {row['opsets']}".strip() for row in group))
        cells = [network, group[0]["package"], exports, ", ".join(dict.fromkeys(row["outcome"] for row in group))]
        cells += [max((row["float error"] for row in group if row["float error"]), key=float, default="")]
        cells += [_joined(group, "cosine", 4), _joined(group, "ONNX Runtime", 4)]
        cells += [_joined(group, "boxes", 0, " %"), _joined(group, "share", 0, " %")]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _joined(group: Iterable[Row], column: str, digits: int, unit: str = "") -> str:
    """Return the range over several rows of a column, whose cells are numbers or ranges."""
    numbers = [float(number) for row in group for number in re.findall(r"-?\d+(?:\.\d+)?", row[column])]
    return _range(numbers, digits, unit)


def _nodes(group: Sequence[Outcome]) -> list[str]:
    """Return the node counts of source, float model and INT8 model."""
    counts = (
        [one.source_nodes for one in group],
        [one.float_nodes for one in group],
        [one.int8_nodes for one in group],
    )
    return list(filter(None, (_range(numbers, 0) for numbers in counts)))


def _seconds(group: Sequence[Outcome]) -> list[str]:
    """Return the times of the float and of the INT8 conversion."""
    times = ([one.float_seconds for one in group], [one.int8_seconds for one in group])
    return list(filter(None, (_range(seconds, 1) for seconds in times)))


def _range(values: Iterable[float | None], digits: int, unit: str = "") -> str:
    """Return the smallest and the largest value as text, or one value if they round to the same text."""
    numbers = [value for value in values if value is not None]
    texts = dict.fromkeys(f"{value:.{digits}f}" for value in (min(numbers), max(numbers))) if numbers else {}
    return " to ".join(texts) + unit if texts else ""


def _percent(shares: Iterable[float | None]) -> str:
    """Return the range of shares in percent."""
    return _range([None if share is None else 100 * share for share in shares], 0, " %")


def _reasons(outcomes: Iterable[Outcome]) -> list[str]:
    """Return one row for each reason, the most frequent ones first."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.outcome != OK:
            text = f"{outcome.stage}: {outcome.reason}" if outcome.stage else outcome.reason
            groups.setdefault((outcome.outcome, text.replace("|", "/")), []).append(outcome)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return [
        f"| {len(group)} | {end} | {reason} | {', '.join(dict.fromkeys(one.export.network for one in group))} |"
        for (end, reason), group in ordered
    ]


def _missed(outcomes: Iterable[Outcome], explanations: Mapping[str, str]) -> list[str]:
    """Return one row for each network with an export that misses a limit, or whose boxes need an explanation."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        has_note = outcome.kept is not None and outcome.export.network in explanations
        if outcome.outcome != EXPORTER and (has_note or not (is_float_equal(outcome) and is_int8_close(outcome))):
            groups.setdefault(outcome.export.network, []).append(outcome)
    rows = []
    for network, group in groups.items():
        cosine = _range([one.cosine for one in group], 4)
        box_share = _percent(one.kept for one in group)
        figures = f"cosine {cosine}" if cosine else f"boxes {box_share}" if box_share else ""
        result = figures or ", ".join(dict.fromkeys(one.outcome for one in group))
        peer = _range([one.peer for one in group], 4)
        rows.append(f"| {network} | {len(group)} | {result} | {peer} | {explanations.get(network, 'not examined')} |")
    return rows
