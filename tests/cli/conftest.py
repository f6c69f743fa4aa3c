"""What the tests of the commands share."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test runs in an empty folder of its own, so that a file written by mistake is seen."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def digits(repository: Path) -> Path:
    """The folder of the bundled example."""
    return repository / "examples" / "digits"
