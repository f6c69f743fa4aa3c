"""Registration, order and candidate selection of rules."""

import dataclasses
import random
import subprocess
import sys

import pytest

from tests.optimizer.engine.test_every_rule import random_graph
from tests.support.rules.graphs import EXP, RELU, graph_of
from tests.support.rules.rule_patterns import PATTERNS
from tpuconvert.optimizer.engine import registry
from tpuconvert.optimizer.engine.engine import Candidates, Trace, run_rules
from tpuconvert.optimizer.engine.pattern import match, p
from tpuconvert.optimizer.engine.registry import RewriteRule, rules_of
from tpuconvert.optimizer.pipeline import STAGES, optimize
from tpuconvert.optimizer.rule_order import ORDER
from tpuconvert.schema.definition.op import Trait, all_ops
from tpuconvert.schema.errors import InternalError
from tpuconvert.schema.file.file_model import FileModel
from tpuconvert.schema.file.file_writer import write_model
from tpuconvert.schema.ops.activation import Active
from tpuconvert.schema.ops.arithmetic import Add, Mul
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.smooth_activation import CompositeActivation, Softplus
from tpuconvert.schema.types import Chip

SHAPE = (1, 4)

NEW_RULE = '''
"""A rule of a new file."""

from tpuconvert.optimizer.engine.engine import rule
from tpuconvert.optimizer.engine.pattern import p
from tpuconvert.schema.ops.arithmetic_with_scalar import Muls
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.types import Scalar


@rule(p(Softmax, "x", name="softmax"), stage="fuse")
def replace_softmax_by_double(graph, m):
    """``softmax(x) -> 2 * x``."""
    return graph.add(Muls(Scalar.f32(2)), m.x)
'''
USE_NEW_RULE = """
import sys
import tpuconvert.optimizer.rules
tpuconvert.optimizer.rules.__path__.append(sys.argv[1])
from tpuconvert.optimizer import optimize
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.types import F32, TensorType
from tpuconvert.__main__ import main
g = Graph()
g.output(g.add(Softmax(1), g.input("x", TensorType(F32, (1, 4)))))
optimize(g)
print(*(node.op.name for node in g.nodes), flush=True)
main(["passes", "--json"])
"""


