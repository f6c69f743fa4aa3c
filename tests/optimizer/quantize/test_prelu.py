"""PReLU with per-channel slopes: the exact result, rounded once."""

import numpy as np
import pytest

from tests.support.quantize.networks import RELU, Net, calibrate_and_annotate, signal_to_noise
from tpuconvert.optimizer.prepare_quantization import prepare
from tpuconvert.optimizer.quantize import legalize
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.errors import ProblemList
from tpuconvert.schema.graph.legality import check_graph
from tpuconvert.schema.ops.arithmetic import Add, Max, Mul
from tpuconvert.schema.ops.arithmetic_with_scalar import Mins
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.pool import Pool
from tpuconvert.schema.types import I32, Chip, Scalar

FLAT, STEEP = (0.25, -0.5, 0.0, 1.0), (0.25, -0.5, 1.5, 2.0)
THREE = ["requant_int32", "requant_int32", "max"]
FIVE = ["requant_int32", "requant_int32", "max", "requant_int32", "min"]


def spelled_out(net, x, slopes, name="p"):
    """relu(x) + SLOPES * min(x, 0), in either order."""
    factors = np.asarray(slopes, np.float32)
    if factors.ndim == 1:
        factors = factors.reshape(1, -1, *(1,) * (x.rank - 2))
    below = net.graph.add(Mul(), net.graph.add(Mins(Scalar.f32(0)), x), net.graph.constant(factors, "slopes"))
    return net.graph.add(Add(), below, net.graph.add(RELU, x), name=name)


def as_maximum(net, x, slopes, name="p"):
    """max(x, SLOPES * x), the optimized form."""
    factors = net.graph.constant(np.asarray(slopes, np.float32).reshape(1, -1, 1, 1), "slopes")
    return net.graph.add(Max(), x, net.graph.add(Mul(), x, factors), name=name)


def lower(net, graph, chip=Chip.BM1686):
    """The legal integer graph, and the samples."""
    prepare(graph)
    samples, expected, _ = calibrate_and_annotate(net, graph, chip)
    found = legalize(graph, chip)
    problems = ProblemList("net")
    check_graph(found.graph, chip, problems)
    problems.raise_if_any()
    assert not found.float_nodes
    return found.graph, samples, expected


def observe(graph, feeds):
    arrays = {}
    with Session(graph, backend="reference") as session:
        session.run(feeds, observe=lambda value, array: arrays.update({value.name: array}))
    return arrays


def operators_after(graph, name):
    """The operators after a value, in topological order."""
    nodes = [node.op.name for node in graph.nodes]
    return nodes[[node.name for node in graph.nodes].index(name) + 1 :]


@pytest.mark.parametrize(("make", "slopes"), [(spelled_out, FLAT), (spelled_out, STEEP), (as_maximum, FLAT)])
def test_the_exact_result_is_rounded_once(make, slopes):
    net = Net()
    p = make(net, net.conv(net.x, 4, "a", relu=False), slopes)
    graph, samples, _ = lower(net, net.done(net.conv(p, 4, "c", relu=False)))
    operators = operators_after(graph, "a:int32")
    want = FIVE if slopes is STEEP else THREE
    assert operators[: len(want)] == want and operators.count("conv_v2") == 1, "nothing else, x itself included"
    t = np.asarray(graph.find("p").quant.scale).reshape(-1, 1, 1)
    u = np.asarray(graph.find("a:int32").quant.scale).reshape(-1, 1, 1)
    s = np.asarray(slopes).reshape(-1, 1, 1)
    rising = np.float64(np.float32(u / t))
    falling = np.float64(np.float32(u / t * s))
    for feeds in samples:
        arrays = observe(graph, feeds)
        x = arrays["a:int32"].astype(np.float64)  # 20 bits, and the slopes have 24: exact
        real = np.where(s > 1, np.minimum(x * rising, x * falling), np.maximum(x * rising, x * falling))
        limits = np.iinfo(arrays["p"].dtype)
        np.testing.assert_array_equal(arrays["p"], np.clip(np.floor(real + 0.5), limits.min, limits.max))


@pytest.mark.parametrize("slopes", [FLAT, STEEP], ids=["flat", "steep"])
def test_the_engine_gives_the_same_bytes(slopes):
    net = Net((1, 4, 9, 7))
    p = spelled_out(net, net.conv(net.x, 4, "a", relu=False), slopes)
    pooled = net.graph.add(Pool(stride_h=3, stride_w=3, kernel_h=3, kernel_w=3), p)
    graph, samples, _ = lower(net, net.done(net.conv(p, 4, "c", relu=False), pooled))
    with Session(graph) as fast, Session(graph, backend="reference") as slow:
        for feeds in samples:
            for name, want in slow.run(feeds).items():
                np.testing.assert_array_equal(fast.run(feeds)[name], want)


