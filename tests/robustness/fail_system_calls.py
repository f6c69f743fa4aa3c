"""Let the system calls of a command fail, one at a time, or kill the command there.

    LD_PRELOAD=shim.so python -m tests.robustness.fail_system_calls COMMAND STEP

``shim.so`` is compiled from ``system_call_shim.cpp``. Every call below the folder of the results that writes or changes
a name fails in turn with ENOSPC and EIO, or ends the process. Afterwards the result is complete, the old one or the new
one; a command that ends itself leaves no other file, and ends with an error of tpuconvert if it did not succeed. What a
killed command leaves is removed by the next one. Each case runs in a fork. Prints a JSON object.
"""

from __future__ import annotations

import collections
import ctypes
import errno
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

import tpuconvert as tc
from tpuconvert.__main__ import main as run_command

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
KILL = 0
ERRORS = (errno.ENOSPC, errno.EIO, KILL)
LIBRARY = ctypes.CDLL(None)


def commands(inputs: Path, results: Path) -> dict[str, Callable[[bool], int]]:
    """Return commands by name. The argument chooses between two results, the old and the new one."""
    models = [inputs / "float.tpum", inputs / "int8.tpum"]
    images = np.load(DIGITS / "calibration.npz")["images"][:8, None].astype(np.float32) / 16
    tc.convert(DIGITS / "digits.onnx").save(models[0])
    tc.convert(DIGITS / "digits.onnx", quantize="int8", calibration=images).save(models[1])
    sources = [str(DIGITS / f"digits.{suffix}") for suffix in ("onnx", "tflite")]
    np.save(inputs / "x.npy", images[:1])
    feed = str(inputs / "x.npy")

    def command(*arguments: str) -> Callable[[bool], int]:
        both = {"MODEL": [str(model) for model in models], "SOURCE": sources}
        return lambda is_new: run_command([both[word][is_new] if word in both else word for word in arguments])

    out = str(results / "out")
    return {
        "convert": command("convert", "SOURCE", "-o", f"{out}.tpum", "--progress", "none"),
        "export": command("export", "MODEL", out, "--progress", "none"),
        "run": command("run", "MODEL", feed, "-o", f"{out}.npz"),
        "report": command("inspect", "MODEL", "--html", f"{out}.html"),
        "dump": command("run", "MODEL", feed, "--dump", out),
    }


def state(folder: Path) -> dict[str, str]:
    """Return the digest of each file below a folder, hidden ones too."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def in_fork(function: Callable[[], int]) -> int:
    """Return the exit code of a function in a fork; minus the signal that killed it."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    try:
        code = function()
        sys.stdout.flush()
    except BaseException:
        code = 99
    os._exit(code)


def count_calls(command: Callable[[bool], int], results: Path) -> int:
    """Return the number of calls that can fail."""
    reader, writer = os.pipe()

    def counted() -> int:
        LIBRARY.shim_arm(os.fsencode(results), ctypes.c_long(0), KILL)
        code = command(True)
        LIBRARY.shim_disarm.restype = ctypes.c_long
        os.write(writer, str(LIBRARY.shim_disarm(None)).encode())
        return code

    assert in_fork(counted) == 0
    os.close(writer)
    with os.fdopen(reader) as stream:
        return int(stream.read())


def check(command: Callable[[bool], int], results: Path, step: int, is_replaced: bool) -> dict[str, object]:
    """Let the calls ``1, 1 + step, ...`` fail.

    Args:
        command: the command.
        results: the folder of its results.
        step: distance of the failing calls.
        is_replaced: whether an old result exists, which the command may replace.

    """

    def start() -> dict[str, str]:
        shutil.rmtree(results, ignore_errors=True)
        results.mkdir()
        if is_replaced:
            assert in_fork(lambda: command(False)) == 0
        return state(results)

    def failing_at(number: int, error: int) -> int:
        LIBRARY.shim_arm(os.fsencode(results), ctypes.c_long(number), error)
        return command(True)

    old = start()
    calls = count_calls(command, results)
    new = state(results)
    outcomes: collections.Counter[str] = collections.Counter()
    for number in range(1, calls + 1, step):
        for error in ERRORS:
            assert start() == old
            code = in_fork(lambda number=number, error=error: failing_at(number, error))
            files = state(results)
            name = errno.errorcode.get(error, "killed")
            expected_codes = {-9} if error == KILL else {0, 2, 6}
            visible = {path: digest for path, digest in files.items() if not path.startswith(".out")}
            if code not in expected_codes:
                outcomes[f"call {number}, {name}: exit code {code}"] += 1
            elif visible not in (old, new) or (code == 0 and visible != new):
                outcomes[f"call {number}, {name}: exit code {code}, neither the old nor the new result"] += 1
            elif visible != files and error != KILL:
                outcomes[f"call {number}, {name}: {sorted(set(files) - set(visible))} are left"] += 1
            else:
                outcomes["new" if visible == new else "old"] += 1
            if error == KILL:
                if not is_replaced and visible == new:
                    continue  # a folder of a dump is not replaced
                code = in_fork(lambda: command(True))
                if code or state(results) != new:
                    outcomes[f"call {number}, {name}: the next command leaves {sorted(state(results))}"] += 1
    return {"calls": calls, "outcomes": outcomes}


def main() -> None:
    """Check one command."""
    name, step = sys.argv[1], int(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        inputs, results = Path(folder) / "inputs", Path(folder) / "results"
        inputs.mkdir()
        command = commands(inputs, results)[name]
        counts = check(command, results, step, is_replaced=name != "dump")
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
