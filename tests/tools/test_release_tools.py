"""Programs that make and check a release: the dry run, the wheels' build, installations in new environments."""

import base64
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.support import programs
from tools.release import build_wheels, clean_install, dry_run, wheel_smoke
from tools.release.release import read_version, release_notes

VERSION = read_version()
INFO = f"tpuconvert-{VERSION}.dist-info"
TAG = f"cp{sys.version_info.major}{sys.version_info.minor}"
METADATA = "\n".join(
    [
        "Metadata-Version: 2.4",
        "Name: tpuconvert",
        f"Version: {VERSION}",
        "Description-Content-Type: text/markdown",
        *(f"Requires-Dist: {name}>=1" for name in dry_run.required_packages()),
        'Requires-Dist: Pillow>=10; extra == "images"',
        "",
        "Text.",
    ]
)
FILES = {
    "tpuconvert/__init__.py": "",
    "tpuconvert/runtime/_native.abi3.so": "engine",
    f"{INFO}/METADATA": METADATA,
    f"{INFO}/licenses/LICENSE": "license",
    f"{INFO}/licenses/NOTICE": "notice",
}


def write_wheel(folder: Path, files: dict[str, str], damaged: str = "") -> Path:
    """Write a wheel for this Python. The record has the wrong digest of the file ``damaged``."""
    from packaging.tags import sys_tags

    platform = next(iter(sys_tags())).platform
    path = folder / f"tpuconvert-{VERSION}-{TAG}-{TAG}-{platform}.whl"
    lines = [f"{INFO}/RECORD,,"]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
            digest = hashlib.sha256((content + "x" * (name == damaged)).encode()).digest()
            lines.append(f"{name},sha256={base64.urlsafe_b64encode(digest).rstrip(b'=').decode()},{len(content)}")
        archive.writestr(f"{INFO}/RECORD", "\n".join(lines))
    return path


def test_accepts_a_wheel(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, FILES)
    assert list(dry_run.wheel_problems(wheel, VERSION)) == []
    assert dry_run.fitting_wheel(tmp_path) == wheel


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"tpuconvert/runtime/_native.abi3.so": None}, "the native engine is missing"),
        ({f"{INFO}/licenses/NOTICE": None}, "NOTICE is missing"),
        ({f"{INFO}/METADATA": None}, f"{INFO}/METADATA is missing"),
        ({f"{INFO}/METADATA": METADATA.replace(f"\nVersion: {VERSION}", "\nVersion: 9")}, "Version is 9, expected"),
        ({f"{INFO}/METADATA": METADATA.replace("Requires-Dist: numpy>=1\n", "")}, "expected click, flatbuffers, numpy"),
        ({f"{INFO}/METADATA": METADATA.removesuffix("Text.")}, "the description is empty"),
    ],
)
def test_names_what_is_wrong_with_a_wheel(tmp_path: Path, change: dict[str, str | None], problem: str) -> None:
    files = {name: content for name, content in {**FILES, **change}.items() if content is not None}
    [found] = dry_run.wheel_problems(write_wheel(tmp_path, files), VERSION)
    assert problem in found


def test_names_a_file_that_was_changed_after_the_build(tmp_path: Path) -> None:
    [problem] = dry_run.wheel_problems(write_wheel(tmp_path, FILES, "tpuconvert/__init__.py"), VERSION)
    assert problem.endswith("tpuconvert/__init__.py is not what RECORD describes")


def test_a_wheel_has_the_bytes_of_the_sources(tmp_path: Path) -> None:
    archive = tmp_path / "sources.tar.gz"
    with tarfile.open(archive, "w:gz") as sources:
        sources.addfile(tarfile.TarInfo("tpuconvert-1/converter/__init__.py"), io.BytesIO(b""))
    assert list(dry_run.source_problems(write_wheel(tmp_path, FILES), archive)) == []
    wheel = write_wheel(tmp_path, {**FILES, "tpuconvert/more.py": "x = 1"})
    [problem] = dry_run.source_problems(wheel, archive)
    assert problem.endswith("tpuconvert/more.py is not in sources.tar.gz")


def test_the_wheel_of_this_python_is_chosen(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="wheels for this Python: none; expected one, which `make dist` builds"):
        dry_run.fitting_wheel(tmp_path)
    wheel = write_wheel(tmp_path, FILES)
    (tmp_path / f"tpuconvert-{VERSION}-cp311-cp311-win_arm64.whl").touch()
    assert dry_run.fitting_wheel(tmp_path) == wheel


