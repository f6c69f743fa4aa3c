"""The cases of ``gc_control_cases.py``, in a process of their own.

A collection examines all objects of its process: it takes a second where all tests were collected.
"""

import subprocess
import sys
from pathlib import Path


def test_cases() -> None:
    cases = Path(__file__).with_name("gc_control_cases.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(cases)]
    done = subprocess.run(command, cwd=cases.parents[3], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout
