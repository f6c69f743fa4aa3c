"""Time and memory of conversions, whole processes, against other converters of the same files.

    python -m tools.bench.conversion FOLDER [--models chain_4k,resnet50] [--peers ovc] [--rounds 5] [--page PAGE.md]
        [--wheel] [--peers-python PYTHON]

Creates missing models in FOLDER (``external`` has 3 GB), then starts every tool on every model,
one after the other, round by round, each pinned to one processor, so that load affects all alike. A peer is run if its
package is installed for the interpreter of ``--peers-python`` (default: the one that runs this program).
With ``--wheel`` tpuconvert is built and installed into a separate environment in FOLDER, because an editable install
takes longer to start. Compare ratios of medians of one run. The ranges show the noise of the machine, and for the large
model of the disk: more rounds of it alone (``--models large --peers copy``) vary less. The last lines check
limits: the growth of the time with the number of nodes, and the cost of a large model beyond copying its bytes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, external_data_helper, helper, numpy_helper

from tools.bench.machine import measured_on
from tools.bench.networks import NETWORKS, write_network

SEED = 11
WIDTH = 4096
"""Extent of the square matrices of the large models: 64 MiB each."""

COPY = """
import sys
with open(sys.argv[1], "rb") as source, open(sys.argv[2], "wb") as target:
    while part := source.read(1 << 24):
        target.write(part)
