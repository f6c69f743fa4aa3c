"""What a finished graph is held to: its chip, and a budget of transposes."""

from __future__ import annotations

from collections.abc import Sequence

from tpuconvert.schema.errors import ProblemList, ThresholdError, UsageError
from tpuconvert.schema.file_model import Note
from tpuconvert.schema.graph import Graph
from tpuconvert.schema.types import Chip


def check_not_empty(graph: Graph, inputs: Sequence[str] | None, outputs: Sequence[str] | None) -> None:
    """Refuse a cut that leaves no operator between inputs and outputs.

    A source that passes its inputs through by itself is converted, with a note.

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


def check_legality(graph: Graph, chip: Chip) -> list[Note]:
    """Notes about nodes that run with a warning.

    Raises:
        UnsupportedError: naming every node that the chip cannot run.

    """
    from tpuconvert.schema.legality import check_graph

    problems = ProblemList(graph.file, chip.value)
    warnings = check_graph(graph, chip, problems)
    problems.raise_if_any()
    return [Note("chip", node.name, reason) for node, reason in warnings]
