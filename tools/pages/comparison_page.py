"""Write the figures of docs/inside/comparison.md: ``python -m tools.pages.comparison_page [--check]``.

The measurements come from benchmarks.json, into which the benchmarks are stored, and from accuracy-trained.json. With
``--check`` nothing is written; the exit code is 1 when the page is out of date.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.accuracy.trained.catalog import measured_names
from tools.accuracy.trained.command import RECORD as TRAINED
from tools.accuracy.trained.metrics import metric_of
from tools.accuracy.trained.page import best_rows
from tools.accuracy.trained.quantizers import OURS
from tools.accuracy.trained.results import Record
from tools.accuracy.trained.results import Row as TrainedRow
from tools.pages.benchmark_record import Place, Row
from tools.pages.generated_file import replace_section, write_or_check

PAGE = Path(__file__).resolve().parents[2] / "docs" / "inside" / "comparison.md"


INT8 = Place("networks", "INT8, one thread")
THREADS = Place("networks", "INT8, 2 threads")
FLOAT = Place("networks", "float32, one thread")
LOADING = Place("networks", "Loading, one thread")
CONVERSION = Place("conversion", "Benchmarks of conversions")
QUANTIZATION = Place("quantization", "Benchmarks of quantization")
FLIPS = Place("accuracy", "Flips of classifiers")
KEPT = Place("accuracy", "Detections kept")
PROGRAMS = Place("chip programs", "Programs for a chip")
VENDOR = "tpu-mlir"
ENGINES = ("ONNX Runtime", "OpenVINO", "LiteRT", "MNN")
QUANTIZERS = ("ONNX Runtime", "NNCF", "LiteRT")
CONVERTERS = {"mnnconvert": "MNN", "ovc": "OpenVINO, `ovc`", "openvino": "OpenVINO, `read_model`"}


def speed_table() -> list[str]:
    """Return the ratio of the time of each engine to the time of tpuconvert."""
    cases = (("INT8", INT8), ("INT8, 2 threads", THREADS), ("float32", FLOAT), ("opening a file", LOADING))
    rows = [
        [row["network"], case, row["tpuconvert, ms"], *(_ratio(row.get(engine, "-")) for engine in ENGINES)]
        for case, table in cases
        for row in table.rows()
    ]
    return _table(["network", "case", "tpuconvert, ms", *ENGINES], rows)


def conversion_table() -> list[str]:
    """Return the time and peak memory of each converter."""
    names = ["tpuconvert", *CONVERTERS]
    rows = [[row["model"], *(_time_and_memory(row[name]) for name in names)] for row in CONVERSION.rows()]
    return _table(["model", "tpuconvert", *CONVERTERS.values()], rows)


def quantization_table() -> list[str]:
    """Return the times and peak memory of each quantizer."""
    columns = ["network", "tool", "wall time, s", "processor time, s", "peak memory, MiB"]
    return _table(columns, [[row[name].split(" (")[0] for name in columns] for row in QUANTIZATION.rows()])


def flips_table() -> list[str]:
    """Return the share of changed classes of each quantizer."""
    return _accuracy_table(FLIPS)


def kept_table() -> list[str]:
    """Return the share of detections that each quantizer keeps."""
    return _accuracy_table(KEPT)


@dataclass(frozen=True)
class Scores:
    """Scores of a trained model in INT8: of tpuconvert's default and of TPU-MLIR, on the same draw of samples."""

    network: str
    ours: TrainedRow
    vendor: TrainedRow

    @property
    def margin(self) -> float:
        """Difference of the scores in standard errors of the difference; positive if tpuconvert is better."""
        assert self.ours.score is not None and self.vendor.score is not None
        better = self.ours.score - self.vendor.score
        if metric_of(self.network).is_error:
            better = -better
        return better / max(math.hypot(self.ours.error, self.vendor.error), 1e-9)

    @property
    def cells(self) -> list[str]:
        """Both scores, with standard errors."""
        digits = 2 if metric_of(self.network).is_error else 1
        return [f"{row.score:.{digits}f} ± {row.error:.{digits}f}" for row in (self.ours, self.vendor)]


