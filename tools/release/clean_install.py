"""Install the checkout in a new environment per Python and test it there: ``python -m tools.release.clean_install``.

For each ``--python`` (default: this one) pip installs the package with its required packages and the test runner. Then
it runs ``pip check``, imports every module, runs ``tpuconvert doctor`` and ``tpuconvert demo``, and the tests of
``--tests``. A table has the seconds of each step. ``--engine on`` makes a package without the native engine an error,
and ``off`` leaves the engine out; by default pip builds it if there is a compiler. ``--instruction-sets`` names those
that the engine must find on this processor. ``--source`` installs a wheel or a source distribution, not the checkout.

The program needs only the standard library, and neither make nor a shell. The exit code is 1 if a step fails.
"""

from __future__ import annotations

import argparse
import configparser
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tools.release.release import ROOT
from tools.release.wheel_smoke import SmokeError, check_demo, check_engine, check_modules, run

TESTS = ("tests/runtime/session", "tests/schema/graph", "tests/schema/file")
TEST_PACKAGES = ("pytest",)
ENGINES = {"on": "on", "off": "off", "auto": ""}
"""Choice -> value of ``TPUCONVERT_NATIVE``."""


def test_requirements() -> list[str]:
    """Return the requirements of the test runner, from the extra ``dev`` of setup.cfg."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    lines = config["options.extras_require"]["dev"].split()
    return [line for line in lines if re.split(r"[<>=~!]", line)[0] in TEST_PACKAGES]


class Installation:
    """A new environment, and the steps on it with their seconds."""

    def __init__(self, python: str, folder: Path, options: argparse.Namespace) -> None:
        self._creator, self._folder, self._options = python, folder, options
        programs = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
        self._python = [str(programs / ("python.exe" if os.name == "nt" else "python"))]
        unwanted = ("PYTHON", "TPUCONVERT_", "VIRTUAL_ENV")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
        self._environment = {**kept, "TPUCONVERT_NATIVE": ENGINES[options.engine]}
        self.seconds: dict[str, float] = {}
        self.description = python
        self.problem = ""

    def run(self) -> None:
        """Run the steps until one fails."""
        steps: dict[str, Callable[[], object]] = {
            "install": self._install,
            "imports": lambda: check_modules(self._python, self._folder, self._environment),
            "doctor": self._doctor,
            "demo": lambda: check_demo(self._python, self._folder, self._environment),
            "tests": self._tests,
        }
        for name, step in steps.items():
            start = time.monotonic()
            try:
                step()
            except SmokeError as error:
                self.problem = f"{name}: {error}"
                return
            self.seconds[name] = time.monotonic() - start

    def _install(self) -> None:
        run([self._creator, "-m", "venv", str(self._folder / "venv")], self._folder, self._environment)
        pip = [*self._python, "-m", "pip"]
        packages = [str(self._options.source.resolve()), *test_requirements()]
        run([*pip, "install", "--quiet", *packages], self._folder, self._environment)
        run([*pip, "check"], self._folder, self._environment)

    def _doctor(self) -> None:
        text, _ = run([*self._python, "-m", "tpuconvert", "doctor", "--json"], self._folder, self._environment)
        doctor = json.loads(text)
        engine = doctor["engine"]
        self.description = f"{doctor['python']}, {engine['instruction_set'] or 'no engine'}"
        if self._options.engine == "off" and engine["instruction_set"] is not None:
            raise SmokeError(f"the package has the engine ({engine['instruction_set']}), expected none")
        if self._options.engine == "on":
            check_engine(doctor, None)
        expected = set(filter(None, self._options.instruction_sets.split(",")))
        if absent := sorted(expected - set(engine["instruction_sets"] or ())):
            raise SmokeError(f"instruction sets {engine['instruction_sets']}, expected also {', '.join(absent)}")

    def _tests(self) -> None:
        command = [*self._python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow and not vendor"]
        run([*command, *self._options.tests], ROOT, self._environment)

    def row(self) -> str:
        """Return the row of the table."""
        cells = [f"{seconds:.1f} s" for seconds in self.seconds.values()]
        cells += ["-"] * (5 - len(cells))
        return f"| {self.description} | {' | '.join(cells)} | {'failed' if self.problem else 'ok'} |"


def main(arguments: Sequence[str]) -> int:
    """Test each Python and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", help="Python of a new environment; may be given several times")
    parser.add_argument("--engine", choices=ENGINES, default="auto")
    parser.add_argument("--instruction-sets", default="", help="such as neon,dotprod,i8mm")
    parser.add_argument("--source", type=Path, default=ROOT, help="a wheel, a source distribution or a checkout")
    parser.add_argument("--tests", nargs="*", default=TESTS, help=f"default: {' '.join(TESTS)}")
    options = parser.parse_args(arguments)
    rows, problems = [], []
    for python in options.python or [sys.executable]:
        with tempfile.TemporaryDirectory(prefix="tpuconvert-clean-") as folder:
            installation = Installation(python, Path(folder), options)
            installation.run()
        rows.append(installation.row())
        if installation.problem:
            problems.append(f"{python}: {installation.problem}")
    print("| Python, engine | install | imports | doctor | demo | tests | result |", "|" + "---|" * 7, *rows, sep="\n")
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
