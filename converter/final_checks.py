"""What a finished graph is held to: its chip, and a budget of transposes."""

from __future__ import annotations

from tpuconvert.schema.errors import ProblemList, ThresholdError
from tpuconvert.schema.file_model import Note
from tpuconvert.schema.graph import Graph
from tpuconvert.schema.types import Chip


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
