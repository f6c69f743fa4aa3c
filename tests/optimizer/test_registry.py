"""Rules are loaded when a node turns up at which they may start, and the names of all are known before."""

import subprocess
import sys

import pytest
from optimizer.graphs import EXP, RELU, graph_of

from tpuconvert.optimizer.annotations import MOVES
from tpuconvert.optimizer.engine import Candidates, RewriteRule, Trace, rules_of, run_rules
from tpuconvert.optimizer.pattern import Sketch, makers, match, may_match, may_start, p, sketch_of
from tpuconvert.optimizer.pipeline import STAGES
from tpuconvert.optimizer.registry import UnloadedRule, known_rules, rule_names
from tpuconvert.optimizer.rules._table import RULES
from tpuconvert.optimizer.signs import COMPARISONS, KEEPS_SIGN, KEEPS_TRUTH
from tpuconvert.schema.errors import InternalError
from tpuconvert.schema.op import all_ops
from tpuconvert.schema.ops.activation import Active
from tpuconvert.schema.ops.arithmetic import Add, Mul
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.smooth_activation import CompositeActivation, Softplus

SHAPE = (1, 4)

BEGIN = """
import sys
import numpy as np
from tpuconvert.optimizer.pipeline import describe_passes, known_names, optimize
from tpuconvert.schema.graph import Graph
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.types import F32, TensorType
g = Graph()
x = g.input("x", TensorType(F32, (1, 4)))
relu = Active(ActiveType.ACTIVE_RELU)
"""
TELL = """
optimize(g)
print(*(node.op.name for node in g.nodes))
print(*(name.rpartition(".")[2] for name in sys.modules if name.startswith("tpuconvert.optimizer.rules.")))
"""


def told_by(program: str) -> list[list[str]]:
    """The words of every line that a new process prints."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return [line.split() for line in done.stdout.splitlines()]


def test_only_what_may_start_somewhere_is_loaded():
    nodes, loaded = told_by(BEGIN + "g.output(g.add(relu, x))" + TELL)
    assert nodes == ["active"]
    assert "useless_functions" in loaded, "it has a rule for every rectifier"
    assert not {"algebra", "attention", "identity", "layer_norm", "moves", "permutes", "forms"} & set(loaded)


def test_what_a_rewrite_introduces_is_looked_at_by_rules_that_were_not_needed_before():
    """x + [0, 0, 0, 0] becomes x + 0, which is x by a rule of another module."""
    zeros = "g.output(g.add(relu, g.add(Add(), x, g.constant(np.{}((1, 4), np.float32)))))"
    nodes, loaded = told_by(BEGIN + zeros.format("zeros") + TELL)
    assert nodes == ["active"] and {"scalar_chains", "identity"} <= set(loaded)
    nodes, loaded = told_by(BEGIN + "g.output(g.add(relu, g.add(Add(), x, x)))" + TELL)
    assert nodes == ["muls", "active"] and "identity" in loaded
    nodes, loaded = told_by(BEGIN + "g.output(g.add(relu, x))" + TELL)
    assert "identity" not in loaded


def test_all_names_are_known_without_loading_any_rule():
    names, loaded = told_by(BEGIN + "print(*known_names())\nprint(*sys.modules)")
    assert {"remove_copy", "softmax_as_quotient", "mean_as_pooling", "fuse", "share_nodes"} <= set(names)
    assert "tpuconvert.optimizer.rules.identity" not in loaded
    assert {item.name for stage in STAGES for item in rules_of(stage)} <= set(names)


def test_a_name_that_is_taken_is_told_before_the_rule_is_loaded():
    program = """
from tpuconvert.optimizer.engine import rule
from tpuconvert.optimizer.pattern import p
from tpuconvert.schema.ops.copy import Copy
try:
    @rule(p(Copy, "x", name="op"), stage="fuse")
    def remove_copy(graph, m):
        return m.x
except ValueError as error:
    print(error)
