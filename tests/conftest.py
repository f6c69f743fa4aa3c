"""Fixtures for all tests."""

import gc
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tpuconvert.schema.option_style import command_line_style

REPOSITORY = Path(__file__).resolve().parent.parent

# Hundreds of tests start processes. Without bytecode files each compiles 350 modules, which takes 0.2 s of CPU time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


@pytest.fixture(scope="session", autouse=True)
def _options_of_the_command_line() -> Iterator[None]:
    """State messages with options, as they are written.

    tests/converter/cli/test_next_steps.py checks the arguments of Python.
    """
    with command_line_style():
        yield


@pytest.fixture(scope="session")
def repository() -> Path:
    """Root folder of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def data_root() -> Path:
    """Folder of public test models and images. Tests that need it are skipped if it is missing."""
    named = os.environ.get("TPUCONVERT_TEST_DATA")
    root = Path(named) if named else REPOSITORY.parent / "shared" / "data"
    if not (root / "manifest.json").is_file():
        pytest.skip(f"no test data: {root} has no manifest.json (name the folder in TPUCONVERT_TEST_DATA)")
    return root


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without garbage collections, and exclude modules and tests from all later ones.

    A full collection would examine all of them, which takes 0.7 s of CPU time, and the package collects often.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report the number of test functions: how many cases each has says little about what is tested."""
    outcomes = {
        name: {report.nodeid.split("[")[0] for report in terminalreporter.getreports(name)}
        for name in ("failed", "error", "passed", "skipped")
    }
    failed = outcomes["failed"] | outcomes["error"]
    passed = outcomes["passed"] - failed
    skipped = outcomes["skipped"] - passed - failed
    counts = {"fail": len(failed), "pass": len(passed), "are skipped": len(skipped)}
    shown = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    terminalreporter.write_line(f"test functions: {shown or 'none'}")
