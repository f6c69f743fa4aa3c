"""Part of a subgraph that a conversion needs: from the named inputs to the named outputs, with the effects on state."""

from __future__ import annotations

from collections.abc import Sequence

from tpuconvert.frontends.tflite.file.reader import ModelFile, Operator, Subgraph
from tpuconvert.frontends.tflite.file.signatures import Signature
from tpuconvert.frontends.tflite.states import variable_handles
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.text.spelling import did_you_mean

_CALLED = {
    "CALL": ("subgraph",),
    "IF": ("then_subgraph_index", "else_subgraph_index"),
    "STABLEHLO_COMPOSITE": ("decomposition_subgraph_index",),
    "STABLEHLO_WHILE": ("cond_subgraph_index", "body_subgraph_index"),
    "WHILE": ("cond_subgraph_index", "body_subgraph_index"),
}
"""Operator that calls subgraphs -> options with their indices. CALL_ONCE has no outputs and needs no entry."""


def prune_operators(
    file: ModelFile,
    subgraph: Subgraph,
    signature: Signature,
    inputs: Sequence[str] | None,
    outputs: Sequence[str] | None,
    *,
    has_state_ports: bool,
) -> Subgraph:
    """Return the subgraph that begins and ends at the named tensors, without operators that no output needs.

    With ``has_state_ports``, the state after the run is an output too.
    """
    by_name = {tensor.name: tensor.index for tensor in subgraph.tensors}
    by_name |= {name: index for index, name in signature.names(subgraph).items()}

    def indices(names: Sequence[str] | None, default: tuple[int, ...], what: str) -> tuple[int, ...]:
        if names is None:
            return default
        for name in names:
            if name not in by_name:
                own = subgraph.inputs if what == "input" else subgraph.outputs
                listed = ", ".join(subgraph.tensors[index].name for index in own)
                hint = did_you_mean(name, by_name) or f"the model's own {what}s: {listed}"
                raise UsageError(f"{file.path}: there is no tensor '{name}' to be an {what}", hint=hint)
        return tuple(by_name[name] for name in names)

    first = indices(inputs, subgraph.inputs, "input")
    last = indices(outputs, subgraph.outputs, "output")
    assigning, reading = (_subgraphs_with(file, name) for name in ("ASSIGN_VARIABLE", "READ_VARIABLE"))
    effects = {i for i, op in enumerate(subgraph.operators) if not op.outputs or _called(op) & assigning}
    # Positions of operators with effects that give the state after the run, which is an output too.
    final: set[int] = set(effects) if outputs is None else set()
    while True:
        operators = _needed_operators(subgraph, first, last, effects, final)
        more = _assignments_to_read_variables(subgraph, operators, effects, reading) if has_state_ports else set()
        if more <= final:
            return Subgraph(subgraph.name, subgraph.tensors, first, last, operators)
        final |= more


def _needed_operators(
    subgraph: Subgraph, first: Sequence[int], last: Sequence[int], effects: set[int], final: set[int]
) -> tuple[Operator, ...]:
    """Operators between tensors. One with an effect is kept before any other that is kept, or if it is in ``final``."""
    needed = set(last)
    operators: list[Operator] = []
    for position, operator in reversed(list(enumerate(subgraph.operators))):
        is_needed = bool(needed.intersection(operator.outputs)) and not set(operator.outputs) <= set(first)
        if is_needed or position in final or (position in effects and operators):
            operators.append(operator)
            needed.update(index for index in operator.inputs if index >= 0)
            needed.difference_update(first)
    return tuple(reversed(operators))


def _subgraphs_with(file: ModelFile, name: str) -> set[int]:
    """Indices of the subgraphs that have an operator of this name, or call a subgraph that has one."""
    callers: dict[int, set[int]] = {}
    indices: set[int] = set()
    for index, subgraph in enumerate(file.subgraphs):
        for operator in subgraph.operators:
            for called in _called(operator):
                callers.setdefault(called, set()).add(index)
            if operator.name == name:
                indices.add(index)
    pending = list(indices)
    while pending:
        new = callers.get(pending.pop(), set()) - indices
        indices |= new
        pending += new
    return indices


def _called(operator: Operator) -> set[int]:
    """Indices of the subgraphs that an operator calls."""
    return {operator.options.peek(option) for option in _CALLED.get(operator.name, ())}


def _assignments_to_read_variables(
    subgraph: Subgraph, operators: Sequence[Operator], effects: set[int], reading: set[int]
) -> set[int]:
    """Positions of the operators that assign, or may assign, a variable which one of ``operators`` reads.

    Args:
        subgraph: the subgraph.
        operators: some of its operators.
        effects: positions of its operators with effects.
        reading: subgraphs that read variables.
    """
    handles = variable_handles(subgraph)
    read = {handles.get(op.inputs[0]) for op in operators if op.name == "READ_VARIABLE" and op.inputs}
    reads_any = None in read or any(_called(operator) & reading for operator in operators)
    if not read and not reads_any:
        return set()

    def may_assign_read_variable(operator: Operator) -> bool:
        is_plain = operator.name == "ASSIGN_VARIABLE" and bool(operator.inputs)
        return reads_any or not is_plain or handles.get(operator.inputs[0]) in read

    return {position for position in effects if may_assign_read_variable(subgraph.operators[position])}
