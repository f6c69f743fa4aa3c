"""Validation finds a wrong rewrite and reports it with the node that it changed."""

import numpy as np
import pytest

from tests.support.networks.data_models import names
from tests.support.rules.graphs import RELU, TANH, Q, annotate, conv, graph_of, ops, run
from tools.accuracy.datasets import entries, input_shapes, model_files, reference_samples
from tpuconvert.conversion.options.options import Options
from tpuconvert.conversion.source import Source
from tpuconvert.conversion.source_loading import load_source
from tpuconvert.optimizer import optimize
from tpuconvert.optimizer.engine.pattern import p
from tpuconvert.optimizer.engine.registry import _RULES, RewriteRule, load_rules
from tpuconvert.optimizer.validation import Validator, distance
from tpuconvert.samples.random_samples import random_feeds
from tpuconvert.schema.errors import ThresholdError
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.graph.graph_copy import copy_graph
from tpuconvert.schema.ops.activation import Active
from tpuconvert.schema.ops.arithmetic_with_scalar import Muls
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.types import Scalar

SHAPE = (1, 3, 8, 8)
LENGTH = 9


def chain(g, x):
    for index in range(LENGTH):
        x = g.add(TANH, g.add(Copy(), conv(g, x, 3, f"conv{index}", 1)), name=f"tanh{index}")
    return x


def validator(graph: Graph, samples: int = 2) -> Validator:
    return Validator(random_feeds(graph.input_ports, samples))


def plant(monkeypatch, wrong_at: str) -> None:
    """Add a rule that rewrites every tanh, one of them wrongly."""
    load_rules()  # their modules would register a name again that is taken

    def rewrite(g, m):
        result = g.add(RELU, g.add(RELU, m.x)) if m.op.name == wrong_at else g.add(TANH, g.add(Muls(ONE), m.x))
        return result

    pattern = p(Active, "x", name="op", where=lambda node: node.op == TANH and not is_scaled(node))
    monkeypatch.setitem(_RULES, "planted", RewriteRule("planted", (pattern,), "fuse", rewrite))
    monkeypatch.setitem(_RULES, "remove_neutral_scalar", RewriteRule("remove_neutral_scalar", (), "fuse", rewrite))


ONE = Scalar.f32(1)


def is_scaled(node) -> bool:
    producer = node.inputs[0].producer
    return producer is not None and isinstance(producer.op, Muls)


@pytest.mark.parametrize("index", [0, 4, LENGTH - 1])
def test_reports_a_wrong_rule_and_its_node(index, monkeypatch):
    plant(monkeypatch, f"tanh{index}")
    graph = graph_of(chain, SHAPE)
    with pytest.raises(ThresholdError, match=r"rule 'planted' changes output '.*' by .* of its range") as caught:
        optimize(graph, observers=[validator(graph)])
    assert caught.value.node == f"tanh{index}"
    assert caught.value.exit_code == 5
    assert "--disable-rule planted" in caught.value.hint


def test_reports_a_wrong_pass_and_its_tensor(monkeypatch):
    def wrong(graph: Graph) -> int:
        (node,) = (node for node in graph.nodes if node.name == "tanh3")
        if node.op != TANH:
            return 0
        node.op = RELU
        return 1

    monkeypatch.setattr("tpuconvert.optimizer.pipeline.share_nodes", wrong)
    graph = graph_of(chain, SHAPE)
    with pytest.raises(ThresholdError, match="pass 'share_nodes'") as caught:
        optimize(graph, observers=[validator(graph)])
    assert caught.value.node == "tanh3"


def test_validates_every_pass_that_changed_the_graph():
    graph = graph_of(chain, SHAPE)
    check = validator(graph)
    optimize(graph, observers=[check])
    assert check.checked == 2, "constants are shared, and copies removed"
    assert "copy" not in ops(graph)


def test_a_disabled_rule_does_not_run():
    graph = graph_of(chain, SHAPE)
    optimize(graph, disabled=["remove_copy"])
    assert ops(graph).count("copy") == LENGTH


def test_compares_annotated_graphs_with_saturation():
    def build(g, x):
        return annotate(g.add(TANH, annotate(g.add(Copy(), annotate(g.add(RELU, x))))))

    graph = graph_of(build, SHAPE)
    graph.rescale = "onnx"
    annotate(graph.inputs[0])
    check = validator(graph)
    optimize(graph, observers=[check])
    assert check.checked == 1
    assert graph.inputs[0].quant == Q


@pytest.mark.parametrize(
    ("want", "found", "expected"),
    [
        ([0.0, 2.0], [0.0, 1.0], 0.5),
        ([5.0, 5.0], [5.0, 6.0], 20.0),
        ([0.0, 0.0], [0.0, 3.0], 3.0),
        ([100.0, 100.5], [100.0, 100.0], 0.5 / 1.005),
        ([np.nan, 1.0], [np.nan, 1.0], 0.0),
        ([np.nan, 1.0], [0.0, 1.0], np.inf),
        ([np.inf, 1.0, 0.0], [np.inf, 1.5, 0.0], 0.5),
        ([1.0], [1.0, 1.0], np.inf),
        ([], [], 0.0),
    ],
)
def test_distance_is_a_fraction_of_the_range(want, found, expected):
    assert distance(np.array(want), np.array(found)) == pytest.approx(expected)


def test_a_copy_is_another_graph_that_computes_the_same():
    graph = graph_of(chain, SHAPE)
    copy = copy_graph(graph)
    copy.validate()
    assert [value.name for value in copy.values] and {v.name for v in copy.values} == {v.name for v in graph.values}
    for name, want in run(graph).items():
        np.testing.assert_array_equal(run(copy)[name], want)
    optimize(copy)
    assert len(copy) < len(graph)
    graph.validate()


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_every_pass_on_every_trained_model(name, data_root):
    entry = entries(data_root)[name]
    source, weights = model_files(data_root, entry)
    graph = load_source(Source(source, weights), Options(input_shapes=dict(input_shapes(entry) or {})))
    inputs = [port.name for port in graph.input_ports]
    user = [dict(zip(inputs, sample.values(), strict=True)) for sample, _ in reference_samples(data_root, entry)[:2]]
    optimize(graph, observers=[Validator([*random_feeds(graph.input_ports, 1), *user])])
