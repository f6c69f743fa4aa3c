"""The bookkeeping of the engine, tested with small rules."""

from functools import partial

import numpy as np
import pytest

from tests.support.networks.work_counts import calls_of
from tests.support.rules.graphs import EXP, RELU, TANH, Q, annotate, graph_of, ops
from tpuconvert.optimizer.engine.engine import Skip, Trace, rule, run_rules
from tpuconvert.optimizer.engine.pattern import match, p
from tpuconvert.optimizer.engine.registry import RewriteRule, rules_of
from tpuconvert.optimizer.pipeline import optimize
from tpuconvert.schema.errors import InternalError
from tpuconvert.schema.graph.graph import Graph, Source
from tpuconvert.schema.graph.graph_copy import copy_graph
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Mul
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Muls
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.concat import Concat, Split
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.types import F16, F32, Scalar, TensorType

ABS = Active(ActiveType.ACTIVE_ABSVAL)
SHAPE = (1, 4)


def is_relu(node):
    return node.op == RELU


def make(pattern, function, sees_annotations=False):
    return RewriteRule("test_rule", (pattern,), "test", function, sees_annotations)


RELU_NODE = p(Active, "x", name="relu", where=is_relu)
TO_ABS = make(RELU_NODE, lambda g, m: g.add(ABS, m.x))


def fire(graph, *rules):
    trace = Trace()
    count = run_rules(graph, rules, trace)
    graph.validate()
    return count, trace


def relu_chain(length):
    def build(g, x):
        for index in range(length):
            x = g.add(RELU, x, name=f"y{index}")
        return x

    return graph_of(build, SHAPE)


def test_patterns_bind_values_constants_and_absent_operands():
    graph = graph_of(lambda g, x: g.add(Add(), g.add(RELU, x), g.constant(np.ones(SHAPE, np.float32), "c")), SHAPE)
    root = graph.nodes[-1]
    inner = p(Active, "x", name="inner")
    found = match(p(Add, inner, "C", "LATER?", name="sum"), root, graph)
    assert (found.x, found.C.name, found.LATER, found.sum) == (graph.inputs[0], "c", None, root)
    assert list(found.nodes) == ["sum", "inner"]
    assert match(p(Add, "A", "C", name="sum"), root, graph) is None, "a capital letter takes constants only"
    assert match(p(Mul, "a", "b", name="sum"), root, graph) is None
    assert match(p(Add, inner, "c", "later", name="sum"), root, graph) is None, "an operand that must be there"
    assert match(p(Add, inner, name="sum", where=lambda node: False), root, graph) is None
    with pytest.raises(AttributeError, match="binds no 'y'"):
        found.y  # noqa: B018 - reading it is the test


def test_one_name_twice_means_one_value():
    pattern = p(Add, "x", "x", name="sum")
    double = graph_of(lambda g, x: g.add(Add(), x, x), SHAPE)
    different = graph_of(lambda g, x, y: g.add(Add(), x, y), SHAPE, SHAPE)
    assert match(pattern, double.nodes[0], double) is not None
    assert match(pattern, different.nodes[0], different) is None


@pytest.mark.parametrize("leaves", [True, False], ids=["is an output", "has two users"])
def test_a_shared_node_is_skipped_and_named(leaves):
    def build(g, x):
        inner = g.add(TANH, x)
        outer = g.add(RELU, inner)
        return (outer, inner) if leaves else (outer, g.add(EXP, inner))

    graph = graph_of(build, SHAPE)
    pattern = p(Active, p(Active, "x", name="inner", sole_user=True), name="relu", where=is_relu)
    count, trace = fire(graph, make(pattern, lambda g, m: g.add(ABS, m.x)))
    assert count == 0
    assert trace.skip_counts == {("test_rule", "inner has other users"): 1}


def test_names_sources_and_annotations_pass_to_the_result():
    graph = Graph()
    x = graph.input("x", TensorType(F32, SHAPE))
    with graph.source(Source("m.onnx", "first", "Tanh")):
        y = graph.add(TANH, x, name="inner")
    with graph.source(Source("m.onnx", "second", "Relu")):
        z = annotate(graph.add(RELU, y, name="result"))
    graph.output(z)
    pattern = p(Active, p(Active, "x", name="inner"), name="relu", where=is_relu)
    fire(graph, make(pattern, lambda g, m: g.add(ABS, m.x)))
    (node,) = graph.nodes
    assert (node.name, node.op, node.output.quant) == ("result", ABS, Q)
    assert [source.node for source in node.sources] == ["first", "second"]
    assert graph.outputs == [node.output] and graph.output_ports[0].name == "result"


