"""Scripts and style sheets of the report as files. Biome, in ``make lint``, checks the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "converter" / "report" / "page"

SCRIPTS = sorted(PAGE.glob("*.js"))
STYLE_SHEETS = sorted(PAGE.glob("*.css"))


@pytest.mark.parametrize("path", SCRIPTS + STYLE_SHEETS, ids=lambda path: path.name)
def test_lines_have_at_most_120_columns(path: Path) -> None:
    """The formatter does not divide comments and texts."""
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [number for number, line in enumerate(lines, 1) if len(line) > 120] == []
