"""Accuracy of INT8 on the test data against the reviewed file. ``tools/accuracy ledger`` measures and writes it."""

import pytest

from tools.accuracy.detections import DETECTORS
from tools.accuracy.ledger import CHIPS, METHODS, differences, ledger_text, measured, page, read_ledger

LEDGER = read_ledger()
POINTS = 1.5
"""Largest loss of top-1 accuracy with the default method, in percentage points: three of 200 images."""

CLASSIFIERS = sorted({name for name, _, _ in LEDGER} - DETECTORS.keys())
ROW = {"images": 500, "float_correct": 400, "int8_correct": 396, "flips": 40, "cosine": 0.99}


@pytest.mark.slow
@pytest.mark.parametrize("key", LEDGER, ids=" ".join)
def test_accuracy_is_as_recorded(key, data_root):
    assert differences(LEDGER[key], measured(key)) == [], "review it, then run tools/accuracy ledger --update"


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_recorded_losses_are_within_the_limits(name, chip):
    row = LEDGER[name, chip, "auto"]
    assert 100 * (row["float_correct"] - row["int8_correct"]) / row["images"] <= POINTS + 1e-9


def test_every_model_has_all_rows():
    names = {name for name, _, _ in LEDGER}
    assert len(LEDGER) == len(names) * len(CHIPS) * len(METHODS)
    assert DETECTORS.keys() <= names


@pytest.mark.parametrize(
    ("field", "number", "is_reported"),
    [
        ("flips", 100, True),
        ("flips", 20, True),
        ("flips", 42, False),
        ("int8_correct", 390, True),
        ("int8_correct", 400, True),
        ("float_correct", 399, False),
        ("images", 499, True),
        ("cosine", 0.98, True),
        ("cosine", 0.9915, True),
        ("cosine", 0.9905, False),
    ],
)
def test_changes_in_both_directions_are_reported(field, number, is_reported):
    lines = differences(ROW, {**ROW, field: number})
    assert [line.partition(":")[0] for line in lines] == [field] * is_reported


def test_missing_numbers_are_reported():
    assert differences({}, ROW) == ["not recorded"]
    assert differences({"kept": 3}, {"kept": 3, "flips": 1}) == ["flips: not recorded"]
    assert differences({"kept": 3}, {}) == ["kept: not measured"]


def test_file_and_page_show_the_rows(tmp_path, monkeypatch):
    rows = {("net", chip, "auto"): ROW for chip in CHIPS} | {
        ("finder", "bm1686", "auto"): {"detections": 40, "kept": 39}
    }
    monkeypatch.setattr("tools.accuracy.ledger.LEDGER", tmp_path / "accuracy.yaml")
    (tmp_path / "accuracy.yaml").write_text(ledger_text(rows), "utf-8")
    assert read_ledger() == rows
    assert "| `net` | 500 | 80.00 | 79.20, 8.00 | 79.20, 8.00 |" in page(rows)
    assert "| `finder` | 40 | 97.5 % |  |" in page(rows)
