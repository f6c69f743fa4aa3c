"""Every optimizer rule is proved: on small graphs on which it fires, the results are equal for all real inputs.

Each pattern of each rule fires alone on graphs with random shapes, axes and constants. The graph before and after is
evaluated on tensors of variables, and every element of the outputs is proved equal (``tests/support/proofs``). What a
proof leaves out is listed with the reason, and compared on random numbers. ``slow`` proves more graphs per pattern.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tests.support.proofs.cases import CASES
from tests.support.proofs.firings import build, firings, firings_of_patterns, prove
from tests.support.proofs.left_out import LEFT_OUT
from tests.support.proofs.solver import Outcome, Solver
from tpuconvert.optimizer.engine.engine import Trace, run_rules
from tpuconvert.optimizer.engine.registry import RewriteRule, rule_named, rule_names
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.graph.graph_copy import copy_graph

DAILY, NIGHTLY = 1, 20
"""Proved graphs per pattern of a rule."""

FEW, MANY = 10, 1000
"""Random graphs on which a rule fired, for each rule whose proof leaves something out."""

TOLERANCE = 1e-3
"""Scores of attention near -10000, where a mask hides a whole row, are multiples of 2^-10 before the rule fires."""

SOLVER = Solver()
"""One for all rules: a question that occurs in several is asked once."""


def check_proofs(rule: RewriteRule, count: int) -> Counter[Outcome]:
    """Prove firings of every pattern. Return the number of elements per outcome."""
    assert CASES.get(rule.name), f"{rule.name} has no case: add one to tests/support/proofs/cases.py"
    counts: Counter[Outcome] = Counter()
    for firing in firings_of_patterns(rule, count):
        assert firing is not None, f"a pattern of {rule.name} never fires: add a case to tests/support/proofs/cases.py"
        proof = prove(firing, SOLVER)
        counts += proof.counts
        may_be_open = proof.outcome is Outcome.UNKNOWN and rule.name in LEFT_OUT
        assert not proof.failure or may_be_open, f"{proof.failure}\n{operators(firing.before, firing.after)}"
    return counts


def operators(before: Graph, after: Graph) -> str:
    return " became ".join(str([str(node.op) for node in graph.nodes]) for graph in (before, after))


def check_random_graphs(rule: RewriteRule, count: int) -> int:
    """Compare numbers before and after a rule, on graphs on which it fires. Return the number of graphs."""
    number = 0
    for number, firing in enumerate(firings(rule, CASES[rule.name], count), 1):
        rng = np.random.default_rng(number)
        feeds = {port.name: rng.normal(size=port.shape).astype(np.float32) for port in firing.before.input_ports}
        results = [list(Session(g, backend="reference").run(feeds).values()) for g in (firing.before, firing.after)]
        for one, other in zip(*results, strict=True):
            difference = float(np.abs(one.astype(np.float64) - other).max(initial=0.0))
            assert difference <= TOLERANCE * max(1.0, float(np.abs(one).max(initial=0.0))), firing.before.name
    return number


@pytest.mark.parametrize("name", rule_names())
def test_rule_is_proved(name: str) -> None:
    check_proofs(rule_named(name), DAILY)


@pytest.mark.slow
@pytest.mark.parametrize("name", rule_names())
def test_rule_is_proved_on_more_graphs(name: str, record_property: pytest.RecordProperty) -> None:
    for outcome, count in check_proofs(rule_named(name), NIGHTLY).items():
        record_property(outcome.value, count)


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_a_proof_leaves_out(name: str) -> None:
    assert check_random_graphs(rule_named(name), FEW) == FEW


@pytest.mark.slow
@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_a_proof_leaves_out_on_many_graphs(name: str) -> None:
    assert check_random_graphs(rule_named(name), MANY) == MANY


def test_lists_only_rules_that_exist() -> None:
    assert sorted({*CASES, *LEFT_OUT} - {*rule_names()}) == []


def test_a_rule_without_case_fails() -> None:
    nameless = RewriteRule("new_rule", (), "fold", rule_named("remove_copy").apply)
    with pytest.raises(AssertionError, match=r"new_rule has no case: add one to tests/support/proofs/cases\.py"):
        check_proofs(nameless, 1)


def test_a_pattern_that_never_fires_fails() -> None:
    other = rule_named("merge_pads")
    unreached = RewriteRule("remove_copy", other.patterns, "canonicalize", other.apply)
    with pytest.raises(AssertionError, match="a pattern of remove_copy never fires"):
        check_proofs(unreached, 1)


def test_graphs_of_a_rule_differ() -> None:
    graphs = [build("merge_permutes", CASES["merge_permutes"][0], number) for number in range(8)]
    assert len({str([node.op for node in graph.nodes]) for graph in graphs}) > 4
    assert len({graph.inputs[0].shape for graph in graphs}) == 4
    assert run_rules(copy_graph(graphs[0]), [rule_named("merge_permutes")], Trace())