"""
    assert told_by(program) == [["two", "rules", "are", "called", "'remove_copy'"]]


def test_known_rules_are_those_of_the_stage_in_alphabetical_order():
    for stage in STAGES:
        names = [item.name for item in rules_of(stage)]
        assert [item.name for item in known_rules(stage)] == names == sorted(names)
        assert set(names) <= set(rule_names())


def test_a_table_that_is_out_of_date_is_a_mistake():
    with pytest.raises(InternalError, match="no rule 'of_old'"):
        UnloadedRule("of_old", "fuse", "rules.casts", ()).loaded()


def test_an_unloaded_rule_is_loaded_for_the_node_that_it_may_start_at():
    (loaded,) = (item for item in rules_of("canonicalize") if item.name == "remove_copy")
    graph = graph_of(lambda g, x: g.add(RELU, g.add(Copy(), x)), SHAPE)
    copy, relu = graph.nodes
    unloaded = UnloadedRule("remove_copy", "canonicalize", "rules.identity", loaded.sketches)
    candidates = Candidates([unloaded])
    assert candidates.of(relu) == [] and not candidates.start_at(type(relu.op))
    assert candidates.of(copy) == [(loaded, loaded.patterns[0])]
    assert run_rules(graph, [unloaded.only(lambda node: False)], Trace()) == 0
    assert run_rules(graph, [loaded.only(lambda node: False)], Trace()) == 0
    assert run_rules(graph, [unloaded.only(lambda node: True)], Trace()) == 1


class OwnSoftplus(Softplus):
    """As a plugin derives it."""

    name = "own_softplus"


def test_a_pattern_of_a_base_class_takes_what_is_derived_from_it():
    pattern = p(CompositeActivation, p(Permute, "x", name="permute"), name="op")
    graph = graph_of(lambda g, x: g.add(OwnSoftplus(), g.add(Permute((1, 0)), x)), SHAPE)
    permute, own = graph.nodes
    assert may_match(sketch_of(pattern), OwnSoftplus, makers(own)) and may_start(sketch_of(pattern), own)
    assert not may_match(sketch_of(pattern), Permute, makers(permute))
    candidates = Candidates(known_rules("layout"))
    assert [item.name for item, _ in candidates.of(own)] == ["sink_through_unary"]


def test_a_sketch_looks_at_all_operators_of_a_pattern():
    pattern = p(Add, p(Mul, p(Active, "x", name="inner"), "y", name="product"), "z", name="sum")

    def build(g, x, y):
        return g.add(Add(), g.add(Mul(), g.add(RELU, x), y), y), g.add(Add(), g.add(Mul(), g.add(Copy(), x), y), y)

    graph = graph_of(build, SHAPE, SHAPE)
    first, second = (node for node in graph.nodes if isinstance(node.op, Add))
    assert makers(first) == makers(second)
    assert may_match(sketch_of(pattern), Add, makers(second)), "nodes that are alike are not told apart"
    assert may_start(sketch_of(pattern), first) and not may_start(sketch_of(pattern), second)


def test_a_node_that_reads_nothing_of_the_kind_is_no_match():
    pattern = p(Add, "a", "b", name="sum", reads=(Active, Copy), where=lambda node: looked_at.append(node.name) or True)
    looked_at = []

    def build(g, x, y):
        first, second = g.add(EXP, x), g.add(Copy(), x)
        pairs = {"none": (x, y), "first": (first, y), "second": (y, second), "product": (g.add(Mul(), x, y), y)}
        return tuple(g.add(Add(), *operands, name=name) for name, operands in pairs.items())

    graph = graph_of(build, SHAPE, SHAPE)
    sums = [node for node in graph.nodes if isinstance(node.op, Add)]
    for has_matched in (
        [match(pattern, node, graph) is not None for node in sums],
        [may(pattern, node) for node in sums],
    ):
        assert has_matched == [False, True, True, False]
    assert looked_at == ["first", "second"]
    rewrite = RewriteRule("of_sums", (pattern,), "test", lambda g, m: g.add(Mul(), m.a, m.b))
    assert run_rules(graph, [rewrite], Trace()) == 2


def test_a_node_next_to_nothing_of_the_kind_is_no_match():
    pattern = p(Mul, "a", "b", name="product", next_to=(Active, Copy))

    def build(g, x, y):
        alone, behind, before = g.add(Mul(), x, y), g.add(Mul(), g.add(Copy(), x), y), g.add(Mul(), y, x)
        return alone, behind, g.add(Add(), before, y), g.add(EXP, before)

    graph = graph_of(build, SHAPE, SHAPE)
    products = [node for node in graph.nodes if isinstance(node.op, Mul)]
    assert [match(pattern, node, graph) is not None for node in products] == [False, True, True]
    assert [may_start(sketch_of(pattern), node) for node in products] == [False, True, True]


def test_a_sketch_knows_which_operands_are_the_same():
    graph = graph_of(lambda g, x, y: (g.add(Add(), x, x), g.add(Add(), x, y)), SHAPE, SHAPE)
    assert [may_start(sketch_of(p(Add, "x", "x", name="sum")), node) for node in graph.nodes] == [True, False]


def may(pattern, node) -> bool:
    sketch = sketch_of(pattern)
    assert may_start(sketch, node) == may_match(sketch, type(node.op), makers(node))
    return may_start(sketch, node)


def names_in(sketch: Sketch) -> set[str]:
    ops, operands, reads, next_to = sketch
    return {*ops, *reads, *next_to}.union(*(names_in(item) for item in operands if not isinstance(item, str)))


def test_operators_that_are_known_by_name_exist():
    classes = {family.__name__ for kind in all_ops().values() for family in kind.__mro__}
    named = {name for _, _, sketches in RULES.values() for sketch in sketches for name in names_in(sketch)}
    assert named <= classes | set(all_ops())
    assert set(all_ops()) >= {*MOVES, *KEEPS_SIGN.names, *KEEPS_TRUTH.names, *COMPARISONS.names}


def test_a_name_in_a_pattern_is_that_of_one_operator():
    graph = graph_of(lambda g, x: (g.add(Softplus(), x), g.add(OwnSoftplus(), x), g.add(EXP, x)), SHAPE)
    by_name, by_class = (p(given, "x", name="op") for given in ("softplus", Softplus))
    assert [match(by_name, node, graph) is not None for node in graph.nodes] == [True, False, False]
    assert [match(by_class, node, graph) is not None for node in graph.nodes] == [True, True, False]
    assert [may(by_name, node) for node in graph.nodes] == [True, False, False]
    assert [may(by_class, node) for node in graph.nodes] == [True, True, False]
