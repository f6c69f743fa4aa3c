"""Time and memory of quantization, whole processes, against other quantizers on the same networks and samples.

    pip install '.[bench,images]'
    python -m tools.bench.quantization FOLDER [--networks resnet50,mobilenetv2] [--tools nncf,onnxruntime]
        [--samples 100] [--rounds 3] [--cpus 0] [--page PAGE.md]
        [--many 10000 [--many-networks resnet50,mobilenetv2_32]]

Creates the networks of ``tools/bench`` and their samples in FOLDER, then starts every tool on every network, one after
the other, round by round, pinned to the same processors, so that load affects all alike. The ratio is the median over
the rounds of the processor time of a tool divided by the time of its counterpart in the same round: NNCF with its
default algorithms is compared with the default of tpuconvert, and MinMax of ONNX Runtime with ``--effort low``, which
finds ranges only. On one idle processor, processor time is wall time.

``--many N`` also compares the peak memory with N samples to that with ``--samples``, by default on a network for small
images. 10,000 samples of ResNet50 are a file of 6 GB.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tools.bench.conversion import Measured, measure
from tools.bench.machine import facts
from tools.bench.networks import NETWORKS, SEED, write_network
from tools.bench.prepare import quantize_onnxruntime, quantize_openvino

MODULE = "tools.bench.quantization"
"""Name of this program, which starts itself: in each process one step is measured."""

OURS = {"tpuconvert": [], "tpuconvert --effort low": ["--effort", "low"]}
"""Options of tpuconvert."""
PEERS = {"nncf": "tpuconvert", "onnxruntime": "tpuconvert --effort low"}
"""Other tools, and what they are compared with."""

SMALL_IMAGES = "mobilenetv2_32"
"""Default of ``--many-networks``."""

Results = dict[str, dict[str, Measured]]


def prepare(folder: Path, network: str, samples: int) -> tuple[Path, Path]:
    """Write a network and its samples, unless they exist. Return both paths."""
    model, data = folder / f"{network}.onnx", folder / f"{network}_{samples}.npy"
    if not model.exists():
        write_network(NETWORKS[network], model)
    if not data.exists():
        np.save(data, NETWORKS[network].samples(samples, SEED + 3))
    return model, data


def quantize(tool: str, model: Path, data: Path, output: Path) -> None:
    """Quantize with a peer, in this process."""
    network = NETWORKS[model.stem]
    feeds = [{network.input: sample[None]} for sample in np.load(data, mmap_mode="r")]
    if tool == "onnxruntime":
        quantize_onnxruntime(model, output, feeds)
    else:
        is_transformer = network.is_transformer
        quantize_openvino(model, output.with_suffix(".xml"), feeds, preset="PERFORMANCE", is_transformer=is_transformer)


def command_of(tool: str, model: Path, data: Path, output: Path) -> list[str]:
    """Return the command line that runs a tool."""
    if tool in OURS:
        program = str(Path(sys.executable).with_name("tpuconvert"))
        options = ["--quantize", "int8", "--calibration", str(data), *OURS[tool]]
        return [program, "convert", str(model), "-o", f"{output}.tpum", *options]
    words = [str(output.parent), "--quantize", tool, str(model), str(data), f"{output}.onnx"]
    return [sys.executable, "-m", MODULE, *words]


def run(
    folder: Path, networks: Sequence[str], tools: Sequence[str], samples: int, cpus: set[int], rounds: int
) -> Results:
    """Measure all tools on all networks."""
    results: Results = {}
    environment = {**os.environ, "OMP_NUM_THREADS": str(len(cpus))}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    for network in networks:
        # In another process, because the peak memory of a process includes the peak of its parent.
        subprocess.run(
            [sys.executable, "-m", MODULE, str(folder), "--make", network, "--samples", str(samples)], check=True
        )
        model, data = prepare(folder, network, samples)
        measured = results[network] = {tool: Measured() for tool in tools}
        for count in range(rounds):
            for tool, into in measured.items():
                if not into.failure:
                    measure(command_of(tool, model, data, folder / "output"), cpus, environment, into)
                for output in folder.glob("output*"):
                    output.unlink()
                times = f"{into.seconds[-1]:.1f} s, {into.cpu_seconds[-1]:.1f} s of processor time"
                state = into.failure or f"{times}, {into.peak_mib:.0f} MiB"
                print(f"{network}, round {count + 1} of {rounds}, {tool}: {state}", file=sys.stderr)
    return results


def table(results: Results) -> str:
    """Return a table of time and memory per network and tool, with the time relative to the counterpart."""
    lines = [
        "| network | tool | wall time, s | processor time, s | peak memory, MiB | relative processor time |",
        "|---|---|---|---|---|---|",
    ]
    for network, measured in results.items():
        for tool, one in measured.items():
            if one.failure:
                lines.append(f"| {network} | {tool} | fails: {one.failure} | | | |")
                continue
            spread = " | ".join(map(_spread, (one.seconds, one.cpu_seconds)))
            ratio = ""
            other = measured.get(PEERS.get(tool, ""))
            if other is not None and not other.failure:
                pairs = [mine / ours for mine, ours in zip(one.cpu_seconds, other.cpu_seconds, strict=True)]
                ratio = f"{statistics.median(pairs):.2f} ({min(pairs):.2f} to {max(pairs):.2f}) x `{PEERS[tool]}`"
            lines.append(f"| {network} | `{tool}` | {spread} | {one.peak_mib:.0f} | {ratio} |")
    return "\n".join(lines)


def _spread(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.1f} ({min(seconds):.1f} to {max(seconds):.1f})"


def memory_table(results: Results) -> str:
    """Return a table of peak memory by number of samples, with the largest relative to the smallest."""
    lines = ["| network | samples | peak memory, MiB | ratio |", "|---|---|---|---|"]
    for network, measured in results.items():
        first = next(iter(measured.values()))
        for samples, one in measured.items():
            lines.append(f"| {network} | {samples} | {one.peak_mib:.0f} | {one.peak_mib / first.peak_mib:.2f} |")
    return "\n".join(lines)


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--networks", default="resnet50,mobilenetv2")
    parser.add_argument("--tools", default=",".join(PEERS), help="other tools")
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cpus", default="0", help="processors of all tools, such as 0,1")
    parser.add_argument("--many", type=int, help="compare peak memory with this number of samples")
    parser.add_argument("--many-networks", default=SMALL_IMAGES, help="networks of --many")
    parser.add_argument("--page", type=Path, help="write the result as a page, instead of printing it")
    parser.add_argument("--make", choices=NETWORKS, help="make one network and its samples, and nothing else")
    parser.add_argument("--quantize", nargs=4, metavar=("TOOL", "MODEL", "DATA", "OUTPUT"), help="run one other tool")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if arguments.make:
        prepare(arguments.folder, arguments.make, arguments.samples)
        return 0
    if arguments.quantize:
        tool, *paths = arguments.quantize
        quantize(tool, *map(Path, paths))
        return 0
    tools = [*OURS, *filter(None, arguments.tools.split(","))]
    cpus = {int(cpu) for cpu in arguments.cpus.split(",")}
    networks = arguments.networks.split(",")
    results = run(arguments.folder, networks, tools, arguments.samples, cpus, arguments.rounds)
    memory = ""
    if arguments.many is not None:
        peaks: Results = {}
        for count in (arguments.samples, arguments.many):
            for network, measured in run(
                arguments.folder, arguments.many_networks.split(","), ["tpuconvert"], count, cpus, 1
            ).items():
                peaks.setdefault(network, {})[f"{count:,}"] = measured["tpuconvert"]
        memory = f"\n## Many samples\n\n{memory_table(peaks)}\n"
    described = "\n".join(f"- {name}: {value}" for name, value in facts().items())
    on = "one processor" if len(cpus) == 1 else f"{len(cpus)} processors"
    text = (
        "# Benchmarks of quantization\n\nWritten by `python -m tools.bench.quantization`: wall time of complete "
        f"processes with {arguments.samples} samples on {on}, medians of {arguments.rounds} interleaved rounds with "
        "their range, processor time and peak memory. The relative time is the processor time of a tool divided by "
        "the time of its counterpart in the same round: above 1, tpuconvert is faster. Other programs on the machine "
        f"lengthen the wall time more than the processor time.\n\n{described}\n\n{table(results)}\n{memory}"
    )
    if arguments.page is not None:
        arguments.page.write_text(text, encoding="utf-8")
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
