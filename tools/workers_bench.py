"""Time of calibration and quantization with one and several workers, on the networks of ``tools/bench``.

    python tools/workers_bench.py FOLDER [--network resnet50] [--samples 100] [--rounds 5] [--cpus 0,1]

Creates the network and its samples in FOLDER. Then runs each command as a whole process, in turns, so that load affects
all alike: one worker on one processor, one worker on all processors, and one worker per processor. The ratio is the
median over the rounds of the time of another run divided by that of one worker per processor in the same round. The
written files must be equal.

Other programs change times, but hardly the processor time. Its column has that of the main thread, which runs alone for
most of it, and that of all others. ``possible`` estimates the ratio on a machine without other programs: the processor
time of one worker, divided by that of the main thread plus that of the others divided by the number of workers.
"""

from __future__ import annotations

import argparse
import hashlib
import operator
import os
import statistics
import subprocess
import sys
from pathlib import Path

from bench.networks import NETWORKS
from conversion_bench import Measured, measure

COMMANDS = {
    "calibrate": ("calibrate", ".json", []),
    "convert": ("convert", ".tpum", ["--quantize", "int8"]),
}
"""Command, suffix of its file, and its options."""


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--network", default="resnet50", choices=NETWORKS)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpus", default="0,1", help="processors")
    parser.add_argument("--commands", default=",".join(COMMANDS))
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    bench = Path(__file__).with_name("quantization_bench.py")
    making = [sys.executable, str(bench), str(folder), "--make", arguments.network]
    subprocess.run([*making, "--samples", str(arguments.samples)], check=True)
    model, data = folder / f"{arguments.network}.onnx", folder / f"{arguments.network}_{arguments.samples}.npy"
    cpus = sorted(int(cpu) for cpu in arguments.cpus.split(","))
    runs = {
        "1 worker on 1 processor": (cpus[:1], 1),
        f"1 worker on {len(cpus)} processors": (cpus, 1),
        f"{len(cpus)} workers on {len(cpus)} processors": (cpus, len(cpus)),
    }
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    program = str(Path(sys.executable).with_name("tpuconvert"))
    print("| command | run | time, s | ratio | processor time, s | possible |\n|---|---|---|---|---|---|")
    for name in arguments.commands.split(","):
        command, suffix, options = COMMANDS[name]
        measured = {run: Measured() for run in runs}
        digests = set()
        for _ in range(arguments.rounds):
            for run, (used, workers) in runs.items():
                output = folder / f"output{suffix}"
                words = [program, command, str(model), "--calibration", str(data), "-o", str(output), *options]
                measure([*words, "--workers", str(workers)], set(used), environment, measured[run])
                digests.add(hashlib.sha256(output.read_bytes()).hexdigest())
                output.unlink()
        if len(digests) > 1:
            print(f"{name}: the files differ: {', '.join(sorted(digests))}", file=sys.stderr)
            return 1
        last = list(measured.values())[-1]
        alone = next(iter(measured.values()))
        shared = [main + others / len(cpus) for main, others in zip(last.main_cpu, last.other_cpu, strict=True)]
        for run, one in measured.items():
            ratios = [own / base for own, base in zip(one.seconds, last.seconds, strict=True)]
            spread = f"{one.median:.1f} ({min(one.seconds):.1f} to {max(one.seconds):.1f})"
            ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            cpu = " + ".join(f"{statistics.median(part):.1f}" for part in (one.main_cpu, one.other_cpu))
            possible = (
                f"{statistics.median(map(operator.truediv, alone.cpu_seconds, shared)):.2f}" if one is alone else ""
            )
            print(f"| {name} | {run} | {spread} | {ratio} | {cpu} | {possible} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
