"""Packages that make a release or check workflows: pinned with hashes, in versions that satisfy the requirements."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

NAMES = ("build", "lint", "publish")
FOLDER = Path("tools") / "release"


def lines(path: Path) -> list[str]:
    """Requirements of a file, and of those that it includes."""
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    found = [line for line in text.splitlines() if line and not line.startswith("#")]
    included = [line.removeprefix("-r ") for line in found if line.startswith("-r ")]
    own = [line for line in found if not line.startswith("-r ")]
    return [*own, *(line for name in included for line in lines(path.with_name(name)))]


def pins(repository: Path, name: str) -> dict[str, str]:
    """Name -> version of every pinned package."""
    found = {}
    for line in lines(repository / FOLDER / f"{name}_requirements.txt"):
        pin = re.match(r"([\w-]+)==(\S+)\s+(; .*?)?(--hash=sha256:[0-9a-f]{64}\s*)+$", line)
        assert pin is not None, f"neither a version nor hashes: {line[:60]}"
        found[pin[1]] = pin[2]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_pins_satisfy_the_requirements(repository: Path, name: str) -> None:
    pinned = pins(repository, name)
    for requirement in map(Requirement, lines(repository / FOLDER / f"{name}_requirements.in")):
        assert pinned[requirement.name] in requirement.specifier, str(requirement)


def test_every_file_of_requirements_is_checked(repository: Path) -> None:
    found = sorted(path.name for path in (repository / FOLDER).glob("*_requirements.*"))
    assert found == sorted(f"{name}_requirements.{suffix}" for name in NAMES for suffix in ("in", "txt"))


def test_the_build_has_what_pyproject_requires(repository: Path) -> None:
    wanted = tomllib.loads((repository / "pyproject.toml").read_text())["build-system"]["requires"]
    assert set(wanted) < set(lines(repository / FOLDER / "build_requirements.in"))


def test_a_package_has_one_version(repository: Path) -> None:
    """Wheels are built by the same packages as the source distribution."""
    publish = pins(repository, "publish")
    assert pins(repository, "build").items() <= publish.items()


def test_wheels_are_built_by_pinned_packages(repository: Path) -> None:
    settings = tomllib.loads((repository / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    assert settings["build-frontend"] == {"name": "build", "args": ["--no-isolation"]}
    assert "--require-hashes" in settings["before-build"]
    assert settings["before-build"].endswith("-r {package}/tools/release/build_requirements.txt")


def test_make_installs_only_pinned_packages(repository: Path) -> None:
    makefile = (repository / "Makefile").read_text()
    build = re.search(r"^BUILD = (.*\\\n)*.*$", makefile, re.MULTILINE)
    assert build is not None and "build --no-isolation" in build[0]
    for target in ("dist", "sdist", "release-check"):
        assert re.search(rf"^{target}: build/dist-venv/.ready$", makefile, re.MULTILINE), target
