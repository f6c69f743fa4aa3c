"""Discovery of installed packages gives the same as ``importlib.metadata``."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import tpuconvert
from tpuconvert import installed


def test_version() -> None:
    assert installed.version() == metadata.version("tpuconvert") == tpuconvert.__version__


def test_version_where_no_folder_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "_metadata_folders", lambda: iter(()))
    assert installed.version() == metadata.version("tpuconvert")


def test_entry_points_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert installed.may_have_entry_points("console_scripts")
    assert not installed.may_have_entry_points("tpuconvert.no_such_group")
    folder = tmp_path / "acme-1.0.dist-info"
    folder.mkdir()
    (folder / "entry_points.txt").write_text("[tpuconvert.no_such_group]\nacme = acme\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert installed.may_have_entry_points("tpuconvert.no_such_group")


def test_an_archive_on_the_path_may_have_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "packages.zip").write_bytes(b"PK")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "packages.zip")])
    assert installed.may_have_entry_points("tpuconvert.no_such_group")


def test_the_package_alone_loads_next_to_nothing() -> None:
    code = "import sys, tpuconvert; tpuconvert.__version__; print('numpy' in sys.modules, 'email' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
