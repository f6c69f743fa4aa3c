"""The documentation site builds without warnings."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def test_site_builds_without_warnings(repository: Path, tmp_path: Path) -> None:
    pytest.importorskip("material", reason="mkdocs-material is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    pages = {page.stem for page in (repository / "docs").glob("*.md")} - {"index"}
    assert {page.parent.name for page in (tmp_path / "site").glob("*/index.html")} >= pages
