"""Fixtures for all tests."""

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def repository() -> Path:
    """Root folder of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def data_root() -> Path:
    """Folder of public test models and images. Tests that need it are skipped if it is missing."""
    named = os.environ.get("TPUCONVERT_TEST_DATA")
    root = Path(named) if named else REPOSITORY.parent / "shared" / "data"
    if not (root / "manifest.json").is_file():
        pytest.skip(f"no test data: {root} has no manifest.json (name the folder in TPUCONVERT_TEST_DATA)")
    return root
