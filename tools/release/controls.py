"""Controls of docs/reference/security.md: check that a test fails without each of them, and write the table.

    python -m tools.release.controls [--only TEXT] [--page | --check]

``controls.yaml`` has the controls. Each one is removed from a copy of the repository by a change of its source, and its
test has to pass before and to fail after. ``--only`` selects controls by a part of their threat; ``--page`` writes the
table and runs nothing; with ``--check`` the exit code is 1 if the page is out of date.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from tools.pages.generated_file import replace_section

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_suffix(".yaml")
PAGE = ROOT / "docs" / "reference" / "security.md"
TOOL = "tools.release.controls"
MOST_SECONDS = 180
"""Time of the tests of a control: without it they may never end."""
MOST_KIB = 16 << 20
"""Limit of the address space of the tests: without a control they may take all memory."""


@dataclass(frozen=True)
class Control:
    """A control.

    Args:
        threat: what an attacker tries.
        control: what prevents it.
        file: source file of the control.
        old: part of the file, which occurs once.
        new: what stands there without the control.
        test: test that fails then: a file, or the name of a test in it.
        risk: what remains.
    """

    threat: str
    control: str
    file: str
    old: str
    new: str
    test: str
    risk: str

    @property
    def removed(self) -> str:
        """Return the text of the file without the control.

        Raises:
            ValueError: the part that the control replaces does not occur exactly once.
        """
        text = (ROOT / self.file).read_text(encoding="utf-8")
        if text.count(self.old) != 1:
            raise ValueError(f"{self.file}: the part of the control occurs {text.count(self.old)} times: {self.old!r}")
        return text.replace(self.old, self.new)


def controls() -> list[Control]:
    """Return the controls of the list."""
    return [Control(**entry) for entry in yaml.safe_load(LIST.read_text(encoding="utf-8"))]


def table() -> list[str]:
    """Return the lines of the table."""
    lines = ["| threat | control | test that fails without it | what remains |", "|---|---|---|---|"]
    for each in controls():
        path, _, name = each.test.partition("::")
        lines.append(
            f"| {each.threat} | {each.control} | [`{name or Path(path).name}`](../../{path}) | {each.risk or '-'} |"
        )
    return lines


def page() -> str:
    """Return the page with the table."""
    return replace_section(PAGE, PAGE.read_text(encoding="utf-8"), "controls", TOOL, ["", *table(), ""])


class Copy:
    """A copy of the repository in which the package is imported instead of the installed one."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "copy"
        left_out = shutil.ignore_patterns(".git", ".venv", "build", "dist", "node_modules", "__pycache__", ".*_cache")
        shutil.copytree(ROOT, self.root, ignore=left_out, symlinks=True)
        view = folder / "view"
        subprocess.run(
            [sys.executable, "-m", "tools.release.package_view", str(view)],
            cwd=self.root,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        self._environment = {**os.environ, "PYTHONPATH": str(view)}

    def failing_tests(self, test: str) -> set[str]:
        """Run a file or one test. Return the names of the tests that fail.

        Raises:
            RuntimeError: no test can be collected, or all of them are skipped.
        """
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-m",
            "not slow and not vendor",
            test,
        ]
        limited = ["sh", "-c", f'ulimit -v {MOST_KIB}; exec "$@"', "sh", *command]
        try:
            done = subprocess.run(
                limited,
                cwd=self.root,
                env=self._environment,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=MOST_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return {f"{test} (does not end)"}
        failed = set(re.findall(r"^(?:FAILED|ERROR) (\S+::.+?)(?: - .*)?$", done.stdout, re.MULTILINE))
        if not failed and done.returncode < 0:
            return {f"{test} (the process ended)"}
        if not failed and (done.returncode or not re.search(r"\d+ passed", done.stdout)):
            raise RuntimeError(f"{test}: no test ran\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return failed

    def write(self, file: str, text: str) -> None:
        """Replace the text of a source file."""
        (self.root / file).write_text(text, encoding="utf-8")


def check(selected: Sequence[Control]) -> list[str]:
    """Remove each control and run its test. Return a line per control whose test does not fail then."""
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder))
        for control in selected:
            kept = (ROOT / control.file).read_text(encoding="utf-8")
            copy.write(control.file, control.removed)
            without = copy.failing_tests(control.test)
            copy.write(control.file, kept)
            found = sorted(without - copy.failing_tests(control.test)) if without else []
            if not found:
                problems.append(f"{control.threat}: {control.test} has no test that fails without the control only")
            print(f"{control.threat}: {', '.join(found) or 'no test'}", flush=True)
    return problems


def main(arguments: Sequence[str]) -> int:
    """Check the controls, or write the page."""
    parser = argparse.ArgumentParser(prog=f"python -m {TOOL}", description="Check controls by removing them.")
    parser.add_argument("--only", default="", metavar="TEXT", help="part of the threats to check (all)")
    parser.add_argument("--page", action="store_true", help="write the table and run nothing")
    parser.add_argument("--check", action="store_true", help="exit code 1 if the page is out of date")
    options = parser.parse_args(arguments)
    if options.check:
        is_current = PAGE.read_text(encoding="utf-8") == page()
        if not is_current:
            print(f"{PAGE.name} is out of date: run python -m {TOOL} --page", file=sys.stderr)
        return 0 if is_current else 1
    if options.page:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    selected = [control for control in controls() if options.only in control.threat]
    problems = check(selected)
    print("\n".join([*problems, f"{len(selected) - len(problems)} of {len(selected)} controls have a test"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
