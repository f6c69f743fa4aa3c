"""Size, estimated time and conversion of programs for a chip: tpuconvert against TPU-MLIR on the same trained models.

    pip install '.[bench,images]'
    TPU_MLIR_HOME=... VENDOR_PYTHON=... python -m tools.bench.chip_programs [NETWORK ...]
        [--work FOLDER] [--page PAGE.md]

Both tools read the float models of ``tools/accuracy/trained`` with the same calibration samples, and both programs are
compiled by the vendor's compiler for BM1688: tpuconvert has ``export --compile``, and TPU-MLIR
``model_transform``, ``run_calibration`` and ``model_deploy`` with their defaults. Cycles are the estimate of that
compiler, which no device has confirmed. ``make accuracy-vendor`` installs an environment with the calibration.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import tpuconvert as tc
from tools.accuracy.trained.catalog import measured_names
from tools.accuracy.trained.networks import Network
from tools.accuracy.trained.tpu_mlir import CHIP, PROGRAM, installed_version, quantize_tpu_mlir
from tools.accuracy.trained.wheels import model_folder
from tools.bench.engine_process import in_short
from tools.bench.machine import facts
from tpuconvert.conversion.options.options import group_options
from tpuconvert.exporters.compilation.cycles import PROFILE, parse_profile

TITLE = "Programs for a chip"
COLUMNS = ("network", "tool", "conversion, s", "compilation, s", "program, MB", "cycles, 1000", "reason")


@dataclass(frozen=True)
class Program:
    """A compiled program.

    Args:
        conversion: wall time from the float model to the INT8 model, in seconds.
        compilation: wall time from there to the program, of the accepted level of layer grouping; 0 if the tool does
            both in one.
        nbytes: size of the program.
        cycles: estimate of the compiler for one run.
    """

    conversion: float
    compilation: float
    nbytes: int
    cycles: int


def our_program(network: Network, folder: Path) -> Program:
    """Convert with the default options and compile the export."""
    samples = network.calibration(0)
    start = time.perf_counter()
    options = group_options(input_shapes=network.shapes, quantize="int8", chip=CHIP)
    model = tc.convert(network.source, calibration=samples, **options)
    conversion = time.perf_counter() - start
    export = tc.export(model, folder / "export", chip=CHIP, data=samples[:1], compile=True)
    export.check()
    (proof,) = export.proofs.values()
    if proof["cycles"] is None:
        raise ValueError("the compiler gave no estimate")
    (program,) = (folder / "export").glob("*.bmodel")
    accepted = proof["attempts"][-1]["seconds"]
    compilation = sum(seconds for step, seconds in accepted.items() if "simulat" not in step)
    return Program(conversion, compilation, program.stat().st_size, proof["cycles"]["total"])


def vendor_program(network: Network, folder: Path) -> Program:
    """Convert, calibrate and compile with the vendor's tools."""
    start = time.perf_counter()
    quantize_tpu_mlir(network.onnx, network.calibration(0), folder / "vendor")
    seconds = time.perf_counter() - start
    (profile,) = (folder / "vendor").glob(PROFILE)
    cycles = parse_profile(profile.read_text(encoding="utf-8", errors="replace"), {}, CHIP)["total"]
    return Program(seconds, 0, (folder / "vendor" / PROGRAM).stat().st_size, cycles)


TOOLS: dict[str, Callable[[Network, Path], Program]] = {"tpuconvert": our_program, "TPU-MLIR": vendor_program}


def row(name: str, tool: str, work: Path) -> tuple[str, ...]:
    """Return the cells of a network and a tool. A tool that fails has the reason instead of figures."""
    network = Network(name, work, model_folder())
    with tempfile.TemporaryDirectory() as folder:
        try:
            made = TOOLS[tool](network, Path(folder))
        except Exception as error:  # any exception becomes a row
            return name, tool, "-", "-", "-", "-", in_short(error).replace(folder, "FOLDER").replace("|", "/")
    compilation = f"{made.compilation:.0f}" if made.compilation else "-"
    sizes = f"{made.nbytes / 1e6:.2f}", f"{made.cycles / 1000:,.0f}"
    return name, tool, f"{made.conversion:.0f}", compilation, *sizes, ""


def page(rows: Sequence[tuple[str, ...]]) -> str:
    """Return the page of the measurement."""
    described = {**facts(), "tpu_mlir": installed_version()}
    lines = [f"# {TITLE}", "", *(f"- {name}: {value}" for name, value in described.items()), ""]
    lines += ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    return "\n".join([*lines, *("| " + " | ".join(cells) + " |" for cells in rows)]) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Measure the selected networks."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench.chip_programs", description=TITLE)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"of {', '.join(measured_names())} (all)")
    parser.add_argument(
        "--work", type=Path, default=Path("build/accuracy-trained"), help="folder of files (%(default)s)"
    )
    parser.add_argument("--page", type=Path, help="write the page into this file too")
    options = parser.parse_args(arguments)
    rows = []
    for name in options.networks or measured_names():
        for tool in TOOLS:
            rows.append(row(name, tool, options.work))
            print(", ".join(filter(None, rows[-1])), file=sys.stderr, flush=True)
    print(page(rows))
    if options.page:
        options.page.write_text(page(rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
