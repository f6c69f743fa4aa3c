"""The comparison page has the measurements of the benchmark pages."""

import re
import sys
from pathlib import Path

import pytest

from tools.pages import comparison_page


@pytest.fixture
def docs(tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the pages, which the tool reads instead."""
    for page in (repository / "docs" / "inside").glob("*.md"):
        (tmp_path / page.name).write_bytes(page.read_bytes())
    monkeypatch.setattr(comparison_page, "DOCS", tmp_path)
    monkeypatch.setattr(comparison_page, "PAGE", tmp_path / "comparison.md")
    return tmp_path


def replace(page: Path, old: str, new: str) -> None:
    text = page.read_text(encoding="utf-8")
    assert old in text
    page.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_a_new_measurement_makes_the_page_stale(docs: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    row = next(row for row in comparison_page.INT8.rows() if row["network"] == "resnet50")
    replace(docs / "benchmarks.md", row["LiteRT"], "0.77 (0.70 to 0.80), 15.00 ms")
    text = comparison_page.page()
    assert "`resnet50`, LiteRT: 0.77 x our time" in text
    assert text != (docs / "comparison.md").read_text(encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["comparison_page", "--check"])
    code = comparison_page.write_or_check(
        docs / "comparison.md", lambda: text.encode(), tool="tools.pages.comparison_page", description=""
    )
    assert code == 1
    assert "run python -m tools.pages.comparison_page" in capsys.readouterr().err


def test_figures_that_are_worse_are_listed(docs: Path) -> None:
    row = next(row for row in comparison_page.KEPT.rows() if row["network"] == "`fastestdet_coco_onnx`")
    replace(docs / "benchmarks-accuracy.md", row["NNCF"], "99.0 ± 0.1 % (MIXED)")
    worse = "\n".join(comparison_page.behind_list())
    assert f"`fastestdet_coco_onnx`, NNCF: 99 %, ours {row['BM1686'].split()[0]} %" in worse
    assert "`ultraface_rfb_320_onnx`" not in worse


def test_a_missing_table_is_an_error(docs: Path) -> None:
    replace(docs / "benchmarks.md", "## INT8, one thread", "## Other")
    with pytest.raises(SystemExit, match=r"benchmarks\.md has no table below '## INT8, one thread'"):
        comparison_page.page()


def test_every_feature_of_another_tool_has_a_source() -> None:
    text = comparison_page.PAGE.read_text(encoding="utf-8")
    rows = comparison_page.Place("comparison.md", "## Features").rows()
    cells = [cell for row in rows for tool, cell in row.items() if tool not in ("", "tpuconvert")]
    assert len(cells) == 5 * len(rows)
    assert [cell for cell in cells if cell != "-" and "](" not in cell and "][" not in cell] == []
    used, defined = set(re.findall(r"\]\[([\w-]+)\]", text)), re.findall(r"^\[([\w-]+)\]: https://", text, re.MULTILINE)
    assert sorted(used) == sorted(defined)
