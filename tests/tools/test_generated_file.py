"""Marked sections of generated pages."""

from pathlib import Path

import pytest

from tools.pages.generated_file import replace_part, replace_section, section

BEGIN, END = "<!-- sizes: made by python -m tools.sizes -->", "<!-- end of sizes -->"
PAGE = Path("page.md")


def test_only_the_lines_between_the_markers_change() -> None:
    text = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert section(PAGE, text, "sizes", "tools.sizes") == "old\n"
    new = replace_section(PAGE, text, "sizes", "tools.sizes", [r"\1", "new"])
    assert new == f"before\n{BEGIN}\n\\1\nnew\n{END}\nafter\n"


def test_headings_of_a_part_are_one_level_deeper(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n{BEGIN}\nold\n{END}\n", encoding="utf-8")
    new = replace_part(page, "sizes", "tools.sizes", "# Sizes\n\ntext # 1\n## More\n")
    assert new == f"# Page\n{BEGIN}\n## Sizes\n\ntext # 1\n### More\n{END}\n"


@pytest.mark.parametrize(
    "text",
    ["", f"{BEGIN}\n", f"{END}\n{BEGIN}\n", f"{BEGIN}\n{END}\n{BEGIN}\n{END}\n", f"{BEGIN} {END}"],
    ids=["none", "no end", "swapped", "twice", "one line"],
)
def test_missing_markers_are_an_error(text: str) -> None:
    with pytest.raises(SystemExit, match=r"page\.md: expected one place for 'sizes' between '<!-- sizes: made by"):
        replace_section(PAGE, text, "sizes", "tools.sizes", [])