"""
MNNCONVERT = """
import sys
sys.modules["MNN.tools.utils.log"] = None  # which installs a client by pip in every run, and reports to its server
from MNN.tools.mnnconvert import main
sys.argv = ["mnnconvert", "-f", "ONNX", "--modelFile", sys.argv[1], "--MNNModel", sys.argv[2], "--bizCode", "b"]
sys.exit(main())
"""
MNN_CORE = """
import sys, _tools
_tools.mnnconvert(["", "-f", "ONNX", "--modelFile", sys.argv[1], "--MNNModel", sys.argv[2], "--bizCode", "b"])
"""
READ_AND_SAVE = """
import sys, openvino
openvino.save_model(openvino.Core().read_model(sys.argv[1]), sys.argv[2] + ".xml", compress_to_fp16=False)
"""
NORMALIZATION = ("gamma", "beta", "mean", "var")


def chain(nodes: int) -> Callable[[Path], None]:
    """Return a writer of a model with a chain of ``nodes`` Conv, BatchNormalization and Relu nodes with 8 channels."""

    def write(path: Path) -> None:
        random = np.random.default_rng(SEED)
        nodes_of_layers, constants, x = [], [], "x"
        for index in range(nodes // 3):
            arrays = {"w": random.standard_normal((8, 8, 3, 3), np.float32) / 9}
            arrays |= {name: random.uniform(0.5, 1.5, 8).astype(np.float32) for name in NORMALIZATION}
            constants += [numpy_helper.from_array(array, f"{name}_{index}") for name, array in arrays.items()]
            named = [f"{name}_{index}" for name in arrays]
            nodes_of_layers += [
                helper.make_node("Conv", [x, named[0]], [f"c_{index}"], pads=[1] * 4),
                helper.make_node("BatchNormalization", [f"c_{index}", *named[1:]], [f"b_{index}"]),
                helper.make_node("Relu", [f"b_{index}"], [f"r_{index}"]),
            ]
            x = f"r_{index}"
        onnx.save(_model(nodes_of_layers, constants, [1, 8, 8, 8], x), path)

    return write


def matrices(count: int, *, external: bool = False) -> Callable[[Path], None]:
    """Return a writer of a model with ``count`` layers of 64 MiB of weights, inline or as external data."""

    def write(path: Path) -> None:
        nodes, constants, x = [], [], "x"
        for index in range(count):
            w = np.random.default_rng(SEED + index).standard_normal((WIDTH, WIDTH), np.float32) / 64
            tensor = numpy_helper.from_array(w, f"w_{index}")
            if external:
                with path.with_suffix(".data").open("ab") as data:
                    extent = (data.tell(), len(tensor.raw_data))
                    external_data_helper.set_external_data(tensor, f"{path.stem}.data", *extent)
                    data.write(tensor.raw_data)
                tensor.ClearField("raw_data")
            constants += [tensor, numpy_helper.from_array(np.zeros(WIDTH, np.float32), f"b_{index}")]
            nodes += [
                helper.make_node("MatMul", [x, f"w_{index}"], [f"m_{index}"]),
                helper.make_node("Add", [f"m_{index}", f"b_{index}"], [f"a_{index}"]),
                helper.make_node("Relu", [f"a_{index}"], [f"r_{index}"]),
            ]
            x = f"r_{index}"
        onnx.save(_model(nodes, constants, [1, WIDTH], x), path)

    return write


def _model(
    nodes: Sequence[onnx.NodeProto], constants: Sequence[TensorProto], shape: Sequence[int], last: str
) -> onnx.ModelProto:
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", last)]
    graph = helper.make_graph(nodes, "synthetic", ports[:1], ports[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


MODELS: dict[str, Callable[[Path], None]] = {
    "mobilenetv2": lambda path: write_network(NETWORKS["mobilenetv2"], path),
    "resnet50": lambda path: write_network(NETWORKS["resnet50"], path),
    "chain_1k": chain(1000),
    "chain_4k": chain(4000),
    "chain_16k": chain(16000),
    "large": matrices(16),
    "external": matrices(48, external=True),
}
PEERS = {
    "copy": ["{python}", "-c", COPY, "{in}", "{out}"],
    "mnnconvert": ["{python}", "-c", MNNCONVERT, "{in}", "{out}"],
    "mnn_core": ["{python}", "-c", MNN_CORE, "{in}", "{out}"],
    "ovc": ["{bin}/ovc", "{in}", "--output_model", "{out}.xml"],
    "openvino": ["{python}", "-c", READ_AND_SAVE, "{in}", "{out}"],
}
"""Commands of other tools. ``copy`` is the lower bound: it reads and writes the file. ``mnnconvert`` is the program
of MNN without its usage reports, and ``mnn_core`` only its compiled library."""
PATIENCE = 20.0
"""A tool that takes longer than this, in seconds, runs only once."""


@dataclass
class Measured:
    """Measurements of one tool on one model."""

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    """Processor time of the process and its child processes, in seconds."""
    main_cpu: list[float] = field(default_factory=list)
    """Processor time of the main thread of the process, in seconds."""
    other_cpu: list[float] = field(default_factory=list)
    """Processor time of its other threads and of its child processes, in seconds."""
    peak_mib: float = 0.0
    failure: str = ""

    @property
    def median(self) -> float:
        """Median wall time, in seconds."""
        return statistics.median(self.seconds)


def measure(command: Sequence[str], cpus: set[int], environment: dict[str, str], into: Measured) -> None:
    """Run a command once and record its times and its peak memory. Flush earlier writes to the disk first."""
    os.sync()
    started = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
        preexec_fn=lambda: os.sched_setaffinity(0, cpus),
    )
    assert process.stderr is not None
    told = process.stderr.read()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    main_thread = Path(f"/proc/{process.pid}/task/{process.pid}/stat").read_text(encoding="utf-8")
    main_cpu = sum(map(int, main_thread.rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        into.failure = told.decode(errors="replace").strip().splitlines()[-1] if told.strip() else f"status {status}"
    into.seconds.append(time.perf_counter() - started)
    into.cpu_seconds.append(usage.ru_utime + usage.ru_stime)
    into.main_cpu.append(main_cpu)
    into.other_cpu.append(into.cpu_seconds[-1] - main_cpu)
    into.peak_mib = max(into.peak_mib, usage.ru_maxrss / 1024)


def install(folder: Path) -> Path:
    """Build a wheel of this checkout and install it into an environment in a folder. Return the path of the program."""
    environment_folder = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(environment_folder)], check=True)
    python = environment_folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    root = Path(__file__).resolve().parents[2]
    off = {**os.environ, "TPUCONVERT_NATIVE": "off"}  # the conversion does not need the native engine
    off.pop("PYTHONDONTWRITEBYTECODE", None)
    copy = folder / "checkout"  # the build creates files in the source tree
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(root, copy, ignore=shutil.ignore_patterns(".*", "build", "*.egg-info", "__pycache__"))
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", str(copy)], env=off, check=True)
    return python.with_name("tpuconvert")


def command_of(tool: str, model: Path, output: Path, python: Path, ours: Path) -> list[str]:
    """Return the command line that runs a tool."""
    if tool == "tpuconvert":
        return [str(ours), "convert", str(model), "-o", f"{output}.tpum"]
    places = {"{python}": str(python), "{bin}": str(python.parent), "{in}": str(model), "{out}": str(output)}
    words = PEERS[tool]
    for placeholder, path in places.items():
        words = [word.replace(placeholder, path) for word in words]
    return words


def run(
    folder: Path, models: Sequence[str], tools: Sequence[str], python: Path, ours: Path, cpu: int, rounds: int
) -> Results:
    """Measure all tools on all models; the first round warms the file cache and is not counted."""
    results: Results = {}
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    for name in models:
        path = folder / f"{name}.onnx"
        if (
            not path.exists()
        ):  # in another process, because the peak memory of a process includes the peak of its parent
            subprocess.run([sys.executable, "-m", "tools.bench.conversion", str(folder), "--make", name], check=True)
        for count in range(rounds + 1):
            for tool in tools:
                measured = results.setdefault((name, tool), Measured())
                if measured.failure:
                    continue
                if measured.seconds and measured.seconds[0] > PATIENCE:
                    continue
                once = measured if count else Measured()
                measure(command_of(tool, path, folder / "output", python, ours), {cpu}, environment, once)
                measured.failure = once.failure
                if once.seconds[0] > PATIENCE:
                    results[name, tool] = once
                for output in folder.glob("output*"):
                    output.unlink()
            print(f"{name}: round {count} of {rounds}", file=sys.stderr)
    return results


Results = dict[tuple[str, str], Measured]


def table(results: Results, tools: Sequence[str]) -> str:
    """Return a table of seconds and memory per model and tool, with the time of each peer relative to tpuconvert."""
    names = list(dict.fromkeys(name for name, _ in results))
    lines = ["| model | " + " | ".join(tools) + " |", "|---" * (len(tools) + 1) + "|"]
    for name in names:
        ours = results[name, "tpuconvert"]
        cells = []
        for tool in tools:
            one = results[name, tool]
            if one.failure or not one.seconds:
                cells.append("fails")
                continue
            spread = f" ({min(one.seconds):.2f} to {max(one.seconds):.2f})"
            ratio = f", {one.median / ours.median:.2f} x" if tool != "tpuconvert" else ""
            cells.append(f"{one.median:.2f} s{spread}, {one.peak_mib:.0f} MiB{ratio}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def promises(results: Results) -> list[str]:
    """Return lines with the limits and the measurements that they apply to."""

    def median(name: str, tool: str = "tpuconvert") -> float | None:
        result = results.get((name, tool))
        return result.median if result is not None and result.seconds and not result.failure else None

    def ratio(what: str, limit: float | None, upper: float | None, lower: float | None) -> list[str]:
        if upper is None or lower is None:
            return []
        if limit is None:
            return [f"- {what}: {upper / lower:.2f}"]
        verdict = "kept" if upper / lower <= limit else "MISSED"
        return [f"- {what}: {upper / lower:.2f}, promised at most {limit:g}: {verdict}"]

    lines = []
    for name in ("mobilenetv2", "resnet50"):
        for peer, limit in (("mnnconvert", 2.0), ("mnn_core", None), ("ovc", 0.6)):
            lines += ratio(f"{name}, ours to {peer}", limit, median(name), median(name, peer))
    lines += ratio("chain_16k to chain_4k", 4.6, median("chain_16k"), median("chain_4k"))
    lines += ratio("chain_16k, ours to openvino", 2.2, median("chain_16k"), median("chain_16k", "openvino"))
    lines += ratio("large, ours to copying the file", 1.3, median("large"), median("large", "copy"))
    large = results.get(("large", "tpuconvert"))
    if large is not None and not large.failure:
        over = large.peak_mib - WIDTH * WIDTH * 4 / (1 << 20)
        verdict = "kept" if over <= 300 else "MISSED"
        lines.append(f"- large, peak beyond the largest tensor: {over:.0f} MiB, promised at most 300: {verdict}")
    return lines


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", default=",".join(name for name in MODELS if name != "external"))
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--peers-python", type=Path, default=Path(sys.executable))
    parser.add_argument("--wheel", action="store_true", help="measure an installed wheel of this checkout")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu", type=int, default=0)
    parser.add_argument("--page", type=Path, help="write the result as a page, instead of printing it")
    parser.add_argument("--make", choices=MODELS, help="make one model, and nothing else")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if arguments.make:
        MODELS[arguments.make](arguments.folder / f"{arguments.make}.onnx")
        return 0
    tools = ("tpuconvert", *filter(None, arguments.peers.split(",")))
    models = arguments.models.split(",")
    ours = install(arguments.folder) if arguments.wheel else Path(sys.executable).with_name("tpuconvert")
    results = run(arguments.folder, models, tools, arguments.peers_python, ours, arguments.cpu, arguments.rounds)
    intro = (
        "# Benchmarks of conversions\n\nWritten by `python -m tools.bench.conversion`: wall time of complete processes "
        f"on one processor, medians of {arguments.rounds} interleaved rounds with their range, and peak memory. `x` is "
        "the time relative to tpuconvert. `copy` reads and writes the file, `openvino` reads the model and saves it, "
        "`ovc` and `mnnconvert` convert it. `mnnconvert` is the program of MNN without its usage reports, which take "
        f"seconds per run; `mnn_core` calls only its compiled library. Measured {measured_on()}.\n\n"
    )
    text = intro + table(results, tools) + "\n\n" + "\n".join(promises(results)) + "\n"
    for (name, tool), one in results.items():
        if one.failure:
            print(f"{tool} on {name}: {one.failure}", file=sys.stderr)
    if arguments.page is not None:
        arguments.page.write_text(text, encoding="utf-8")
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
