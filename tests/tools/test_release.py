"""Consistency of a release: versions and files to publish."""

import os
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from tools.release import lowest_versions, release

VERSION = "1.2.3"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "docs" / "guides").mkdir(parents=True)
    (tmp_path / "setup.cfg").write_text(f"[metadata]\nversion = {VERSION}\n")
    (tmp_path / "CHANGELOG.md").write_text(f"# Changes\n\n## {VERSION} (2026-01-02)\n\n## 1.2.2\n")
    (tmp_path / "docs" / "guides" / "ci.md").write_text(
        f"uses: OWNER/tpuconvert@v{VERSION}\n  rev: v{VERSION}\nactions/x@v4\n"
    )
    (tmp_path / "action.yml").write_text(f'Such as "tpuconvert=={VERSION}".\n')
    (tmp_path / "CITATION.cff").write_text(f"cff-version: 1.2.0\nversion: {VERSION}\n")
    return tmp_path


def test_this_repository_is_consistent() -> None:
    assert list(release.version_problems(release.ROOT, None)) == []


def test_accepts_one_version_everywhere(project: Path) -> None:
    assert list(release.version_problems(project, f"v{VERSION}")) == []


@pytest.mark.parametrize("name", ["CHANGELOG.md", "docs/guides/ci.md", "action.yml", "CITATION.cff"])
def test_names_a_file_with_another_version(project: Path, name: str) -> None:
    text = (project / name).read_text()
    (project / name).write_text(text.replace(VERSION, "1.2.30", 1))
    [problem] = release.version_problems(project, None)
    assert problem.startswith(f"{name}: ") and "1.2.30" in problem and f"expected {VERSION}" in problem


def test_notes_are_the_section_of_the_version(project: Path) -> None:
    (project / "CHANGELOG.md").write_text(
        f"# Changes\n\n## {VERSION} (2026-01-02)\n\nNew.\n\n### Added\n\n- x\n\n## 1.2.2\n\nOld.\n"
    )
    assert release.release_notes(project) == "New.\n\n### Added\n\n- x\n"
    (project / "CHANGELOG.md").write_text("# Changes\n\n## 1.2.30\n")
    with pytest.raises(SystemExit, match=r"no heading for version 1\.2\.3"):
        release.release_notes(project)
    assert len(release.release_notes()) > 100  # of this repository


def test_licenses_name_files_that_exist() -> None:
    """The data of others have their license, and an installation contains the notice."""
    reuse = tomllib.loads((release.ROOT / "REUSE.toml").read_text(encoding="utf-8"))
    (everything, data) = reuse["annotations"]
    assert everything["path"] == "**" and everything["SPDX-License-Identifier"] == "Apache-2.0"
    assert data["SPDX-License-Identifier"] == "CC-BY-4.0"
    assert all((release.ROOT / path).is_file() for path in data["path"])
    assert "NOTICE" in (release.ROOT / "setup.cfg").read_text(encoding="utf-8")


def test_the_action_installs_the_version_of_its_tag() -> None:
    action = yaml.safe_load((release.ROOT / "action.yml").read_text(encoding="utf-8"))
    script = next(step["run"] for step in action["runs"]["steps"] if "pip install" in step.get("run", ""))
    for reference, package, expected in (
        ("v0.1.0", "", "tpuconvert==0.1.0"),
        ("main", "", "/action"),
        ("v0.1.0", "tpuconvert==9.9", "tpuconvert==9.9"),
    ):
        variables = {"PACKAGE": package, "REFERENCE": reference, "FOLDER": "/action", "PATH": os.environ["PATH"]}
        shown = script.replace("python -m pip install", "echo")
        done = subprocess.run(["bash", "-e", "-c", shown], env=variables, capture_output=True, text=True, check=True)
        assert done.stdout == f"{expected}\n"


@pytest.mark.parametrize("tag", ["1.2.3", "v1.2.4", "v1.2.3-rc1"])
def test_rejects_another_tag(project: Path, tag: str) -> None:
    assert list(release.version_problems(project, tag)) == [f"the tag is {tag}, expected v1.2.3 as in setup.cfg"]


