"""Atomic replacement: a writer that fails or is killed leaves the old file or the new one."""

import errno
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support import programs
from tests.support.networks.tpum_models import describe_model, tiny_model
from tpuconvert.schema.errors import ResourceLimitError, TpuConvertError, UsageError
from tpuconvert.schema.file import file_writer
from tpuconvert.schema.file.file_format import read_model, write_model

ELEMENTS = 200_000


def failing(error: BaseException) -> Callable[..., Any]:
    def fail(*_: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize(("place", "step"), [(file_writer, "forget_pages"), (os, "replace")])
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), ResourceLimitError),
        (PermissionError(errno.EACCES, "Permission denied"), UsageError),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (MemoryError(), MemoryError),
    ],
    ids=["full", "denied", "interrupted", "memory"],
)
@pytest.mark.parametrize("old", [True, False], ids=["old file", "no file"])
def test_failures_leave_no_temporary_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: ModuleType,
    step: str,
    error: BaseException,
    kind: type[BaseException],
    old: bool,
) -> None:
    if old:
        write_model(tmp_path / "m.tpum", tiny_model(1))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.setattr(place, step, failing(error))
    with pytest.raises(kind) as caught:
        write_model(tmp_path / "m.tpum", tiny_model(2))
    if isinstance(caught.value, TpuConvertError):
        assert caught.value.file.endswith("m.tpum") and caught.value.hint
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_failure_in_the_middle_of_the_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(tmp_path / "m.tpum", tiny_model(1))
    before = (tmp_path / "m.tpum").read_bytes()
    monkeypatch.setattr(file_writer, "forget_pages", failing(OSError(errno.EIO, "Input/output error")))
    with pytest.raises(UsageError, match="Input/output error"):
        write_model(tmp_path / "m.tpum", tiny_model(2))
    assert (tmp_path / "m.tpum").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["m.tpum"]


def test_a_full_disk(tmp_path: Path) -> None:
    """The system's own limit on the size of a file, in a separate process."""
    resource = pytest.importorskip("resource", reason="no limits on this system")
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))\n"
        f"sys.path.insert(0, {str(programs.ROOT)!r})\n"
        "from tests.support.networks import tpum_models\n"
        f"tpum_models.write_model('m.tpum', tpum_models.tiny_model(2, {ELEMENTS}))\n"
    )
    assert resource
    write_model(tmp_path / "m.tpum", tiny_model(1))
    before = (tmp_path / "m.tpum").read_bytes()
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert "ResourceLimitError: m.tpum: cannot be written (File too large)" in done.stderr
    assert (tmp_path / "m.tpum").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["m.tpum"]


WRITING = f"""
import sys
sys.path.insert(0, {str(programs.ROOT)!r})
from tests.support.networks import tpum_models
models = [tpum_models.tiny_model(seed, {ELEMENTS}) for seed in (1, 2)]
print("ready", flush=True)
while True:
    for model in models:
        tpum_models.write_model("m.tpum", model)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL on this system")
@pytest.mark.parametrize("times", [4, pytest.param(12, marks=pytest.mark.slow)])
def test_a_killed_writer_leaves_the_old_file_or_the_new_one(times: int, tmp_path: Path) -> None:
    seed = 7
    chance = random.Random(seed)
    wanted = [describe_model(tiny_model(number, ELEMENTS)) for number in (1, 2)]
    write_model(tmp_path / "m.tpum", tiny_model(1, ELEMENTS))
    for _ in range(times):
        with subprocess.Popen([sys.executable, "-c", WRITING], cwd=tmp_path, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            time.sleep(chance.uniform(0, 0.05))
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        assert describe_model(read_model(tmp_path / "m.tpum")) in wanted
    left = [path.name for path in tmp_path.iterdir() if path.name != "m.tpum"]
    assert all(name.startswith(".m.tpum.") and name.endswith(".tmp") for name in left)


KILLED_AT = """
import os, signal, sys
sys.path.insert(0, {root!r})
from tests.support.networks import tpum_models
from tpuconvert.schema.file import file_writer
step, after = {step!r}, {after!r}
place = os if hasattr(os, step) else file_writer
original = getattr(place, step)

def dying(*arguments):
    if after:
        original(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(place, step, dying)
tpum_models.write_model("m.tpum", tpum_models.tiny_model(2, {elements}))
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL on this system")
@pytest.mark.parametrize(
    ("step", "after", "number"),
    [("forget_pages", False, 1), ("replace", False, 1), ("replace", True, 2)],
)
def test_killed_at_each_step(tmp_path: Path, step: str, after: bool, number: int) -> None:
    """Among the weights, before and after the one step that counts."""
    write_model(tmp_path / "m.tpum", tiny_model(1, ELEMENTS))
    code = KILLED_AT.format(root=str(programs.ROOT), step=step, after=after, elements=ELEMENTS)
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path).returncode == -signal.SIGKILL
    assert describe_model(read_model(tmp_path / "m.tpum")) == describe_model(tiny_model(number, ELEMENTS))
