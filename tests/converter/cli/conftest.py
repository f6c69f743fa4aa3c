"""Fixtures for the tests of the commands."""

from pathlib import Path

import pytest

from tests.support.commands.hint_texts import foreign_options
from tpuconvert.cli import entry, progress_bar


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run every test in an empty folder, so that files written by mistake are detected."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def no_progress_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn off periodic progress lines, so that stderr is the same on slow machines."""
    monkeypatch.setattr(progress_bar, "SECONDS", 3600.0)


@pytest.fixture
def digits(repository: Path) -> Path:
    """The folder of the bundled example."""
    return repository / "examples" / "digits"


@pytest.fixture(autouse=True)
def printed_options_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a test whose error names an option that neither the command nor a command beside the option has."""
    qualify = entry.qualify_options

    def checked(text: str, arguments: list[str]) -> str:
        shown = qualify(text, arguments)
        assert foreign_options(shown, arguments) == [], shown
        return shown

    monkeypatch.setattr(entry, "qualify_options", checked)
