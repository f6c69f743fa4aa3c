"""Mutation campaigns: damage valid files of every format at random, and read, convert and run what is left.

    python -m tests.support.damage.mutation_campaign --formats "onnx bytes,tpum bytes; valid digest" --count 20000

Formats "... cut" are every beginning of three small files instead, and "tpum single bits" one flipped bit per case; for
the former ``--count`` is at most the number of bytes. A damaged program without a valid digest must be refused.

Every case runs in a worker process. A case fails if the worker dies, if an error is not documented, if it takes
more than ``MOST_SECONDS`` of CPU time, or if the process needs more than ``MOST_BYTES`` above its start. A worker that
hangs is ended after four times that CPU time, or after ten minutes without an answer. The command prints a row per
format and the seeds of cases that fail; ``--only SEED`` repeats one of them. ``--first`` and ``--count`` choose a part
of a campaign: of the rows of all parts, add up the numbers of files, and take the largest seconds and MiB. ``--seed``
begins at the case with this number, or at its remainder in a list of changes of the structure.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tpuconvert as tc
from tests.support import programs
from tests.support.damage.mutation_formats import FORMATS, Listed, full_count

MOST_SECONDS = 10.0
MOST_BYTES = 512 << 20


@dataclass
class Outcome:
    """Result of the cases of one format."""

    tried: int = 0
    accepted: int = 0
    refused: int = 0
    seconds: float = 0.0
    megabytes: float = 0.0
    failures: list[str] = field(default_factory=list)

    def add(self, record: dict[str, Any]) -> None:
        """Count the record of a case that ended."""
        self.tried += 1
        self.seconds = max(self.seconds, record["seconds"])
        self.megabytes = max(self.megabytes, record["bytes"] / (1 << 20))
        if record["failure"]:
            self.failures.append(f"{record['done']}: {record['failure']}")
        else:
            setattr(self, record["outcome"], getattr(self, record["outcome"]) + 1)

    def row(self, name: str) -> str:
        """Row of the table in docs/reference/security.md."""
        cells = (
            f"{self.tried:,}",
            f"{self.refused:,}",
            len(self.failures),
            f"{self.seconds:.1f}",
            f"{self.megabytes:.0f}",
        )
        return f"| {name} | " + " | ".join(map(str, cells)) + " |"


def run_cases(name: str, seeds: Iterator[int] | range, report: Callable[[dict[str, Any]], None]) -> None:
    """Run cases in this process. ``report`` gets a record before and after each case."""
    chosen = FORMATS[name]
    contents = chosen.seeds()
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    _limit_address_space(8 * MOST_BYTES)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"net{chosen.suffix}"
        for seed in seeds:
            _limit_cpu_time(4 * MOST_SECONDS)
            path.write_bytes(chosen.case(contents, name, seed))
            report({"case": seed})
            begun = time.process_time()
            outcome, failure = "accepted", ""
            try:
                chosen.use(path)
                failure = "accepted" if chosen.is_detected else ""
            except tc.InternalError as error:
                failure = f"{error}"
            except tc.TpuConvertError:
                outcome = "refused"
            except Exception as error:
                failure = f"{type(error).__name__}: {error}"
            used = time.process_time() - begun
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start) * 1024
            if used > MOST_SECONDS:
                failure = failure or f"{used:.1f} s"
            if grown > MOST_BYTES:
                failure = failure or f"{grown >> 20} MiB"
            report({"done": seed, "outcome": outcome, "failure": failure[:300], "seconds": used, "bytes": grown})


def _limit_cpu_time(seconds: float) -> None:
    """Let the system end this process when it has used some more seconds of CPU time."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time() + seconds), hard))


def _limit_address_space(more: int) -> None:
    """Let allocations of this process fail beyond some more bytes, so that no case takes the memory of the machine."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more, hard))


def lines_of(worker: subprocess.Popen[bytes], limit: float) -> Iterator[bytes]:
    """Yield the lines that a process prints, and kill it if it prints nothing for ``limit`` seconds."""
    assert worker.stdout is not None
    begun = b""
    while select.select([worker.stdout], [], [], limit)[0]:
        part = os.read(worker.stdout.fileno(), 1 << 16)
        if not part:
            return
        *lines, begun = (begun + part).split(b"\n")
        yield from lines
    worker.kill()


def run_campaign(name: str, count: int, first: int = 0, limit: float = 600.0) -> Outcome:
    """Run the cases of one format in worker processes; a dead or hanging worker is a failure and is replaced."""
    return run_campaigns([name], count, first, limit)[name]


def run_campaigns(names: Sequence[str], count: int, first: int = 0, limit: float = 600.0) -> dict[str, Outcome]:
    """Run the cases of several formats, in one worker process after the other as long as none dies."""
    found = {name: Outcome() for name in names}
    seeds = dict.fromkeys(names, first)
    ends = {name: FORMATS[name].most_cases(first + count) for name in names}
    while left := [name for name in names if seeds[name] < ends[name]]:
        words = [word for name in left for word in (name, str(seeds[name]), str(ends[name]))]
        command = programs.command(__spec__.name, "--worker", *words, options=("-X", "faulthandler"))
        worker = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=programs.environment()
        )
        current, started = left[0], seeds[left[0]] - 1
        for line in lines_of(worker, limit):
            record = json.loads(line)
            if "format" in record:
                current, started = record["format"], seeds[record["format"]] - 1
            elif "case" in record:
                started = record["case"]
            else:
                seeds[current] = record["done"] + 1
                found[current].add(record)
        worker.communicate()
        if seeds[current] < ends[current]:
            found[current].tried += 1
            found[current].failures.append(f"{started}: the process died (exit code {worker.returncode})")
            seeds[current] = max(started, seeds[current]) + 1
    return found


def main(arguments: list[str]) -> int:
    """Run campaigns and print a table."""
    if arguments[:1] == ["--worker"]:
        for name, first, end in zip(*[iter(arguments[1:])] * 3, strict=True):
            print(json.dumps({"format": name}), flush=True)
            run_cases(name, range(int(first), int(end)), lambda record: print(json.dumps(record), flush=True))
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--formats", default=",".join(name.replace(", ", "; ") for name in FORMATS))
    parser.add_argument("--count", type=int, help="by default the number of a whole campaign")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", type=int)
    parser.add_argument("--seed", type=int, help="begin at this case, modulo their number; no formats that are cut")
    given = parser.parse_args(arguments)
    names = [name.replace("; ", ", ") for name in given.formats.split(",")]
    if given.seed is not None:
        print(f"seed {given.seed}")
        names = [name for name in names if isinstance(FORMATS[name], Listed) or not FORMATS[name].is_cut]
    if given.only is not None:
        for name in names:
            run_cases(name, range(given.only, given.only + 1), print)
        return 0
    print("| files | tried | refused | failures | most seconds | most MiB |\n|---|---|---|---|---|---|")
    is_clean = True
    for name in names:
        count = full_count(name) if given.count is None else given.count
        first = given.first if given.seed is None else given.seed % FORMATS[name].most_cases(given.seed + count)
        found = run_campaign(name, count, first)
        print(found.row(name), flush=True)
        for failure in found.failures[:20]:
            print(f"    {failure}", file=sys.stderr, flush=True)
        is_clean = is_clean and not found.failures
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
