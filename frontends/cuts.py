"""Tensors at which a model that cannot be converted as a whole can end, or begin: advice that leads to a model.

A cut is only suggested where operators remain that compute something.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from tpuconvert.schema.errors import Problem, ProblemList
from tpuconvert.schema.graph import Value
from tpuconvert.schema.op import Trait
from tpuconvert.schema.ops.cast import Cast

MOST_NAMES = 8
"""Largest number of suggested tensors; of more, those nearest to the outputs are suggested."""

NO_PART = "no part of the model before it computes anything"


class Step(NamedTuple):
    """One operator of a source, in the order in which they run.

    Args:
        reads: names of tensors.
        makes: names of tensors.
        is_converted: false if it has a problem.
    """

    reads: frozenset[str]
    makes: tuple[str, ...]
    is_converted: bool


def ends(steps: Iterable[Step], outputs: Iterable[str], find: Callable[[str], Value | None]) -> list[str]:
    """Return the names of the last tensors that can be converted; empty where nothing would remain.

    These are the outputs that do not depend on a problem, and the tensors that a step with a problem reads.

    Args:
        steps: all operators, in order.
        outputs: of the whole model.
        find: the graph value of a tensor; None for constants and what has no value.
    """
    made: dict[str, None] = {}
    wanted = set(outputs)
    broken: set[str] = set()
    for step in steps:
        if step.is_converted and not (step.reads & broken):
            made.update(dict.fromkeys(step.makes))
        else:
            broken.update(step.makes)
            wanted.update(step.reads)
    found: dict[Value, str] = {}
    last = ""
    for name in made:
        # Caffe layers write in place: a name that a step with a problem writes too is no place to end.
        is_nameable = bool(name) and name == name.strip() and "," not in name
        value = find(name) if is_nameable and name not in broken else None
        if value is None or value.producer is None:
            continue
        if name in wanted:
            found.setdefault(value, name)
        if computes(value):
            last = name
    if any(computes(value) for value in found):
        return list(found.values())[-MOST_NAMES:]
    return [last] if last else []


def computes(value: Value) -> bool:
    """Return True if a value depends on an operator that does more than move elements."""
    pending, seen = [value], set[int]()
    while pending:
        node = pending.pop().producer
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if Trait.REARRANGES not in node.op.traits and not isinstance(node.op, Cast):
            return True  # the optimizer may remove the others: a model of these alone could become empty
        pending += [each for each in node.inputs if each is not None]
    return False


def add_hint(problems: ProblemList, hint: str, is_avoided: Callable[[Problem], bool]) -> None:
    """Append a hint to the problems that a cut avoids."""
    problems.revise(
        lambda problem: (
            problem.with_hint(f"{problem.hint}\n{hint}" if problem.hint else hint) if is_avoided(problem) else problem
        )
    )


def advice(end: Sequence[str], begin: Sequence[str] = ()) -> str:
    """Return what to type: the options that leave the problems out."""
    parts = []
    if end:
        parts.append(f"end the model before it:  --outputs {shlex.quote(','.join(end))}")
    if begin:
        parts.append(f"begin the model after it:  --inputs {shlex.quote(','.join(begin))}")
    return "\n".join(parts) or NO_PART
