"""Lists of programs and helpers: one line each, from their docstrings."""

from pathlib import Path

import pytest

from tools.pages import program_lists


def test_every_program_and_helper_has_its_line(repository: Path) -> None:
    lists = program_lists.lists()
    stale = [str(path) for path, text in lists.items() if (repository / path).read_text(encoding="utf-8") != text]
    assert stale == [], f"run {program_lists.COMMAND}"


def test_only_tests_are_at_the_top(repository: Path) -> None:
    loose = {path.name for path in (repository / "tests").glob("*.py")} - {"conftest.py"}
    assert {name for name in loose if not name.startswith("test_")} == set()
    assert len(loose) <= 20
    assert [path.name for path in (repository / "tools").glob("*.py")] == []


@pytest.mark.parametrize("folder", ["tools", "tests"])
def test_no_folder_has_more_than_fifty_modules(repository: Path, folder: str) -> None:
    folders = [path for path in (repository / folder).rglob("*") if path.is_dir()]
    counts = {str(path.relative_to(repository)): len(list(path.glob("*.py"))) for path in folders}
    assert {name: count for name, count in counts.items() if count > 50} == {}
