"""Results file, comparison and page of the accuracy benchmark, without other tools."""

import math
from pathlib import Path

import numpy as np
import pytest

from tools.bench.accuracy import command
from tools.bench.accuracy.page import best, loss, page, standard_error
from tools.bench.accuracy.quantizers import TOOLS
from tools.bench.accuracy.results import Row, append_row, missing_keys, read_rows, remove_rows
from tools.bench.accuracy.subjects import compare_classes, compare_detections
from tpuconvert.schema.arithmetic.boxes import Detections


def classified(tool: str, setting: str, flips: int, cosine: float = 0.99) -> Row:
    numbers = {"images": 200, "float_correct": 100, "correct": 98, "flips": flips, "cosine": cosine}
    return Row("net", tool, setting, numbers)


def detected(tool: str, setting: str, kept: int) -> Row:
    return Row("boxes", tool, setting, {"detections": 50, "kept": kept, "found": 49})


ROWS = [
    classified("tpuconvert", "BM1686", 8),
    classified("tpuconvert", "BM1684", 20),
    classified("onnxruntime", "float", 0),
    classified("onnxruntime", "MinMax, U8S8, per channel", 12),
    classified("onnxruntime", "Percentile, U8S8, per channel", 10, 0.97),
    classified("onnxruntime", "Entropy, U8S8, per channel", 10, 0.98),
    Row("net", "nncf", "float", error="not installed (No module named 'nncf')"),
    *(Row("net", "litert", setting, error="no file of its format") for setting in TOOLS["litert"].settings),
    detected("tpuconvert", "BM1686", 48),
    detected("nncf", "MIXED, fast bias correction", 45),
]


def test_classes_are_compared_with_labels_and_with_the_float_network() -> None:
    before = np.array([[1.0, 0.0], [0.0, 1.0], [3.0, 4.0], [0.0, 0.0]])
    after = np.array([[1.0, 0.0], [1.0, 0.0], [4.0, 3.0], [0.0, 0.0]])
    found = compare_classes(before, after, np.array([0, 1, 0, 0]))
    # cosines 1, 0, 24 / 25, 0; the float network is right on images 0, 1 and 3, the other one on 0, 2 and 3
    assert found == {"images": 4, "float_correct": 3, "correct": 3, "flips": 2, "cosine": 0.49}


def test_detections_are_kept_with_their_class_and_box() -> None:
    box = [0.0, 0.0, 10.0, 10.0]
    before = Detections(np.array([box, box]), np.array([0.9, 0.8]), np.array([0, 1]))
    after = Detections(np.array([box, [0.0, 0.0, 10.0, 8.0]]), np.array([0.9, 0.8]), np.array([0, 1]))
    assert compare_detections([before], [after]) == {"detections": 2, "kept": 1, "found": 2}


def test_an_interrupted_call_continues(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    append_row(path, ROWS[0])
    with path.open("a", encoding="utf-8") as file:
        file.write('{"network": "net", "to')  # the call ended while it wrote
    append_row(path, ROWS[1])
    rows = read_rows(path)
    assert list(rows.values()) == ROWS[:2]
    assert missing_keys([row.key for row in ROWS[:3]], rows) == [ROWS[2].key]


def test_the_last_measurement_counts_and_rows_can_be_removed(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    again = classified("tpuconvert", "BM1686", 7)
    for row in (*ROWS, again):
        append_row(path, row)
    assert read_rows(path)[again.key] == again
    remove_rows(path, lambda row: bool(row.error))
    assert not any(row.error for row in read_rows(path).values())
    assert read_rows(path)[again.key] == again


def test_only_missing_settings_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []

    class Subject:
        def __init__(self, name: str, folder: Path) -> None:
            self.entry = {"format": "onnx"}

    def measure(subject: Subject, tool: str, setting: str) -> dict[str, float]:
        measured.append(setting)
        if setting == "BM1684":
            raise ImportError("no module")
        return {"images": 1}

    monkeypatch.setattr(command, "Subject", Subject)
    monkeypatch.setattr(command, "measure", measure)
    command.measure_settings("net", "tpuconvert", tmp_path)
    command.measure_settings("net", "tpuconvert", tmp_path)
    assert measured == ["BM1686", "BM1684"]
    rows = read_rows(tmp_path / command.RESULTS)
    assert rows["net", "tpuconvert", "BM1684"].error == "not installed (no module)"


def test_the_best_setting_is_never_the_float_network() -> None:
    found = best(ROWS, "onnxruntime")
    assert found is not None and found.setting == "Entropy, U8S8, per channel"  # as few flips, and the higher cosine
    assert best(ROWS, "litert") is None


def test_the_loss_has_a_binomial_standard_error() -> None:
    assert loss(ROWS[0]) == 0.04
    assert standard_error(ROWS[0]) == pytest.approx(math.sqrt(0.04 * 0.96 / 200))
    assert loss(ROWS[-1]) == pytest.approx(0.1)


def test_the_page_has_summaries_marks_and_reasons() -> None:
    lines = page(ROWS, {"processor": "fast"}, "python -m tools.bench accuracy").splitlines()
    assert "    python -m tools.bench accuracy" in lines and "- processor: fast" in lines
    assert "| `net` | 200 | 4.00 ± 1.39 | 10.00 ± 2.12 | 5.00 ± 1.54 (Entropy, U8S8, per channel) | - | - |" in lines
    assert "| `boxes` | 50 | 96.0 ± 2.8 % | - | - | 90.0 ± 4.2 % (MIXED, fast bias correction) | - |" in lines
    assert "| ONNX Runtime | **Entropy, U8S8, per channel** | 49.00 | -1.00 | 5.00 ± 1.54 | 0.98000 |" in lines
    assert "- NNCF (float): not installed (No module named 'nncf')" in lines
    assert "- LiteRT: no file of its format" in lines
    assert "- BM1686: none." in lines
    assert "- BM1684: `net` (ONNX Runtime, Entropy, U8S8, per channel)." in lines
