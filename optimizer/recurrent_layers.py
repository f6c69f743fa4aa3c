"""Recurrent layers around the optimizer and the quantizer.

A layer has an integer form on BM1686 (lstm_int, gru_int, rnn_int). Others are unrolled before the optimizer if the
number of steps is static, so that the optimizer and the quantizer work on the operators of every step.
"""

from __future__ import annotations

import dataclasses

from tpuconvert.optimizer.expand_composites import expand_composites, is_expandable
from tpuconvert.schema.graph.graph import Graph, Node
from tpuconvert.schema.ops.recurrent.recurrent import Lstm, RecurrentLayer
from tpuconvert.schema.ops.recurrent.recurrent_int import LstmInt
from tpuconvert.schema.types import Chip


def why_no_integer_layer(node: Node, chip: Chip) -> str:
    """Reason why a recurrent layer has no integer form on a chip, or an empty string."""
    op = node.op
    assert isinstance(op, RecurrentLayer)
    if chip is not Chip.BM1686:
        return f"{chip.value} has no integer form of {op.name}"
    names = {tuple(name for name, _, _ in op.functions_of(direction)) for direction in range(op.directions)}
    if len(names) > 1 or not names <= set(op.integer_functions):
        return f"the integer form of {op.name} has no activations {', '.join(op.activations)}"
    if op.clip:
        return f"the integer form of {op.name} does not clip sums"
    operands = op.operands_by_name(node.inputs)
    for name, text in (("peephole", "peepholes"), ("continues", "resets of the states between steps")):
        if operands.get(name) is not None:
            return f"the integer form of {op.name} has no {text}"
    weights = [*node.inputs[1:3], *(value for value in node.inputs[3:4] if value is not None)]
    if not all(value is not None and value.is_constant for value in weights):
        return "its weights are computed while the model runs"
    return ""


def expand_recurrent_layers(graph: Graph, chip: Chip | None = None) -> int:
    """Unroll recurrent layers with a static number of steps, in place, so that the optimizer simplifies their steps.

    Args:
        graph: any graph.
        chip: if given, layers with an integer form on this chip are not unrolled.

    Returns:
        The number of layers that were expanded.
    """

    def is_wanted(node: Node) -> bool:
        if not isinstance(node.op, RecurrentLayer) or not is_expandable(node):
            return False
        return chip is None or bool(why_no_integer_layer(node, chip))

    return expand_composites(graph, is_wanted)


def add_cell_results(graph: Graph) -> None:
    """Give every lstm the cells of all steps as a further result, in place, so that calibration measures them."""
    for node in list(graph.nodes):
        if isinstance(node.op, Lstm) and not node.op.cell_steps:
            _replace(graph, node, dataclasses.replace(node.op, cell_steps=True))


def remove_cell_results(graph: Graph) -> None:
    """Remove the result that ``add_cell_results`` added, in place, if nothing uses it."""
    for node in list(graph.nodes):
        if not isinstance(node.op, (Lstm, LstmInt)) or not node.op.cell_steps:
            continue
        cells = node.outputs[3]
        if not cells.users and not graph.is_output(cells):
            _replace(graph, node, dataclasses.replace(node.op, cell_steps=False))


def _replace(graph: Graph, node: Node, op: Lstm | LstmInt) -> None:
    """Replace the operator of a node; the results that both have keep their names and annotations."""
    names = [value.name for value in node.outputs]
    with graph.derived_from(node):
        results = graph.add_all(op, *node.inputs)
    for old, new in zip(node.outputs, results, strict=False):
        new.quant = old.quant
        graph.replace_uses(old, new)
    graph.remove(node)
    for name, new in zip([*names, f"{names[0]}:cells"], results, strict=False):
        graph.rename(new, name if graph.find(name) is None else graph.unique(name))
    graph.sort()