def vendor_scores() -> list[Scores]:
    """Return the models that both tools quantized."""
    rows = list(Record.read(TRAINED).rows.values())
    found = []
    for network in measured_names():
        ours = [row for row in best_rows(rows, network, OURS) if row.draw == 0]
        vendor = best_rows(rows, network, VENDOR)
        if ours and vendor:
            found.append(Scores(network, ours[0], vendor[0]))
    return found


def vendor_table() -> list[str]:
    """Return how many scores differ, and the scores of each model, in the order of the margin."""
    scores = sorted(vendor_scores(), key=lambda each: -each.margin)
    better, worse = (sum(sign * each.margin > 2 for each in scores) for sign in (1, -1))
    text = (
        f"Of {len(scores)} models, tpuconvert is better for {better} and TPU-MLIR for {worse}, by more than two "
        f"standard errors of the difference; {len(scores) - better - worse} are not distinguishable."
    )
    rows = [[_code(each.network), metric_of(each.network).title, *each.cells] for each in scores]
    return [text, "", *_table(["model", "score", "tpuconvert", "TPU-MLIR"], rows)]


def programs_table() -> list[str]:
    """Return size, cycles and time of conversion of the programs for a chip."""
    rows = {(row["network"], row["tool"]): row for row in PROGRAMS.rows()}
    table = []
    for network in dict.fromkeys(name for name, _ in rows):
        ours, vendor = rows[network, "tpuconvert"], rows[network, "TPU-MLIR"]
        seconds = [f"{ours['conversion, s']} + {ours['compilation, s']}", vendor["conversion, s"]]
        pairs = [f"{ours[name]} / {vendor[name]}" for name in ("program, MB", "cycles, 1000")]
        table.append([_code(network), " / ".join(seconds), *pairs, _cycle_ratio(ours, vendor)])
    return _table(["model", "time, s", "program, MB", "cycles, 1000", "cycles, ratio"], table)


def _cycle_ratio(ours: Row, vendor: Row) -> str:
    """Return the cycles of TPU-MLIR relative to ours, or a dash if a program was not made."""
    counts = [row["cycles, 1000"].replace(",", "") for row in (vendor, ours)]
    return "-" if "-" in counts else f"{float(counts[0]) / float(counts[1]):.2f}"


def behind_list() -> list[str]:
    """Return one line per kind of measurement in which another tool has the better figure, with the networks."""
    lines: list[tuple[str, list[str]]] = []
    kinds = (("INT8", INT8), ("INT8 with 2 threads", THREADS), ("float32", FLOAT), ("opening a file", LOADING))
    for kind, table in kinds:
        lines.append((f"Time, {kind}", [_slower(row, engine) for row in table.rows() for engine in ENGINES]))
    slow = [
        f"{_code(row['model'])}, {title}: {ratio} x our time"
        for row in CONVERSION.rows()
        for name, title in CONVERTERS.items()
        if (ratio := row[name].rsplit(", ", 1)[1].removesuffix(" x")) and float(ratio) < 1
    ]
    lines.append(("Time of a conversion", slow))
    lines.append(("Wall time of a quantization with default options", list(_faster_quantizers())))
    for chip in ("BM1686", "BM1684"):
        lines.append((f"Changed classes, {chip}", list(_worse(FLIPS, chip, lambda ours, theirs: theirs < ours))))
        lines.append((f"Detections kept, {chip}", list(_worse(KEPT, chip, lambda ours, theirs: theirs > ours))))
    slower_programs = [
        f"{row[0]}: {row[-1]} x our cycles"
        for row in (line.strip("| ").split(" | ") for line in programs_table()[2:])
        if row[-1] != "-" and float(row[-1]) < 1
    ]
    lines.append(("Estimated cycles of INT8 programs for BM1688, TPU-MLIR", slower_programs))
    lines.append(("Time to an INT8 program for BM1688, TPU-MLIR", list(_faster_programs())))
    worse = [
        f"{_code(each.network)}: {each.cells[1]}, ours {each.cells[0]}" for each in vendor_scores() if each.margin < 0
    ]
    lines.append(("Scores of trained models, TPU-MLIR", worse))
    return [
        f"- {kind}: {'; '.join(nonempty)}." for kind, texts in lines if (nonempty := [item for item in texts if item])
    ]


