"""Fixtures that build the engine for AArch64 and run cases on an emulated processor."""

import json
import pickle
import subprocess
from pathlib import Path

import pytest

from tools.aarch64.build import build
from tools.aarch64.environment import command, missing, module, variables
from tools.release.package_view import make_view
from tpuconvert.runtime.native.builder.loader import extension

SCRIPT = Path(__file__).with_name("emulated_cases.py")


@pytest.fixture(scope="session")
def emulated(tmp_path_factory):
    """Function that runs cases in the emulated Python: ``emulated(cpu, cases, threads)`` returns a summary.

    ``cases`` are pairs of a case and the results of the host. The summary is described in ``emulated_cases.py``.
    """
    if extension() is None:
        pytest.skip("the native engine was not built for this machine")
    reason = missing()
    if reason:
        pytest.skip(reason)
    if not module().is_file():  # the first build takes about ten minutes of processor time
        pytest.skip("the engine was not built for AArch64: run `python -m tools.aarch64 build`")
    build()
    view = tmp_path_factory.mktemp("view")
    make_view(view / "packages")

    def run(cpu, cases, threads=(1,)):
        folder = tmp_path_factory.mktemp("cases")
        given, found = folder / "cases.pickle", folder / "summary.json"
        given.write_bytes(pickle.dumps(cases))
        arguments = [str(SCRIPT), str(given), str(found), *map(str, threads)]
        done = subprocess.run(
            command(cpu, *arguments), env=variables(view / "packages"), capture_output=True, text=True, timeout=3600
        )
        assert done.returncode == 0, f"exit code {done.returncode} on {cpu}: {done.stderr[-3000:]}"
        return json.loads(found.read_text())

    return run
