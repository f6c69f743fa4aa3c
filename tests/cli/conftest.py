"""Fixtures for the tests of the commands."""

from pathlib import Path

import pytest

from tpuconvert.cli import progress_bar


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
