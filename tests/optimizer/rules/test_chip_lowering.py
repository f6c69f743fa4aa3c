"""Lowering of float operators that a chip does not support."""

import numpy as np
import pytest

from tests.support.rules.graphs import RELU, Q, annotate, assert_same, graph_of, ops, random_constant, run
from tpuconvert.optimizer import expand_composites, expand_where_illegal, fit_to_chip
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.errors import ProblemList
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.graph.legality import check_graph
from tpuconvert.schema.ops.arithmetic_with_scalar import Axpy, Rdivs
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.batch_norm import BatchNorm
from tpuconvert.schema.ops.channel_shift import Clshift, Crshift, Lshift, Rshift
from tpuconvert.schema.ops.interpolate import Interpolate, InterpolateMode, PlatForm
from tpuconvert.schema.ops.quantization.round_to_integer import Ceil, Floor, Round
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.types import F32, Chip, Scalar, TensorType

X = (2, 3, 4, 5)
NEAREST, BILINEAR = InterpolateMode.NEAREST, InterpolateMode.BILINEAR
CENTRES, CORNERS = {"half_pixel_centers": True}, {"align_corners": True}


def resize(height, width, method, platform=PlatForm.TENSORFLOW, **flags):
    op = Interpolate(size=(height, width), platform=platform, method=method, **flags)
    return lambda g, x: g.add(op, x, name="y")


def batch_norm(g, x):
    constants = [random_constant(g, 3, seed=seed) for seed in range(4)]
    constants[1] = g.constant(np.abs(constants[1].array))
    return g.add_all(BatchNorm(), x, *constants)[0]


FORMS = {
    "axpy": (lambda g, x: g.add(Axpy(Scalar.f32(0.3)), x, g.add(RELU, x)), ["active", "muls", "add"]),
    "batch_norm": (batch_norm, ["mul", "add"]),
    "ceil": (lambda g, x: g.add(Ceil(), x), ["active"]),
    "floor": (lambda g, x: g.add(Floor(), x), ["active"]),
    "round": (lambda g, x: g.add(Round(), x), ["active"]),
    "rdivs": (lambda g, x: g.add(Rdivs(Scalar.f32(3)), x), ["div"]),
    "softmax": (lambda g, x: g.add(Softmax(-3), x), ["reduce", "sub", "active", "reduce", "div"]),
    "clshift": (lambda g, x: g.add(Clshift(4), x), ["extract", "extract", "concat"]),
    "crshift": (lambda g, x: g.add(Crshift(1), x), ["extract", "extract", "concat"]),
    "crshift, all round": (lambda g, x: g.add(Crshift(6), x), ["copy"]),
    "lshift": (lambda g, x: g.add(Lshift(2), x), ["extract", "pad"]),
    "rshift": (lambda g, x: g.add(Rshift(1), x), ["extract", "pad"]),
    "rshift, everything": (lambda g, x: g.add(Rshift(5), x), ["muls"]),
    "nearest, whole factor": (resize(8, 10, NEAREST), ["upsample"]),
    "nearest, two factors": (resize(8, 15, NEAREST), ["index_select", "index_select"]),
    "nearest, smaller": (resize(3, 2, NEAREST, **CENTRES), ["index_select", "index_select"]),
    "nearest, corners": (resize(7, 9, NEAREST, **CORNERS), ["index_select", "index_select"]),
    "bilinear, same size": (resize(4, 5, BILINEAR), ["index_select", "index_select"]),
}
PRODUCTS = ["reshape", "matrix_mul", "reshape", "permute", "reshape", "matrix_mul", "reshape", "permute"]
for name, flags in {"": {}, ", centers": CENTRES, ", corners": CORNERS}.items():
    FORMS[f"bilinear{name}"] = (resize(7, 11, BILINEAR, **flags), PRODUCTS)
    FORMS[f"bilinear, smaller{name}"] = (resize(3, 4, BILINEAR, **flags), PRODUCTS)
