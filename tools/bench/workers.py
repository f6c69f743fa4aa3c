"""Time of calibration and quantization with one and several workers, on the networks of ``tools/bench``.

    python -m tools.bench.workers FOLDER [--networks resnet50,mobilenetv2] [--samples 100] [--rounds 5] [--cpus 0,1]

Creates the networks and their samples in FOLDER. Then runs each command as a whole process, in turns, so that load
affects all alike: one worker on one processor, one worker on all processors, one worker per processor, and at the same
time as many independent processes as there are processors, each with one worker on its own processor. The ratio is the
median over the rounds of the time of another run divided by the time of one worker per processor in the same round. The
written files must be equal.

``possible`` is the throughput of the independent processes relative to one process alone: they share the memory
bandwidth, the caches and perhaps the cores, but not the work. Workers are not expected to be faster than that.

Other programs change times, but less the processor time. Its column contains the time of the main thread and of all
others. ``estimate`` is the ratio that follows if the main thread runs alone and the others run at the same time: the
processor time of one worker, divided by the sum of the time of the main thread and the time of the others per worker.
It is too low, because the main thread works for a part of its time while others do.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tools.bench.conversion import Measured, measure
from tools.bench.networks import NETWORKS
from tools.bench.quantization import MODULE

COMMANDS = {
    "calibrate": ("calibrate", ".json", []),
    "convert": ("convert", ".tpum", ["--quantize", "int8"]),
}
"""Command, suffix of its file, and its options."""


@dataclass
class Times:
    """Measurements of one command.

    Args:
        runs: measurements by name of the run; the first one is one worker on one processor, the last one the workers.
        pairs: time until the last one of the independent processes has ended, in seconds, by round.
        digests: digests of the files that were written.
    """

    runs: dict[str, Measured]
    pairs: list[float] = field(default_factory=list)
    digests: set[str] = field(default_factory=set)


def measure_command(
    name: str, model: Path, data: Path, cpus: Sequence[int], rounds: int, environment: dict[str, str]
) -> Times:
    """Run one command in all ways, round by round."""
    command, suffix, options = COMMANDS[name]
    program = str(Path(sys.executable).with_name("tpuconvert"))
    words = [program, command, str(model), "--calibration", str(data), *options]
    ways = {
        "1 worker on 1 processor": (cpus[:1], 1),
        f"1 worker on {len(cpus)} processors": (cpus, 1),
        f"{len(cpus)} workers on {len(cpus)} processors": (cpus, len(cpus)),
    }
    times = Times({way: Measured() for way in ways})

    def run(output: Path, used: Sequence[int], workers: int, into: Measured) -> None:
        measure([*words, "-o", str(output), "--workers", str(workers)], set(used), environment, into)
        if into.failure:
            raise RuntimeError(f"{name}: {into.failure}")
        times.digests.add(hashlib.sha256(output.read_bytes()).hexdigest())
        output.unlink()

    for _ in range(rounds):
        for way, (used, workers) in ways.items():
            run(model.parent / f"output{suffix}", used, workers, times.runs[way])
        independent = [Measured() for _ in cpus]
        with ThreadPoolExecutor(len(cpus)) as threads:
            started = [
                threads.submit(run, model.parent / f"output_{cpu}{suffix}", [cpu], 1, one)
                for cpu, one in zip(cpus, independent, strict=True)
            ]
            for future in started:
                future.result()
        times.pairs.append(max(one.seconds[0] for one in independent))
    return times


def lines_of(network: str, name: str, times: Times) -> list[str]:
    """Return the lines of the table for one command."""
    alone, *_, last = times.runs.values()
    count = int(list(times.runs)[-1].split()[0])
    bound = [count * one / both for one, both in zip(alone.seconds, times.pairs, strict=True)]
    shared = [main + others / count for main, others in zip(last.main_cpu, last.other_cpu, strict=True)]
    estimate = [one / both for one, both in zip(alone.cpu_seconds, shared, strict=True)]
    lines = []
    for run, one in times.runs.items():
        ratios = [own / base for own, base in zip(one.seconds, last.seconds, strict=True)]
        cpu = " + ".join(f"{statistics.median(part):.1f}" for part in (one.main_cpu, one.other_cpu))
        bounds = [_spread(bound, 2), _spread(estimate, 2)] if one is alone else ["", ""]
        cells = network, name, run, _spread(one.seconds, 1), _spread(ratios, 2), *bounds, cpu
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _spread(values: Sequence[float], digits: int) -> str:
    median, low, high = statistics.median(values), min(values), max(values)
    return f"{median:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--networks", default="resnet50,mobilenetv2")
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpus", default="0,1", help="processors")
    parser.add_argument("--commands", default=",".join(COMMANDS))
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    cpus = sorted(int(cpu) for cpu in arguments.cpus.split(","))
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # it would compile all modules in every run
    names = "network", "command", "run", "time, s", "ratio", "possible", "estimate", "processor time, s"
    print(f"| {' | '.join(names)} |\n{'|---' * len(names)}|")
    for network in arguments.networks.split(","):
        if network not in NETWORKS:
            parser.error(f"unknown network {network}, expected one of {', '.join(NETWORKS)}")
        # In another process, because the peak memory of a process includes the peak of its parent.
        making = [sys.executable, "-m", MODULE, str(folder), "--make", network, "--samples", str(arguments.samples)]
        subprocess.run(making, check=True)
        model, data = folder / f"{network}.onnx", folder / f"{network}_{arguments.samples}.npy"
        for name in arguments.commands.split(","):
            times = measure_command(name, model, data, cpus, arguments.rounds, environment)
            if len(times.digests) > 1:
                print(f"{name}: the files differ: {', '.join(sorted(times.digests))}", file=sys.stderr)
                return 1
            print("\n".join(lines_of(network, name, times)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