def test_rules_are_recorded_in_the_nodes_that_they_add():
    def build(g, x):
        return g.add(TANH, g.add(RELU, x))

    to_abs = RewriteRule("to_abs", (RELU_NODE,), "test", lambda g, m: g.add(ABS, m.x), False)
    pair = p(Active, p(Active, "x", name="first", where=lambda node: node.op == ABS), name="second")
    merge = RewriteRule("merge", (pair,), "test", lambda g, m: g.add(EXP, g.add(EXP, m.x)), False)
    graph = graph_of(build, SHAPE)
    fire(graph, to_abs)
    assert [node.rules for node in graph.nodes] == [("to_abs",), ()]
    fire(graph, merge)
    assert [node.rules for node in graph.nodes] == [("to_abs", "merge")] * 2
    assert [node.rules for node in copy_graph(graph).nodes] == [("to_abs", "merge")] * 2


def test_an_existing_value_keeps_the_name_of_its_tensor():
    graph = graph_of(lambda g, x: g.add(RELU, g.add(TANH, x, name="tensor")), SHAPE)
    fire(graph, make(RELU_NODE, lambda g, m: m.x))
    assert graph.outputs[0].name == "tensor"


def test_constants_computed_from_a_removed_constant_take_its_name():
    def build(g, x):
        return g.add(Add(), x, g.constant(np.ones(SHAPE, np.float32), "bias"))

    graph = graph_of(build, SHAPE)
    double = make(
        p(Add, "x", "C", name="sum"),
        lambda g, m: g.add(Mul(), m.x, g.constant(m.C.array * 2, m.C.name)),
    )
    fire(graph, double)
    assert [value.name for value in graph.values if value.is_constant] == ["bias"]
    assert graph.find("bias").array[0, 0] == 2


@pytest.mark.parametrize("read", [(0,), (1,), (0, 1)], ids=str)
def test_several_results_are_replaced_one_by_one(read):
    def build(g, x):
        parts = g.add_all(Split(1, 2), x, names=("left", "right"))
        return tuple(g.add(TANH, parts[index]) for index in read)

    def swap(g, m):
        parts = [g.add(Adds(Scalar.f32(index)), g.add_all(Split(1, 2), m.x)[index]) for index in (0, 1)]
        return tuple(part if index in read else None for index, part in enumerate(parts))

    graph = graph_of(build, SHAPE)
    fire(graph, make(p(Split, "x", name="split", where=lambda node: node.name == "left"), swap))
    assert [node.inputs[0].name for node in graph.nodes if node.op == TANH] == [("left", "right")[i] for i in read]


def test_dropping_a_used_result_is_an_error():
    graph = graph_of(lambda g, x: g.add_all(Split(1, 2), x), SHAPE)
    with pytest.raises(InternalError, match="drops 'split"):
        fire(graph, make(p(Split, "x", name="split"), lambda g, m: (None, None)))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda g, m: g.add(Cast(F16), m.x), "turns FLOAT32"),
        (lambda g, m: g.add(Reshape((4, 1)), m.x), "turns FLOAT32"),
        (lambda g, m: g.add(Reshape((1, 1, 4)), m.x), "turns FLOAT32"),
        (lambda g, m: g.add(ABS, m.relu.output), "depend on itself"),
        (lambda g, m: annotate(g.add(ABS, m.x)), "changes the quantization"),
    ],
)
def test_a_rule_that_breaks_the_contract_is_an_error(function, message):
    with pytest.raises(InternalError, match=message):
        fire(relu_chain(1), make(RELU_NODE, function))


def test_an_annotated_value_cannot_replace_another():
    graph = graph_of(lambda g, x: annotate(g.add(RELU, x)), SHAPE)
    with pytest.raises(InternalError, match="changes the quantization"):
        fire(graph, make(RELU_NODE, lambda g, m: m.x))


PAIR = p(Active, p(Active, "x", name="inner"), name="relu", where=is_relu)
MOVED = p(Active, p(Permute, "x", name="inner"), name="relu", where=is_relu)


def test_declines_inner_annotations_unless_the_rule_sees_them():
    def build(g, x):
        return g.add(RELU, annotate(g.add(TANH, x)))

    count, trace = fire(graph_of(build, SHAPE), make(PAIR, lambda g, m: g.add(ABS, m.x)))
    assert count == 0 and trace.skip_counts == {("test_rule", "the source file quantizes the result of inner"): 1}
    count, _ = fire(graph_of(build, SHAPE), make(PAIR, lambda g, m: g.add(ABS, m.x), sees_annotations=True))
    assert count == 1


