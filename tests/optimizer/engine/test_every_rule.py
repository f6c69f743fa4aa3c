"""Every rule on random graphs that contain its pattern: equal results, a valid graph, and nothing left to do.

There are other operators around the pattern, values inside it may have other users or be outputs, and it may occur
twice. Integers must be identical, floats within 1e-5 of the largest value of an output. ``slow`` runs 200 graphs per
rule, the default run a few.
"""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from tests.support.rules.graphs import Q
from tests.support.rules.rule_patterns import MOVES, PATTERNS, Draw
from tests.support.rules.termination import measure_of
from tpuconvert.optimizer.engine.engine import Candidates, Trace, run_rules
from tpuconvert.optimizer.engine.pattern import match
from tpuconvert.optimizer.engine.registry import RewriteRule, rules_of
from tpuconvert.optimizer.pipeline import STAGES, optimize
from tpuconvert.optimizer.quantize import legalize
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.graph.graph_copy import copy_graph
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.types import F32, I8, I32, Array, Chip, TensorType

RULES: dict[str, RewriteRule] = {item.name: item for stage in STAGES for item in rules_of(stage)}
MANY, FEW, MORE = 200, 3, 10
FIRES_AT_LEAST = 0.3
"""Least share of the random graphs on which a rule fires. On the others a value with further users or a random number
makes it decline. ``fuse_prelu_as_max`` fires on 77 of 200."""

TOLERANCE = 1e-5


def random_graph(rule: str, number: int, dtype=F32) -> Graph:
    """The random graph of a rule with this number. The seed is derived from the number and the name of the rule."""
    rng = np.random.default_rng([zlib.crc32(rule.encode()), number])
    shape, build = PATTERNS[rule]
    graph = Graph(f"{rule} {number}")
    draw = Draw(graph, rng)
    is_float = dtype is F32
    x = graph.input("x", TensorType(dtype, shape))
    for _ in range(int(rng.integers(3)) if is_float else 0):
        x = draw.unary(x)
    if is_float and draw.often(0.2):
        x = graph.add(Add(), x, graph.input("other", TensorType(dtype, shape)))
    before = len(graph)
    results = [build(draw, x) for _ in range(2 if draw.often(0.2) else 1)]
    inner = [value for node in graph.nodes[before:] for value in node.outputs if value not in results]
    for _ in range(int(rng.integers(2)) if is_float else 0):
        results[0] = draw.unary(results[0])
    if inner and draw.often(0.3):
        results += _seen_from_outside(draw, draw.one_of(*inner))
    for value in dict.fromkeys(results):
        graph.output(graph.add(Copy(), value) if value in graph.inputs else value)
    return graph


def _seen_from_outside(draw: Draw, value: Value) -> list[Value]:
    if value.dtype is F32 and draw.often():
        return [draw.unary(value)]
    return [value]


def outputs(graph: Graph) -> list[Array]:
    rng = np.random.default_rng(0)
    feeds = {}
    for port in graph.input_ports:
        is_float = port.dtype == "float32"
        data = rng.normal(size=port.shape) if is_float else rng.integers(-100, 100, port.shape)
        feeds[port.name] = data.astype(port.dtype)
    return list(Session(graph, backend="reference").run(feeds).values())


def assert_same(first: list[Array], second: list[Array], tolerance: float, what: str) -> None:
    assert len(first) == len(second), what
    for want, found in zip(first, second, strict=True):
        assert found.dtype == want.dtype and found.shape == want.shape, what
        if tolerance == 0:
            np.testing.assert_array_equal(found, want, err_msg=what)
        else:
            infinite = np.isinf(want)
            np.testing.assert_array_equal(found[infinite], want[infinite], err_msg=what)
            finite, others = want[~infinite].astype(np.float64), found[~infinite].astype(np.float64)
            largest = float(np.abs(finite).max(initial=0.0))
            assert float(np.abs(others - finite).max(initial=0.0)) <= tolerance * largest, what


