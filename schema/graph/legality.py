"""Legality check: decide if a chip supports an operator with given data types, and report the reason if not.

The verdict is derived from the ``dtypes`` table of the operator's definition, for a composite operator from the tables
of the operators in its expansion.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tpuconvert.schema.definition.extents import factorize
from tpuconvert.schema.definition.op import ALL, Assignment, Case, Op, OpKind, operands_given
from tpuconvert.schema.errors import ILLEGAL_ON_CHIP, ProblemList, ShapeError, UsageError
from tpuconvert.schema.graph.composite import Composite, expansion
from tpuconvert.schema.graph.graph import Graph, Node
from tpuconvert.schema.types import Chip, DType, TensorType, format_shape


class Status(enum.Enum):
    """Result of a legality check."""

    LEGAL = "legal"
    WARNING = "legal with a warning"
    ILLEGAL = "illegal"


@dataclass(frozen=True)
class Verdict:
    """Result of a check and, unless it is LEGAL, the reason."""

    status: Status
    reason: str = ""


LEGAL = Verdict(Status.LEGAL)


def check(
    op: Op,
    chip: Chip,
    inputs: Sequence[TensorType | None],
    outputs: Sequence[TensorType],
    coeffs: Sequence[bool] = (),
) -> Verdict:
    """Check if ``chip`` supports ``op`` with these types.

    Args:
        op: the operator with its parameters.
        chip: the target.
        inputs: operand types in declaration order, None for absent ones.
        outputs: result types.
        coeffs: which operands are constants, in declaration order; missing entries mean False.
    """
    if isinstance(op, Composite):
        return _check_expansion(op, chip, inputs, coeffs)
    on_host = Verdict(Status.WARNING, f"{op.name} runs on the host, not on {chip.value}")
    if op.kind is OpKind.CUSTOM:
        return on_host
    support = op.dtypes[chip]
    if not support.cases:
        have = [other.value for other, entry in op.dtypes.items() if entry.cases]
        who = f"{' and '.join(have)} {'have' if len(have) > 1 else 'has'} it" if have else "no chip has it"
        return Verdict(Status.ILLEGAL, f"{chip.value} does not have {op.name} ({who})")
    assignment = _assignment(op, chip, inputs, outputs, coeffs)
    misses = []
    for case in support.cases:
        miss = _mismatch(case, assignment)
        if miss is None:
            refused = refused_constants(op, inputs, coeffs)
            if refused:
                return Verdict(Status.ILLEGAL, f"{op.name}: {next(iter(refused.values()))}")
            used = {dtype for dtype in assignment.d.values() if dtype in support.todo_dtypes}
            if support.todo or op.is_unfinished():
                return Verdict(Status.WARNING, f"the vendor marks {op.name} as unfinished on {chip.value}")
            if used:
                what = f"{op.name} with {', '.join(sorted(dtype.value for dtype in used))}"
                return Verdict(Status.WARNING, f"the vendor marks {what} as unfinished on {chip.value}")
            return on_host if op.kind is OpKind.HOST else LEGAL
        misses.append(miss)
    types = ", ".join(f"{name}: {dtype.value}" for name, dtype in assignment.d.items())
    # Report the case that met most conditions. At depth 0 the parameters do not match, so the types are not the reason.
    depth, text = max(misses, key=lambda miss: miss[0])
    return Verdict(Status.ILLEGAL, f"{op.name} on {chip.value} does not take ({types}): {text}" if depth else text)


def _check_expansion(op: Composite, chip: Chip, inputs: Sequence[TensorType | None], coeffs: Sequence[bool]) -> Verdict:
    """Check all nodes in the expansion of a composite for these types; the reason refers to one of these nodes.

    The declarations of the composite's operands decide which of them may be constant. Symbolic extents are replaced by
    integers, because a composite can be expanded with static shapes only.
    """
    try:
        types = op.shorter_types(*inputs)
        number = op.sample_extent
        nodes = expansion(op, [None if item is None else _with_numbers(item, number) for item in types], coeffs).nodes
    except ShapeError as error:
        return Verdict(Status.ILLEGAL, str(error))
    refused = refused_constants(op, inputs, coeffs)
    verdicts = [check_use(node, chip) for node in nodes]
    for status in (Status.ILLEGAL, Status.WARNING):
        for verdict in verdicts:
            if verdict.status is status:
                return Verdict(status, f"{op.name} consists of other operators: {verdict.reason}")
        if refused:
            return Verdict(Status.ILLEGAL, f"{op.name}: {next(iter(refused.values()))}")
    return LEGAL


def refused_constants(op: Op, inputs: Sequence[TensorType | None], coeffs: Sequence[bool]) -> dict[int, str]:
    """Return the constant operands that the operator does not accept, as reasons by operand index.

    Custom operators accept all constants.
    """
    if op.kind is OpKind.CUSTOM:
        return {}
    refused: dict[int, str] = {}
    chosen = ""
    for index, (operand, type_) in enumerate(zip(operands_given(op.inputs, len(inputs)), inputs, strict=False)):
        if type_ is None or index >= len(coeffs) or not coeffs[index]:
            continue
        if not operand.coeff:
            refused[index] = f"{operand.name} must not be constant"
        elif operand.single and prod(type_.static_shape) != 1:
            refused[index] = f"a constant {operand.name} must have one element, found {format_shape(type_.shape)}"
        elif operand.name in op.one_constant_of and chosen:
            refused[index] = f"at most one of {' and '.join(op.one_constant_of)} may be constant"
        elif operand.name in op.one_constant_of:
            chosen = operand.name
    return refused


def constants_refused_by(node: Node) -> dict[int, str]:
    """Return the constant operands that a node does not accept, as reasons by operand index."""
    if all(value is None or value.data is None for value in node.inputs):  # fast path for most nodes
        return {}
    inputs, _, coeffs = _use(node)
    return refused_constants(node.op, inputs, coeffs)


def _with_numbers(type_: TensorType, number: int) -> TensorType:
    """Replace each name in the extents by a number other than 1: equal extents stay equal, and do not broadcast."""
    if type_.is_static:
        return type_
    factors = [factorize((extent,)) for extent in type_.shape]
    return TensorType(type_.dtype, tuple(factor * number ** names.total() for factor, names in factors))


def check_graph(graph: Graph, chip: Chip, problems: ProblemList) -> list[tuple[Node, str]]:
    """Check every node. Add illegal ones to ``problems`` and return the warnings with their nodes."""
    warnings = []
    latest: dict[int, tuple[_Use, Verdict]] = {}  # key: id of the operator, which equal nodes mostly share
    for node in graph.nodes:
        use = _use(node)
        wrong = _wrong_values(node)
        cached = latest.get(id(node.op))
        verdict = cached[1] if cached is not None and cached[0] == use else check(node.op, chip, *use)
        latest[id(node.op)] = use, verdict
        if verdict.status is not Status.ILLEGAL and wrong:
            verdict = Verdict(Status.ILLEGAL, wrong)
        if verdict.status is Status.WARNING:
            warnings.append((node, verdict.reason))
        elif verdict.status is Status.ILLEGAL:
            source = node.sources[0] if node.sources else None
            problems.add(
                ILLEGAL_ON_CHIP,
                source.op if source else node.op.name,
                source.node if source else node.name,
                verdict.reason,
                "change these parameters in the source" if verdict.reason == wrong else _next_step(node, chip),
            )
    return warnings


def check_use(node: Node, chip: Chip) -> Verdict:
    """Check one node of a graph that is still being optimized.

    Unsupported constant operands are treated as tensors, because ``optimizer.constant_operands`` converts them later.
    """
    inputs, outputs, coeffs = _use(node)
    for index in refused_constants(node.op, inputs, coeffs):
        coeffs[index] = False
    return check(node.op, chip, inputs, outputs, coeffs)


_Use = tuple[list[TensorType | None], list[TensorType], list[bool]]
"""Types of operands and results, and which operands are constant."""


def _use(node: Node) -> _Use:
    inputs = [None if value is None else value.type for value in node.inputs]
    return (
        inputs,
        [value.type for value in node.outputs],
        [value is not None and value.data is not None for value in node.inputs],
    )


def _wrong_values(node: Node) -> str:
    """Return the reason if the operator does not accept the values of its constant operands, else an empty string."""
    if node.op.check_values is None:
        return ""
    types = tuple(None if value is None else value.type for value in node.inputs)
    arrays = tuple(None if value is None else value.data for value in node.inputs)
    try:
        node.op.check_values(types, arrays)
    except UsageError as error:
        return str(error)
    return ""


def _next_step(node: Node, chip: Chip) -> str:
    inputs = [None if value is None else value.type for value in node.inputs]
    outputs = [value.type for value in node.outputs]
    others = [
        other.value.lower()
        for other in Chip
        if other is not chip and check(node.op, other, inputs, outputs).status is not Status.ILLEGAL
    ]
    if isinstance(node.op, Composite) and not all(type_.is_static for type_ in inputs if type_ is not None):
        return "set numbers for its extents (--input-shapes): other operators may take its place then"
    if others:
        return f"choose a chip that has it:  --chip {' or '.join(others)}"
    return "register a custom operator (--plugin)"


def _assignment(
    op: Op,
    chip: Chip,
    inputs: Sequence[TensorType | None],
    outputs: Sequence[TensorType],
    coeffs: Sequence[bool],
) -> Assignment:
    types: dict[str, DType] = {}
    ins: list[DType] = []
    constant = set()
    for index, (operand, type_) in enumerate(zip(operands_given(op.inputs, len(inputs)), inputs, strict=False)):
        if type_ is None:
            continue
        types.setdefault(operand.name, type_.dtype)
        ins.append(type_.dtype)
        if index < len(coeffs) and coeffs[index]:
            constant.add(operand.name)
    for name, scalar in op.scalars().items():
        types[name] = scalar.dtype
        ins.append(scalar.dtype)
    for operand, type_ in zip(operands_given(op.outputs, len(outputs)), outputs, strict=False):
        types.setdefault(operand.name, type_.dtype)
    return Assignment(op, chip, types, tuple(ins), tuple(t.dtype for t in outputs), frozenset(constant))


def _mismatch(case: Case, assignment: Assignment) -> tuple[int, str] | None:
    """Return None if the case matches, else the number of met conditions and the text of the first that is not met."""
    if case.when is not None and not case.when(assignment.op):
        needed = f", which need: {case.when_text}" if case.when_text else ""
        return 0, f"{assignment.op} has no legal form on {assignment.chip.value} with these parameters{needed}"
    for name, dtype in assignment.d.items():
        listed = case.operands.get(name, case.operands.get(ALL))
        if listed is not None and dtype not in listed:
            return 1, f"{name} must be {' or '.join(item.value for item in listed)}"
    for name in case.requires_coeff:
        if name not in assignment.coeffs and name in assignment.d:
            return 2, f"{name} must be constant"
    for rule in case.rules:
        if not rule.holds(assignment):
            return 3, rule.text
    return None