def _slower(row: Row, engine: str) -> str:
    ratio = _ratio(row.get(engine, "-"))
    return f"{_code(row['network'])}, {engine}: {ratio} x our time" if ratio != "-" and float(ratio) < 1 else ""


def _faster_quantizers() -> Iterator[str]:
    rows = QUANTIZATION.rows()
    ours = {row["network"]: row for row in rows if row["tool"] == "`tpuconvert`"}
    for row in rows:
        own = ours[row["network"]]["wall time, s"]
        theirs = row["wall time, s"]
        if not row["tool"].startswith("`tpuconvert") and _number(theirs) < _number(own):
            yield f"{_code(row['network'])}, {row['tool']}: {_number(theirs):g} s, ours {_number(own):g} s"


def _faster_programs() -> Iterator[str]:
    """Yield the models that TPU-MLIR converts and compiles in less time."""
    rows = {(row["network"], row["tool"]): row for row in PROGRAMS.rows()}
    for (network, tool), row in rows.items():
        own = rows[network, "tpuconvert"]
        cells = row["conversion, s"], own["conversion, s"], own["compilation, s"]
        if tool == "TPU-MLIR" and "-" not in cells:
            theirs, ours = float(cells[0]), float(cells[1]) + float(cells[2])
            if theirs < ours:
                yield f"{_code(network)}: {theirs:g} s, ours {ours:g} s"


def _worse(table: Place, chip: str, is_better: Callable[[float, float], bool]) -> Iterator[str]:
    for row in table.rows():
        for tool in QUANTIZERS:
            if row[tool] != "-" and is_better(_number(row[chip]), _number(row[tool])):
                yield f"{_code(row['network'])}, {tool}: {_number(row[tool]):g} %, ours {_number(row[chip]):g} %"


def _accuracy_table(table: Place) -> list[str]:
    columns = ["network", "images or detections", "BM1686", "BM1684", *QUANTIZERS]
    return _table(columns, [[row[name].split(" (")[0] for name in columns] for row in table.rows()])


def _code(name: str) -> str:
    return f"`{name.strip('`')}`"


def _number(cell: str) -> float:
    return float(cell.split(" ", 1)[0])


def _ratio(cell: str) -> str:
    """Return the median of a cell like ``1.21 (1.18 to 1.23), 23.18 ms``, or a dash."""
    return cell.split(" ", 1)[0] or "-"


def _time_and_memory(cell: str) -> str:
    """Return ``0.24 s, 106 MiB`` of a cell like ``0.24 s (0.23 to 0.24), 106 MiB, 1.36 x``."""
    return ", ".join(part.split(" (")[0] for part in cell.split(", ")[:2])


def _table(columns: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (columns, ["---"] * len(columns), *rows)]


PARTS: dict[str, Callable[[], list[str]]] = {
    "speed": speed_table,
    "conversion": conversion_table,
    "quantization": quantization_table,
    "flips": flips_table,
    "kept": kept_table,
    "vendor": vendor_table,
    "programs": programs_table,
    "behind": behind_list,
}


def page() -> str:
    """Return the text of the page with new figures."""
    text = PAGE.read_text(encoding="utf-8")
    for name, make in PARTS.items():
        text = replace_section(PAGE, text, name, "tools.pages.comparison_page", ["", *make(), ""])
    return text


if __name__ == "__main__":
    description = (__doc__ or "").split(":")[0]
    sys.exit(write_or_check(PAGE, lambda: page().encode(), tool="tools.pages.comparison_page", description=description))
