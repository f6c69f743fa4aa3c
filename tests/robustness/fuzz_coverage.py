"""Measure the branch coverage of the file verifier and of every header parser.

    python -m tests.robustness.fuzz_coverage

Runs the tests of these modules under ``coverage`` and prints its table. The exit code is 2 if a branch was not taken.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]

MODULES = (
    "schema/file/flatbuffer_reader.py",
    "schema/file/flatbuffer_schema.py",
    "schema/file/file_header.py",
    "schema/file/file_reader.py",
    "frontends/sniffing.py",
    "frontends/caffe/file/wire.py",
    "frontends/tflite/file/flexbuffer.py",
)
"""The verifier of FlatBuffers files, and the parsers of headers, magic numbers and wire formats."""

FILES = (
    "schema/file/test_flatbuffer_reader.py",
    "schema/file/test_file_format.py",
    "schema/file/test_file_format_hostile.py",
    "frontends/test_sniffing.py",
    "frontends/tflite/operators/test_custom.py",
    "runtime/session/test_dropped_constants.py",
    "robustness/test_fuzz_parsers.py",
)


def main() -> int:
    """Run the tests and print the table."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "coverage.ini"
        included = ",".join(f"*/{name}" for name in MODULES)
        settings.write_text(f"[run]\nbranch = True\ninclude = {included}\ndata_file = {folder}/data\n")
        coverage = [sys.executable, "-m", "coverage"]
        tests = [str(TESTS / name) for name in FILES]
        options = ["-q", "-p", "no:cacheprovider", "-m", "not slow"]
        environment = {**os.environ, "COVERAGE_CORE": "ctrace"}
        run = [*coverage, "run", f"--rcfile={settings}", "-m", "pytest", *options, *tests]
        if subprocess.run(run, cwd=TESTS.parent, env=environment, check=False, stdout=sys.stderr).returncode:
            return 1
        report = [*coverage, "report", f"--rcfile={settings}", "-m", "--fail-under=100"]
        return subprocess.run(report, cwd=TESTS.parent, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
