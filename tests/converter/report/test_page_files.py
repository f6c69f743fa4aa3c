"""Scripts and style sheets of the report as files, and what they share with Python. Biome checks the rest."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tpuconvert.report.graph_layout import KIND_LEGEND, OperatorKind
from tpuconvert.report.node_columns import COLUMNS
from tpuconvert.report.page.constants import script_constants
from tpuconvert.report.page.theme import DARK, LIGHT, SERIES

PAGE = Path(__file__).parents[3] / "converter" / "report" / "page"

SCRIPTS = sorted(PAGE.glob("*.js"))
STYLE_SHEETS = sorted(PAGE.glob("*.css"))


@pytest.mark.parametrize("path", SCRIPTS + STYLE_SHEETS, ids=lambda path: path.name)
def test_lines_have_at_most_120_columns(path: Path) -> None:
    """The formatter does not divide comments and texts."""
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [number for number, line in enumerate(lines, 1) if len(line) > 120] == []


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_read_columns_and_colors_that_exist(path: Path) -> None:
    """Only the names in quotes; ``report.column`` and ``report.color`` throw for all others."""
    text = path.read_text(encoding="utf-8")
    columns = re.findall(r'report\.(?:cell|column)\("(\w+)"', text)
    colors = re.findall(r'report\.color\("([\w-]+)"', text)
    assert set(columns) <= set(COLUMNS) and set(colors) <= set(LIGHT)
    variables = re.findall(r"constants\.(?!py)(\w+)", text)
    assert set(variables) <= set(script_constants())


def test_every_shared_constant_is_used() -> None:
    used = {
        name for path in SCRIPTS for name in re.findall(r"constants\.(?!py)(\w+)", path.read_text(encoding="utf-8"))
    }
    assert used == set(script_constants())


@pytest.mark.parametrize("path", STYLE_SHEETS, ids=lambda path: path.name)
def test_style_sheets_use_variables_that_exist(path: Path) -> None:
    names = set(re.findall(r"var\(--([\w-]+)\)", path.read_text(encoding="utf-8")))
    assert names <= {*LIGHT, *re.findall(r"^\s*--([\w-]+):", path.read_text(encoding="utf-8"), re.M)}


def test_colors_have_one_value_per_theme() -> None:
    assert set(LIGHT) == set(DARK) and set(SERIES) < set(LIGHT) and len(SERIES) >= len(KIND_LEGEND)


def test_every_kind_of_operator_has_a_text_in_the_legend() -> None:
    assert set(KIND_LEGEND) == set(OperatorKind)


def test_columns_are_those_of_the_schema(repository: Path) -> None:
    schema = json.loads(
        (repository / "docs" / "reference" / "schemas" / "report.schema.json").read_text(encoding="utf-8")
    )
    assert sorted(COLUMNS) == sorted(schema["$defs"]["NodeColumns"]["properties"])


# Numbers and names of core.js, details.js and graph_colors.js before the constants were generated.
@pytest.mark.parametrize(
    ("pattern", "home"),
    [
        (r"[A-Z]{20}|[a-z]{20}", "packing.LEVELS"),
        (r"\b36\)", "packing.PREFIX_BASE"),
        (r"/ 60\b", "elements.FULL_BAR"),
        (r'"same"|"as read"', "difference.EQUAL_WORDS"),
        (r"\bU\??INT", "types.DType"),
        (r"[KMG]iB", "text_format.BYTE_UNITS"),
        (r"--keep-float", "float_names.KEEP_FLOAT"),
        (r"#[0-9a-fA-F]{6}\b", "theme.LIGHT"),
        (r'"(linear|conversion|data movement)"', "graph_layout.OperatorKind"),
    ],
)
def test_scripts_do_not_repeat_constants(pattern: str, home: str) -> None:
    lines = [line for path in SCRIPTS for line in path.read_text(encoding="utf-8").splitlines()]
    assert [line for line in lines if re.search(pattern, line) and not line.lstrip().startswith("//")] == [], home