def check(rule: str, number: int) -> int:
    """Check one random graph. Return how often the rule fired when run alone."""
    graph = random_graph(rule, number)
    what = f"{graph.name}: {[str(node.op) for node in graph.nodes]}"
    tolerance = 0.0 if rule in MOVES and not any("softmax" in node.op.name for node in graph.nodes) else TOLERANCE
    want = outputs(graph)
    alone = copy_graph(graph)
    fired = run_rules(alone, [RULES[rule]], Trace())
    alone.validate()
    assert_same(want, outputs(alone), tolerance, what)
    everything = copy_graph(graph)
    optimize(everything)
    everything.validate()
    assert_same(want, outputs(everything), TOLERANCE, what)
    assert [port.name for port in everything.output_ports] == [port.name for port in graph.output_ports], what
    again = optimize(everything)
    assert not +again.fired, f"a second run finds {+again.fired} in {what}"
    return fired


def check_measure(rule: str, number: int) -> None:
    """Check that every firing decreases the measure of the rule."""
    graph = random_graph(rule, number)
    measure = measure_of(rule)
    before = measure(graph)
    while run_rules(graph, [RULES[rule]], Trace(), 1):
        after = measure(graph)
        assert after < before, f"{measure.__name__} of {graph.name}: {before} -> {after}"
        before = after


def check_integers(rule: str, number: int) -> None:
    """Check integers of several widths, and floats that are quantized and become integers."""
    for dtype in (I32, I8):
        graph = random_graph(rule, number, dtype)
        after = copy_graph(graph)
        optimize(after)
        after.validate()
        assert_same(outputs(graph), outputs(after), 0, f"{graph.name} {dtype}: {[str(n.op) for n in graph.nodes]}")
    graph = random_graph(rule, number)
    for value in graph.values:
        if not value.is_constant:
            value.quant = Q
    after = copy_graph(graph)
    optimize(after)
    before = legalize(graph, Chip.BM1686)
    if before.float_nodes or not set(after.inputs).isdisjoint(after.outputs):
        return  # nothing on integers to compare: an output that is an input has not been rounded
    assert_same(outputs(before.graph), outputs(legalize(after, Chip.BM1686).graph), 0, f"{graph.name} annotated")


def test_every_rule_has_a_pattern():
    missing = sorted(set(RULES) - set(PATTERNS))
    assert not missing, f"{missing} have no pattern: add a function with @pattern to tests/support/rules/*_patterns.py"
    assert sorted(set(PATTERNS) - set(RULES)) == []


@pytest.mark.parametrize("rule", PATTERNS)
def test_a_few_random_graphs(rule):
    fired = sum(check(rule, number) for number in range(FEW))
    more = range(FEW, MORE)
    assert fired or any(check(rule, number) for number in more), "it never fired"
    check_measure(rule, 0)
    if rule in MOVES:
        check_integers(rule, 0)


@pytest.mark.slow
@pytest.mark.parametrize("rule", PATTERNS)
def test_many_random_graphs(rule, record_property):
    fired = sum(bool(check(rule, number)) for number in range(MANY))
    if rule in MOVES:
        for number in range(MANY):
            check_integers(rule, number)
    for number in range(MANY):
        check_measure(rule, number)
    record_property("graphs", MANY)
    record_property("fired", fired)
    assert fired >= FIRES_AT_LEAST * MANY, f"it fired on {fired} of {MANY} graphs only"


@pytest.mark.parametrize("name", PATTERNS)
def test_the_index_contains_every_pattern_that_matches(name):
    candidates = Candidates(RULES.values())
    graph = random_graph(name, 0)
    for node in graph.nodes:
        to_try = candidates.of(node)
        for rule in RULES.values():
            for pattern in rule.patterns:
                assert match(pattern, node, graph) is None or (rule, pattern) in to_try, (rule.name, node)
