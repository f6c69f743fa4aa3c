"""The pages of comparison and benchmarks have the stored measurements."""

import re
import sys
from pathlib import Path

import pytest

from tools.pages import benchmark_page, benchmark_record, comparison_page


@pytest.fixture
def docs(tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of pages and measurements, which the tools read instead."""
    for name in ("comparison.md", "benchmarks.md", "benchmarks.json"):
        (tmp_path / name).write_bytes((repository / "docs" / "inside" / name).read_bytes())
    monkeypatch.setattr(benchmark_record, "RECORD", tmp_path / "benchmarks.json")
    monkeypatch.setattr(benchmark_page, "PAGE", tmp_path / "benchmarks.md")
    monkeypatch.setattr(comparison_page, "PAGE", tmp_path / "comparison.md")
    return tmp_path


def replace(page: Path, old: str, new: str) -> None:
    text = page.read_text(encoding="utf-8")
    assert old in text
    page.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_a_new_measurement_makes_the_page_stale(docs: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    row = next(row for row in comparison_page.INT8.rows() if row["network"] == "resnet50")
    replace(docs / "benchmarks.json", row["LiteRT"], "0.77 (0.70 to 0.80), 15.00 ms")
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
    replace(docs / "benchmarks.json", row["NNCF"], "99.0 ± 0.1 % (MIXED)")
    worse = "\n".join(comparison_page.behind_list())
    assert f"`fastestdet_coco_onnx`, NNCF: 99 %, ours {row['BM1686'].split()[0]} %" in worse
    assert "`ultraface_rfb_320_onnx`" not in worse


def test_a_missing_table_is_an_error(docs: Path) -> None:
    replace(docs / "benchmarks.json", '"heading": "INT8, one thread"', '"heading": "Other"')
    with pytest.raises(SystemExit, match=r"benchmarks\.json: the run 'networks' has no table below 'INT8, one thread'"):
        comparison_page.page()
    with pytest.raises(SystemExit, match=r"benchmarks\.json: the run 'networks' has no table below 'INT8, one thread'"):
        benchmark_page.page()


DOCUMENT = """# Benchmarks

By

    python -m tools.bench --parts int8

## Machine

- measured: 2026-01-02 with tpuconvert 0.1
- processor: A

## INT8, one thread

| network | tpuconvert, ms | ONNX Runtime |
| --- | --- | --- |
| `a` | 1.5 | 2.00 (1.90 to 2.10), 3.00 ms |

Missing:

- b, LiteRT: no writer
"""


def test_a_stored_document_has_all_its_rows(docs: Path) -> None:
    before = benchmark_record.RECORD.read_text(encoding="utf-8")
    benchmark_record.store("networks", DOCUMENT)
    (row,) = benchmark_record.Place("networks", "INT8, one thread").rows()
    assert row == {"network": "`a`", "tpuconvert, ms": "1.5", "ONNX Runtime": "2.00 (1.90 to 2.10), 3.00 ms"}
    about = benchmark_record.facts("networks")
    assert about == {"measured": "2026-01-02 with tpuconvert 0.1", "processor": "A"}
    first, *_, last = benchmark_record.read("networks")
    assert "python -m tools.bench --parts int8" in first.text
    assert last.items == ["b, LiteRT: no writer"]
    assert benchmark_record.RECORD.read_text(encoding="utf-8").endswith(
        before[before.index(' "networks without AMX"') :]
    )


def test_two_tables_below_a_heading_are_an_error() -> None:
    table = "\n| a |\n| --- |\n| 1 |\n"
    with pytest.raises(SystemExit, match="two tables below 'A': give each one a heading"):
        benchmark_record.parse(f"# A\n{table}\ntext\n{table}")


def test_a_document_is_stored_by_the_name_of_its_run(docs: Path) -> None:
    (docs / "bench.md").write_text(DOCUMENT, encoding="utf-8")
    with pytest.raises(SystemExit):
        benchmark_page.main(["--store", "other", str(docs / "bench.md")])
    assert benchmark_page.main(["--check"]) == 0
    (docs / "benchmarks.md").write_text("old", encoding="utf-8")
    assert benchmark_page.main(["--check"]) == 1


def test_every_feature_of_another_tool_has_a_source() -> None:
    text = comparison_page.PAGE.read_text(encoding="utf-8")
    (rows,) = (each.by_column() for each in benchmark_record.parse(text) if each.heading == "Features")
    cells = [cell for row in rows for tool, cell in row.items() if tool not in ("", "tpuconvert")]
    assert len(cells) == 5 * len(rows)
    assert [cell for cell in cells if cell != "-" and "](" not in cell and "][" not in cell] == []
    used, defined = set(re.findall(r"\]\[([\w-]+)\]", text)), re.findall(r"^\[([\w-]+)\]: https://", text, re.MULTILINE)
    assert sorted(used) == sorted(defined)
