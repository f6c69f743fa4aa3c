"""The list of measured figures: what a page states, and commits that changed the code since."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tools.pages import figure_age

DATED = re.compile(r"\bmeasured:? 20\d\d-\d\d-\d\d", re.IGNORECASE)


def test_pages_state_the_measurements(repository: Path) -> None:
    for figure in figure_age.figures():
        words = " ".join((repository / figure.page).read_text(encoding="utf-8").split())
        assert figure.text in words, f"{figure.page}: '{figure.text}' is not on the page: enter the new measurement"
        assert all((repository / path).exists() for path in figure.paths), figure


def test_every_page_with_measurements_is_listed(repository: Path) -> None:
    listed = {figure.page for figure in figure_age.figures()}
    pages = (path for path in (repository / "docs").rglob("*.md") if DATED.search(path.read_text(encoding="utf-8")))
    assert {str(path.relative_to(repository)) for path in pages} - listed == set()


def test_commits_since_a_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=tmp_path, check=True)

    git("init", "--quiet")
    for name in ("one", "two", "one"):
        with (tmp_path / name).open("a") as file:
            file.write("x")
        git("add", ".")
        git("commit", "--quiet", "-m", f"Change {name}")
    monkeypatch.setattr(figure_age, "ROOT", tmp_path)
    figure = replace(figure_age.figures()[0], commit="HEAD~2", paths=["two"])
    assert [line.split(" ", 1)[1] for line in figure_age.commits_since(figure)] == ["Change two"]
    assert figure_age.commits_since(replace(figure, commit="HEAD", paths=["one"])) == []
    monkeypatch.setattr(figure_age, "figures", lambda: [figure])
    assert figure_age.main([]) == 0 and figure_age.main(["--check"]) == 1
