"""The table of preprocessing mistakes: its counts, the statements of the page, and a repeated measurement."""

import re
from pathlib import Path

import pytest

from tools.accuracy.datasets import entries
from tools.pages.preprocessing_mistakes import MISTAKES, cases, images_of, right
from tools.pages.preprocessing_table import RIGHT, measure, table


def item(cost: float, labels: bool, statistics: bool) -> dict[str, float | bool]:
    return {"cost": cost, "labels": labels, "statistics": statistics}


def test_costly_mistakes_are_counted() -> None:
    names = list(MISTAKES)
    row = {
        RIGHT: item(0, True, False),
        names[0]: item(30, True, True),
        names[1]: item(2.5, False, False),
        names[2]: item(2.0, False, False),  # 2 points do not exceed the limit of 2
    }
    text = table({"net": {"images": row}})
    assert "| images and `--preprocess` | 2 | 1 (50.0%) | 1 (50.0%) | 1 of 2 |" in text
    assert f"| {names[0]} | 30 LS |" in text
    assert f"| {names[1]} | 2 - |" in text


def test_the_page_keeps_what_it_promises(repository: Path) -> None:
    """At least 95 % of the costly mistakes of at least 12 kinds are detected with labels, without false alarms."""
    text = (repository / "docs" / "guides" / "preprocessing.md").read_text(encoding="utf-8")
    pattern = r"^\| every model once \| (\d+) \| (\d+) \([^|]+\| [^|]+\| 0 of \d+ \|$"
    found = re.search(pattern, text, re.MULTILINE)
    assert found is not None
    assert int(found[2]) >= 0.95 * int(found[1]) > 0
    assert len(MISTAKES) >= 12


def test_column_of_a_digit_classifier_is_that_of_the_page(data_root: Path, repository: Path) -> None:
    """The nightly run compares all columns: ``tools/pages/preprocessing_table.py --check``."""
    name = "mnist_conv_tflite"
    text = (repository / "docs" / "guides" / "preprocessing.md").read_text(encoding="utf-8")
    index = re.search(rf"\b(\d+) {name}\b", text)
    assert index is not None
    for line in table({name: measure(data_root, entries(data_root)[name], "test")}).split("\n\n")[0].splitlines()[2:]:
        mistake, cell = line.strip("|").split("|")
        shown = next(row for row in text.splitlines() if row.startswith(f"|{mistake}|"))
        assert shown.strip("|").split("|")[int(index[1])] == cell, mistake


@pytest.mark.slow
def test_every_costly_mistake_on_a_digit_classifier_is_found(data_root: Path) -> None:
    row = measure(data_root, entries(data_root)["mnist_conv_tflite"], "test")["images"]
    assert not row[RIGHT]["labels"]
    assert not row[RIGHT]["statistics"]
    # A cost of 10 points on 200 samples is significant; smaller ones depend on how many other samples change.
    costly = {name: found["labels"] for name, found in row.items() if found["cost"] > 10}
    assert len(costly) >= 9
    assert all(costly.values()), costly


def test_images_for_evaluation_and_development_differ(data_root: Path) -> None:
    entry = entries(data_root)["mnist_conv_tflite"]
    test, other = (images_of(data_root, entry, part).pixels["stretch"] for part in ("test", "development"))
    assert not {image.tobytes() for image in test} & {image.tobytes() for image in other}


def test_a_mistake_that_changes_nothing_is_left_out(data_root: Path) -> None:
    """Mistakes that do not apply are left out: a mean of 0 cannot be forgotten, gray images have no R and B."""
    images = images_of(data_root, entries(data_root)["mnist_conv_tflite"], "test")
    given = dict(cases(images))
    assert given["mean forgotten"] is None
    assert given["R and B exchanged"] is None
    inverted = given["pixels inverted"]
    assert inverted is not None
    assert (inverted.pixels == 255 - right(images).pixels).all()
