"""Checks of a whole graph: finite constants, legality on its chip, and a budget of transposes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tpuconvert.frontends import cuts
from tpuconvert.optimizer import why_not_expandable
from tpuconvert.schema.arithmetic.finite import is_finite
from tpuconvert.schema.definition.op import Op, non_finite_parameters
from tpuconvert.schema.errors import UNKNOWN_SHAPE, ProblemList, ThresholdError, UsageError
from tpuconvert.schema.file.file_model import Note
from tpuconvert.schema.graph.composite import Composite
from tpuconvert.schema.graph.control_flow import all_graphs, subgraphs_of
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.graph.legality import Status, check_graph, check_use
from tpuconvert.schema.system.mapped_pages import forget_pages
from tpuconvert.schema.types import Array, Chip

if TYPE_CHECKING:
    from tpuconvert.frontends.origins import Origin

ConstantArrays = Mapping[int, "weakref.ref[Array]"]
"""``id(array)`` -> weak reference to the array of a constant."""


def check_not_empty(graph: Graph, inputs: Sequence[str] | None, outputs: Sequence[str] | None) -> None:
    """Refuse requested inputs and outputs that leave no operator between them.

    A source whose outputs are its inputs is converted, with a note.

    Args:
        graph: the graph, before or after the optimizer.
        inputs: requested input tensors; None for the inputs of the source.
        outputs: requested output tensors; None for the outputs of the source.

    Raises:
        UsageError: the model would compute nothing.

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
    """Return True if all elements are finite. Release the pages of a memory-mapped array afterwards."""
    finite = is_finite(array)
    forget_pages(array)
    return finite


def constant_arrays(graph: Graph) -> ConstantArrays:
    """Return weak references to the arrays of all constants, also of subgraphs."""
    arrays = (value.data for each in all_graphs(graph) for value in each.values if value.data is not None)
    return {id(array): weakref.ref(array) for array in arrays}


def check_finite(
    graph: Graph, find_origin: Callable[[str], Origin | None] | None = None, checked: ConstantArrays | None = None
) -> None:
    """Refuse constants that are NaN, or infinite where that has no meaning.

    Args:
        graph: the graph, before or after the optimizer.
        find_origin: looks up a constant's name in the source file.
        checked: arrays that were checked already, before the optimizer ran.

    Raises:
        UnsupportedError: the message lists each such tensor with the node that reads it and the first index.

    """
    for subgraph in (inner for node in graph.nodes for inner in subgraphs_of(node.op).values()):
        check_finite(subgraph.graph, find_origin, checked)
    arrays = [value.data for value in graph.values if value.data is not None]
    if checked is not None:
        arrays = [array for array in arrays if id(array) not in checked or checked[id(array)]() is not array]
    ops = {id(node.op): node.op for node in graph.nodes}
    if all(map(_is_finite, arrays)) and not any(map(has_non_finite_parameters, ops.values())):
        return
    # The import takes 185 ms: it loads the quantizer for its traits.
    from tpuconvert.conversion.non_finite import OPTIMIZER, find_non_finite, problems_of, trace_to_source

    non_finite = find_non_finite(graph)
    if find_origin is not None:
        non_finite = trace_to_source(non_finite, find_origin)
    elif checked is not None:
        non_finite = [replace(item, made_by=OPTIMIZER) for item in non_finite]
    problems_of(graph, non_finite).raise_if_any()


def has_non_finite_parameters(op: Op) -> bool:
    """Return True if a float parameter of an operator is NaN or infinite."""
    return next(non_finite_parameters(op), None) is not None


def check_transposes(graph: Graph, budget: int | None) -> None:
    """Compare the transposes of a graph with a budget.

    Raises:
        ThresholdError: the graph has more transposes; the message names them.

    """
    left = [node.name for node in graph.nodes if node.op.name == "permute"]
    if budget is not None and len(left) > budget:
        named = ", ".join(f"'{name}'" for name in left)
        hint = "inputs and outputs of a TFLite model need none as NCHW: --nchw-io"
        raise ThresholdError(f"transposes: {len(left)} left, {budget} allowed: {named}", hint=hint)


def check_expanded(graph: Graph) -> None:
    """Refuse composite operators that are left if the model must consist of TPU operators only.

    Raises:
        UnsupportedError: the message names every composite that cannot be expanded, with the reason.

    """
    problems = ProblemList(graph.file, "--strict-set")
    for node in graph.nodes:
        if isinstance(node.op, Composite):
            source = node.sources[0] if node.sources else None
            hint = "set numbers with --input-shapes, or leave --strict-set out"
            name = (source.op, source.node) if source else (node.op.name, node.name)
            problems.add(UNKNOWN_SHAPE, *name, why_not_expandable(node), hint)
    problems.raise_if_any()


def check_legality(graph: Graph, chip: Chip) -> list[Note]:
    """Check every node against the operators of the chip. Return notes about nodes that run with a warning.

    Raises:
        UnsupportedError: the message names every node that the chip cannot run.

    """
    problems = ProblemList(graph.file, chip.value)
    warnings = check_graph(graph, chip, problems)
    if len(problems):
        illegal = [node for node in graph.nodes if check_use(node, chip).status is Status.ILLEGAL]
        before = [value for node in illegal for value in node.inputs if value is not None]
        if any(cuts.computes(value) for value in before):  # otherwise ending the model there would leave it empty
            problems.revise(
                lambda problem: problem.with_hint(f"{problem.hint}\nor end the model before it (--outputs)")
            )
    problems.raise_if_any()
    return [Note("chip", node.name, reason) for node, reason in warnings]
