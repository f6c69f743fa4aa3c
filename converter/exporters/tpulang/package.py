"""Export folder with a program of the vendor's TPULang API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tpuconvert.exporters.request import Request
from tpuconvert.exporters.tpu_mlir.chips import TARGETS, Target
from tpuconvert.exporters.tpu_mlir.dialect import COMPILER_VERSION, Tensor
from tpuconvert.exporters.tpu_mlir.lowering import Lowering
from tpuconvert.exporters.tpu_mlir.package import (
    ProgramForm,
    export_lowering,
    program_name,
    requested_target,
    try_lowering,
)
from tpuconvert.exporters.tpulang.calls import TRANSLATORS
from tpuconvert.exporters.tpulang.program import Program
from tpuconvert.model.model import Model
from tpuconvert.samples.array_writer import write_npz
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.types import Chip

TEMPLATE = Path(__file__).parent / "program.txt"
"""Source text of the programs, apart from the calls."""

PROGRAM = "compile_bmodel.py"
"""File of the program. The name of the model does not choose it: ``numpy.py`` would be imported instead of NumPy."""

PACKAGES = (f"tpu_mlir=={COMPILER_VERSION}", "filelock", "flatbuffers", "psutil", "rich")
"""The vendor's package, and those that its API imports without requiring them."""

CHIPS = (Chip.BM1686,)
"""Chips whose models can be exported."""

# Requantization parameters are arguments of calls, whatever the record of the chip is. Inputs are float32.
_TARGETS: Mapping[str, Target] = {
    name: replace(target, has_packed_requant=False, has_small_sums=True, takes_integers=False)
    for name, target in TARGETS.items()
    if target.chip in CHIPS
}


def lower_for_tpulang(model: Model) -> Program:
    """Lower a model for one of ``CHIPS``.

    Raises:
        UnsupportedError: some nodes have no exact equivalent; the message lists all of them.
    """
    return lower_graph(model.graph, next(iter(_TARGETS.values())), "check")


def lower_graph(graph: Graph, target: Target, name: str) -> Program:
    """Lower a graph to calls of the API. Arguments and exceptions as in the ``tpu-mlir`` export."""
    program = Program(try_lowering(graph, target, name, is_strict=True, has_floats=False))
    program.run(TRANSLATORS)
    program.lowering.problems.raise_if_any()
    return program


def export_tpulang(request: Request) -> dict[str, Any]:
    """Write an export folder with a TPULang program and return its manifest.

    Raises:
        UnsupportedError: some nodes have no exact equivalent. Nothing is written.
        UsageError: the chip is unknown or is not the chip of the model, the model is not quantized, or the folder
            cannot be written.
    """
    target = requested_target(request, _TARGETS)
    program = lower_graph(request.model.graph, target, program_name(request))

    def write(folder: Path, lowering: Lowering, tensors: Sequence[Tensor]) -> None:
        write_program(folder, program, tensors)

    form = ProgramForm(
        to="tpulang",
        program=PROGRAM,
        compile=PROGRAM,
        command=f"PYTHON {PROGRAM}",
        packages=" ".join(PACKAGES),
        write=write,
    )
    return export_lowering(request, program.lowering, form)


def write_program(folder: Path, program: Program, tensors: Sequence[Tensor]) -> None:
    """Write the program that returns the given tensors, and its weights."""
    name = program.module.name
    text = TEMPLATE.read_text(encoding="utf-8")
    replacements = {
        "@NAME@": name,
        "@PROGRAM@": PROGRAM,
        "@CHIP@": program.lowering.target.name,
        "@COMPILER@": COMPILER_VERSION,
        "@BODY@": program.text(tensors),
    }
    for key, replacement in replacements.items():
        text = text.replace(key, replacement)
    (folder / PROGRAM).write_text(text, encoding="utf-8")
    write_npz(folder / f"{name}_weights.npz", program.weights(tensors))
