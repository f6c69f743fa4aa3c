"""Convert, quantize and evaluate the bundled example in three source formats, and write an HTML report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tpuconvert.conversion.conversion import Conversion
from tpuconvert.conversion.options.options import Options
from tpuconvert.conversion.source import Source
from tpuconvert.doctor.example import PIXELS, SOURCES, example_folder, load_part
from tpuconvert.model.description import Description
from tpuconvert.model.model import Model
from tpuconvert.progress import Progress
from tpuconvert.report.html_page import report_page
from tpuconvert.report.page.elements import Cell, html_table, panel
from tpuconvert.report.report_description import describe_for_report
from tpuconvert.runtime.session.session import Session
from tpuconvert.samples.calibration_data import load_feeds
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.system.file_replacement import replacing
from tpuconvert.schema.text.html_text import escape
from tpuconvert.schema.types import Array, Chip
from tpuconvert.verify.source_comparison import verify_source


@dataclass(frozen=True)
class Row:
    """Results of one format: accuracies are shares of the test images."""

    source_format: str
    float_top1: float
    int8_top1: float
    changed: int
    images: int
    float_bytes: int
    int8_bytes: int


def predict(model: Model, images: Array) -> npt.NDArray[np.int64]:
    """Return the class with the highest score for every image."""
    feeds = load_feeds(images, model.graph.input_ports, model.preprocess)
    with Session(model) as session:
        scores = [next(iter(session.run(feed).values())) for feed in feeds]
    best: npt.NDArray[np.int64] = np.concatenate(scores).argmax(axis=1)
    return best


def run_demo(target: Path, chip: str, progress: Progress) -> tuple[list[Row], Path]:
    """Convert, quantize and evaluate the example in all formats; write models and a page into ``target``.

    Args:
        target: folder for the files, created if it does not exist.
        chip: target chip.
        progress: receives the stages, and a line for each format.

    Returns:
        A row per format, and the page.

    """
    if Options.of(chip=chip).chip is Chip.BM1682:
        raise UsageError(
            "the demo quantizes, and BM1682 has no integer arithmetic", hint="choose --chip bm1684 or bm1686"
        )
    folder = example_folder()
    target.mkdir(parents=True, exist_ok=True)
    calibration, _ = load_part(folder, "calibration")
    images, labels = load_part(folder, "test")
    rows, descriptions = [], []
    for source_format, (source, weights, layout) in SOURCES.items():
        progress.report(f"{source_format}: {source}")
        model_source = Source(folder / source, None if weights is None else folder / weights)
        preprocess = f"{PIXELS},layout={layout}"
        plain = Conversion(Options.of(chip=chip, preprocess=preprocess), progress=progress).of_source(model_source)
        options = Options.of(chip=chip, preprocess=preprocess, quantize="int8")
        quantized = Conversion(options, calibration, progress=progress).of_source(model_source)
        sizes = []
        for model, kind in ((plain, "float"), (quantized, "int8")):
            path = target / f"digits_{source_format}_{kind}.tpum"
            model.save(path)
            sizes.append(path.stat().st_size)
        expected, actual = predict(plain, images), predict(quantized, images)
        rows.append(
            Row(
                source_format,
                float((expected == labels).mean()),
                float((actual == labels).mean()),
                int((expected != actual).sum()),
                len(labels),
                sizes[0],
                sizes[1],
            )
        )
        verification = verify_source(quantized, model_source, options, calibration, progress=progress)
        descriptions.append(describe_for_report(quantized, verification))
    report = target / "report.html"
    with replacing(report) as file:
        file.write(demo_page(rows, descriptions).encode("utf-8"))
    return rows, report


HEADING = ("format", "float top-1", "INT8 top-1", "changed predictions", "float file", "INT8 file")


def cells(row: Row) -> tuple[str, ...]:
    """Format a row of the demo's table as text, one cell per entry of HEADING."""
    return (
        row.source_format,
        f"{row.float_top1:.2%}",
        f"{row.int8_top1:.2%}",
        f"{row.changed} of {row.images}",
        f"{row.float_bytes:,} bytes",
        f"{row.int8_bytes:,} bytes",
    )


def demo_page(rows: list[Row], descriptions: list[Description]) -> str:
    """Return the HTML page: the table, then the report of every INT8 model."""
    lead = (
        "A small network that reads handwritten digits, converted from three formats, in float and in INT8: "
        f"how many of {rows[0].images} test images each of them gets right."
    )
    accuracy: list[list[Cell]] = [
        [escape(name), *(("n", escape(figure)) for figure in figures)] for name, *figures in map(cells, rows)
    ]
    overview = panel("Accuracy", lead, html_table(HEADING, accuracy))
    return report_page(descriptions, "demo, handwritten digits", overview)
