"""Let allocations of the engine fail, one at a time, while a model is loaded, run or converted.

    LD_PRELOAD=shim.so python -m tests.robustness.fuzz_allocations PHASE FIRST LAST STEP

``shim.so`` is compiled from ``fuzz_allocation_shim.cpp``. Every failure must end the call with ``MemoryError`` or an
error of tpuconvert, and afterwards the same call without a failure must give the same bytes. Prints a JSON object.
"""

from __future__ import annotations

import collections
import ctypes
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import tpuconvert as tc
from tpuconvert.conversion.options.options import group_options

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
MODULES = ("_native", "libstdc++")
"""Parts of the names of the modules whose allocations fail."""


class Shim:
    """The preloaded functions."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._library.shim_disarm.restype = ctypes.c_long
        for line in Path("/proc/self/maps").read_text().splitlines():
            place, *_, name = line.split()
            if any(part in os.path.basename(name) for part in MODULES) and " r-xp " in line:
                start, end = (ctypes.c_size_t(int(text, 16)) for text in place.split("-"))
                self._library.shim_add_range(start, end)

    def call(self, function: Callable[[], bytes], failing: int) -> tuple[bytes | Exception, int, bool]:
        """Call a function with one failing allocation (0: none): result or error, allocations, whether one failed."""
        failed = ctypes.c_long()
        self._library.shim_arm(ctypes.c_long(failing))
        try:
            result: bytes | Exception = function()
        except Exception as error:
            result = error
        count = self._library.shim_disarm(ctypes.byref(failed))
        return result, count, bool(failed.value)


def phases(folder: Path) -> dict[str, Callable[[], bytes]]:
    """Return the calls by name. Each returns bytes that depend on all that the engine computes in it."""
    images = np.load(DIGITS / "calibration.npz")["images"][:8, None].astype(np.float32) / 16
    models = []
    for name, options in (("float", {}), ("int8", {"quantize": "int8", "calibration": images})):
        models.append(folder / f"{name}.tpum")
        tc.convert(DIGITS / "digits.onnx", **group_options(**options)).save(models[-1])  # type: ignore[arg-type]  # a table of options
    opened = [tc.Session(tc.load(path), threads=2) for path in models]

    def load() -> bytes:
        for path in models:
            with tc.Session(tc.load(path), threads=2, backend="native") as session:
                session.run({"image": images[:1]})
        return b""

    def run() -> bytes:
        return b"".join(session.run({"image": images})["probability"].tobytes() for session in opened)

    def convert() -> bytes:
        path = folder / "again.tpum"
        tc.convert(DIGITS / "digits.onnx", quantize="int8", calibration=images).save(path)
        return path.read_bytes()

    return {"load": load, "run": run, "convert": convert}


def main() -> None:
    """Run one phase."""
    import tempfile

    name, first, last, step = sys.argv[1], *map(int, sys.argv[2:])
    found: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        phase = phases(Path(folder))[name]
        expected = phase()
        shim = Shim()
        result, count, _ = shim.call(phase, 0)
        assert result == expected and count > 0, (result, count)
        for failing in range(first, min(last, count) + 1, step):
            result, _, has_failed = shim.call(phase, failing)
            if not has_failed:
                found["not reached"] += 1
            elif isinstance(result, Exception):
                is_typed = isinstance(result, MemoryError | tc.TpuConvertError)
                is_clean = is_typed and not isinstance(result, tc.InternalError)
                found["clean error" if is_clean else f"allocation {failing}: {result!r}"] += 1
            else:
                found["no effect" if result == expected else f"allocation {failing}: other bytes"] += 1
            if phase() != expected:
                found[f"after allocation {failing}: other bytes"] += 1
    print(json.dumps({"allocations": count, "outcomes": found}))


if __name__ == "__main__":
    main()