PLATFORMS = (
    "manylinux_2_27_x86_64.manylinux_2_28_x86_64",
    "manylinux_2_28_aarch64",
    "musllinux_1_2_x86_64",
    "musllinux_1_2_aarch64",
    "macosx_11_0_x86_64",
    "macosx_11_0_arm64",
    "win_amd64",
)


@pytest.fixture
def distributions(tmp_path: Path) -> Path:
    (tmp_path / f"tpuconvert-{VERSION}.tar.gz").write_bytes(b"")
    for platform in PLATFORMS:
        for abi in ("cp311-cp311", "cp312-abi3"):
            (tmp_path / f"tpuconvert-{VERSION}-{abi}-{platform}.whl").write_bytes(b"")
    return tmp_path


def test_accepts_a_complete_folder(distributions: Path) -> None:
    assert list(release.distribution_problems(distributions, VERSION)) == []


def test_names_a_missing_wheel(distributions: Path) -> None:
    (distributions / f"tpuconvert-{VERSION}-cp312-abi3-win_amd64.whl").unlink()
    [problem] = release.distribution_problems(distributions, VERSION)
    assert problem == "the wheel cp312-abi3 for win_amd64 is missing"


def test_names_a_missing_source_distribution(distributions: Path) -> None:
    (distributions / f"tpuconvert-{VERSION}.tar.gz").unlink()
    assert list(release.distribution_problems(distributions, VERSION)) == [f"tpuconvert-{VERSION}.tar.gz is missing"]


@pytest.mark.parametrize(
    "name",
    [
        "tpuconvert-1.2.4-cp312-abi3-win_amd64.whl",
        "tpuconvert-1.2.3-cp312-cp312-win_amd64.whl",
        "tpuconvert-1.2.3-cp312-abi3-linux_x86_64.whl",
        "tpuconvert-1.2.3-cp312-abi3-manylinux_2_34_x86_64.whl",  # a second one
        "tpuconvert-1.2.2.tar.gz",
    ],
)
def test_names_an_unexpected_file(distributions: Path, name: str) -> None:
    (distributions / name).write_bytes(b"")
    [problem] = release.distribution_problems(distributions, VERSION)
    assert problem.endswith("is unexpected, or there are two of its kind")


def test_names_a_wheel_that_is_too_large(distributions: Path) -> None:
    with (distributions / f"tpuconvert-{VERSION}-cp312-abi3-win_amd64.whl").open("wb") as file:
        file.truncate(release.MOST_WHEEL_BYTES + 1)
    [problem] = release.distribution_problems(distributions, VERSION)
    assert "win_amd64.whl has 6000001 bytes, expected at most 6000000" in problem


def test_lowest_versions_are_the_bounds(tmp_path: Path) -> None:
    setup = tmp_path / "setup.cfg"
    setup.write_text("[options]\ninstall_requires =\n    click>=8.2\n    PyYAML>=6.0.1\n")
    assert list(lowest_versions.lowest_versions(setup)) == ["click==8.2", "PyYAML==6.0.1"]


def test_a_requirement_without_a_lower_bound_is_an_error(tmp_path: Path) -> None:
    setup = tmp_path / "setup.cfg"
    setup.write_text("[options]\ninstall_requires =\n    click\n")
    with pytest.raises(SystemExit, match="found the requirement 'click', expected 'name>=version'"):
        list(lowest_versions.lowest_versions(setup))


def test_every_requirement_of_this_package_has_a_lowest_version() -> None:
    assert len(list(lowest_versions.lowest_versions(lowest_versions.SETUP))) >= 9


def test_wheels_are_built_for_the_pythons_of_the_tests(repository: Path) -> None:
    settings = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    workflow = yaml.safe_load((repository / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    tested = workflow["jobs"]["newest"]["strategy"]["matrix"]["python"]
    assert settings["tool"]["cibuildwheel"]["build"] == [f"cp{version.replace('.', '')}-*" for version in tested]
    assert workflow["jobs"]["lowest"]["steps"][1]["with"]["python-version"] == tested[0]
