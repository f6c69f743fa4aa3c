"""Marked sections of generated pages."""

from pathlib import Path

import pytest

from tools.pages.generated_file import replace_section, section

BEGIN, END = "<!-- sizes: made by python -m tools.sizes -->", "<!-- end of sizes -->"
PAGE = Path("page.md")


def test_only_the_lines_between_the_markers_change() -> None:
    text = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert section(PAGE, text, "sizes", "tools.sizes") == "old\n"
    new = replace_section(PAGE, text, "sizes", "tools.sizes", [r"\1", "new"])
    assert new == f"before\n{BEGIN}\n\\1\nnew\n{END}\nafter\n"


@pytest.mark.parametrize(
    "text",
    ["", f"{BEGIN}\n", f"{END}\n{BEGIN}\n", f"{BEGIN}\n{END}\n{BEGIN}\n{END}\n", f"{BEGIN} {END}"],
    ids=["none", "no end", "swapped", "twice", "one line"],
)
def test_missing_markers_are_an_error(text: str) -> None:
    with pytest.raises(SystemExit, match=r"page\.md: expected one place for 'sizes' between '<!-- sizes: made by"):
        replace_section(PAGE, text, "sizes", "tools.sizes", [])
