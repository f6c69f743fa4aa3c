"""Checks of a whole graph: finite constants, legality on its chip, and a budget of transposes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tpuconvert.frontends import cuts
from tpuconvert.schema.composite import Composite
from tpuconvert.schema.errors import UNKNOWN_SHAPE, ProblemList, ThresholdError, UsageError
from tpuconvert.schema.file_model import Note
from tpuconvert.schema.finite import is_finite
from tpuconvert.schema.graph import Graph
from tpuconvert.schema.legality import Status, check_graph, check_use
from tpuconvert.schema.mapped_pages import forget_pages
from tpuconvert.schema.op import Op, non_finite_parameters
from tpuconvert.schema.types import Array, Chip

if TYPE_CHECKING:
    from tpuconvert.frontends.origins import Origin

ConstantArrays = Mapping[int, "weakref.ref[Array]"]
"""Arrays of constants by their identity."""


def check_not_empty(graph: Graph, inputs: Sequence[str] | None, outputs: Sequence[str] | None) -> None:
    """Refuse a cut that leaves no operator between inputs and outputs.

    A source whose outputs are its inputs is converted, with a note.

    Args:
        graph: as a frontend made it, or later.
        inputs: the tensors where the model is to begin; None for the source's own inputs.
        outputs: the tensors where it is to end; None for the source's own outputs.

    Raises:
        UsageError: nothing would be computed.

    """
    if any(value.producer is not None for value in graph.outputs):
        return
    if inputs is None and outputs is None:
        note = "the model computes nothing: its outputs are its inputs or constants"
        if note not in graph.notes:
            graph.notes.append(note)
        return
    names = ", ".join(f"'{port.name}'" for port in graph.output_ports)
    option = "--outputs" if outputs is not None else "--inputs"
    raise UsageError(
        f"the model would be empty: no operator is left between its inputs and {names}",
        file=graph.file,
        hint=f"name tensors that operators compute, or leave {option} out",
    )


def _is_finite(array: Array) -> bool:
    """Test an array; the memory of one that is mapped from a file does not stay in use."""
    finite = is_finite(array)
    forget_pages(array)
    return finite


def constant_arrays(graph: Graph) -> ConstantArrays:
    """Remember the arrays of all constants, without keeping them alive."""
    return {id(value.data): weakref.ref(value.data) for value in graph.values if value.data is not None}


def check_finite(
    graph: Graph, find_origin: Callable[[str], Origin | None] | None = None, known: ConstantArrays | None = None
) -> None:
    """Refuse constants that are NaN, or infinite where that has no meaning.

    Args:
        graph: of a frontend, or after the optimizer.
        find_origin: looks up a constant's name in the source file.
        known: arrays that were checked before the optimizer ran; what it made of them is checked now.

    Raises:
        UnsupportedError: naming every tensor, the node that reads it, and the first index.

    """
    arrays = [value.data for value in graph.values if value.data is not None]
    if known is not None:
        arrays = [array for array in arrays if id(array) not in known or known[id(array)]() is not array]
    ops = {id(node.op): node.op for node in graph.nodes}
    if all(map(_is_finite, arrays)) and not any(map(has_non_finite_parameters, ops.values())):
        return
    # 185 ms: imports the quantizer, whose traits it reads
    from tpuconvert.non_finite import OPTIMIZER, find_non_finite, problems_of, trace_to_source

    found = find_non_finite(graph)
    if find_origin is not None:
        found = trace_to_source(found, find_origin)
    elif known is not None:
        found = [replace(item, made_by=OPTIMIZER) for item in found]
    problems_of(graph, found).raise_if_any()


def has_non_finite_parameters(op: Op) -> bool:
    """Return True if a float parameter of an operator is NaN or infinite."""
    return next(non_finite_parameters(op), None) is not None


def check_transposes(graph: Graph, most: int | None) -> None:
    """Compare the transposes of a graph with a budget.

    Raises:
        ThresholdError: there are more; the message names them.

    """
    left = [node.name for node in graph.nodes if node.op.name == "permute"]
    if most is not None and len(left) > most:
        named = ", ".join(f"'{name}'" for name in left)
        hint = "inputs and outputs of a TFLite model need none as NCHW: --nchw-io"
        raise ThresholdError(f"transposes: {len(left)} left, {most} allowed: {named}", hint=hint)


def check_expanded(graph: Graph) -> None:
    """Refuse composite operators that are left if the model must consist of TPU operators only.

    Raises:
        UnsupportedError: naming every composite whose expansion depends on an extent that is symbolic.

    """
    problems = ProblemList(graph.file, "--strict-set")
    for node in graph.nodes:
        if isinstance(node.op, Composite):
            source = node.sources[0] if node.sources else None
            types = ", ".join(str(value.type) for value in node.inputs if value is not None)
            text = f"{node.op.name} can only be expanded for extents that are numbers, got {types}"
            hint = "set numbers with --input-shapes, or leave --strict-set out"
            name = (source.op, source.node) if source else (node.op.name, node.name)
            problems.add(UNKNOWN_SHAPE, *name, text, hint)
    problems.raise_if_any()


def check_legality(graph: Graph, chip: Chip) -> list[Note]:
    """Notes about nodes that run with a warning.

    Raises:
        UnsupportedError: naming every node that the chip cannot run.

    """
    problems = ProblemList(graph.file, chip.value)
    warnings = check_graph(graph, chip, problems)
    if len(problems):
        illegal = [node for node in graph.nodes if check_use(node, chip).status is Status.ILLEGAL]
        before = [value for node in illegal for value in node.inputs if value is not None]
        if any(cuts.computes(value) for value in before):  # else a model that ends there is empty
            problems.revise(
                lambda problem: problem.with_hint(f"{problem.hint}\nor end the model before it (--outputs)")
            )
    problems.raise_if_any()
    return [Note("chip", node.name, reason) for node, reason in warnings]
