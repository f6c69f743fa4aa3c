"""Folding of space to depth into convolutions."""

import itertools

import pytest

from tests.support.rules.graphs import RELU, conv, ops, optimize_checked, reasons
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.shape_change import Reshape

SHAPE = (2, 3, 12, 6)
RULE = "fold_space_to_depth_into_conv"


def permute_blocks(g, x, size, order=(0, 3, 5, 1, 2, 4)):
    n, c, h, w = x.shape
    split = g.add(Reshape((n, c, h // size, size, w // size, size)), x)
    return g.add(Reshape((n, c * size * size, h // size, w // size)), g.add(Permute(order), split))


def slice_blocks(g, x, size, places=None):
    places = places or list(itertools.product(range(size), repeat=2))
    return g.add(Concat(1), *(g.add(Extract((0, 0, a, b), x.shape, (1, 1, size, size)), x) for a, b in places))


FORMS = {
    "depth to space's inverse": lambda g, x, size: permute_blocks(g, x, size),
    "channels outermost": lambda g, x, size: permute_blocks(g, x, size, (0, 1, 3, 5, 2, 4)),
    "columns first": lambda g, x, size: permute_blocks(g, x, size, (0, 5, 3, 1, 2, 4)),
    "slices": lambda g, x, size: slice_blocks(g, x, size),
    "slices in another order": lambda g, x, size: slice_blocks(
        g, x, size, list(itertools.product(range(size), repeat=2))[::-1]
    ),
}


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("options", [{}, {"pad_h_t": 1, "pad_w_r": 1}, {"stride_h": 2, "kernel": 1}], ids=str)
def test_fires(form, size, options):
    options = {"kernel": 2, **options}
    graph, _ = optimize_checked(lambda g, x: conv(g, FORMS[form](g, x, size), 4, **options), SHAPE, rtol=1e-5)
    (node,) = graph.nodes
    assert node.inputs[1].shape == (4, 3, size * options["kernel"], size * options["kernel"])
    assert (node.op.stride_h, node.op.stride_w) == (size * options.get("stride_h", 1), size)


def test_the_focus_of_a_detector():
    """The first layers of YOLOv5: four slices, a concat, and a 3x3 convolution."""
    places = [(0, 0), (1, 0), (0, 1), (1, 1)]
    graph, _ = optimize_checked(
        lambda g, x: conv(g, slice_blocks(g, x, 2, places), 8, pad_h_t=1, pad_h_b=1, pad_w_l=1, pad_w_r=1),
        SHAPE,
        rtol=1e-5,
    )
    assert ops(graph) == ["conv"]
    assert graph.nodes[0].inputs[1].shape == (8, 3, 6, 6)


@pytest.mark.parametrize("options", [{"groups": 2}, {"dh": 2}], ids=str)
def test_declines(options):
    graph, trace = optimize_checked(lambda g, x: conv(g, permute_blocks(g, x, 2), 4, kernel=2, **options), SHAPE)
    assert len(graph) > 1
    assert reasons(trace, RULE) == {"the conv has groups or dilations"}


@pytest.mark.parametrize(
    "build",
    [
        lambda g, x: slice_blocks(g, x, 2, [(0, 0), (0, 0), (1, 0), (1, 1)]),
        lambda g, x: slice_blocks(g, x, 2, [(0, 0), (1, 1)]),
        lambda g, x: permute_blocks(g, x, 2, (0, 1, 3, 5, 4, 2)),
        lambda g, x: permute_blocks(g, x, 2, (0, 2, 4, 1, 3, 5)),
    ],
    ids=["a place twice", "places missing", "rows and columns exchanged", "blocks in channels"],
)
def test_declines_other_arrangements(build):
    def convolve(g, x):
        y = build(g, g.add(RELU, x))
        return conv(g, g.add(Reshape((y.shape[0], y.shape[1], y.shape[2], y.shape[3])), y), 4, kernel=1)

    graph, _ = optimize_checked(convolve, (2, 3, 6, 6))
    assert len(graph) > 2
