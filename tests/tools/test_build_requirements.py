"""The packages that build a release are pinned, with hashes, and pyproject.toml has the same."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement


def lines(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@pytest.fixture
def pins(repository: Path) -> dict[str, str]:
    """Name -> version of every pinned package."""
    found = {}
    for line in lines(repository / "tools" / "release" / "build_requirements.txt"):
        pin = re.match(r"([\w-]+)==(\S+)\s+(; .*?)?(--hash=sha256:[0-9a-f]{64}\s*)+$", line)
        assert pin is not None, f"neither a version nor hashes: {line[:60]}"
        found[pin[1]] = pin[2]
    return found


def test_pins_satisfy_the_requirements(repository: Path, pins: dict[str, str]) -> None:
    wanted = tomllib.loads((repository / "pyproject.toml").read_text())["build-system"]["requires"]
    named = lines(repository / "tools" / "release" / "build_requirements.in")
    assert set(wanted) < set(named)
    for requirement in map(Requirement, named):
        assert pins[requirement.name] in requirement.specifier, str(requirement)


def test_make_installs_only_pinned_packages(repository: Path) -> None:
    recipe = re.search(r"^dist:.*\n((?:\t.*\n)+)", (repository / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    assert "--require-hashes -r tools/release/build_requirements.txt" in recipe[1]
    assert "build --no-isolation" in recipe[1]
