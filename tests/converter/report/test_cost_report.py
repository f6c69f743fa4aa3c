"""Layer groups and cost in ``inspect``."""

import json
from pathlib import Path

import pytest

from tpuconvert.__main__ import main

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def model(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    source = str(repository / "examples" / "digits" / "digits.onnx")
    assert main(["convert", source, "-o", "net.tpum"]) == 0
    return "net.tpum"


def test_groups_and_cost_as_text(model: str, capsys: Captured) -> None:
    assert main(["inspect", model, "--summary"]) == 0
    assert "on-chip" not in capsys.readouterr().out
    assert main(["inspect", model, "--summary", "--groups"]) == 0
    text = capsys.readouterr().out
    assert "in on-chip memory (32 lanes of 128.0 KiB)" in text
    assert "least time" not in text
    assert main(["inspect", model, "--cost"]) == 0
    text = capsys.readouterr().out
    assert "least time: " in text
    assert "MACs" in text


def test_groups_on_the_page(model: str, tmp_path: Path) -> None:
    assert main(["inspect", model, "--html", "net.html"]) == 0
    page = (tmp_path / "net.html").read_text()
    assert "<h3>Groups</h3>" in page
    assert "in on-chip memory (32 lanes of 128.0 KiB)" in page


def test_groups_and_cost_as_json(model: str, capsys: Captured) -> None:
    capsys.readouterr()
    assert main(["inspect", model, "--json"]) == 0
    cost = json.loads(capsys.readouterr().out)["cost"]
    assert cost["memory"] == {"lanes": 32, "lane_bytes": 131072, "row_bytes": 16}
    assert cost["groups"]
    assert 0 < cost["saved"] < 1
    assert cost["bytes"] == sum(
        part["bytes"] for part in (*cost["groups"], *(layer for layer in cost["layers"] if layer["group"] is None))
    )
    assert cost["seconds"] <= cost["seconds_node_by_node"]
    for group in cost["groups"]:
        assert group["lane_bytes"] <= 131072
        assert group["bytes"] < group["bytes_node_by_node"]


def test_wrong_use(repository: Path, capsys: Captured) -> None:
    source = str(repository / "examples" / "digits" / "digits.onnx")
    for option in ("--cost", "--groups"):
        assert main(["inspect", source, option]) == 2
        assert "convert it first" in capsys.readouterr().err
