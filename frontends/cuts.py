"""Suggest inputs and outputs that cut unsupported operators off a model, so that the rest can be converted.

A cut is only suggested if the remaining part contains an operator that computes something.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from tpuconvert.schema.definition.op import Trait
from tpuconvert.schema.errors import Problem, ProblemList
from tpuconvert.schema.graph.graph import Value
from tpuconvert.schema.ops.cast import Cast

MOST_NAMES = 8
"""Largest number of suggested tensors; if there are more, the last ones in topological order are suggested."""

NO_PART = "no part of the model before it computes anything"


class Step(NamedTuple):
    """One source operator.

    Args:
        reads: names of its input tensors.
        makes: names of its output tensors.
        is_converted: False if the operator could not be converted.
    """

    reads: frozenset[str]
    makes: tuple[str, ...]
    is_converted: bool


def ends(steps: Iterable[Step], outputs: Iterable[str], find: Callable[[str], Value | None]) -> list[str]:
    """Return the names of the last tensors that can be converted; empty if they depend on no computing operator.

    These are the outputs that do not depend on an unconverted step, and the inputs of unconverted steps.

    Args:
        steps: all operators, in topological order.
        outputs: names of the outputs of the whole model.
        find: returns the graph value of a tensor; None for constants and for tensors without a value.
    """
    converted: dict[str, None] = {}
    candidates = set(outputs)
    broken: set[str] = set()
    for step in steps:
        if step.is_converted and not (step.reads & broken):
            converted.update(dict.fromkeys(step.makes))
        else:
            broken.update(step.makes)
            candidates.update(step.reads)
    name_of: dict[Value, str] = {}
    last = ""
    for name in converted:
        # Caffe layers may write in place. If an unconverted step writes the same name too, the name is ambiguous.
        is_nameable = bool(name) and name == name.strip() and "," not in name
        value = find(name) if is_nameable and name not in broken else None
        if value is None or value.producer is None:
            continue
        if name in candidates:
            name_of.setdefault(value, name)
        if computes(value):
            last = name
    if any(computes(value) for value in name_of):
        return list(name_of.values())[-MOST_NAMES:]
    return [last] if last else []


def computes(value: Value) -> bool:
    """Return True if a value depends on an operator other than casts and data movement."""
    pending, seen = [value], set[int]()
    while pending:
        node = pending.pop().producer
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if Trait.REARRANGES not in node.op.traits and not isinstance(node.op, Cast):
            return True  # the optimizer may remove casts and data movement, which could leave an empty model
        pending += [each for each in node.inputs if each is not None]
    return False


def add_hint(problems: ProblemList, hint: str, is_avoided: Callable[[Problem], bool]) -> None:
    """Append a hint to all problems for which ``is_avoided`` is true."""
    problems.revise(
        lambda problem: (
            problem.with_hint(f"{problem.hint}\n{hint}" if problem.hint else hint) if is_avoided(problem) else problem
        )
    )


def advice(end: Sequence[str], begin: Sequence[str] = ()) -> str:
    """Return a hint with the command-line options that cut the model at these tensors."""
    parts = []
    if end:
        parts.append(f"end the model before it:  --outputs {shlex.quote(','.join(end))}")
    if begin:
        parts.append(f"begin the model after it:  --inputs {shlex.quote(','.join(begin))}")
    return "\n".join(parts) or NO_PART
