"""Command ``python -m tools.accuracy trained``: measure what is missing, compare with the record, write the page."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.accuracy.datasets import data_root
from tools.accuracy.trained.catalog import measured_names, read_catalog
from tools.accuracy.trained.measuring import Folders, keys, measure_missing
from tools.accuracy.trained.metrics import metric_of
from tools.accuracy.trained.page import COMMAND, page
from tools.accuracy.trained.quantizers import QUANTIZERS
from tools.accuracy.trained.results import Key, Record, Row, read_rows
from tools.accuracy.trained.samples import needs_photos
from tools.accuracy.trained.tpu_mlir import installed_version
from tools.accuracy.trained.wheels import fetch, model_folder
from tools.bench.machine import ABSENT, facts
from tools.pages.generated_file import replace_part

ROOT = Path(__file__).resolve().parent.parent.parent.parent
RECORD = ROOT / "docs" / "inside" / "accuracy-trained.json"
PAGE = ROOT / "docs" / "inside" / "accuracy.md"
TOOL = COMMAND.removeprefix("python -m ")
PACKAGES = ("ai-edge-quantizer",)
TOLERANCE = 1.0
"""Points that a score may lose beyond two standard errors: fonts and voices of another machine change the samples."""


def main(arguments: Sequence[str]) -> int:
    """Measure the selected networks with the selected quantizers."""
    options = _parser().parse_args(arguments)
    if options.check:
        is_current = PAGE.read_text(encoding="utf-8") == written_page(Record.read(RECORD))
        if not is_current:
            print(f"{PAGE.name} is out of date: run {COMMAND} --page", file=sys.stderr)
        return 0 if is_current else 1
    if options.page:
        PAGE.write_text(written_page(Record.read(RECORD)), encoding="utf-8")
        return 0
    folders = Folders(options.work, options.cache)
    if options.fetch:
        for name in options.networks or read_catalog():
            print(fetch(read_catalog()[name], options.cache))
        return 0
    if options.fresh:
        folders.results.unlink(missing_ok=True)
    selected = keys(options.networks or _names_with_samples(), options.quantizers, options.draws)
    measure_missing(selected, folders)
    rows = {key: row for key, row in read_rows(folders.results).items() if key in set(selected)}
    record = Record.read(RECORD)
    lines = losses(record.rows, rows) if options.compare else []
    print("\n".join(lines or [f"{sum(not row.failure for row in rows.values())} of {len(rows)} rows measured"]))
    if options.update:
        updated = Record({**record.facts, **_present_facts()}, {**record.rows, **rows})
        updated.write(RECORD, measured_names())
        PAGE.write_text(written_page(updated), encoding="utf-8")
    return 1 if lines else 0


def written_page(record: Record) -> str:
    """Return the page of accuracies with the section of a record."""
    return replace_part(PAGE, "trained", TOOL, page(record))


def _present_facts() -> dict[str, str]:
    """Return the facts about the machine, without the packages that it does not have: their rows are from another."""
    described = {**facts(PACKAGES), "tpu_mlir": installed_version()}
    return {name: value for name, value in described.items() if name != "measured" and value != ABSENT}


def _names_with_samples() -> list[str]:
    """Return the networks whose samples can be made here. Print those that need the test data, if it is absent."""
    try:
        data_root()
    except SystemExit as absent:
        needing = [name for name in measured_names() if needs_photos(read_catalog()[name])]
        print(f"{absent}; left out: {', '.join(needing)}", file=sys.stderr)
        return [name for name in measured_names() if name not in needing]
    return measured_names()


def losses(recorded: dict[Key, Row], measured: dict[Key, Row]) -> list[str]:
    """Return a line per row that is worse than recorded, or that fails and did not."""
    lines = []
    for key, row in measured.items():
        old = recorded.get(key)
        if old is None or old.score is None:
            continue
        name = ", ".join(filter(None, map(str, key)))
        if row.score is None:
            lines.append(f"{name}: {row.failure}")
            continue
        loss = (row.score - old.score) if metric_of(row.network).is_error else (old.score - row.score)
        if loss > 2 * math.hypot(row.error, old.error) + TOLERANCE:
            lines.append(f"{name}: {row.score:.1f} ± {row.error:.1f}, recorded is {old.score:.1f} ± {old.error:.1f}")
    return lines


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=COMMAND, description="Accuracy of INT8 on trained models of public packages.")
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"of {', '.join(measured_names())}")
    parser.add_argument("--quantizers", nargs="+", default=list(QUANTIZERS), choices=QUANTIZERS, metavar="NAME",
                        help=f"of {', '.join(QUANTIZERS)} (all)")  # fmt: skip
    parser.add_argument("--draws", nargs="+", type=int, default=[0], help="numbers of calibration draws (0)")
    parser.add_argument("--work", type=Path, default=Path("build/accuracy-trained"), help="folder of files and results")
    parser.add_argument("--cache", type=Path, default=model_folder(), help="folder of downloaded files (%(default)s)")
    parser.add_argument("--fetch", action="store_true", help="download the models, and measure nothing")
    parser.add_argument("--fresh", action="store_true", help="forget earlier results of the folder")
    parser.add_argument("--compare", action="store_true", help="exit code 1 if a score is worse than recorded")
    parser.add_argument("--update", action="store_true", help=f"write the rows into {RECORD.name}, and the page")
    parser.add_argument("--page", action="store_true", help="write the page only")
    parser.add_argument("--check", action="store_true", help="exit code 1 if the page is out of date")
    return parser