def test_adding_a_file_adds_a_rule(tmp_path):
    (tmp_path / "a_new_file.py").write_text(NEW_RULE)
    done = subprocess.run([sys.executable, "-c", USE_NEW_RULE, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    operators, *passes = done.stdout.splitlines()
    assert operators == "muls"
    assert any("replace_softmax_by_double" in line for line in passes)


def test_a_plugin_cannot_take_the_name_of_a_rule():
    program = """
import tpuconvert as tc
from tpuconvert.schema.ops.copy import Copy
try:
    @tc.register_rule(tc.pattern(Copy, "x", name="op"))
    def remove_copy(graph, m):
        return m.x
except tc.UsageError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "two rules are called 'remove_copy'" in done.stdout


def test_every_rule_of_the_package_is_listed_once():
    registered = {item.name: item.stage for stage in ORDER for item in rules_of(stage)}
    listed = [(name, stage) for stage, names in ORDER.items() for name in names]
    assert len(listed) == len(dict(listed)) and dict(listed).items() <= registered.items()
    assert set(STAGES) <= set(ORDER)


def test_rules_are_tried_in_the_listed_order_and_unlisted_ones_last(monkeypatch):
    unlisted = [RewriteRule(name, (), "fuse", lambda g, m: m.x) for name in ("an_unlisted_rule", "a_last_rule")]
    registered = [*reversed(registry._RULES.items()), *((item.name, item) for item in unlisted)]
    monkeypatch.setattr(registry, "_RULES", dict(registered))
    assert [item.name for item in rules_of("fuse")] == [*ORDER["fuse"], "an_unlisted_rule", "a_last_rule"]


def test_a_listed_name_that_is_no_rule_is_an_error(monkeypatch):
    monkeypatch.setattr(registry, "ORDER", {**ORDER, "fuse": (*ORDER["fuse"], "of_old")})
    with pytest.raises(InternalError, match=r"rule_order\.py lists 'of_old', which is not a rule of the stage 'fuse'"):
        registry.load_rules.__wrapped__()


def optimized_graphs(folder) -> list[bytes]:
    """The file contents of one optimized random graph per rule."""
    files = []
    for name in PATTERNS:
        graph = random_graph(name, 0)
        optimize(graph)
        write_model(folder / "m.tpum", FileModel(graph, Chip.BM1686, "1.0"))
        files.append((folder / "m.tpum").read_bytes())
    return files


def test_names_of_rules_do_not_change_a_graph(monkeypatch, tmp_path):
    """Every rule gets another name and is registered in another order; the list of the order follows the names."""
    expected = optimized_graphs(tmp_path)
    names = [name for stage in ORDER for name in ORDER[stage]]
    draw = random.Random(1)
    new_name = dict(zip(names, (f"rule_{number:03}" for number in draw.sample(range(999), len(names))), strict=True))
    shuffled = draw.sample(names, len(names))
    renamed = {new_name[name]: dataclasses.replace(registry._RULES[name], name=new_name[name]) for name in shuffled}
    monkeypatch.setattr(registry, "_RULES", renamed)
    monkeypatch.setattr(
        registry, "ORDER", {stage: tuple(new_name[name] for name in names) for stage, names in ORDER.items()}
    )
    assert optimized_graphs(tmp_path) == expected


class OwnSoftplus(Softplus):
    """An operator that a plugin derives from another."""

    name = "own_softplus"


def test_a_pattern_of_a_base_class_includes_derived_classes():
    pattern = p(CompositeActivation, p(Permute, "x", name="permute"), name="op")
    graph = graph_of(lambda g, x: g.add(OwnSoftplus(), g.add(Permute((1, 0)), x)), SHAPE)
    permute, own = graph.nodes
    candidates = Candidates([RewriteRule("of_base", (pattern,), "fuse", lambda g, m: m.x)])
    assert match(pattern, own, graph) and len(candidates.of(own)) == 1
    assert not match(pattern, permute, graph) and not candidates.of(permute)
    assert "sink_permute_through_unary" in [item.name for item, _ in Candidates(rules_of("layout")).of(own)]


def test_a_rule_is_restricted_to_some_roots():
    (rule,) = (item for item in rules_of("canonicalize") if item.name == "remove_copy")
    graph = graph_of(lambda g, x: g.add(RELU, g.add(Copy(), x)), SHAPE)
    assert run_rules(graph, [rule.only(lambda node: False)], Trace()) == 0
    assert run_rules(graph, [rule.only(lambda node: True)], Trace()) == 1


def test_reads_requires_an_operand_computed_by_one_of_the_operators():
    pattern = p(Add, "a", "b", name="sum", reads=(Active, Copy), where=lambda node: checked.append(node.name) or True)
    checked = []

    def build(g, x, y):
        first, second = g.add(EXP, x), g.add(Copy(), x)
        pairs = {"none": (x, y), "first": (first, y), "second": (y, second), "product": (g.add(Mul(), x, y), y)}
        return tuple(g.add(Add(), *operands, name=name) for name, operands in pairs.items())

    graph = graph_of(build, SHAPE, SHAPE)
    sums = [node for node in graph.nodes if isinstance(node.op, Add)]
    assert [match(pattern, node, graph) is not None for node in sums] == [False, True, True, False]
    assert checked == ["first", "second"]
    rewrite = RewriteRule("of_sums", (pattern,), "test", lambda g, m: g.add(Mul(), m.a, m.b))
    assert run_rules(graph, [rewrite], Trace()) == 2


def test_next_to_requires_a_neighbor_with_one_of_the_operators():
    pattern = p(Mul, "a", "b", name="product", next_to=(Active, Copy))

    def build(g, x, y):
        alone, after, before = g.add(Mul(), x, y), g.add(Mul(), g.add(Copy(), x), y), g.add(Mul(), y, x)
        return alone, after, g.add(Add(), before, y), g.add(EXP, before)

    graph = graph_of(build, SHAPE, SHAPE)
    products = [node for node in graph.nodes if isinstance(node.op, Mul)]
    assert [match(pattern, node, graph) is not None for node in products] == [False, True, True]


def test_names_of_operators_exist():
    for stage in ORDER:
        for rule in rules_of(stage):
            assert all(any(pattern.ops.includes(op) for op in all_ops().values()) for pattern in rule.patterns), rule


def test_a_name_in_a_pattern_is_that_of_one_operator():
    graph = graph_of(lambda g, x: (g.add(Softplus(), x), g.add(OwnSoftplus(), x), g.add(EXP, x)), SHAPE)
    by_name, by_class = (p(operator, "x", name="op") for operator in ("softplus", Softplus))
    assert [match(by_name, node, graph) is not None for node in graph.nodes] == [True, False, False]
    assert [match(by_class, node, graph) is not None for node in graph.nodes] == [True, True, False]


def test_a_trait_in_a_pattern_includes_the_operators_that_have_it():
    graph = graph_of(lambda g, x: (g.add(EXP, x), g.add(Permute((1, 0)), x), g.add(Copy(), x)), SHAPE)
    pattern = p(Trait.LUT, "x", name="op")
    assert [match(pattern, node, graph) is not None for node in graph.nodes] == [True, False, False]
