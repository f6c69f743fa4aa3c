"""Layer groups and cost in ``inspect``."""

import dataclasses
import json
from pathlib import Path

import pytest

import tpuconvert as tc
from tpuconvert.__main__ import main
from tpuconvert.schema.groups import Group, Grouping, Tiles
from tpuconvert.schema.hardware import LocalMemory

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def model(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    source = str(repository / "examples" / "digits" / "digits.onnx")
    assert main(["convert", source, "-o", "net.tpum", "--local-memory", "8x8K@16"]) == 0
    return "net.tpum"


def test_groups_and_cost_as_text(model: str, capsys: Captured) -> None:
    assert main(["inspect", model, "--summary"]) == 0
    text = capsys.readouterr().out
    assert "in on-chip memory (8 lanes of 8.0 KiB)" in text
    assert "least time" not in text
    assert main(["inspect", model, "--cost"]) == 0
    text = capsys.readouterr().out
    assert "least time: " in text
    assert "MACs" in text


def test_groups_on_the_page(model: str, tmp_path: Path) -> None:
    assert main(["inspect", model, "--html", "net.html"]) == 0
    page = (tmp_path / "net.html").read_text()
    assert "<h3>Groups</h3>" in page
    assert "in on-chip memory (8 lanes of 8.0 KiB)" in page


def test_groups_and_cost_as_json(model: str, capsys: Captured) -> None:
    capsys.readouterr()
    assert main(["inspect", model, "--json"]) == 0
    cost = json.loads(capsys.readouterr().out)["cost"]
    assert cost["memory"] == {"lanes": 8, "lane_bytes": 8192, "row_bytes": 16}
    assert cost["groups"]
    assert 0 < cost["saved"] < 1
    assert cost["bytes"] == sum(
        part["bytes"] for part in (*cost["groups"], *(layer for layer in cost["layers"] if layer["group"] is None))
    )
    assert cost["seconds"] <= cost["seconds_node_by_node"]
    for group in cost["groups"]:
        assert group["lane_bytes"] <= 8192
        assert group["bytes"] < group["bytes_node_by_node"]


def test_without_groups(repository: Path, tmp_path: Path, capsys: Captured) -> None:
    source, target = repository / "examples" / "digits" / "digits.onnx", tmp_path / "net.tpum"
    assert main(["convert", str(source), "-o", str(target), "--no-grouping"]) == 0
    capsys.readouterr()
    assert main(["inspect", str(target), "--summary"]) == 0
    assert "no groups" in capsys.readouterr().out


def test_wrong_use(repository: Path, tmp_path: Path, capsys: Captured) -> None:
    source = str(repository / "examples" / "digits" / "digits.onnx")
    target = str(tmp_path / "net.tpum")
    assert main(["inspect", source, "--cost"]) == 2
    assert "convert it first" in capsys.readouterr().err
    assert main(["convert", source, "-o", target, "--local-memory", "big"]) == 2
    assert "64x256K" in capsys.readouterr().err
    assert main(["convert", source, "-o", target, "--local-memory", "bm1684x", "--no-grouping"]) == 2
    assert "leave one of the two out" in capsys.readouterr().err


def test_options_are_in_the_recipe(model: str, repository: Path) -> None:
    source = str(repository / "examples" / "digits" / "digits.onnx")
    assert main(["reproduce", source, model]) == 0


@pytest.mark.parametrize("group", [Group(0, 2, Tiles(1, 1, 128)), Group(0, 3, Tiles(64, 1, 1))])
def test_groups_that_cannot_be(repository: Path, tmp_path: Path, group: Group, capsys: Captured) -> None:
    """A file can contain any group plan. One that its nodes cannot execute is reported as damage."""
    model = tc.convert(repository / "examples" / "digits" / "digits.onnx")
    grouping = Grouping(LocalMemory.parse("bm1686"), (group,))
    target = tmp_path / "net.tpum"
    tc.Model(dataclasses.replace(model.content, grouping=grouping)).save(target)
    assert main(["inspect", str(target)]) == 4
    assert "cannot run in its parts" in capsys.readouterr().err
