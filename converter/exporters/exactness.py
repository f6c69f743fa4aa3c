"""Check at the end of a conversion whether the vendor's compiler can compile the model exactly."""

from __future__ import annotations

from tpuconvert.exporters.tpu_mlir.chips import TARGETS
from tpuconvert.exporters.tpu_mlir.package import lower_graph
from tpuconvert.model import Model
from tpuconvert.schema.errors import UsageError


def check_exact(model: Model, chip: str) -> None:
    """Check that every node of a quantized model has an exact form for a chip of the vendor's compiler.

    Raises:
        UnsupportedError: nodes without an exact form; all of them are in the message.
        UsageError: the model is for another chip, or has no integers.
    """
    target, graph = TARGETS[chip], model.graph
    if model.chip is not target.chip:
        raise UsageError(
            f"the model is for {model.chip.value}, exactness on {chip} needs one for {target.chip.value}",
            file=graph.file,
            hint=f"add --chip {chip}",
        )
    if not lower_graph(graph, target, "check").integer_values():
        raise UsageError(
            f"the model has no integers to be exact on {chip}", file=graph.file, hint="add --quantize int8"
        )
