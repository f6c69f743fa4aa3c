"""Evaluation of single nodes by their NumPy references, and of the subgraphs of control flow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from tpuconvert.runtime.reference.plan import Evaluate, failure, make_plan, run_plan
from tpuconvert.schema.errors import ResourceLimitError, RunError
from tpuconvert.schema.graph.control_flow import ControlFlowOp, Subgraph
from tpuconvert.schema.graph.graph import Graph, Node
from tpuconvert.schema.types import Array, Chip

RunGraph = Callable[[Sequence[Array], Evaluate], list[Array]]
"""Function that computes the outputs of a graph."""


class NodeEvaluation:
    """Function that computes the results of a node from the arrays of its operands.

    Args:
        chip: the target.
        file: name of the model file, for errors.
        plan_subgraph: returns the function that runs a subgraph; None to run its references.

    """

    def __init__(self, chip: Chip, file: str, plan_subgraph: Callable[[Graph], RunGraph] | None) -> None:
        self._chip = chip
        self._file = file
        self._plan_subgraph = plan_subgraph
        self._subgraphs: dict[int, RunGraph] = {}  # key: id of a subgraph, which the graph keeps alive

    def __call__(self, node: Node, arrays: list[Array | None]) -> tuple[Array, ...]:
        """Return the results.

        Raises:
            RunError: if the operator cannot compute these values; names the node.
            ResourceLimitError: if there is not enough memory; names the node.
        """
        try:
            with np.errstate(all="ignore"):  # Overflow to infinity and NaN are defined results.
                if isinstance(node.op, ControlFlowOp):
                    return node.op.execute(self._run_subgraph, *arrays)
                return node.op.evaluate(*arrays, chip=self._chip)
        except (RunError, ResourceLimitError):  # of a node in a subgraph, which it names
            raise
        except Exception as error:  # Operators, especially custom ones, may raise any exception: name the node.
            raise failure(node, self._file, error) from error

    def _run_subgraph(self, subgraph: Subgraph, arrays: Sequence[Array]) -> list[Array]:
        """Run a subgraph of a node once."""
        run = self._subgraphs.get(id(subgraph))
        if run is None:
            graph, plan = subgraph.graph, self._plan_subgraph
            run = partial(run_plan, make_plan(graph)) if plan is None else plan(graph)
            self._subgraphs[id(subgraph)] = run
        return run(arrays, self)
