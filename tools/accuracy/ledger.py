"""Accuracy of INT8 by model, chip and calibration method: measure, compare with the reviewed file, write the page.

    python -m tools.accuracy ledger [MODEL ...]            # measure, and list the differences
    python -m tools.accuracy ledger --update [MODEL ...]   # write the measurements into the file, and the page
    python -m tools.accuracy ledger --page                 # write the page only
    python -m tools.accuracy ledger --check                # exit code 1 if the page is out of date

The file is ``tests/models/accuracy.yaml``, the page ``docs/inside/accuracy.md``. A change of the quantization that
changes the accuracy needs an update of the file, so that it shows up in the review of the change. Improvements must be
recorded too: otherwise a later loss of the same size would not be noticed.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import yaml

from tools.accuracy.datasets import data_root, entries, labeled_set
from tools.accuracy.detections import DETECTORS
from tools.accuracy.detections import measure as measure_detections
from tools.accuracy.labeled import classifiers, measure
from tools.pages.generated_file import replace_part

ROOT = Path(__file__).resolve().parent.parent.parent
LEDGER = ROOT / "tests" / "models" / "accuracy.yaml"
PAGE = ROOT / "docs" / "inside" / "accuracy.md"
CHIPS = ("bm1686", "bm1684")
METHODS = ("auto", "minmax")
SHARE = 0.005
"""Number of images, as a share of all, by which a count may differ without being reported; at least one image."""

COSINE = 0.1
"""Relative tolerance of the distance between the cosine similarity and 1. Factorizations of other BLAS libraries change
single roundings of weights."""

Key = tuple[str, str, str]
Numbers = Mapping[str, float]

INTRODUCTION = """\
# Labeled test models

Top-1 accuracy in percent with the default options, and *flips*: the images whose predicted class differs from the class
of the float model. A float detection is *kept* if the INT8 model detects the same class with an intersection over union
of at least 0.9. Calibration and evaluation images are different ones.

