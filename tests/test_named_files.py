"""Files of this repository that documentation, docstrings and comments name by their path exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.test_prose import tracked

PATH = re.compile(
    r"(?<![\w/.{<*-])((?:[\w-]+/)+[\w-]+\.(?:cfg|cpp|css|desc|fbs|h|js|md|proto|py|sh|toml|ya?ml))\b(?![\w(])"
)
TEXTS = ("*.md", "*.py", "*.cpp", "*.h", "*.proto", "*.fbs", "*.css", "*.js", "*.cfg", "*.toml", "*.yml", "Makefile")
ELSEWHERE = (":!tests", ":!CHANGELOG.md")
"""Paths that tests invent, and former names."""


def absent_paths(text: str, files: set[str]) -> list[str]:
    """Return the named paths that begin with a folder of the repository, at any level, and do not end a path of it."""
    folders = {part for file in files for part in file.split("/")[:-1]}
    ends = {"/".join(parts[start:]) for file in files if (parts := file.split("/")) for start in range(len(parts))}
    return [path for path in PATH.findall(text) if path.split("/")[0] in folders and path not in ends]


@pytest.fixture(scope="module")
def names(repository: Path) -> set[str]:
    return {file.relative_to(repository).as_posix() for file in tracked()}


def test_named_files_exist(repository: Path, names: set[str]) -> None:
    texts = {file.relative_to(repository): file.read_text("utf-8") for file in tracked(*TEXTS, *ELSEWHERE)}
    paths = {path for text in texts.values() for path in PATH.findall(text)}
    pages = [text for file, text in texts.items() if file.parent.name == "contributing"]
    examples = {Path(path).stem for text in pages for path in re.findall(r"^(?:#|//) (\S+)$", text, re.MULTILINE)}
    absent = {path for path in absent_paths("\n".join(paths), names) if Path(path).stem not in examples}
    absent = {path for path in absent if not re.search(r"\b(?:FORMAT|NAME|test_NAME)\b", path)}
    found = [f"{file}: {path}" for file, text in texts.items() for path in set(PATH.findall(text)) & absent]
    assert found == [], "the file was moved or removed: name the present one"


def test_recognizes_moved_files() -> None:
    files = {"schema/file/tpum.fbs", "frontends/caffe/file/weights.py"}
    text = "schema/tpum.fbs, file/tpum.fbs, caffe/weights.py and third_party/weights.py"
    assert absent_paths(text, files) == ["schema/tpum.fbs", "caffe/weights.py"]
