"""The cache of ``ci``: links to folders are not followed, and what is in the place of an entry is replaced."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.sampled import sampled
from tpuconvert.cli.entry import run

CI = ["ci", "m.yaml", "--jobs", "1"]


@pytest.fixture
def cache(digits: Path) -> Path:
    shutil.copy(digits / "digits.onnx", "net.onnx")
    Path("m.yaml").write_text("models:\n  a: {source: net.onnx, output: o.tpum, samples: 1}\n")
    assert run(CI) == 0
    Path("o.tpum").unlink()
    return Path(".tpuconvert-cache")


def _entry(cache: Path, suffix: str = ".tpum") -> Path:
    return next(cache.glob(f"*/*{suffix}"))


def _move_outside(path: Path) -> Path:
    outside = Path("outside").absolute()
    shutil.move(path, outside)
    path.symlink_to(outside)
    return outside


@pytest.mark.parametrize("is_empty", sampled([False, True], every=2))
def test_link_to_a_folder(is_empty: bool, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outside = _move_outside(_entry(cache).parent)
    if is_empty:
        for path in outside.iterdir():
            path.unlink()
    before = {path.name: path.read_bytes() for path in outside.iterdir()}
    capsys.readouterr()
    assert run(CI) == 0
    shown = capsys.readouterr()
    assert "cached" not in shown.out + shown.err and "its folder is a link" in shown.out + shown.err
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == before
    assert Path("o.tpum").exists() and not _entry(cache).parent.is_symlink()


def test_default_cache_that_is_a_link(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outside = _move_outside(cache)
    before = sorted(outside.rglob("*"))
    assert run(CI) == 2
    assert "is a link" in capsys.readouterr().err
    assert sorted(outside.rglob("*")) == before
    assert run([*CI, "--cache", str(outside)]) == 0


def _to_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "file").write_text("x")


def _to_file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("x")


PLACES: dict[str, Callable[[Path], None]] = {
    "model is a folder": lambda cache: _to_folder(_entry(cache)),
    "description is a folder": lambda cache: _to_folder(_entry(cache, ".json")),
    "model is a link": lambda cache: _move_outside(_entry(cache)) and None,
    "folder is a file": lambda cache: _to_file(_entry(cache).parent),
    "model is a pipe": lambda cache: _entry(cache).unlink() or os.mkfifo(cache / "pipe"),  # type: ignore[func-returns-value]
}


@pytest.mark.parametrize("place", sampled(PLACES, every=5))
def test_entry_is_replaced(place: str, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    PLACES[place](cache)
    capsys.readouterr()
    assert run(CI) == 0
    shown = capsys.readouterr()
    assert "made" in shown.out + shown.err
    assert Path("o.tpum").exists() and _entry(cache).is_file()
    assert run(CI) == 0
    shown = capsys.readouterr()
    assert "cached" in shown.out + shown.err
