"""Search for the node at which the vendor's compiler fails.

A node that does not compile is the end of the shortest beginning of the program that does not compile. A node that the
compiler gets wrong is the first of which an integer differs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tpuconvert.exporters.compilation.compiler import Compiler, CompilerFailure
from tpuconvert.exporters.compilation.proof import TensorComparison
from tpuconvert.exporters.tpu_mlir.dialect import Tensor
from tpuconvert.exporters.tpu_mlir.lowering import Lowering
from tpuconvert.exporters.tpu_mlir.package import write_module
from tpuconvert.progress import Progress
from tpuconvert.schema.graph.graph import Node, Value


@dataclass(frozen=True)
class FailingNode:
    """The node at which the compiler fails.

    Args:
        node: node of the lowered graph.
        reason: what happened, with the compiler's own message.
    """

    node: Node
    reason: str


class Beginnings:
    """Beginnings of a lowered program, by the number of nodes of the graph that they compute.

    Args:
        lowering: the program.
        with_checks: return every integer tensor.
    """

    def __init__(self, lowering: Lowering, *, with_checks: bool) -> None:
        self.lowering = lowering
        self._with_checks = with_checks
        graph = lowering.graph
        values = [value for node in graph.nodes for value in node.outputs if lowering.is_returnable(value)]
        self._tensors: dict[Value, Tensor] = {value: lowering.tensor(value) for value in values}
        ends = [self._tensors[value] for value in values if graph.is_output(value) or not value.users]
        lines = lowering.module.used_lines(ends or list(self._tensors.values()))
        self.nodes = list(dict.fromkeys(line.origin for line in lines if line.origin is not None))
        numbers = {node: index for index, node in enumerate(self.nodes)}
        self._made: dict[Tensor, int] = {}
        self._last_use: dict[Tensor | None, int] = {}
        for line in lines:
            index = -1 if line.origin is None else numbers[line.origin]
            self._made[line.result] = index
            for operand in line.operands:
                self._last_use[operand] = max(index, self._last_use.get(operand, -1))

    def results(self, index: int) -> list[Tensor]:
        """Return what the program returns if it ends after a node: all that the other nodes read, and outputs."""
        is_output = self.lowering.graph.is_output
        values = [
            value
            for value, tensor in self._tensors.items()
            if self._made.get(tensor, len(self.nodes)) <= index
            and (
                is_output(value)
                or self._last_use.get(tensor, -1) > index
                or tensor not in self._last_use
                or (self._with_checks and value.dtype.is_integer)
            )
        ]
        return list(dict.fromkeys(self.lowering.returned(value) for value in values))


def find_failing_node(
    lowering: Lowering,
    compiler: Compiler,
    levels: Sequence[int],
    failure: CompilerFailure,
    progress: Progress,
    *,
    with_checks: bool,
) -> FailingNode:
    """Find the node at which a program does not compile at any level of layer grouping.

    It is found by bisection: a beginning fails if it contains the node. Where the compiler fails because of the end of
    a beginning, an earlier node is found, which fails as the end of a program, too.

    Args:
        lowering: the program, which has at least one node.
        compiler: the compiler, with a time limit for a beginning.
        levels: levels that are tried for each beginning.
        failure: failure of the program.
        progress: receives the number of nodes that remain.
        with_checks: whether the program returns every integer tensor.
    """
    beginnings = Beginnings(lowering, with_checks=with_checks)
    nodes, reason = beginnings.nodes, str(failure)
    working, failing = -1, len(nodes) - 1
    while failing - working > 1:
        middle = (working + failing) // 2
        progress.stage("search for the node that does not compile")
        progress.report(f"search for the node that does not compile: {failing - working} nodes are left")
        failure_of_part = _try_beginning(beginnings, middle, compiler, levels)
        if failure_of_part is None:
            working = middle
        else:
            failing, reason = middle, str(failure_of_part)
    return FailingNode(nodes[failing], reason)


def first_wrong_node(lowering: Lowering, comparisons: Sequence[TensorComparison]) -> FailingNode | None:
    """Return the first node of a program with wrong integers; None if there is none, or an input is wrong.

    Args:
        lowering: a program that returns every integer tensor.
        comparisons: the comparison of these tensors.
    """
    differing = {
        item["name"]: item["difference"].text
        for item in comparisons
        if item["kind"] == "integers" and not item["difference"].is_accepted
    }
    values = {lowering.tensor(value): value for value in lowering.integer_values() if value.name in differing}
    for line in lowering.module.lines:  # in execution order
        if line.result in values:
            text = f"the compiled program computes other integers: {differing[values[line.result].name]}"
            return None if line.origin is None else FailingNode(line.origin, text)
    return None


def _try_beginning(
    beginnings: Beginnings, index: int, compiler: Compiler, levels: Sequence[int]
) -> CompilerFailure | None:
    """Compile the program up to a node. Return the failure of the last level if it fails at all levels."""
    results = beginnings.results(index)
    if not results:
        return None
    name = beginnings.lowering.module.name
    failure = None
    with tempfile.TemporaryDirectory(prefix=".beginning.", dir=compiler.log.parent) as temporary:
        folder = Path(temporary)
        write_module(folder, beginnings.lowering, results)
        for level in levels:
            try:
                compiler.compile(folder, name, level, folder / f"{name}.bmodel")
            except CompilerFailure as error:
                failure = error
            else:
                return None
    return failure
