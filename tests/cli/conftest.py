"""What the tests of the commands share."""

from pathlib import Path

import pytest

from tpuconvert.cli import progress_bar


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test runs in an empty folder of its own, so that a file written by mistake is seen."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def no_progress_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Print no line every few seconds, so that stderr is the same on slow machines."""
    monkeypatch.setattr(progress_bar, "SECONDS", 3600.0)


@pytest.fixture
def digits(repository: Path) -> Path:
    """The folder of the bundled example."""
    return repository / "examples" / "digits"
