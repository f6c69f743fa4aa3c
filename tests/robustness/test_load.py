"""Sessions under load: many threads on few sessions, and many sessions of one file, give equal results in flat memory.

python -m tests.robustness.test_load --seconds 600
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc

DIGITS = Path(tc.__file__).parents[1] / "examples" / "digits"

THREADS, SHARED, SESSIONS = 64, 16, 8
"""Threads that run shared sessions, the number of these, and threads that open sessions for themselves."""

IMAGES = 8
MOST_BYTES = 32 << 20  # growth of the resident memory after the first quarter: the allocator keeps arenas of threads


@dataclass
class Load:
    """Runs of sessions in threads, and what went wrong.

    Args:
        folder: for the model file.
    """

    folder: Path
    runs: int = 0
    failures: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        with np.load(DIGITS / "calibration.npz") as arrays:
            images = arrays["images"][:IMAGES, None].astype(np.float32) / 16
        model = tc.convert(DIGITS / "digits.onnx", quantize=tc.Quantization(effort="low"), calibration=images)
        self.path = self.folder / "net.tpum"
        model.save(self.path)
        with tc.Session(model, backend="reference") as session:
            self.name = session.inputs[0].name
            self.feeds = [{self.name: image[None]} for image in images]
            self.wanted = [next(iter(session.run(feed).values())) for feed in self.feeds]
        self._lock = threading.Lock()

    def run(self, is_over: Callable[[int], bool]) -> None:
        """Run until ``is_over`` returns True for the number of runs of a thread."""
        with contextlib.ExitStack() as stack:
            shared = [stack.enter_context(tc.Session(self.path, threads=1 + index % 2)) for index in range(SHARED)]
            sessions = [shared[index % SHARED] for index in range(THREADS)]
            work = [threading.Thread(target=self._use, args=(sessions[i], i, is_over)) for i in range(THREADS)]
            work += [threading.Thread(target=self._open_and_use, args=(index, is_over)) for index in range(SESSIONS)]
            self.sizes.append(resident_bytes())  # the threads may end before the loop looks at them
            for thread in work:
                thread.start()
            while any(thread.is_alive() for thread in work):
                self.sizes.append(resident_bytes())
                time.sleep(0.05)
            for thread in work:
                thread.join()

    def _open_and_use(self, index: int, is_over: Callable[[int], bool]) -> None:
        """Open the file, run some times, close it, and so on."""
        done = 0
        while not is_over(done):
            begun = done
            with tc.Session(self.path, threads=1) as session:
                done += self._use(session, index, lambda count, begun=begun: count >= 50 or is_over(begun + count))

    def _use(self, session: tc.Session, index: int, is_over: Callable[[int], bool]) -> int:
        done = 0
        while not is_over(done):
            which = (index + done) % IMAGES
            try:
                (found,) = session.run(self.feeds[which]).values()
                is_right = found.tobytes() == self.wanted[which].tobytes()
            except Exception as error:
                is_right, found = False, repr(error)
            done += 1
            if not is_right:
                self.failures.append(f"thread {index}, run {done}: {found}")
                break
        with self._lock:
            self.runs += done
        return max(done, 1)

    @property
    def growth(self) -> int:
        """Growth of the largest resident memory after the first quarter, in bytes."""
        quarter = max(1, len(self.sizes) // 4)
        return max(self.sizes[quarter:], default=0) - max(self.sizes[:quarter])


def resident_bytes() -> int:
    """Resident memory of this process; 0 where the system does not tell it."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _check(load: Load) -> None:
    assert load.failures == []
    assert load.growth < MOST_BYTES


def test_some_runs(tmp_path: Path) -> None:
    load = Load(tmp_path)
    load.run(lambda done: done >= 100)
    assert load.runs == 100 * (THREADS + SESSIONS)
    _check(load)


@pytest.mark.slow
def test_ten_minutes(tmp_path: Path) -> None:
    load = Load(tmp_path)
    end = time.monotonic() + 600
    load.run(lambda done: time.monotonic() > end)
    _check(load)


def main() -> None:
    """Run for some time and print the row of docs/reference/security.md."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as folder:
        load = Load(Path(folder))
        end = time.monotonic() + seconds
        load.run(lambda done: time.monotonic() > end)
    print(f"| {load.runs:,} | {len(load.failures)} | {seconds:.0f} s | {load.growth / (1 << 20):.0f} MiB growth |")


if __name__ == "__main__":
    main()
