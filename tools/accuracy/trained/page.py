"""The page of the measurements: one table of all networks and quantizers, and what was not measured."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence

from tools.accuracy.trained.catalog import measured_names, read_catalog, read_packages
from tools.accuracy.trained.metrics import metric_of
from tools.accuracy.trained.quantizers import OURS, QUANTIZERS
from tools.accuracy.trained.results import Record, Row

COMMAND = "python -m tools.accuracy trained"
PEERS = ("onnxruntime", "nncf", "litert", "tpu-mlir")
SHOWN = (OURS, "low", "high", *PEERS)
UNUSUAL = 99.9
"""Scores of the float model below this share are named: tpuconvert and the engine of the source disagree."""

INTRODUCTION = """\
# Trained models of public packages

INT8 models of tpuconvert and of other quantizers, for {count} trained models that packages on the package registry
contain. Written by `{command} --page` from [accuracy-trained.json](accuracy-trained.json), which has every
measurement. [`catalog.yaml`](../../tools/accuracy/trained/catalog.yaml) has the packages, checksums, samples and
metrics; nothing of the models is stored in the repository. To measure all of them again, which takes hours:

    pip install '.[bench,images]'    # and the programs espeak-ng and fonts DejaVu and Liberation
    {command} --draws 0 1 2 --update
    make accuracy-vendor             # the column TPU-MLIR; needs Python 3.10 on Linux x86-64

tpuconvert's default has the best score, alone or with another quantizer, of {best} of these models.

- Scores compare the decisions of an INT8 model with its **float model**, in percent, on samples that are not
  used for calibration: the F1 score of detections (the same class, an overlap of at least 50 %), the mean intersection
  over union of masks or active cells, equal strings, classes, decisions or pitches. For landmarks and values it is the
  mean error relative to the side of the input or the span of the values: smaller is better. *Float* is the number of
  things that the float model decided.
- `score ± standard error (lowest to highest)`: means over the draws of calibration samples. The standard error comes
  from a bootstrap over the evaluation samples. Two quantizers whose scores differ by less than two standard errors are
  not distinguishable. The best score of tpuconvert's default and of the other quantizers is **bold**.
- tpuconvert has its default options for BM1686 and computes the exact arithmetic of the chip; *low* and *high* are
  `--effort`. ONNX Runtime: static QDQ with MinMax ranges, per channel. Of three forms (U8S8, S8S8, and U8S8 for linear
  operators only), the table has the one that is best on the evaluation samples of a network. NNCF: the default preset,
  run by OpenVINO. LiteRT: ai-edge-quantizer, static INT8, of TFLite files. TPU-MLIR: the vendor's calibration with its
  defaults, for BM1688 in the chip simulator. ONNX Runtime, NNCF and TPU-MLIR read TFLite models as an export of
  tpuconvert.
- *Conversion* is the wall time of tpuconvert's default, ONNX Runtime and NNCF, an upper bound for rows measured beside
  other work; *run* the median processor time of one sample of the INT8 models of tpuconvert and ONNX Runtime in their
  engines, both with one thread.
