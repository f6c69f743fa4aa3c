"""Firings of one rule on small graphs, and their proofs."""

from __future__ import annotations

import dataclasses
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from tests.support.proofs.cases import CASES, Case, ExactDraw, extents_of
from tests.support.proofs.operators import inputs_of, run_graph
from tests.support.proofs.solver import Answer, Outcome, Solver
from tpuconvert.optimizer.engine.engine import Trace, run_rules
from tpuconvert.optimizer.engine.registry import RewriteRule
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.graph.graph_copy import copy_graph
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.types import F32, TensorType

_ATTEMPTS = 60
"""Graphs that are tried for each firing. A random number may make a rule decline."""


@dataclass
class Firing:
    """A graph before and after a rule fired once, and numbers in place of its symbolic extents."""

    before: Graph
    after: Graph
    extents: dict[str, int] = field(default_factory=dict)


@dataclass
class Proof:
    """Result for one firing: the number of elements per outcome, and the first element that is not proved."""

    counts: Counter[Outcome] = field(default_factory=Counter)
    failure: str = ""
    outcome: Outcome = Outcome.NORMAL_FORM


def build(rule: str, case: Case, number: int) -> Graph:
    """The graph of a case with this number. The seed is derived from the number and the name of the rule."""
    draw = ExactDraw(Graph(f"{rule} {number}"), np.random.default_rng([zlib.crc32(rule.encode()), number]))
    x = draw.g.input("x", TensorType(F32, case.shapes[number % len(case.shapes)]))
    result = case.build(draw, x)
    draw.g.output(draw.g.add(Copy(), result) if result in draw.g.inputs else result)
    return draw.g


def firings(rule: RewriteRule, cases: list[Case], count: int) -> Iterator[Firing]:
    """Up to ``count`` graphs on which a rule fires, from all cases in turn."""
    for number in range(_ATTEMPTS * count):
        if not count:
            return
        case = cases[number % len(cases)]
        before = build(rule.name, case, number // len(cases))
        after = copy_graph(before)
        if run_rules(after, [rule], Trace(), 1):
            after.validate()
            yield Firing(before, after, extents_of(case.shapes[0], number))
            count -= 1


def firings_of_patterns(rule: RewriteRule, count: int) -> Iterator[Firing | None]:
    """``count`` firings of each pattern of a rule alone. A missing one is None."""
    cases = [case for case in CASES[rule.name] if case.is_real]
    for pattern in rule.patterns:
        found = list(firings(dataclasses.replace(rule, patterns=(pattern,)), cases, count))
        yield from found
        yield from [None] * (count - len(found))


def prove(firing: Firing, solver: Solver) -> Proof:
    """Compare the elements of all outputs, up to the first that is not proved."""
    inputs = inputs_of(firing.before, firing.extents)
    before, after = run_graph(firing.before, inputs), run_graph(firing.after, inputs)
    proof = Proof()
    for port, one, other in zip(firing.before.output_ports, before, after, strict=True):
        if one.shape != other.shape:
            proof.outcome, proof.failure = Outcome.REFUTED, f"{port.name}: {one.shape} became {other.shape}"
            return proof
        for place in np.ndindex(*one.shape):
            answer = solver.compare(one[place], other[place])
            proof.counts[answer.outcome] += 1
            if answer.outcome in (Outcome.REFUTED, Outcome.UNKNOWN):
                name = f"{port.name}[{','.join(map(str, place))}]"
                proof.outcome, proof.failure = answer.outcome, f"{firing.before.name}: {name}: {describe(answer)}"
                return proof
    return proof


def describe(answer: Answer) -> str:
    """A refutation in numbers: the values before and after, and the input elements that are not 0."""
    if answer.outcome is not Outcome.REFUTED:
        return answer.outcome.value
    point = ", ".join(f"{name} = {value:g}" for name, value in sorted(answer.point.items()) if value)
    return f"{answer.values[0]:g} became {answer.values[1]:g} at {point or 'zeros'}"