def test_bill_of_materials_names_what_is_required(tmp_path: Path) -> None:
    path = tmp_path / "tpuconvert.cdx.json"
    assert list(dry_run.material_problems(path, VERSION)) == ["tpuconvert.cdx.json is missing"]
    names = [*dry_run.required_packages(), "tpuconvert"]
    components = [{"name": name, "version": VERSION} for name in names]
    path.write_text(json.dumps({"components": components}))
    assert list(dry_run.material_problems(path, VERSION)) == []
    path.write_text(json.dumps({"components": [*components[1:-1], {"name": "PyYAML"}]}))
    problems = list(dry_run.material_problems(path, VERSION))
    assert [problem.split()[1] for problem in problems[:2]] == [names[0], "pyyaml"]
    assert len(problems) == 3 and "the version of tpuconvert is None" in problems[-1]


def test_notes_are_those_of_the_version(tmp_path: Path) -> None:
    notes = tmp_path / "notes.md"
    assert list(dry_run.notes_problems(notes)) == ["notes.md is missing"]
    notes.write_text(release_notes(), encoding="utf-8")
    assert list(dry_run.notes_problems(notes)) == []
    notes.write_text("other")
    [problem] = dry_run.notes_problems(notes)
    assert "not the section of CHANGELOG.md" in problem


def test_one_source_distribution_is_built_into_wheels(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0 source distributions, expected one; build it with `make sdist`"):
        build_wheels.main([str(tmp_path), "wheelhouse"])
    with pytest.raises(SystemExit, match="usage: "):
        build_wheels.main([])


def test_every_module_is_imported_in_a_wheels_test(tmp_path: Path) -> None:
    """The package of this environment, which has more packages than the required ones."""
    package = tmp_path / "tpuconvert"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "part.py").write_text("import a_package_that_is_absent\n")
    environment = programs.environment(PYTHONPATH=str(tmp_path))
    with pytest.raises(wheel_smoke.SmokeError, match="No module named 'a_package_that_is_absent'"):
        wheel_smoke.check_modules([sys.executable], tmp_path, environment)
    (package / "part.py").write_text("")
    wheel_smoke.check_modules([sys.executable], tmp_path, environment)


def test_a_python_that_is_absent_is_a_failure(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho no venv here; exit 3\n")
    python.chmod(0o755)
    assert clean_install.main(["--python", str(python), "--engine", "off"]) == 1
    printed = capsys.readouterr()
    assert f"| {python} | - | - | - | - | - | failed |" in printed.out
    assert "ended with exit code 3" in printed.err and "no venv here" in printed.err


def test_the_test_runner_has_the_version_of_the_development(repository: Path) -> None:
    assert clean_install.test_requirements() == ["pytest>=8.2"]
    assert all((repository / path).is_dir() for path in clean_install.TESTS)


@pytest.fixture
def gh(tmp_path: Path) -> Path:
    """A program ``gh`` that writes its arguments."""
    program = tmp_path / "bin" / "gh"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@" > calls\n')
    program.chmod(0o755)
    return program


def test_the_page_of_a_release_has_materials_and_provenance(repository: Path, tmp_path: Path, gh: Path) -> None:
    for path in ("dist/a.whl", "build/release/tpuconvert.cdx.json", "build/release/notes.md", "bundle"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    variables = {"GITHUB_REF_NAME": "v1.2.3", "GITHUB_REPOSITORY": "o/r", "PROVENANCE": str(tmp_path / "bundle")}
    environment = programs.environment(**variables, PATH=f"{gh.parent}:/usr/bin:/bin")
    script = repository / "tools" / "release" / "publish_page.sh"
    subprocess.run([script], cwd=tmp_path, env=environment, check=True)
    arguments = (tmp_path / "calls").read_text().split()
    files = ["dist/a.whl", "build/release/tpuconvert-1.2.3.cdx.json", "build/release/tpuconvert-1.2.3.intoto.jsonl"]
    assert arguments[:3] == ["release", "create", "v1.2.3"] and arguments[3:6] == files
    assert all((tmp_path / file).is_file() for file in files) and "--verify-tag" in arguments
