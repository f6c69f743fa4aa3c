"""Write the table of preprocessing mistakes that the doctor detects into docs/guides/preprocessing.md.

    python -m tools.pages.preprocessing_table [--check] [--part development] [MODEL ...]

Every model gets its right preprocessing and each mistake of ``preprocessing_mistakes.py``: as images with a wrong
``--preprocess`` (or as wrong images with the right one), and as arrays that are normalized already. A cell has the
points of top-1 that the mistake costs, and what found it: ``L`` with labels, ``S`` by statistics alone (labels
withheld), ``-`` nothing. Thresholds were chosen on other images (``--part development``) of the same sets.

With names of models the rows are printed. ``--check`` fails if the page is out of date; it runs everything.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

import tpuconvert as tc
from tools.accuracy.datasets import Entry, data_root, entries, input_shapes, model_files
from tools.pages.generated_file import replace_section
from tools.pages.preprocessing_mistakes import MISTAKES, Given, cases, images_of, right
from tpuconvert.conversion.conversion import Conversion
from tpuconvert.conversion.input_expectations import expectations
from tpuconvert.conversion.options.options import Options
from tpuconvert.conversion.source import Source
from tpuconvert.conversion.source_loading import is_quantized_source, load_source
from tpuconvert.doctor.doctor import check_statistics, predictor
from tpuconvert.doctor.trial import compare_variants
from tpuconvert.doctor.variants import TrialSamples
from tpuconvert.samples.calibration_data import load_feeds
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.system.content_digest import digest_of
from tpuconvert.schema.types import Array

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "preprocessing.md"
COSTLY = 2.0
"""Loss of top-1 accuracy, in percentage points, above which a mistake should be found."""

WAYS = {"": "every model once", "images": "images and `--preprocess`", "arrays": "normalized arrays"}
"""Form in which samples are given -> heading. The first combines both: images, or arrays for other inputs."""

STATISTICS = 64
"""Number of samples for the checks without variants: a common number of calibration samples."""

MOST_ELEMENTS = 1000
"""Largest input for which normalized arrays are tried too, because they take eight times as long as images."""

RIGHT = "right preprocessing"

Row = dict[str, dict[str, dict[str, float | bool]]]
"""Form of the samples (images, arrays) -> mistake -> cost in points, found with labels, found without labels."""


class Subject:
    """A labeled model with its session and a cache of scores by sample."""

    def __init__(self, root: Path, entry: Entry) -> None:
        source, weights = model_files(root, entry)
        options = Options(input_shapes=dict(input_shapes(entry)))
        graph = load_source(Source(source, weights), options)
        self.is_float = not is_quantized_source(graph)
        self.expected = expectations(graph)
        self.model = Conversion(options).of_graph(graph)
        (self.port,) = self.model.graph.input_ports
        self.session = tc.Session(self.model, threads=1)
        self._predict = predictor(self.session, self.port, self.model.graph.output_ports[0])
        self._known: dict[bytes, Array] = {}

    def predict(self, x: Array) -> Array:
        """Return the scores of samples. Each distinct sample is computed only once."""
        keys = [digest_of(np.ascontiguousarray(sample).tobytes()) for sample in x]
        fresh = {key: index for index, key in enumerate(keys) if key not in self._known}
        if fresh:
            for key, scores in zip(fresh, self._predict(x[list(fresh.values())]), strict=True):
                self._known[key] = scores
        return np.stack([self._known[key] for key in keys])


def examine(
    subject: Subject, samples: Array | list[Array], rule: Preprocess | None, labels: Array
) -> tuple[float, bool, bool]:
    """Return top-1 accuracy in percent, and whether the doctor warns with labels and without labels."""
    feeds = load_feeds(samples, [subject.port], rule)
    first = load_feeds(samples[:STATISTICS], [subject.port], rule)
    by_statistics = check_statistics(
        subject.model.graph, first, subject.expected if subject.is_float else None, "minmax", threads=1
    )[0]
    trial = TrialSamples(feeds, subject.port, rule)
    with_labels = compare_variants(trial, subject.predict, labels, "")
    without = compare_variants(trial, subject.predict, None, "")
    assert with_labels.current.right is not None
    return (
        100 * with_labels.current.right / len(labels),
        bool(by_statistics or with_labels.findings),
        bool(by_statistics or without.findings),
    )


def measure(root: Path, entry: Entry, part: str) -> Row:
    """Return the table row of one model."""
    subject = Subject(root, entry)
    images = images_of(root, entry, part)
    row: Row = {}
    for way, hand_over in (("images", as_images), ("arrays", as_arrays)):
        samples_and_rule = hand_over(subject, right(images))
        if samples_and_rule is None or (
            way == "arrays" and "images" in row and samples_and_rule[0][0].size > MOST_ELEMENTS
        ):
            continue
        best, *warned = examine(subject, samples_and_rule[0], samples_and_rule[1], images.labels)
        row[way] = {RIGHT: {"cost": 0.0, "labels": warned[0], "statistics": warned[1]}}
        for name, mistake in cases(images):
            samples = None if mistake is None else hand_over(subject, mistake)
            if samples is not None:
                top1, *letters = examine(subject, samples[0], samples[1], images.labels)
                row[way][name] = {"cost": best - top1, "labels": letters[0], "statistics": letters[1]}
    return row


def as_images(subject: Subject, given_images: Given) -> tuple[Array | list[Array], Preprocess] | None:
    """Return images and a preprocessing; None for inputs that are not images.

    For pixels that are already resized, the preprocessing does not crop.
    """
    if len(subject.port.shape) != 4:
        return None
    layout = "NHWC" if subject.port.shape[-1] == given_images.pixels.shape[-1] else "NCHW"
    if given_images.originals is not None:
        return given_images.originals, replace(given_images.rule, layout=layout)
    return given_images.pixels, replace(given_images.rule, fit="stretch", layout=layout)


def as_arrays(subject: Subject, images: Given) -> tuple[Array, None]:
    """Return normalized arrays in layout and type of the model input, without preprocessing."""
    x = images.normalized
    if len(subject.port.shape) == 4 and subject.port.shape[-1] != x.shape[-1]:
        x = x.transpose(0, 3, 1, 2)
    x = np.ascontiguousarray(x).reshape(len(x), *subject.port.shape[1:])
    return (subject.port.quant.quantize(x) if subject.port.quant is not None else x), None


def table(rows: dict[str, Row]) -> str:
    """Return the table, followed by the detection rates."""
    names = [RIGHT, *MISTAKES]
    lines = ["| mistake | " + " | ".join(str(index) for index in range(1, len(rows) + 1)) + " |"]
    lines.append("|---|" + "---|" * len(rows))
    for name in names:
        cells = [_cell(row[next(iter(row))].get(name), name) for row in rows.values()]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += ["", "Models: " + ", ".join(f"{index} {name}" for index, name in enumerate(rows, start=1)) + ".", ""]
    lines += ["| samples | costly cases | found with labels | found without labels | false alarms of right ones |"]
    lines += ["|---|---|---|---|---|"]
    for way, words in WAYS.items():
        done = [row[way or next(iter(row))] for row in rows.values() if not way or way in row]
        costly = [item for row in done for name, item in row.items() if name != RIGHT and item["cost"] > COSTLY]
        alarms = sum(bool(row[RIGHT]["labels"]) + bool(row[RIGHT]["statistics"]) for row in done)
        shares = [f"{_count(costly, key)} ({_count(costly, key) / max(len(costly), 1):.1%})" for key in _ARMS]
        lines.append(f"| {words} | {len(costly)} | {' | '.join(shares)} | {alarms} of {2 * len(done)} |")
    return "\n".join(lines)


_ARMS = ("labels", "statistics")


def _count(items: list[dict[str, float | bool]], key: str) -> int:
    return sum(bool(item[key]) for item in items)


def _cell(item: dict[str, float | bool] | None, name: str) -> str:
    if item is None:
        return ""
    letters = "".join(letter for letter, key in zip("LS", _ARMS, strict=True) if item[key]) or "-"
    return letters if name == RIGHT else f"{item['cost']:.0f} {letters}"


def main() -> int:
    """Measure, then write or check the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="print the table of these only")
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if the page is out of date")
    parser.add_argument("--part", choices=("test", "development"), default="test")
    parser.add_argument("--results", type=Path, help="JSON file of rows: those there are reused, others are added")
    options = parser.parse_args()
    root = data_root()
    labeled = {name: entry for name, entry in entries(root).items() if "labels" in entry}
    rows: dict[str, Row] = {}
    if options.results is not None and options.results.is_file():
        rows = json.loads(options.results.read_text(encoding="utf-8"))
    for name in options.models or labeled:
        if name not in rows:
            rows[name] = measure(root, labeled[name], options.part)
            print(name, file=sys.stderr, flush=True)
            if options.results is not None:
                options.results.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    text = table({name: rows[name] for name in options.models or labeled})
    if options.models or options.part != "test":
        print(text)
        return 0
    page = PAGE.read_text(encoding="utf-8")
    content = replace_section(PAGE, page, "mistakes", "tools.pages.preprocessing_table", text.splitlines())
    if content == page:
        return 0
    if options.check:
        print(f"{PAGE.name} is out of date: run python -m tools.pages.preprocessing_table", file=sys.stderr)
        return 1
    PAGE.write_text(content, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
