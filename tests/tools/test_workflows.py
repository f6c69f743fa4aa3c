"""The workflows: pinned actions, steps that are targets or scripts of this repository, permissions, linters."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.each import each
from tools.nightly.results import PIECES

Step = dict[str, Any]
PINNED = re.compile(r"^\s*(?:- )?uses: ([\w.-]+/[\w./-]+)@(\S+)(?: # (v\d+\.\d+\.\d+))?$", re.MULTILINE)
TARGET = re.compile(r"make ([\w-]+)( \w+=\"\$\w+\")?")
SCRIPT = re.compile(r"((?:\.ci|tools)/[\w./-]+)( \"\$\w+\")?")
PROGRAM = re.compile(r"python -m (tools\.[\w.]+)( .*)?")
UNSAFE = re.compile(r"\$\{\{")


@pytest.fixture(scope="module")
def workflows(repository: Path) -> dict[str, dict[str, Any]]:
    paths = sorted((repository / ".github" / "workflows").glob("*.yml"))
    return {path.name: yaml.safe_load(path.read_text(encoding="utf-8")) for path in paths}


def jobs(workflows: dict[str, dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, workflow in workflows.items():
        for job_name, job in workflow["jobs"].items():
            yield f"{name}: {job_name}", job


def steps(workflows: dict[str, dict[str, Any]]) -> Iterator[tuple[str, Step]]:
    for name, job in jobs(workflows):
        yield from ((name, step) for step in job["steps"])


def make_targets(repository: Path) -> set[str]:
    text = (repository / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z][\w-]*):(?!=)", text, re.MULTILINE))


def test_every_action_has_a_digest_and_its_version(repository: Path) -> None:
    """One digest per action, so that an update is seen in all workflows."""
    digests: dict[str, set[tuple[str, str]]] = {}
    for path in (*(repository / ".github" / "workflows").glob("*.yml"), repository / "action.yml"):
        text = path.read_text(encoding="utf-8")
        pins = PINNED.findall(text)
        assert len(pins) == text.count("uses: "), path.name
        for name, digest, version in pins:
            assert re.fullmatch("[0-9a-f]{40}", digest), f"{path.name}: {name}@{digest}"
            assert version, f"{path.name}: {name} has no version in a comment"
            digests.setdefault(name, set()).add((digest, version))
    assert {name: pins for name, pins in digests.items() if len(pins) > 1} == {}


def test_every_command_is_a_target_or_a_script_that_exists(
    repository: Path, workflows: dict[str, dict[str, Any]]
) -> None:
    """Then each step can be tried on one machine; nothing is written out in a workflow."""
    targets, count = make_targets(repository), 0
    for name, step in steps(workflows):
        command = step.get("run")
        if command is None:
            continue
        count += 1
        if target := TARGET.fullmatch(command):
            assert target[1] in targets, f"{name}: {command}"
        elif script := SCRIPT.fullmatch(command):
            path = repository / script[1]
            assert path.is_file() and path.stat().st_mode & 0o100, f"{name}: {command}"
        else:
            program = PROGRAM.fullmatch(command)
            assert program, f"{name}: '{command}' is neither a target of make nor a script of this repository"
            path = repository / program[1].replace(".", "/")
            assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), f"{name}: {command}"
        assert not UNSAFE.search(command), f"{name}: '{command}' contains an expression, use a variable"
    assert count > 10


def test_checkouts_keep_no_credentials(workflows: dict[str, dict[str, Any]]) -> None:
    uses = [(name, step) for name, step in steps(workflows) if "uses" in step]
    found = [(name, step.get("with", {})) for name, step in uses if step["uses"].startswith("actions/checkout@")]
    assert found and [name for name, options in found if options.get("persist-credentials") is not False] == []


def test_only_three_jobs_can_write(workflows: dict[str, dict[str, Any]]) -> None:
    assert [name for name, workflow in workflows.items() if workflow["permissions"] != {"contents": "read"}] == []
    writing = {name: job["permissions"] for name, job in jobs(workflows) if "permissions" in job}
    assert writing == {
        "docs.yml: deploy": {"pages": "write", "id-token": "write"},
        "nightly.yml: report": {"contents": "read", "issues": "write"},
        "wheels.yml: publish": {"id-token": "write", "attestations": "write", "contents": "write"},
    }


def test_a_job_that_publishes_runs_pinned_packages_only(repository: Path) -> None:
    """No step of the workflow, and no recipe that it uses, installs without hashes what makes a release."""
    makefile = (repository / "Makefile").read_text(encoding="utf-8")
    recipe = re.search(r"^build/dist-venv/.ready: (\S+)\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert recipe and recipe[1] == "tools/release/publish_requirements.txt" and "--require-hashes -r $<" in recipe[2]
    assert "--require-hashes" in (repository / "tools" / "release" / "build_wheels.py").read_text(encoding="utf-8")
    assert "pip install" not in (repository / ".github" / "workflows" / "wheels.yml").read_text(encoding="utf-8")


def test_the_night_runs_every_piece(repository: Path, workflows: dict[str, dict[str, Any]]) -> None:
    nightly = workflows["nightly.yml"]
    assert nightly[True]["schedule"] == [{"cron": "17 2 * * *"}]  # YAML 1.1 reads the key `on` as a boolean
    assert tuple(nightly["jobs"]["piece"]["strategy"]["matrix"]["piece"]) == PIECES
    assert set(PIECES) <= make_targets(repository)
    assert nightly["env"]["SEED"] == "${{ inputs.seed || github.run_id }}"


def test_the_night_runs_the_slow_tests_with_its_seed(repository: Path) -> None:
    """Pages speak of the nightly tests: all tests, which ``make test`` leaves out."""
    commands = dry_run(repository, "test-nightly", "SEED=99999999999")
    [tests] = [line for line in commands.replace("\\\n", "").splitlines() if "/pytest " in line]
    seed = 99999999999 % 2**31
    assert f"TPUCONVERT_TEST_SEED={seed}" in tests and f"--hypothesis-seed={seed}" in tests
    assert " -m " not in tests and "--hypothesis-profile=default" in tests


@each("target", ["mutations", "fuzz-readers", "generators", "nnsmith"])
def test_pieces_use_the_seed(repository: Path, target: str) -> None:
    assert re.search(r"-seed[ =]1234\b", dry_run(repository, target, "SEED=1234"))


def dry_run(repository: Path, *arguments: str) -> str:
    """Commands of a target that `make` would run."""
    make = shutil.which("make")
    if make is None:
        pytest.skip("no make")
    # A target that is up to date would print nothing: every file counts as new.
    command = [make, "--dry-run", "--always-make", "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True).stdout


def test_lint_checks_the_workflows(repository: Path) -> None:
    commands = dry_run(repository, "lint-workflows")
    assert "/actionlint\n" in commands and "/zizmor --offline" in commands
    assert "--require-hashes -r tools/release/lint_requirements.txt" in commands
    makefile = (repository / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^lint:.* lint-workflows$", makefile, re.MULTILINE)
    assert re.search(r"\blint\b", (repository / ".ci" / "run").read_text(encoding="utf-8").splitlines()[-1])


def test_the_linters_find_mistakes(repository: Path, tmp_path: Path) -> None:
    """They are installed by ``make lint-workflows``."""
    programs = repository / "build" / "linters" / "bin"
    if not (programs.parent / ".ready").is_file():
        pytest.skip("the linters are not installed: make lint-workflows")
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    (folder / "bad.yml").write_text(
        "on: push\njobs:\n  a:\n    runs-on: ubuntu-24.04\n    steps:\n      - uses: actions/checkout@v4\n"
        "      - run: echo ${{ github.head_ref }}\n"
    )
    linted = subprocess.run([programs / "actionlint", folder / "bad.yml"], capture_output=True, text=True)
    assert linted.returncode and '"github.head_ref" is potentially untrusted' in linted.stdout
    audited = subprocess.run([programs / "zizmor", "--offline", tmp_path], capture_output=True, text=True)
    assert audited.returncode and "unpinned-uses" in audited.stdout and "template-injection" in audited.stdout