@pytest.mark.parametrize("same", [True, False])
def test_data_movement_keeps_the_scale(same):
    def build(g, x):
        before = annotate(g.add(TANH, x)) if same else g.add(TANH, x)
        return g.add(RELU, annotate(g.add(Permute((0, 1)), before)))

    count, _ = fire(graph_of(build, SHAPE), make(MOVED, lambda g, m: g.add(ABS, m.x)))
    assert count == same


def test_removes_nodes_of_a_declining_rule():
    def decline(g, m):
        g.add(Add(), g.add(ABS, m.x), g.constant(np.ones(SHAPE, np.float32)))
        return Skip("no")

    graph = relu_chain(2)
    count, trace = fire(graph, make(RELU_NODE, decline))
    assert (count, ops(graph), len(graph.values)) == (0, ["active", "active"], 3)
    assert trace.skip_counts == {("test_rule", "no"): 2}


def test_stops_rules_that_do_not_terminate():
    graph = relu_chain(3)
    with pytest.raises(InternalError, match="do not terminate"):
        fire(graph, make(RELU_NODE, lambda g, m: g.add(RELU, m.x)))


def test_a_rule_sees_nodes_of_another():
    graph = relu_chain(3)
    fire(graph, make(PAIR, lambda g, m: g.add(RELU, m.x)), TO_ABS)
    assert [node.op for node in graph.nodes] == [ABS], "pairs become one relu, which becomes abs"


def test_a_node_that_becomes_a_candidate_later_keeps_its_position():
    def build(g, x):
        first = g.add(Add(), g.add(Copy(), x), x, name="first")
        return first, g.add(Add(), g.add(Muls(Scalar.f32(3)), x), x, name="second")

    def record(g, m):
        fired.append(m.sum.name)
        return g.add(Mul(), m.scaled.output, m.x)

    fired = []
    replace_copy = make(p(Copy, "x", name="copy"), lambda g, m: g.add(Muls(Scalar.f32(2)), m.x))
    fire(graph_of(build, SHAPE), replace_copy, make(p(Add, p(Muls, "x", name="scaled"), "x", name="sum"), record))
    assert fired == ["first", "second"]


def test_trace_counts_a_match_once_and_forgets_removed_nodes():
    trace = Trace()
    graph = relu_chain(2)
    decline = make(RELU_NODE, lambda g, m: Skip("not now"))
    for _ in range(3):
        run_rules(graph, [decline], trace)
    assert trace.lines() == ["test_rule: skipped 2: not now"]
    run_rules(graph, [TO_ABS], trace)
    assert trace.lines() == ["test_rule: fired 2"]


def test_two_rules_of_one_name_are_an_error():
    def remove_copy(g, m):
        return m.x

    assert "remove_copy" in {item.name for item in rules_of("canonicalize")}
    with pytest.raises(ValueError, match="two rules are called 'remove_copy'"):
        rule(RELU_NODE, stage="test")(remove_copy)


def test_an_unknown_stage_is_an_error():
    with pytest.raises(ValueError, match="has the stage 'fold_all', expected one of canonicalize, layout"):
        rule(RELU_NODE, stage="fold_all")(lambda g, m: m.x)


def test_trace_lines_are_reported():
    lines = []
    graph = graph_of(lambda g, x: g.add(Muls(Scalar.f32(1)), g.add(Concat(1), x)), SHAPE)
    optimize(graph, trace=lines.append)
    assert lines == ["remove_neutral_scalar: fired 1", "remove_single_concat: fired 1"]
    assert graph.outputs == graph.inputs, "nothing is left to do"


def long_chain(length):
    def build(g, x):
        x = g.add(Permute((1, 0)), x)
        for _ in range(length):
            for op in (TANH, Muls(Scalar.f32(1.0)), RELU, RELU):
                x = g.add(op, x)
        return g.add(Permute((1, 0)), x)

    return build


def many_readers(length):
    def build(g, x):
        c = g.constant(np.arange(4, dtype=np.float32).reshape(SHAPE))
        return tuple(g.add(Add(), g.add(Muls(Scalar.f32(1)), x), c) for _ in range(2 * length))

    return build


@pytest.mark.parametrize("build", [long_chain, many_readers])
def test_four_times_the_nodes_take_four_times_the_calls(build):
    counts = []
    for length in (50, 50, 200):  # the first loads what is loaded once
        graph = graph_of(build(length), (2, 4))
        assert len(graph) >= 4 * length
        counts.append(calls_of(partial(optimize, graph)))
        assert len(graph) == 2 * length
    assert counts[2] / counts[1] < 4.1, counts