`python -m tools.accuracy ledger --update` measures and writes `tests/models/accuracy.yaml`, which also has the method
`minmax` and the cosine similarity of the outputs; `--page` writes this section. The nightly tests measure every row
again, and fail if it became worse or better.
"""


def keys(names: Iterable[str] = ()) -> list[Key]:
    """Model, chip and method of all measurements, or of the measurements of some models."""
    chosen = list(names) or [*classifiers(), *DETECTORS]
    return list(itertools.product(chosen, CHIPS, METHODS))


def measured(key: Key) -> dict[str, float]:
    """Measure one row."""
    name, chip, method = key
    if name in DETECTORS:
        detections, kept = measure_detections(name, chip, calibration_method=method)
        return {"detections": detections, "kept": kept}
    entry = entries(data_root())[name]
    row = measure(entry, labeled_set(data_root(), entry), chip, method)
    return {
        "images": row.images,
        "float_correct": row.float_correct,
        "int8_correct": row.int8_correct,
        "flips": row.flips,
        "cosine": round(row.cosine, 6),
    }


def read_ledger() -> dict[Key, Numbers]:
    """Return the recorded rows."""
    content = yaml.safe_load(LEDGER.read_text(encoding="utf-8"))
    return {
        (name, chip, method): numbers
        for name, chips in content.items()
        for chip, methods in chips.items()
        for method, numbers in methods.items()
    }


def differences(recorded: Numbers, measured_numbers: Numbers) -> list[str]:
    """Return a line per number that became worse or better than recorded."""
    if not recorded:
        return ["not recorded"]
    lines = []
    for name in sorted(recorded.keys() | measured_numbers.keys()):
        if name not in recorded or name not in measured_numbers:
            lines.append(f"{name}: {'not recorded' if name in measured_numbers else 'not measured'}")
            continue
        old, new = recorded[name], measured_numbers[name]
        if name == "cosine":
            is_equal = abs(new - old) <= COSINE * (1 - old) + 1e-6
        else:
            total = recorded.get("images", recorded.get("detections", 0))
            is_equal = abs(new - old) <= max(1.0, SHARE * total) if name not in ("images", "detections") else new == old
        if not is_equal:
            lines.append(f"{name}: {new:g}, recorded is {old:g}")
    return lines


def ledger_text(ledger: Mapping[Key, Numbers]) -> str:
    """The file, one line per row."""
    lines = ["# Reviewed: written by python -m tools.accuracy ledger --update, compared by the nightly tests."]
    for name, rows in itertools.groupby(sorted(ledger), key=lambda key: key[0]):
        lines.append(f"{name}:")
        for chip, methods in itertools.groupby(rows, key=lambda key: key[1]):
            lines.append(f"  {chip}:")
            for key in methods:
                numbers = ", ".join(f"{field}: {number}" for field, number in ledger[key].items())
                lines.append(f"    {key[2]}: {{{numbers}}}")
    return "\n".join(lines) + "\n"


def page(ledger: Mapping[Key, Numbers]) -> str:
    """The section: a table of classifiers and one of detectors, for the default method."""
    rows = {(name, chip): row for (name, chip, method), row in sorted(ledger.items()) if method == METHODS[0]}
    first: list[tuple[str, ...]] = [("model", "images", "float", *(f"{chip.upper()}, flips" for chip in CHIPS))]
    second: list[tuple[str, ...]] = [("model", "float detections", *(f"{chip.upper()}, kept" for chip in CHIPS))]
    for name in dict.fromkeys(name for name, _ in rows):
        of_chips = [rows.get((name, chip)) for chip in CHIPS]
        any_chip = next(row for row in of_chips if row is not None)
        cells = ("" if row is None else _cell(row) for row in of_chips)
        if "images" in any_chip:
            float_share = 100 * any_chip["float_correct"] / any_chip["images"]
            first.append((f"`{name}`", f"{any_chip['images']:,}", f"{float_share:.2f}", *cells))
        else:
            second.append((f"`{name}`", str(any_chip["detections"]), *cells))
    return f"{INTRODUCTION}\n{_table(first)}\n{_table(second)}"


def _cell(row: Numbers) -> str:
    """Return accuracy and flips of a classifier, or the share of detections that a detector keeps."""
    if "images" in row:
        return f"{100 * row['int8_correct'] / row['images']:.2f}, {100 * row['flips'] / row['images']:.2f}"
    return f"{100 * row['kept'] / row['detections']:.1f} %"


def written_page(ledger: Mapping[Key, Numbers]) -> str:
    """Return the page of accuracies with this section."""
    return replace_part(PAGE, "ledger", "tools.accuracy ledger", page(ledger))


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + " --- |" * len(rows[0]))
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Measure and compare, or write."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.accuracy ledger", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("models", nargs="*")
    parser.add_argument("--update", action="store_true", help="write the measurements into the file, and the page")
    parser.add_argument("--page", action="store_true", help="write the page only")
    parser.add_argument("--check", action="store_true", help="exit code 1 if the page is out of date")
    options = parser.parse_args(arguments)
    ledger = read_ledger() if LEDGER.exists() else {}
    if options.check:
        is_current = PAGE.read_text(encoding="utf-8") == written_page(ledger)
        if not is_current:
            print(f"{PAGE} is out of date: run python -m tools.accuracy ledger --page", file=sys.stderr)
        return 0 if is_current else 1
    count = 0
    for key in [] if options.page else keys(options.models):
        numbers = measured(key)
        changed = differences(ledger.get(key, {}), numbers)
        count += bool(changed)
        print(f"{' '.join(key)}: {'; '.join(changed) or 'as recorded'}", flush=True)
        if options.update:
            ledger[key] = numbers
            LEDGER.write_text(ledger_text(ledger), encoding="utf-8")
    if options.update or options.page:
        PAGE.write_text(written_page(ledger), encoding="utf-8")
        return 0
    return 1 if count else 0