FORMS["bilinear, other platform"] = (resize(7, 11, BILINEAR, PlatForm.OPENCV), PRODUCTS)


def problems(graph, chip):
    found = ProblemList("test")
    check_graph(graph, chip, found)
    return [problem.message for problem in found]


@pytest.mark.parametrize("name", FORMS)
def test_computes_the_same_and_is_legal(name):
    build, expected = FORMS[name]
    before, after = graph_of(build, X), graph_of(build, X)
    assert problems(before, Chip.BM1682)
    fit_to_chip(after, Chip.BM1682)
    after.validate()
    assert ops(after) == expected
    assert problems(after, Chip.BM1682) == []
    # a few roundings of binary32 more
    assert_same(run(before), run(after), rtol=1e-6)
    assert after.outputs[0].name == before.outputs[0].name


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("chip", [Chip.BM1684, Chip.BM1686])
def test_keeps_supported_operators(name, chip):
    graph = graph_of(FORMS[name][0], X)
    legal = not problems(graph, chip)
    names = ops(graph)
    trace = fit_to_chip(graph, chip)
    assert problems(graph, chip) == []
    assert (ops(graph) == names) == legal == (not trace.fired)
    assert legal == (chip is Chip.BM1686 or "interpolate" not in names)


def test_resize_matches_hand_computed_values():
    """Half-pixel bilinear from 2 to 4 columns: the weights are 0, 1/4, 3/4, 1."""
    graph = graph_of(resize(1, 4, BILINEAR, **CENTRES), (1, 1, 1, 2))
    fit_to_chip(graph, Chip.BM1684)
    (y,) = Session(graph).run({"x0": np.array([[[[0, 8]]]], np.float32)}).values()
    assert y.tolist() == [[[[0, 2, 6, 8]]]]


def test_lowers_platforms_that_no_chip_supports():
    graph = graph_of(resize(7, 9, BILINEAR, PlatForm.PYTORCH), X)
    assert problems(graph, Chip.BM1686)
    fit_to_chip(graph, Chip.BM1686)
    assert problems(graph, Chip.BM1686) == []


def test_annotations_stay_on_the_result():
    graph = graph_of(lambda g, x: annotate(g.add(Softmax(1), x, name="y")), X)
    fit_to_chip(graph, Chip.BM1682)
    assert graph.outputs[0].quant == Q
    assert [value.quant for value in graph.values if value.quant] == [Q]


def test_reports_why_it_declines():
    graph = Graph()
    x = graph.input("x", TensorType(F32, ("N", 3, 4, 5)))
    graph.output(resize(8, 8, BILINEAR, PlatForm.OPENCV)(graph, x))
    y = graph.input("y", TensorType(F32, X))
    mean, variance = (random_constant(graph, 3) for _ in range(2))
    graph.output(graph.add_all(BatchNorm(use_global_stats=False), y, mean, variance)[0])
    lines = []
    fit_to_chip(graph, Chip.BM1682, trace=lines.append)
    assert lines == [
        "lower_batch_norm_to_mul_add: skipped 1: its statistics are not constant",
        "lower_interpolate: skipped 1: its size is dynamic, and its platform OPENCV",
    ]
    assert len(problems(graph, Chip.BM1682)) == 2, "the check names what is left"


def test_merges_data_movement_between_expansions():
    """Batch matmuls are decomposed into one matmul per matrix. A concat and a split of the same parts cancel."""

    def build(g, x):
        y = g.add(BatchMatmul(), x, g.add(RELU, x))
        return g.add(Softmax(2), g.add(BatchMatmul(), y, g.add(RELU, y)))

    graph = graph_of(build, (3, 4, 4))
    before = run(graph)
    expand_where_illegal(graph, Chip.BM1682)
    expand_composites(graph)
    apart = len(graph)
    fit_to_chip(graph, Chip.BM1682)
    graph.validate()
    assert not problems(graph, Chip.BM1682)
    assert len(graph) < apart
    assert_same(before, run(graph), 1e-5)