"""


def page(record: Record) -> str:
    """Return the whole page."""
    rows = sorted(record.rows.values(), key=lambda row: row.key)  # the file has a different order than a run
    networks = measured_names()
    scores = _score_rows(rows)
    best = sum(cells[3].startswith("**") for cells in scores)
    introduction = INTRODUCTION.format(count=len(networks), command=COMMAND, best=best)
    dates = sorted({re.sub(r" \(commit \w+\)", "", row.measured) for row in rows})
    facts = {"measured": "; ".join(dates), **record.facts}
    machine = "\n".join(f"- {name}: {value}" for name, value in facts.items())
    sections = [
        introduction,
        f"## Machine\n\n{machine}\n",
        f"## Scores\n\n{_table(scores)}",
        f"## Models\n\n{_table(_model_rows())}",
        f"## Not measured\n\n{_failures(rows)}",
    ]
    return "\n".join(sections)


def best_rows(rows: Iterable[Row], network: str, quantizer: str) -> list[Row]:
    """Return the measured rows of the best setting of a quantizer, one per draw."""
    settings: dict[str, list[Row]] = {}
    for row in rows:
        if row.network == network and row.quantizer == quantizer and row.score is not None:
            settings.setdefault(row.setting, []).append(row)
    sign = -1 if metric_of(network).is_error else 1
    most_draws = max((len(group) for group in settings.values()), default=0)
    complete = [group for group in settings.values() if len(group) == most_draws]
    return max(complete, key=lambda group: sign * mean_score(group), default=[])


def mean_score(rows: Sequence[Row]) -> float:
    """Return the mean score over the draws."""
    return statistics.fmean(row.score for row in rows if row.score is not None)


def _score_rows(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    heading = ("model", "score", "float", "tpuconvert", "low", "high", *(QUANTIZERS[name].label for name in PEERS))
    table = [(*heading, "conversion, s", "run, ms")]
    for network in measured_names():
        cells = {name: best_rows(rows, network, name) for name in (*SHOWN, "float")}
        ranked = {name: mean_score(group) for name, group in cells.items() if group and name in (OURS, *PEERS)}
        choose = min if metric_of(network).is_error else max
        best = choose(ranked.values()) if len(ranked) > 1 else None
        digits = 2 if metric_of(network).is_error else 1
        shown = [_cell(cells[name], digits, best is not None and ranked.get(name) == best) for name in SHOWN]
        times = " / ".join(_seconds(cells[name]) for name in (OURS, "onnxruntime", "nncf"))
        speeds = " / ".join(_milliseconds(cells[name]) for name in (OURS, "onnxruntime"))
        table.append((f"`{network}`", metric_of(network).title, _decided(network, cells), *shown, times, speeds))
    return table


def _cell(rows: Sequence[Row], digits: int, is_best: bool) -> str:
    """Return a score with its standard error, and the range over the draws."""
    if not rows:
        return "-"
    score = f"{mean_score(rows):.{digits}f}"
    text = f"{f'**{score}**' if is_best else score} ± {statistics.fmean(row.error for row in rows):.{digits}f}"
    scores = [row.score for row in rows if row.score is not None]
    return f"{text} ({min(scores):.{digits}f} to {max(scores):.{digits}f})" if len(rows) > 1 else text


def _decided(network: str, cells: dict[str, list[Row]]) -> str:
    """Return what the float model decided, with its own score if it is unusual."""
    measured = next((rows for rows in (cells["float"], *cells.values()) if rows), [])
    if not measured:
        return "-"
    metric = metric_of(network)
    count = f"{measured[0].counts[metric.of]:.0f}"
    if not cells["float"]:
        return count
    score = mean_score(cells["float"])
    is_usual = score <= 100 - UNUSUAL if metric.is_error else score >= UNUSUAL
    return count if is_usual else f"{count} (tpuconvert {score:.1f})"


def _seconds(rows: Sequence[Row]) -> str:
    return f"{statistics.fmean(row.seconds for row in rows):.0f}" if rows else "-"


def _milliseconds(rows: Sequence[Row]) -> str:
    times = [row.milliseconds for row in rows if row.milliseconds]
    return f"{statistics.fmean(times):.{1 if min(times) >= 0.1 else 3}f}" if times else "-"


def _model_rows() -> list[tuple[str, ...]]:
    packages = read_packages()
    table: list[tuple[str, ...]] = [("model", "task", "network", "package", "license")]
    for name in measured_names():
        entry = read_catalog()[name]
        table.append((f"`{name}`", entry.task, entry.about, f"`{entry.package}`", packages[entry.package]))
    return table


def _failures(rows: Sequence[Row]) -> str:
    """Return a line per quantizer and reason, with the networks."""
    have = {(row.network, row.quantizer) for row in rows}
    reasons: dict[tuple[str, str], list[str]] = {}
    for name in SHOWN:
        if absent := [f"`{network}`" for network in measured_names() if (network, name) not in have]:
            reasons[QUANTIZERS[name].label, "not run"] = absent
    for row in rows:
        if row.failure:
            name = " ".join(filter(None, (QUANTIZERS[row.quantizer].label, row.setting)))
            networks = reasons.setdefault((name, row.failure), [])
            if f"`{row.network}`" not in networks:
                networks.append(f"`{row.network}`")
    total = len(measured_names())
    lines = []
    for (name, reason), networks in reasons.items():
        which = "all models" if len(networks) == total else ", ".join(networks)
        lines.append(f"- {name}: {reason.replace('`', '')}: {which}.")
    return "\n".join(lines or ["- nothing."]) + "\n"


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + " --- |" * len(rows[0]))
    return "\n".join(lines) + "\n"
