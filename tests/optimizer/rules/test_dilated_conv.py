"""Convolutions between space_to_batch and batch_to_space."""

import pytest

from tests.support.rules.graphs import OTHER_Q, TANH, Q, annotate, conv, graph_of, ops, optimize_checked, reasons
from tpuconvert.optimizer import optimize
from tpuconvert.schema.ops.space_to_batch import BatchToSpace, SpaceToBatch

X = (2, 3, 9, 8)


def dilated_form(block=(2, 3), pad=(2, 3, 3, 4), crop=(0, 1, 0, 1), back=None, **op):
    def build(g, x):
        y = conv(g, g.add(SpaceToBatch(block, pad), x, name="blocks"), 4, **op)
        return g.add(BatchToSpace(back or block, crop), y, name="space")

    return build


@pytest.mark.parametrize(
    ("pad", "crop", "pads"),
    [
        ((2, 3, 3, 4), (0, 1, 0, 1), (2, 2, 3, 3)),
        ((0, 1, 0, 1), (0, 1, 0, 0), (0, 0, 0, 1)),
        ((2, 3, 3, 4), (1, 2, 3, 1), (1, 1, 0, 3)),
    ],
    ids=str,
)
def test_fires(pad, crop, pads):
    graph, _ = optimize_checked(dilated_form(pad=pad, crop=crop), X)
    (node,) = graph.nodes
    op = node.op
    assert (op.dh, op.dw) == (2, 3)
    assert (op.pad_h_t, op.pad_h_b, op.pad_w_l, op.pad_w_r) == pads


def test_fires_for_depthwise():
    def build(g, x):
        y = conv(g, g.add(SpaceToBatch((2, 2), (2, 3, 2, 2)), x), 3, groups=3)
        return g.add(BatchToSpace((2, 2), (0, 1, 0, 0)), y)

    assert ops(optimize_checked(build, X)[0]) == ["conv"]


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (dilated_form(pad=(0, 1, 0, 1), crop=(1, 0, 0, 0)), "it crops more than was padded"),
        (dilated_form(block=(2, 2), pad=(2, 3, 4, 4), crop=(0, 1, 0, 0), pad_h_t=1), "the conv pads every block"),
        (dilated_form(pad=(2, 3, 3, 4), crop=(0, 0, 0, 0), back=(3, 2)), "the blocks differ"),
        (
            dilated_form(pad=(2, 3, 3, 4), crop=(0, 0, 0, 0), stride_h=2),
            "the conv itself has strides or dilations",
        ),
    ],
)
def test_declines(build, reason):
    graph, trace = optimize_checked(build, X)
    assert len(graph) == 3 and reasons(trace, "fuse_dilated_conv") == {reason}


@pytest.mark.parametrize(("quant", "fuses"), [(Q, True), (OTHER_Q, False)])
def test_annotations_must_agree(quant, fuses):
    def build(g, x):
        y = annotate(g.add(TANH, x), OTHER_Q)
        y = annotate(conv(g, annotate(g.add(SpaceToBatch((2, 2), (2, 3, 2, 2)), y), OTHER_Q), 4), Q)
        return annotate(g.add(BatchToSpace((2, 2), (0, 1, 0, 0)), y), quant)

    graph = graph_of(build, X)
    optimize(graph)
    assert (graph.nodes[-1].op.name == "conv") is fuses
    assert graph.outputs[0].quant == quant