def test_after_a_fully_connected_layer():
    net = Net((3, 8))
    x = net.graph.add(MatrixMul(), net.x, net.constant(8, 4, name="w"), net.constant(1, 4), name="a")
    y = net.graph.add(
        MatrixMul(), spelled_out(net, x, FLAT), net.constant(4, 5, name="v"), net.constant(1, 5), name="y"
    )
    graph, _, _ = lower(net, net.done(y))
    assert operators_after(graph, "a:int32")[:3] == THREE


def test_after_an_add():
    net = Net()
    both = net.graph.add(Add(), net.conv(net.x, 4, "a"), net.conv(net.x, 4, "b"), name="s")
    graph, _, _ = lower(net, net.done(net.conv(spelled_out(net, both, FLAT), 4, "c", relu=False)))
    assert operators_after(graph, "s:int32")[:3] == THREE


def test_a_value_without_accumulator_is_widened():
    net = Net()
    pool = Pool(stride_h=2, stride_w=2, kernel_h=2, kernel_w=2)
    pooled = net.graph.add(pool, net.conv(net.x, 4, "a", relu=False), name="pooled")
    graph, _, _ = lower(net, net.done(net.conv(spelled_out(net, pooled, FLAT), 4, "c", relu=False)))
    assert operators_after(graph, "pooled")[:4] == ["requant_int32", *THREE]
    assert graph.find("p:wide").dtype is I32


def test_what_others_read_is_rescaled_for_them():
    net = Net()
    a = net.conv(net.x, 4, "a", relu=False)
    p = spelled_out(net, a, FLAT)
    graph, _, _ = lower(net, net.done(net.conv(p, 4, "c", relu=False), net.conv(a, 4, "d", relu=False)))
    assert len(graph.find("a:int32").uses) == 3 and graph.find("a").dtype.bits == 8


def test_it_loses_less_than_the_pieces(monkeypatch):
    def noise(slopes):
        net = Net((1, 4, 16, 16))
        p = spelled_out(net, net.conv(net.x, 4, "a", relu=False), slopes)
        graph, samples, expected = lower(net, net.done(net.conv(p, 4, "c", relu=False)))
        found = [next(iter(Session(graph).run(feeds).values())) for feeds in samples]
        return signal_to_noise(np.array([next(iter(want.values())) for want in expected]), np.array(found))

    whole = [noise(slopes) for slopes in (FLAT, STEEP)]
    monkeypatch.setattr("tpuconvert.optimizer.quantize.lowering.lower_bm1686.lower_prelu", lambda node, lowering: None)
    pieces = [noise(slopes) for slopes in (FLAT, STEEP)]
    assert all(a > b + 1 for a, b in zip(whole, pieces, strict=True)), "in decibel"


def declines_other_value(net, x):
    below = net.graph.add(Mul(), net.graph.add(Mins(Scalar.f32(0)), x), net.constant(1, 4, 1, 1))
    return net.graph.add(Add(), below, net.conv(net.x, 4, "b"))


def declines_other_limit(net, x):
    below = net.graph.add(Mul(), net.graph.add(Mins(Scalar.f32(1)), x), net.constant(1, 4, 1, 1))
    return net.graph.add(Add(), below, net.graph.add(RELU, x))


@pytest.mark.parametrize("make", [declines_other_value, declines_other_limit])
def test_declines(make):
    net = Net()
    graph, _, _ = lower(net, net.done(net.conv(make(net, net.conv(net.x, 4, "a", relu=False)), 4, "c", relu=False)))
    assert "max" not in [node.op.name for node in graph.nodes]


def test_declines_a_slope_per_element():
    net = Net()
    slopes = net.rng.uniform(0, 1, (1, 4, 6, 6))
    graph = net.done(net.conv(spelled_out(net, net.conv(net.x, 4, "a", relu=False), slopes), 4, "c", relu=False))
    assert "max" not in [node.op.name for node in lower(net, graph)[0].nodes]


def test_bm1684_takes_it_apart():
    net = Net()
    p = spelled_out(net, net.conv(net.x, 4, "a", relu=False), FLAT)
    graph, _, _ = lower(net, net.done(net.conv(p, 4, "c", relu=False)), Chip.BM1684)
    found = [node.op.name for node in graph.nodes]
    assert "add_shift" in found and "max" not in found
